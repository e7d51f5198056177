package report_test

import (
	"strings"
	"testing"

	"muster/plan"
	"muster/report"
	"muster/resource"
	"muster/resource/job"
)

// TestNoWorkflowCommands: no label, znode name, worker or problem makes a line that a pipeline takes for a command,
// however the terminal's width breaks it.
func TestNoWorkflowCommands(t *testing.T) {
	const evil = "::error::x ::add-mask::y ##[error]z ##vso[task.complete]"
	live := recorded(declared("live", 8), 8, 0, 1)
	live.Members = []string{evil}
	want := plan.Want{Stack: stack, Declared: declarations(
		declared("new", 1, func(j *job.Job) { j.Labels = map[string]string{evil: evil} }), declared("live", 16),
	)}
	p := plan.Diff(want, plan.State{Found: map[string]resource.Observed{
		"/jobs/prod/live": live, "/jobs/prod/foreign": {Foreign: true, Problem: evil},
		"/jobs/prod/" + evil: recorded(declared("tmp", 2), 0, 0, 0),
	}})
	p.Roots, p.Unlisted = []string{evil}, []string{evil}
	for width := range 120 {
		out := text(t, func(b *strings.Builder) error {
			return report.Plan(b, p, report.Options{Width: width, All: true, Servers: []string{evil}})
		})
		if !strings.Contains(out, `add-mask`) || !strings.Contains(out, "task.complete") {
			t.Fatalf("it is not shown:\n%s", out)
		}
		for line := range strings.Lines(out) {
			if strings.HasPrefix(strings.TrimSpace(line), "::") || strings.Contains(line, "##") {
				t.Errorf("%d columns: %q", width, line)
			}
		}
	}
}
