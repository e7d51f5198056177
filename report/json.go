package report

import (
	"slices"

	"muster/apply"
	"muster/apply/history"
	"muster/plan"
	"muster/plan/planfile"
	"muster/resource"
)

// FormatVersion is the version of the JSON reports of apply and drift. A reader should accept any minor version.
const FormatVersion = "1.0"

// json writes the plan file for plan, and documents of their own for apply and drift. If there is no plan, it writes
// only what all documents have in common.
func (r Run) json() ([]byte, error) {
	doc := document{
		FormatVersion: FormatVersion, Command: r.Command, MusterVersion: r.Version, Servers: r.Servers,
		ExitCode: r.ExitCode, Stack: r.stack(), Problems: append([]Problem{}, r.Problems...),
	}
	if r.Plan != nil {
		doc.Ensemble, doc.Roots = r.Plan.Ensemble, r.Plan.Roots
		doc.Unlisted, doc.Unindexed = r.Plan.Unlisted, r.Plan.Unindexed
	}
	var v any = doc
	switch {
	case r.Command == "plan" && r.Saved != nil:
		return planfile.Encode(r.Kinds, *r.Saved)
	case r.Drift != nil:
		v = r.driftJSON(doc, *r.Drift)
	case r.Command == "apply" && r.Plan != nil:
		v = r.applyJSON(doc, *r.Plan)
	}
	text, err := planfile.CanonicalJSON(v)
	return append(text, '\n'), err
}

// document holds what all JSON reports have in common.
type document struct {
	FormatVersion string    `json:"format_version"`
	Command       string    `json:"command"`
	MusterVersion string    `json:"muster_version"`
	Stack         string    `json:"stack,omitempty"`
	Ensemble      string    `json:"ensemble,omitempty"`
	Servers       []string  `json:"servers,omitempty"`
	Roots         []string  `json:"roots,omitempty"`
	Unlisted      []string  `json:"unlisted,omitempty"`
	Unindexed     string    `json:"unindexed,omitempty"` // why the index of stacks could not be read
	Problems      []Problem `json:"problems"`
	ExitCode      int       `json:"exit_code"`
}

// subject names the job of a finding or an outcome, with the keys of a plan file.
type subject struct {
	Address    string          `json:"address"`
	Type       string          `json:"type"` // the kind: "job"
	Name       string          `json:"name"`
	Path       string          `json:"path"`
	DeclaredAt string          `json:"declared_at,omitempty"`
	Status     resource.Status `json:"status"` // as it was read
}

func (r Run) subject(row plan.Row) subject {
	kind := planfile.KindOf(row, r.Kinds).Name
	return subject{row.Address(), kind, row.Name(), row.Path, row.At(), row.Old.Status()}
}

type driftDocument struct {
	document
	Findings   []findingJSON    `json:"findings"`
	Unreadable []unreadableJSON `json:"unreadable"`
	Summary    driftSummary     `json:"summary"`
}

type findingJSON struct {
	subject
	Kind      plan.DriftKind `json:"kind"`
	Counts    bool           `json:"counts"` // --fail-on names its kind, and no ignore block covers it
	Because   string         `json:"because"`
	ToProceed string         `json:"to_proceed,omitempty"`
	Changes   []changeJSON   `json:"changes"`
	Ignored   *ignoreJSON    `json:"ignored,omitempty"`
}

type changeJSON struct {
	Field    string  `json:"field"`
	Recorded *string `json:"recorded"`
	Declared *string `json:"declared"`
}

type ignoreJSON struct {
	At     string `json:"at"`
	Until  string `json:"until"`
	Reason string `json:"reason"`
}

type unreadableJSON struct {
	subject
	Problem string `json:"problem"`
}

type driftSummary struct {
	Declared   int                    `json:"declared"`
	Kinds      map[plan.DriftKind]int `json:"kinds"`
	Counted    int                    `json:"counted"`
	Ignored    int                    `json:"ignored"`
	Unreadable int                    `json:"unreadable"`
	Unlisted   int                    `json:"unlisted"`
}

func (r Run) driftJSON(doc document, d plan.Drift) driftDocument {
	failOn := r.FailOn
	out := driftDocument{
		document: doc, Findings: []findingJSON{}, Unreadable: []unreadableJSON{},
		Summary: driftSummary{
			Declared: d.Declared, Kinds: map[plan.DriftKind]int{}, Ignored: len(d.Ignored),
			Unreadable: len(d.Unreadable), Unlisted: len(d.Unlisted),
		},
	}
	for _, k := range plan.DriftKinds() {
		out.Summary.Kinds[k] = len(d.Of(k))
	}
	for _, k := range failOn {
		out.Summary.Counted += out.Summary.Kinds[k]
	}
	for _, f := range slices.Concat(d.Findings, d.Ignored) {
		j := findingJSON{
			subject: r.subject(f.Row), Kind: f.Kind, Because: f.Because(), ToProceed: f.Proceed(),
			Changes: changesJSON(f.Changes),
		}
		if f.Ignore != nil {
			j.Ignored = &ignoreJSON{f.Ignore.At, f.Ignore.Until, f.Ignore.Reason}
		} else {
			j.Counts = slices.Contains(failOn, f.Kind)
		}
		out.Findings = append(out.Findings, j)
	}
	for _, row := range d.Unreadable {
		out.Unreadable = append(out.Unreadable, unreadableJSON{r.subject(row), row.Old.Problem})
	}
	return out
}

func changesJSON(changes []resource.Change) []changeJSON {
	all := []changeJSON{}
	for _, c := range changes {
		all = append(all, changeJSON{c.Name, c.Old, c.New})
	}
	return all
}

type applyDocument struct {
	document
	history.Who
	By       string               `json:"by,omitempty"` // user@host
	ID       string               `json:"id"`
	Outcomes []outcomeJSON        `json:"outcomes"`
	Blocked  []blockedJSON        `json:"blocked"`
	Summary  map[apply.Result]int `json:"summary"`
}

type outcomeJSON struct {
	subject
	Action  plan.Action  `json:"action"`
	Result  apply.Result `json:"result"`
	Error   string       `json:"error,omitempty"`
	TookMS  int64        `json:"took_ms"`
	WhatNow string       `json:"what_now,omitempty"`
}

type blockedJSON struct {
	subject
	Because   string `json:"because"`
	ToProceed string `json:"to_proceed"`
}

func (r Run) applyJSON(doc document, p plan.Plan) applyDocument {
	outcomes := r.Outcomes
	out := applyDocument{
		document: doc, Who: r.Who, By: r.By, ID: p.ID,
		Outcomes: []outcomeJSON{}, Blocked: []blockedJSON{}, Summary: map[apply.Result]int{},
	}
	out.Actor = r.asked()
	for _, res := range apply.Results() {
		out.Summary[res] = 0
	}
	for _, o := range outcomes {
		out.Summary[o.Result]++
		j := outcomeJSON{
			subject: r.subject(o.Row), Action: o.Row.Action(), Result: o.Result, TookMS: o.Took.Milliseconds(),
		}
		if o.Err != nil {
			j.Error = cause(o)
		}
		if o.Result != apply.Applied {
			j.WhatNow = advice(o)
		}
		out.Outcomes = append(out.Outcomes, j)
	}
	for _, row := range p.Rows {
		if row.Action() == plan.Blocked {
			out.Blocked = append(out.Blocked, blockedJSON{r.subject(row), row.Because(), row.Proceed()})
		}
	}
	return out
}
