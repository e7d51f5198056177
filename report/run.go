package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"muster/apply"
	"muster/apply/history"
	"muster/exitcode"
	"muster/plan"
	"muster/plan/planfile"
	"muster/resource"
	"muster/text"
)

// Run is one run of plan, apply or drift, as its reports show it. A run that failed early has no plan, outcomes or
// drift.
type Run struct {
	Command  string // plan, apply or drift
	Config   string // the directory or plan file that was given
	Dir      string // the directory of the declarations, relative to that of the pipeline; "" is the same
	Stack    string // of the configuration; used if there is no Plan
	Version  string
	Servers  []string
	Started  time.Time
	Took     time.Duration
	ExitCode int
	Problems []Problem
	By       string      // user@host of an apply
	Who      history.Who // who asked for an apply

	Kinds    []resource.Kind // that a plan file can hold, and whose statuses are counted
	Given    Given           // what next steps repeat
	Plan     *plan.Plan
	Outcomes []apply.Outcome
	Drift    *plan.Drift
	FailOn   []plan.DriftKind // the kinds of drift that make the run fail
	Saved    *planfile.Saved  // for the JSON report of plan, which is a plan file
	Policies []string         // by which the plan was judged
	Judged   []Problem        // what they found; Problems has it too
}

// Problem is an error of a run, or a warning about its configuration.
type Problem struct {
	Warning bool   `json:"warning"`
	Code    string `json:"code,omitempty"` // "M1203"
	At      string `json:"at,omitempty"`   // "jobs.hcl:31"
	Summary string `json:"summary"`
	Detail  string `json:"detail,omitempty"` // more lines
	Next    string `json:"next,omitempty"`   // what the user can do next
	Policy  string `json:"policy,omitempty"` // whose finding it is: policy "few deletes"
}

// formats are the formats of reports: how each is made of a run.
func formats() map[string]func(Run) ([]byte, error) {
	return map[string]func(Run) ([]byte, error){
		"github": Run.github, "html": Run.html, "json": Run.json, "junit": Run.junit, "markdown": Run.markdown,
		"prometheus": Run.prometheus,
	}
}

// Formats lists the formats of reports.
func Formats() []string { return slices.Sorted(maps.Keys(formats())) }

// Make returns the report in one format. The same run gives the same bytes.
func (r Run) Make(format string) ([]byte, error) {
	if write, ok := formats()[format]; ok {
		return write(r)
	}
	return nil, fmt.Errorf("a report of kind %q is not known: %s", format, strings.Join(Formats(), ", "))
}

func (r Run) stack() string {
	if r.Plan == nil {
		return r.Stack
	}
	return r.Plan.Stack
}

// items returns the items of the run, and the words by which they are counted.
func (r Run) items() (items []item, words []string) {
	switch {
	case r.Plan == nil:
		return nil, nil
	case r.Drift != nil:
		words = append(text.Strings(plan.DriftKinds()), wordIgnored, wordUnreadable, wordClean)
		return driftItems(*r.Plan, *r.Drift, r.FailOn, r.Given), words
	case len(r.Outcomes) > 0:
		results, actions := apply.Results()[1:], plan.Actions()[len(changing()):]
		words = slices.Concat(text.Each(changing(), past), text.Strings(results), text.Strings(actions))
		return applyItems(*r.Plan, r.Outcomes, r.Given), words
	}
	return planItems(*r.Plan, r.Given), text.Strings(plan.Actions())
}

// categories returns a category for each word, also if it has no items, since reports show all counts. Items that are
// equal are one.
func (r Run) categories() []category {
	items, words := r.items()
	byWord := map[string][]item{}
	for _, it := range joinEqual(items) {
		byWord[it.word] = append(byWord[it.word], it)
	}
	categories := make([]category, len(words))
	for i, word := range words {
		categories[i] = category{word, byWord[word]}
	}
	return categories
}

// headline is the line of all counts.
func (r Run) headline() string {
	switch {
	case r.Plan == nil:
		return "Nothing was compared."
	case r.Drift != nil:
		return DriftCounts(*r.Drift)
	case len(r.Outcomes) > 0:
		return ApplyCounts(r.Outcomes)
	}
	return PlanCounts(*r.Plan)
}

// asked says who asked for an apply, as its process is named if nobody is; empty for other runs.
func (r Run) asked() string { return cmp.Or(r.Who.Actor, r.By) }

func (r Run) caveats() []string {
	if r.Plan == nil {
		return nil
	}
	return caveats(r.Command, *r.Plan)
}

// verdict is the meaning of the exit code.
func (r Run) verdict() string {
	if r.Command == "apply" && r.ExitCode == exitcode.Differences {
		return "something was changed"
	}
	return exitcode.Name(r.ExitCode)
}

// splitPlace splits "jobs.hcl:29" into file and line.
func splitPlace(at string) (file, line string) {
	i := strings.LastIndexByte(at, ':')
	if i < 0 || strings.Trim(at[i+1:], "0123456789") != "" {
		return at, ""
	}
	return at[:i], at[i+1:]
}

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
	Kind      plan.DriftKind    `json:"kind"`
	Counts    bool              `json:"counts"` // --fail-on names its kind, and no ignore block covers it
	Because   string            `json:"because"`
	ToProceed string            `json:"to_proceed,omitempty"`
	Changes   []resource.Change `json:"changes"`
	Ignored   *ignoreJSON       `json:"ignored,omitempty"`
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
	for _, k := range r.FailOn {
		out.Summary.Counted += out.Summary.Kinds[k]
	}
	for _, f := range slices.Concat(d.Findings, d.Ignored) {
		j := findingJSON{
			subject: r.subject(f.Row), Kind: f.Kind, Because: f.Because(), ToProceed: f.Proceed(),
			Changes: append([]resource.Change{}, f.Changes...),
		}
		if f.Ignore != nil {
			j.Ignored = &ignoreJSON{f.Ignore.At, f.Ignore.Until, f.Ignore.Reason}
		} else {
			j.Counts = slices.Contains(r.FailOn, f.Kind)
		}
		out.Findings = append(out.Findings, j)
	}
	for _, row := range d.Unreadable {
		out.Unreadable = append(out.Unreadable, unreadableJSON{r.subject(row), row.Old.Problem})
	}
	return out
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
	out := applyDocument{
		document: doc, Who: r.Who, By: r.By, ID: p.ID,
		Outcomes: []outcomeJSON{}, Blocked: []blockedJSON{}, Summary: map[apply.Result]int{},
	}
	out.Actor = r.asked()
	for _, res := range apply.Results() {
		out.Summary[res] = 0
	}
	for _, o := range r.Outcomes {
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
