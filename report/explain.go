package report

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"muster/plan"
	"muster/plan/planfile"
	"muster/resource"
	"muster/resource/group"
	"muster/text"
	"muster/view"
)

// Explanation is what Explain shows besides the row. Every field may be empty. Of the Resource it uses who is in it,
// and what they do.
type Explanation struct {
	view.Resource
	Origins map[string]string // where the value of a field comes from, by its name: "jobs.hcl:31", "default"
	Parts   []view.Part
	Repair  string // how to repair what Parts shows
}

// Explain writes why a row has its status and its action: every observed fact, and every declared value with its
// origin. stack is that of the configuration, and empty if none was read: then there is no action.
func Explain(w io.Writer, r plan.Row, stack string, e Explanation, o Options) error {
	p := newPage(w, o)
	p.line(bold, r.Address(), 2)
	seen := r.Old.WithoutStrangers()
	status := string(seen.Status()) + ": " + view.Meaning(seen, kindName(r))
	fs := []field{{"path", r.Path}, {"status", status}}
	if stack != "" {
		fs = append(fs, field{"action", r.Title()})
	}
	if stack != "" && r.Action() != plan.Blocked {
		fs = append(fs, field{"because", r.Because()})
	}
	next, _, _ := strings.Cut(r.Proceed(), "muster explain ") // the user is reading that
	next = cmp.Or(e.Repair, strings.TrimSuffix(next, "; "))
	fs = append(fs, filled(field{"loses", r.LossText()}, field{toProceed, o.Given.Paste(next)})...)
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
	p.section("observed in ZooKeeper", observed(seen, kindName(r), e.Since(), o.Now))
	for _, s := range view.DisplayOf(r.Old).Explained(e.Resource, o.Now) {
		if s.Heading != "" {
			p.listSection("  "+s.Heading, indented(s.Lines))
			continue
		}
		for _, line := range s.Lines {
			p.line(plain, "      "+line, 8)
		}
	}
	if r.New == nil {
		declared := "not declared by stack " + stack
		if stack == "" {
			declared = "no configuration was read: -f DIR or FILE names one"
		}
		p.section(declared, nil)
		return p.flush()
	}
	p.section("declared at "+r.At(), declaredFields(r.New, "", e.Origins))
	if differs := changes(r, stack); len(differs) > 0 {
		p.section("differs", differs)
	}
	return p.flush()
}

// declaredFields lists the fields of d whose names begin with section, without that, and where their values come from.
func declaredFields(d resource.Declaration, section string, origins map[string]string) []field {
	var fs []field
	for _, f := range d.Fields() {
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

func (p *page) section(heading string, fs []field) {
	p.newline()
	p.line(bold, "  "+heading, 4)
	p.fields(fs)
}

// observed lists every fact of o. kind is that of the row; since says for some members since when they are live.
func observed(o *resource.Observed, kind string, since map[string]time.Time, now time.Time) []field {
	if o == nil {
		return []field{{kind + " znode", "none"}}
	}
	var fs []field
	if view.HasCounts(o) || o.Pzxid != 0 { // otherwise the znode was not read
		fs = append(fs, field{kind + " znode", fmt.Sprintf("version %d, last join or leave %#x", o.Version, o.Pzxid)})
		if !o.Created.IsZero() {
			fs = append(fs, field{"created", view.Ago(now, o.Created)})
		}
	}
	if rec := o.Record; rec != nil {
		fs = append(fs,
			field{"record", fmt.Sprintf("version %d, state %s", o.RecordVersion, rec.State)},
			field{"stack", rec.Stack}, field{"generation", rec.Generation})
		if rec.By != "" {
			applied := "by " + rec.By + " at " + rec.Applied
			if t, err := time.Parse(time.RFC3339, rec.Applied); err == nil && !now.IsZero() {
				applied += " (" + view.Ago(now, t) + ")"
			}
			fs = append(fs, field{"applied", applied})
		}
		fs = append(fs, filled(field{"declared as", rec.Declaration.ID().Address})...)
		if rec.Edited() {
			fs = append(fs, field{"digest", "does not verify: somebody other than muster changed the record"})
		}
		fs = append(fs, filled(field{"acl", strings.Join(rec.ACL, " ")})...)
		if view.IsJob(o) {
			fs = append(fs, field{"last run", view.LastRun(o, now, false)})
		}
	} else if o.Classic || o.Foreign {
		fs = append(fs, field{"record", "none"})
	}
	for _, c := range view.KindOf(o).Counts {
		value := view.Number(o.Count(c.Name), o)
		if c.Name == resource.CountJoined {
			value = view.OfN(o.Count(c.Name), o)
		}
		fs = append(fs, field{c.Word, value})
	}
	fs = append(fs, field{"live", view.Number(o.Live, o)})
	members := view.KindOf(o).Member + "s"
	withAge := func(m string) string { // "w-1 (3h)"
		if t := since[m]; !t.IsZero() && !now.IsZero() {
			m += " (" + view.Age(now, t) + ")"
		}
		return m
	}
	return append(fs, filled(
		field{members, strings.Join(text.Each(o.Members, withAge), ", ")},
		field{"not " + members, strings.Join(o.Strangers, ", ")},
		field{"companions", strings.Join(o.Companions, ", ")}, field{"problem", o.Problem},
	)...)
}

// ExplainDuty writes why a duty has its holder, or why nobody has it: what the assigner says, who could have it, who
// could not, and its declaration. at is the path of the group. origins says where the values of the group's fields come
// from.
func ExplainDuty(
	w io.Writer, at string, o *resource.Observed, d view.Group, duty view.Duty, origins map[string]string, opts Options,
) error {
	p := newPage(w, opts)
	d.Now = opts.Now
	p.line(bold, at+"/"+duty.Name, 2)
	fs := []field{
		{"type", string(duty.Type)},
		{"group", string(o.Status()) + ": " + view.Meaning(o, view.KindOf(o).Name)},
		{"holder", d.Holding(duty)},
	}
	if len(d.Members) == 0 {
		fs = append(fs, field{"because", "no member of the group is live"})
	} else {
		fs = append(fs, filled(field{"because", duty.Because()}, field{"assigner", d.Assigner})...)
	}
	if duty.Type == group.Cron {
		fs = append(fs, field{"next tick", duty.NextTickText()})
	}
	p.fields(fs)
	p.listSection("  what waits", indented(d.WaitsFor(duty)))
	if about := aboutDuty(d, duty); len(about) > 0 {
		p.section("members", about)
	}
	p.runs(at+"/"+duty.Name, duty.Runs, opts)
	declared := group.Group{Duties: []group.Duty{duty.Declared}}
	p.section("declared", declaredFields(declared, duty.Declared.Section()+".", origins))
	return p.flush()
}

// aboutDuty says who of the members could have a duty, and who could not and why.
func aboutDuty(d view.Group, duty view.Duty) []field {
	const most = 8
	var fs []field
	who := map[string][]string{}
	for _, m := range d.Members {
		reason := d.Reason(duty, m)
		who[reason] = append(who[reason], m.Identity+" ("+m.Version+")")
	}
	for _, reason := range view.Reasons() {
		if len(who[reason]) > 0 {
			fs = append(fs, field{reason, text.List(who[reason], most)})
		}
	}
	return fs
}

func indented(lines []string) []string {
	for i := range lines {
		lines[i] = "  " + lines[i]
	}
	return lines
}

type explainJSON struct {
	FormatVersion string `json:"format_version"`
	view.Resource
	Address    string            `json:"address"`
	Kind       string            `json:"kind"`
	Status     resource.Status   `json:"status"`
	Meaning    string            `json:"meaning"` // of the status
	Action     plan.Action       `json:"action"`
	Because    string            `json:"because"`
	Loses      string            `json:"loses,omitempty"`
	ToProceed  string            `json:"to_proceed,omitempty"`
	DeclaredAt string            `json:"declared_at,omitempty"` // absent: not declared
	Declared   []explainedField  `json:"declared,omitempty"`
	Differs    []resource.Change `json:"differs,omitempty"`
	Observed   map[string]string `json:"observed"`        // as the text has it, by its labels
	Parts      []view.Part       `json:"parts,omitempty"` // of one that is damaged or unreadable
	Repair     string            `json:"repair,omitempty"`
}

// explainedField is a declared value and where it comes from: "jobs.hcl:31", "default".
type explainedField struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Origin string `json:"origin,omitempty"`
}

// ExplainJSON writes what Explain writes, as JSON.
func ExplainJSON(w io.Writer, r plan.Row, e Explanation) error {
	seen := r.Old.WithoutStrangers()
	doc := explainJSON{
		FormatVersion: "1.0", Resource: e.Resource, Address: r.Address(), Kind: kindName(r), Status: seen.Status(),
		Meaning: view.Meaning(seen, kindName(r)), Action: r.Action(), Because: r.Because(), Loses: r.LossText(),
		ToProceed: r.Proceed(), Observed: map[string]string{}, Parts: e.Parts, Repair: e.Repair,
	}
	doc.Path = r.Path
	for _, f := range observed(seen, kindName(r), e.Since(), time.Time{}) {
		doc.Observed[f.Key] = f.Value
	}
	if r.New != nil {
		doc.DeclaredAt = r.At()
		for _, f := range r.New.Fields() {
			doc.Declared = append(doc.Declared, explainedField{f.Name, side(&f.Value), e.Origins[f.Name]})
		}
		doc.Differs = r.Changes()
	}
	return writeDocument(w, doc)
}

// ExplainDutyJSON writes what is known of a duty, as JSON. at is the path of its group.
func ExplainDutyJSON(w io.Writer, at string, o *resource.Observed, d view.Group, duty view.Duty) error {
	return writeDocument(w, struct {
		FormatVersion string          `json:"format_version"`
		Path          string          `json:"path"`
		Group         string          `json:"group"` // its path
		GroupStatus   resource.Status `json:"group_status"`
		Assigner      string          `json:"assigner,omitempty"`
		view.Duty
	}{"1.0", at + "/" + duty.Name, at, o.Status(), d.Assigner, duty})
}

func writeDocument(w io.Writer, doc any) error {
	body, err := planfile.CanonicalJSON(doc)
	if err == nil {
		_, err = w.Write(append(body, '\n'))
	}
	return err
}
