package report

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"muster/plan"
	"muster/resource"
)

// Part is one znode of a damaged or unreadable job.
type Part struct {
	Name  string `json:"name"`
	Path  string `json:"path"`
	State string `json:"state"`
}

// Explanation is what Explain shows besides the row. Every field may be empty. Group and Queue are of a
// group or a queue that was read.
type Explanation struct {
	Origins map[string]string // where the value of a field comes from, by its name: "jobs.hcl:31", "default"
	Parts   []Part
	Repair  string // how to repair what Parts shows
	Group   *GroupDetail
	Queue   *QueueDetail

	Workers  []Worker // of a job
	Barriers []Barrier
}

// since returns, by identity, since when the members that were read are live.
func (e Explanation) since() map[string]time.Time {
	at := map[string]time.Time{}
	for _, w := range e.Workers {
		if w.State == Live {
			at[w.Identity] = w.Since
		}
	}
	if e.Group != nil {
		for _, m := range e.Group.Members {
			at[m.Identity] = m.Since
		}
	}
	if e.Queue != nil {
		for _, m := range e.Queue.Processes {
			at[m.Identity] = m.Since
		}
	}
	return at
}

// Explain writes why a row has its status and its action: every observed fact, and every declared value with its
// origin. stack is that of the configuration, and empty if none was read: then there is no action.
func Explain(w io.Writer, r plan.Row, stack string, e Explanation, o Options) error {
	p := newPage(w, o)
	p.wrap(bold, r.Address(), 2)
	p.newline()
	status := string(r.Old.Status()) + ": " + meaning(r.Old, kindName(r))
	fs := []field{{"path", r.Path}, {"status", status}}
	if stack != "" {
		fs = append(fs, field{"action", r.Title()})
	}
	if stack != "" && r.Action() != plan.Blocked {
		fs = append(fs, field{"because", r.Because()})
	}
	if loss := r.LossText(); loss != "" {
		fs = append(fs, field{"loses", loss})
	}
	next, _, _ := strings.Cut(r.Proceed(), "muster explain ") // the user is reading that
	if next = cmp.Or(e.Repair, strings.TrimSuffix(next, "; ")); next != "" {
		fs = append(fs, field{toProceed, o.Given.Paste(next)})
	}
	if r.Stale() {
		fs = append(fs, field{"grace", "committed only after nobody joined or left for " + r.Grace().String()})
	}
	p.fields(fs)
	if len(e.Parts) > 0 {
		var there []field
		for _, part := range e.Parts {
			there = append(there, field{part.Name, part.Path}, field{"", part.State})
		}
		p.section("what is there", there)
	}
	p.section("observed in ZooKeeper", observed(r.Old, kindName(r), e.since(), o.Now))
	if d := e.Group; d != nil && len(d.Members) > 0 {
		p.wrap(plain, "      "+d.census(), 8)
		p.newline()
	}
	if len(e.Barriers) > 0 {
		var lines []string
		for _, b := range e.Barriers {
			lines = append(lines, b.line(e.Workers, o.Now))
		}
		p.listSection("  barriers under way", indented(lines))
	}
	if e.Group != nil {
		p.listSection("  what waits", indented(e.Group.waits()))
	}
	if e.Queue != nil {
		p.listSection("  amiss", indented(e.Queue.amiss()))
	}
	if r.New == nil {
		declared := "not declared by stack " + stack
		if stack == "" {
			declared = "no configuration was read: -f DIR or FILE names one"
		}
		p.section(declared, nil)
		return p.flush()
	}
	fs = nil
	for _, f := range r.New.Fields() {
		value := side(&f.Value)
		if from := e.Origins[f.Name]; from != "" {
			value += "  (" + from + ")"
		}
		fs = append(fs, field{f.Name, value})
	}
	p.section("declared at "+r.At(), fs)
	p.section("differs", changes(r, stack))
	return p.flush()
}

// section writes a heading and its fields. It leaves out "differs" if there are no fields.
func (p *page) section(heading string, fs []field) {
	if len(fs) == 0 && heading == "differs" {
		return
	}
	p.newline()
	p.wrap(bold, "  "+heading, 4)
	p.newline()
	p.fields(fs)
}

// observed lists every fact of o. kind is that of the row; since says for some members since when they are live.
func observed(o *resource.Observed, kind string, since map[string]time.Time, now time.Time) []field {
	if o == nil {
		return []field{{kind + " znode", "none"}}
	}
	var fs []field
	if hasCounts(o) || o.Pzxid != 0 { // otherwise the znode was not read
		fs = append(fs, field{kind + " znode", fmt.Sprintf("version %d, last join or leave %#x", o.Version, o.Pzxid)})
		if !o.Created.IsZero() {
			fs = append(fs, field{"created", ago(now, o.Created)})
		}
	}
	if rec := o.Record; rec != nil {
		fs = append(fs,
			field{"record", fmt.Sprintf("version %d, state %s", o.RecordVersion, rec.State)},
			field{"stack", rec.Stack}, field{"generation", rec.Generation})
		if rec.By != "" {
			applied := "by " + rec.By + " at " + rec.Applied
			if t, err := time.Parse(time.RFC3339, rec.Applied); err == nil && !now.IsZero() {
				applied += " (" + ago(now, t) + ")"
			}
			fs = append(fs, field{"applied", applied})
		}
		if address := rec.Declaration.ID().Address; address != "" {
			fs = append(fs, field{"declared as", address})
		}
		if rec.Edited() {
			fs = append(fs, field{"digest", "does not verify: somebody other than muster changed the record"})
		}
		if len(rec.ACL) > 0 {
			fs = append(fs, field{"acl", strings.Join(rec.ACL, " ")})
		}
		if isJob(o) {
			fs = append(fs, field{"last run", lastRunAt(o, now)})
		}
	} else if o.Classic || o.Foreign {
		fs = append(fs, field{"record", "none"})
	}
	for _, c := range kindOf(o).Counts {
		value := number(o.Count(c.Name), o)
		if c.Name == resource.CountJoined {
			value = ofN(o.Count(c.Name), o)
		}
		fs = append(fs, field{c.Word, value})
	}
	fs = append(fs, field{"live", number(o.Live, o)})
	members := kindOf(o).Member + "s"
	for _, f := range []field{
		{members, strings.Join(withAges(o.Members, since, now), ", ")}, {"not " + members, strings.Join(o.Strangers, ", ")},
		{"companions", strings.Join(o.Companions, ", ")}, {"problem", o.Problem},
	} {
		if f.value != "" {
			fs = append(fs, f)
		}
	}
	return fs
}

// withAges adds to the names of members how long they are live, where that is known: "w-1 (3h)".
func withAges(members []string, since map[string]time.Time, now time.Time) []string {
	shown := make([]string, len(members))
	for i, m := range members {
		shown[i] = m
		if t := since[m]; !t.IsZero() && !now.IsZero() {
			shown[i] += " (" + Age(now, t) + ")"
		}
	}
	return shown
}
