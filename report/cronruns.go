package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"muster/text"
	"muster/view"
)

// briefOutput is how many lines are shown of the output of the last run that failed.
const briefOutput = 10

// runs writes all runs of a cron, the newest first, and the end of what the last one that failed has written. name is
// that of the duty with its group.
func (p *page) runs(name string, runs []view.Run, o Options) {
	rows := [][]string{{"run", "tick", "state", view.AgeHeading(o.Now, "age"), "exit", "took", "attempt", "by"}}
	for i, r := range runs {
		rows = append(rows, []string{
			strconv.Itoa(i + 1), r.Title(), r.StateText(), r.Age(o.Now), r.ExitText(), r.Took(), view.OrDash(r.Attempt),
			view.OrDash(r.By),
		})
	}
	p.tableSection(rows)
	failed := slices.IndexFunc(runs, view.Run.Failed)
	if failed < 0 {
		return
	}
	output := text.Output(runs[failed].Output)
	p.section("the last run that failed", []field{{"run", fmt.Sprintf("%d: %s", failed+1, runs[failed].Summary())}})
	p.output(output[max(0, len(output)-briefOutput):])
	if len(output) > briefOutput {
		p.line(plain, fmt.Sprintf("      all %d lines: %s", len(output),
			o.Given.Paste(fmt.Sprintf("muster explain %s --run %d", text.ShellWord(name), failed+1))), 8)
	}
}

// output writes lines of a command as they are: none is broken.
func (p *page) output(lines []string) {
	for _, line := range lines {
		if line != "" {
			p.moveTo(6)
			p.write(plain, line)
		}
		p.newline()
	}
}

// ExplainRun writes what is recorded of one run of a cron, with its output. name is that of the duty with its group.
func ExplainRun(w io.Writer, name string, r view.Run, o Options) error {
	p := newPage(w, o)
	p.line(bold, name, 2)
	fs := []field{{"run", r.Title()}, {"state", r.StateText()}}
	for _, at := range []struct {
		key string
		at  *time.Time
	}{{"started", r.Started}, {"ended", r.Ended}} {
		if at.at != nil {
			fs = append(fs, field{at.key, view.Ago(o.Now, *at.at)})
		}
	}
	p.fields(append(fs, filled(
		field{"took", r.Took()}, field{"exit", r.ExitText()}, field{"attempt", view.OrDash(r.Attempt)}, field{"by", r.By},
		field{"asked by", r.AskedBy}, field{"because", r.Because},
	)...))
	lines := text.Output(r.Output)
	if len(lines) == 0 {
		p.section("no output is recorded", nil)
	} else {
		p.section("output", nil)
	}
	p.output(lines)
	return p.flush()
}
