package report

import (
	"fmt"
	"strings"
	"time"

	"muster/apply"
	"muster/exitcode"
	"muster/plan"
	"muster/planfile"
	"muster/resource"
)

// Run is one run of plan, apply or drift, as its reports tell it. What did not come to be is zero: a run that failed early has
// problems and nothing else.
type Run struct {
	Command  string // plan, apply or drift
	Config   string // the directory or plan file that it was about
	Dir      string // the directory of the declarations, as an editor or a pipeline finds it; "" is the current one
	Stack    string // of the configuration; Plan has its own
	Version  string
	Servers  []string
	Started  time.Time
	Took     time.Duration
	ExitCode int
	Problems []Problem

	Kinds    []resource.Kind // what plan files and counts by status are about
	Plan     *plan.Plan
	Outcomes []apply.Outcome
	Drift    *plan.Drift
	FailOn   []plan.DriftKind // the kinds of drift that count
	Saved    *planfile.Saved  // Plan with all that its file holds: the json report of plan is a plan file
}

// Problem is why a run did not end well, or a warning about its configuration.
type Problem struct {
	Warning bool   `json:"warning"`
	Code    string `json:"code,omitempty"` // "M1203"
	At      string `json:"at,omitempty"`   // "jobs.hcl:31"
	Summary string `json:"summary"`
	Detail  string `json:"detail,omitempty"` // more lines
	Next    string `json:"next,omitempty"`   // what to type
}

// Kinds lists the kinds of report.
func Kinds() []string { return []string{"github", "html", "json", "junit", "markdown", "prometheus"} }

// Make is one report. The same run gives the same bytes.
func (r Run) Make(kind string) ([]byte, error) {
	switch kind {
	case "github":
		return r.github(), nil
	case "html":
		return r.html()
	case "json":
		return r.json()
	case "junit":
		return r.junit()
	case "markdown":
		return r.markdown(), nil
	case "prometheus":
		return r.prometheus()
	}
	return nil, fmt.Errorf("a report of kind %q is not known: %s", kind, strings.Join(Kinds(), ", "))
}

func (r Run) stack() string {
	if r.Plan == nil {
		return r.Stack
	}
	return r.Plan.Stack
}

// items are what there is to say about jobs, and words what they are counted by.
func (r Run) items() (items []item, words []string) {
	switch {
	case r.Plan == nil:
		return nil, nil
	case r.Drift != nil:
		return driftItems(*r.Plan, *r.Drift, r.FailOn), driftWords()
	case len(r.Outcomes) > 0:
		return applyItems(*r.Plan, r.Outcomes), applyWords()
	}
	return planItems(*r.Plan), planWords()
}

func (r Run) groups() []group {
	items, words := r.items()
	return grouped(words, items)
}

// headline is the line of all counts.
func (r Run) headline() string {
	switch {
	case r.Plan == nil:
		return "Nothing was compared."
	case r.Drift != nil:
		return Drifted(*r.Drift)
	case len(r.Outcomes) > 0:
		return Applied(r.Outcomes)
	}
	return Summary(*r.Plan)
}

// caveats say what the report does not cover.
func (r Run) caveats() []string {
	if r.Plan == nil {
		return nil
	}
	return caveats(r.Command, *r.Plan)
}

// verdict is how the run ended, in words.
func (r Run) verdict() string {
	if r.Command == "apply" && r.ExitCode == exitcode.Differences {
		return "something was changed"
	}
	return exitcode.Name(r.ExitCode)
}

// split takes "jobs.hcl:29" apart.
func split(at string) (file, line string) {
	i := strings.LastIndexByte(at, ':')
	if i < 0 || strings.Trim(at[i+1:], "0123456789") != "" {
		return at, ""
	}
	return at[:i], at[i+1:]
}
