package report

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"muster/plan"
	"muster/resource"
	"muster/text"
)

// Plan writes what apply would do and what blocks it: a header, the rows that need attention (with o.All every row),
// and the summary, which ends with the counts.
func Plan(w io.Writer, p plan.Plan, o Options) error {
	pg := newPage(w, o)
	pg.header("plan", p, o)
	var items []item
	for _, it := range planItems(p, o.Given) {
		if o.All || attention(it.row) {
			items = append(items, it)
		}
	}
	items = o.join(items)
	pg.blocks(items)
	pg.summary(p, items, o)
	return pg.flush()
}

// attention reports whether a row needs attention.
func attention(r plan.Row) bool { return r.Action() != plan.None && r.Action() != plan.Unmanaged }

// header says what was compared. Only this part of a plan can differ between two runs that read the same.
func (p *page) header(command string, pl plan.Plan, o Options) {
	declared, found := 0, 0
	for _, r := range pl.Rows {
		if r.New != nil {
			declared++
		}
		if r.Old != nil {
			found++
		}
	}
	parts := []string{"muster " + command, "stack " + pl.Stack}
	if len(o.Servers) > 0 {
		parts = append(parts, strings.Join(o.Servers, ","))
	}
	if len(pl.Roots) > 0 {
		parts = append(parts, "roots "+strings.Join(pl.Roots, " "))
	}
	counts := fmt.Sprintf("%d declared, %d found", declared, found)
	if o.Took > 0 {
		counts += ", " + took(o.Took)
	}
	for i, part := range append(parts, counts) {
		if i > 0 {
			p.write(plain, " ·")
			if p.col+1+text.Width(part) > p.width {
				p.newline()
				p.write(plain, " ")
			}
			p.write(plain, " ")
		}
		p.wrap(plain, part, 2)
	}
	p.newline()
	for _, s := range caveats(command, pl) {
		p.wrap(yellow, s, 0)
		p.newline()
	}
	p.newline()
}

// caveats lists what a comparison does not cover.
func caveats(command string, p plan.Plan) []string {
	var cs []string
	if p.Partial {
		cs = append(cs, "Incomplete: --only or --skip left jobs out of this plan.")
	}
	what := map[bool]string{true: "this plan", false: "this report"}[command == "plan"]
	for _, root := range p.Unlisted {
		cs = append(cs, root+" could not be listed: undeclared jobs there are not in "+what+".")
	}
	if p.Unindexed != "" {
		cs = append(cs, p.Unindexed+": jobs below a root that nothing here names are not in "+what+".")
	}
	return cs
}

// movedFrom returns, by address, the paths of this stack's resources that are no longer declared at that path.
func movedFrom(p plan.Plan) map[string]string {
	w := plan.Want{Stack: p.Stack, Home: p.Home}
	from := map[string]string{}
	for _, r := range p.Rows {
		if r.New == nil && w.Owns(r.Old.Record) && r.Old.Record.Declaration.ID().Address != "" {
			from[r.Old.Record.Declaration.ID().Address] = r.Path
		}
	}
	return from
}

// fields lists the lines below the first line of a row's block.
func fields(r plan.Row, stack, movedFrom string, g Given) []field {
	var fs []field
	add := func(key, value string) {
		if value != "" {
			fs = append(fs, field{key, value})
		}
	}
	action := r.Action()
	if action == plan.Create {
		add("path", r.Path)
		fs = append(fs, declared(r.New)...)
		if movedFrom != "" {
			add("moved from", movedFrom+", which has a row of its own")
		}
	}
	add("joined", joined(r))
	add("loses", r.LossText())
	fs = append(fs, changes(r, stack)...)
	if attention(r) && r.Old != nil {
		add("companions", companions(r))
		if action == plan.Blocked || action == plan.LeftRunning {
			add("live", names(r.Old.Members))
			add("not a "+cmp.Or(r.Kind().Member, "worker"), names(r.Old.Strangers))
		}
	}
	switch action {
	case plan.None:
		add("status", health(r.Old))
	case plan.Blocked:
		add(toProceed, g.Paste(r.Proceed()))
	default:
		add("because", r.Because())
		add(toProceed, g.Paste(r.Proceed()))
	}
	return fs
}

// declared lists the fields of a declaration that do not have their default value.
func declared(d resource.Declaration) []field {
	var fs []field
	for _, f := range d.Fields() {
		if !f.IsDefault {
			fs = append(fs, field{f.Name, f.Value})
		}
	}
	return fs
}

// joined says what progress a replace loses. For a delete it says so only if some member has completed its work.
func joined(r plan.Row) string {
	o, action := r.Old, r.Action()
	if o == nil || o.Record == nil || action != plan.Replace && action != plan.Delete {
		return ""
	}
	what, work := o.Record.Declaration.Progress(o)
	if action == plan.Delete && !work {
		return ""
	}
	return what
}

// changes lists what differs as "8 -> 12", the owner first.
func changes(r plan.Row, stack string) []field {
	var fs []field
	if r.Action().Changes() && r.New != nil && r.Old != nil && r.Old.Record != nil && r.Old.Record.Stack != stack {
		fs = append(fs, field{"stack", r.Old.Record.Stack + " -> " + stack})
	}
	for _, c := range r.Changes() {
		value := side(c.Old) + " -> " + side(c.New)
		if c.Immutable && r.Reason == plan.LiveDiffers {
			value += "  cannot change while they run"
		}
		fs = append(fs, field{c.Name, value})
	}
	return fs
}

func side(value *string) string {
	switch {
	case value == nil:
		return "(none)"
	case *value == "":
		return `""`
	}
	return *value
}

func companions(r plan.Row) string {
	if len(r.Old.Companions) == 0 {
		return ""
	}
	all := strings.Join(r.Old.Companions, ", ")
	if r.Action() == plan.Replace {
		all += " (the childless ones go with it)"
	}
	return all
}

// names lists a few and counts the rest.
func names(all []string) string {
	if len(all) > 3 {
		all = append(all[:2:2], fmt.Sprintf("%d more", len(all)-2))
	}
	return strings.Join(all, ", ")
}

// health is the status with its counts.
func health(o *resource.Observed) string {
	s := string(o.Status())
	if o == nil || o.Record == nil {
		return s
	}
	if what, _ := o.Record.Declaration.Progress(o); what != "" { // some member has joined
		s += ", " + o.Record.Declaration.Health(o)
	}
	return s
}
