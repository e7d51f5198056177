package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
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
		p.line(yellow, s, 0)
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
		for _, c := range r.Sets(stack) {
			fs = append(fs, field{c.Name, *c.New})
		}
		if movedFrom != "" {
			add("moved from", movedFrom+", which has a row of its own")
		}
	}
	add("joined", joined(r))
	add("loses", r.LossText())
	fs = append(fs, changes(r, stack)...)
	if attention(r) && r.Old != nil {
		companions := strings.Join(r.Old.Companions, ", ")
		if companions != "" && action == plan.Replace {
			companions += " (the childless ones go with it)"
		}
		add("companions", companions)
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

// joined says what progress a replace loses. For a delete it says so only if some member has completed its work.
func joined(r plan.Row) string {
	o, action := r.Old, r.Action()
	if o == nil || o.Record == nil || action != plan.Replace && action != plan.Delete {
		return ""
	}
	what, work := o.Record.Declaration.WouldBeLost(o)
	if action == plan.Delete && !work {
		return ""
	}
	return what
}

// changes lists what differs as "8 -> 12", the owner first.
func changes(r plan.Row, stack string) []field {
	if r.Action() == plan.Create {
		return nil
	}
	return differences(r.Sets(stack), changesDuty, func(c resource.Change) string {
		if c.Immutable && r.Reason == plan.LiveDiffers {
			return differs(c) + "  cannot change while they run"
		}
		return differs(c)
	})
}

func differs(c resource.Change) string { return side(c.Old) + " -> " + side(c.New) }

func side(value *string) string {
	switch {
	case value == nil:
		return "(none)"
	case *value == "":
		return `""`
	}
	return *value
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
	if what, _ := o.Record.Declaration.WouldBeLost(o); what != "" { // some member has joined
		s += ", " + o.Record.Declaration.Health(o)
	}
	return s
}

// PlanCounts is the line of all counts. Tools may read it: its words and their order do not change.
func PlanCounts(p plan.Plan) string {
	n := counts(p)
	return fmt.Sprintf("Plan: %d to create, %d to replace, %d to delete, %d to update; "+
		"%d blocked, %d left running, %d unchanged.",
		n[plan.Create], n[plan.Replace], n[plan.Delete], n[plan.Update],
		n[plan.Blocked], n[plan.LeftRunning], n[plan.None])
}

// ChangeCounts counts what apply would do, by action: "3 to create, 1 to update".
func ChangeCounts(p plan.Plan) string { return counted(changing(), counts(p), toDo) }

func counts(p plan.Plan) map[plan.Action]int {
	n := map[plan.Action]int{}
	for _, r := range p.Rows {
		n[r.Action()]++
	}
	return n
}

// summary writes the items that need attention, notes, what the user can do next, and the counts.
func (p *page) summary(pl plan.Plan, items []item, o Options) {
	shown := slices.DeleteFunc(slices.Clone(items), func(it item) bool { return !attention(it.row) })
	if len(shown) == 0 {
		p.line(plain, noChanges(pl), 0)
	}
	width := 0
	for _, it := range shown {
		width = max(width, len(it.word))
	}
	for _, it := range shown {
		p.printf("  %-*s  ", width, it.word)
		p.line(plain, it.summary(), 2+width+2)
	}
	for _, note := range append(notes(pl, o), o.Notes...) {
		if strings.Contains(note, "muster ") { // a command, which is not wrapped
			p.steps(note, 0)
			continue
		}
		p.line(plain, note, 2)
	}
	p.next(o.Next)
	p.countsLine(PlanCounts(pl))
}

// noChanges is the sentence for a plan in which no row needs attention. It counts the unchanged rows by status. A kind
// lists its statuses in the order in which they are tried; the counts are in the reverse order, so that running comes
// first.
func noChanges(p plan.Plan) string {
	byStatus := map[resource.Status]int{}
	var statuses []resource.Status
	var same []plan.Row
	for _, r := range p.Rows {
		if r.Action() != plan.None {
			continue
		}
		byStatus[r.Old.Status()]++
		same = append(same, r)
		for _, s := range r.Kind().Statuses {
			if !slices.Contains(statuses, s) {
				statuses = append(statuses, s)
			}
		}
	}
	slices.Reverse(statuses)
	words := counted(statuses, byStatus, asIs)
	switch len(same) {
	case 0:
		return noJobs(p)
	case 1:
		return "No changes. " + countRows(same) + " matches its declaration (" + words + ")."
	}
	return fmt.Sprintf("No changes. %s match their declarations (%s).", countRows(same), words)
}

// noJobs is the sentence for a plan without jobs. It says where was searched, since there may be jobs elsewhere.
func noJobs(p plan.Plan) string {
	switch {
	case p.Partial:
		return "No changes. --only or --skip left out every job of stack " + p.Stack + "."
	case len(p.Roots) == 0:
		return "No changes. No job is declared, and no root was searched: add roots = [...] to the muster block."
	}
	return "No changes. No job is declared, and none of stack " + p.Stack + " was found below " +
		strings.Join(p.Roots, ", ") + ". Other roots are searched if the muster block names them: roots = [...]"
}

// notes lists what the rows that are shown do not say.
func notes(p plan.Plan, o Options) []string {
	var degraded, degradedKinds, failing, unreadable []string
	unmanaged := 0
	for _, r := range p.Rows {
		switch {
		case r.Action() == plan.None && r.Old.IsDegraded():
			degraded = append(degraded, r.Address())
			degradedKinds = append(degradedKinds, "unchanged "+kindName(r))
		case r.Action() == plan.None && r.Old.Status() == resource.StatusFailing:
			failing = append(failing, r.Address())
		case r.Action() == plan.Unmanaged && r.Old.Class() == resource.Unreadable:
			unreadable = append(unreadable, r.Address())
			unmanaged++
		case r.Action() == plan.Unmanaged:
			unmanaged++
		}
	}
	var notes []string
	if len(degraded) > 0 {
		notes = append(notes, text.CountEach(degradedKinds)+are(len(degraded))+"degraded: "+names(degraded))
	}
	if len(failing) > 0 {
		which := text.Plural(len(failing), "unchanged group is", "unchanged groups are")
		notes = append(notes, which+" failing: "+names(failing))
	}
	if unmanaged > 0 && !o.All {
		which := text.Plural(unmanaged, "znode is", "znodes are")
		notes = append(notes, which+" unmanaged: not this stack's, never changed (--all lists them)")
	}
	if len(unreadable) > 0 {
		which := text.Count(len(unreadable), "unmanaged znode") + " could not be read: " + names(unreadable)
		explain := "muster explain " + text.ShellWord(unreadable[0]) + " lists what is there"
		notes = append(notes, which+"; "+o.Given.Paste(explain))
	}
	return notes
}
