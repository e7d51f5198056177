package report

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"muster/apply"
	"muster/apply/history"
	"muster/exitcode"
	"muster/plan"
	"muster/plan/planfile"
	"muster/resource"
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
}

// Problem is an error of a run, or a warning about its configuration.
type Problem struct {
	Warning bool   `json:"warning"`
	Code    string `json:"code,omitempty"` // "M1203"
	At      string `json:"at,omitempty"`   // "jobs.hcl:31"
	Summary string `json:"summary"`
	Detail  string `json:"detail,omitempty"` // more lines
	Next    string `json:"next,omitempty"`   // what the user can do next
}

// Kinds lists the kinds of report.
func Kinds() []string { return []string{"github", "html", "json", "junit", "markdown", "prometheus"} }

// Make returns the report of one kind. The same run gives the same bytes.
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

// items returns the items of the run, and the words by which they are counted.
func (r Run) items() (items []item, words []string) {
	switch {
	case r.Plan == nil:
		return nil, nil
	case r.Drift != nil:
		return driftItems(*r.Plan, *r.Drift, r.FailOn, r.Given), driftWords()
	case len(r.Outcomes) > 0:
		return applyItems(*r.Plan, r.Outcomes, r.Given), applyWords()
	}
	return planItems(*r.Plan, r.Given), planWords()
}

// categories returns the items by their words. Those that are equal are one.
func (r Run) categories() []category {
	items, words := r.items()
	return byCategory(words, joinEqual(items))
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

// caveats lists what the report does not cover.
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
