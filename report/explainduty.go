package report

import (
	"fmt"
	"io"
	"strings"
	"time"

	"muster/resource"
	"muster/resource/group"
)

// ExplainDuty writes why a duty has its holder, or why nobody has it: what the assigner says, who could have it, who
// could not, and its declaration. at is the path of the group. origins says where the values of the group's fields come
// from.
func ExplainDuty(
	w io.Writer, at string, o *resource.Observed, d GroupDetail, duty Duty, origins map[string]string, opts Options,
) error {
	p := newPage(w, opts)
	p.wrap(bold, at+"/"+duty.Name, 2)
	p.newline()
	fs := []field{
		{"type", string(duty.Type)},
		{"group", string(o.Status()) + ": " + meaning(o, kindOf(o).Name)},
		{"holder", d.holding(duty)},
	}
	if len(d.Members) == 0 {
		fs = append(fs, field{"because", "no member of the group is live"})
	} else {
		fs = append(fs, field{"because", duty.because()})
		if d.Assigner != "" {
			fs = append(fs, field{"assigner", d.Assigner})
		}
	}
	if duty.Type == group.Cron {
		fs = append(fs, field{"next tick", duty.nextTick()})
	}
	p.fields(fs)
	lines := append(d.waitsOf(duty), d.silence()...)
	for _, q := range d.Requests {
		if q.Duty == duty.Name {
			lines = append(lines, d.requestText(q))
		}
	}
	p.listSection("  what waits", indented(lines))
	if about := d.about(duty); len(about) > 0 {
		p.section("members", about)
	}
	p.runs(duty.Runs, d.Now)
	p.section("declared", duty.declared(origins))
	return p.flush()
}

// because is what the assigner says, or what is known without it.
func (d Duty) because() string {
	switch {
	case d.Why != "":
		return d.Why
	case d.PausedBy != "":
		return "the duty is paused"
	case d.Given == "":
		return "the assigner has not decided about it yet"
	}
	return "the assigner gave it so, and has left no reason"
}

// runs writes the last runs of a cron, the newest first.
func (p *page) runs(runs []DutyRun, now time.Time) {
	if len(runs) == 0 {
		return
	}
	rows := [][]string{{"run", "state", AgeHeading(now, "age"), "exit", "took", "attempt", "by"}}
	for _, r := range runs {
		attempt := "-"
		if r.Attempt > 0 {
			attempt = fmt.Sprint(r.Attempt)
		}
		rows = append(rows, []string{r.name(), r.state(), r.age(now), r.exit(), r.took(), attempt, orDash(r.By)})
	}
	p.newline()
	p.table(rows)
}

// declared lists the fields of the duty, with where their values come from.
func (d Duty) declared(origins map[string]string) []field {
	g := group.Group{Duties: []group.Duty{d.Declared}}
	section := d.Declared.Section() + "."
	var fs []field
	for _, f := range g.Fields() {
		name, ok := strings.CutPrefix(f.Name, section)
		if !ok {
			continue
		}
		value := side(&f.Value)
		if from := origins[f.Name]; from != "" {
			value += "  (" + from + ")"
		}
		fs = append(fs, field{name, value})
	}
	return fs
}

// indented puts two spaces before each line.
func indented(lines []string) []string {
	for i := range lines {
		lines[i] = "  " + lines[i]
	}
	return lines
}
