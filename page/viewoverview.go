package page

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"muster/report"
	"muster/resource"
	"muster/resource/job"
	"muster/text"
	"muster/view"
)

// needing is the value of status in a request for all that need somebody.
const needing = "needs"

// maxNeeds is how many of those that need somebody the overview shows above all others.
const maxNeeds = 25

// overview shows what needs somebody, the stacks, and all resources. It returns how many need somebody.
func (p *painter) overview() int {
	all := p.board.entries()
	var needs []int // indexes of all
	for i := range all {
		if needsSomebody(all[i].row) {
			needs = append(needs, i)
		}
	}
	slices.SortStableFunc(needs, func(a, b int) int {
		return cmp.Compare(severity(all[a].Status), severity(all[b].Status))
	})
	p.headline(len(all)+len(p.board.Unlisted), len(needs)+len(p.board.Unlisted))
	p.needs(all, needs)
	p.stacks()
	p.plan(all)
	p.list(all)
	return len(needs) + len(p.board.Unlisted)
}

// headline says in one sentence whether somebody is needed.
func (p *painter) headline(all, needs int) {
	p.add(mainSlot, "headline", struct {
		Needs, All string
		Any, One   bool
		Fine       string
	}{text.Thousands(needs), text.Thousands(all), needs > 0, needs == 1, p.fine(all)})
}

// fine says that nobody is needed, as far as it is known.
func (p *painter) fine(all int) string {
	is, are := "is", "are"
	if !p.board.Connected {
		is, are = "was", "were"
	}
	switch all {
	case 0:
		return "Nothing is here yet"
	case 1:
		return "It " + is + " fine"
	}
	return "All " + text.Thousands(all) + " " + are + " fine"
}

// needView is one resource that needs somebody, or a root that cannot be listed.
type needView struct {
	row
	Why   word
	Steps []step
}

func (p *painter) needs(all []entry, needs []int) {
	if len(needs)+len(p.board.Unlisted) == 0 {
		return
	}
	more := len(needs) - maxNeeds
	p.add(mainSlot, "needs", struct {
		More string
		Href string
	}{moreText(more), Request{View: Overview, Status: needing}.URL()})
	for _, root := range p.board.Unlisted {
		p.add("needs-list", "need", needView{
			row: row{
				ID: hashID("u", root), Name: word(root), Kind: "root", Status: resource.StatusUnreadable,
				Class: statusClass(resource.StatusUnreadable),
			},
			Why: "this root cannot be listed: what is below it is not shown",
		})
	}
	for _, i := range needs[:min(len(needs), maxNeeds)] {
		p.add("needs-list", "need", needOf(all[i].row, *all[i].found))
	}
}

// moreText is "12 more", or nothing.
func moreText(n int) string {
	if n <= 0 {
		return ""
	}
	return text.Thousands(n) + " more"
}

func needOf(r row, j view.Resource) needView {
	n := needView{row: r.drawn(), Why: word(view.Meaning(&j.Observed, r.Kind)), Steps: stepsOf(j)}
	n.ID = hashID("n", j.Path)
	if len(n.Steps) == 0 {
		n.Steps = []step{{Command: word("muster explain " + text.ShellWord(j.Path))}}
	}
	if r.Status == resource.StatusReady {
		n.Why = word(r.idle)
	}
	return n
}

func (p *painter) stacks() {
	if len(p.board.Stacks) == 0 && p.board.Unindexed == "" {
		return
	}
	count := map[string]int{}
	for i := range p.board.Resources {
		if rec := p.board.Resources[i].Observed.Record; rec != nil {
			count[rec.Stack]++
		}
	}
	p.add(mainSlot, "stacks", word(p.board.Unindexed))
	for _, s := range p.board.Stacks {
		var last *applyView
		if s.Last != nil {
			last = new(applyOf(*s.Last))
		}
		p.add("stacks-list", "stack", struct {
			Stack
			Resources string
			Last      *applyView
		}{s, text.Thousands(count[s.Name]), last})
	}
}

type choice struct {
	Value  string
	Word   word
	Class  string
	Count  string
	Chosen bool
}

// listView is the section of all resources, with its filter.
type listView struct {
	Filter             string
	Statuses           []choice
	Kinds, Stacks      []choice
	Columns            []column
	Shown, All         string
	Filtered, Nothing  bool
	HasStacks, HasKind bool
	Planned            bool
}

// column is a heading of the list, which sorts it.
type column struct {
	Word    string
	By      string             // value of sort=, and class in page.css; empty for the path, and for what does not sort
	Order   string             // by what it sorts, in words; empty: it does not sort
	compare func(a, b row) int // nil: as rows are, in the order of their paths
	Sorted  string             // aria-sort: the direction; columnsOf empties it for all columns but one
	Href    string             // sorts by it
}

func (p *painter) list(all []entry) {
	r := p.request
	words := strings.Fields(strings.ToLower(r.Filter))
	byStatus, kinds, stacks := map[string]int{}, map[string]int{}, map[string]int{}
	shown := make([]row, 0, len(all))
	fits := 0
	for _, e := range all {
		k := e.row
		if e.known != nil {
			stacks[e.stack]++
		}
		kinds[k.Kind]++
		if r.Kind != "" && r.Kind != k.Kind || r.Stack != "" && r.Stack != e.stack || !e.matches(words) {
			continue
		}
		fits++
		byStatus[string(k.Status)]++
		needs := needsSomebody(k)
		if needs {
			byStatus[needing]++
		}
		if r.Status == "" || r.Status == string(k.Status) || r.Status == needing && needs {
			shown = append(shown, k)
		}
	}
	columns := columnsOf(r)
	if p.board.Planned == nil {
		columns = slices.DeleteFunc(columns, func(c column) bool { return c.By == "plan" })
	}
	for _, c := range columns {
		if c.Sorted != "" && c.compare != nil {
			slices.SortStableFunc(shown, c.compare)
		}
	}
	p.add(mainSlot, "all", listView{
		Filter: r.Filter, Statuses: statusChoices(r, byStatus, fits), Kinds: choices(r.Kind, kinds, "all kinds"),
		Stacks: choices(r.Stack, stacks, "all stacks"), Columns: columns, Shown: text.Thousands(len(shown)),
		All: text.Thousands(len(all)), Filtered: r.Filter+r.Status+r.Kind+r.Stack != "", Nothing: len(shown) == 0,
		HasStacks: len(stacks) > 1 || r.Stack != "", HasKind: len(kinds) > 1 || r.Kind != "", Planned: p.board.Planned != nil,
	})
	p.chunks(shown)
}

// chunkSize is how many rows the browser lays out together when they come near the screen. One by one is far slower,
// and all at once too.
const chunkSize = 100

func (p *painter) chunks(rows []row) {
	n := 0
	for chunk := range slices.Chunk(rows, chunkSize) {
		id := fmt.Sprintf("rows-%d", n)
		p.add("rows", "chunk", id)
		for _, r := range chunk {
			p.addHTML(id, p.views.rows.html(r, func() string { return p.views.html("row", r.drawn()) }))
		}
		n++
	}
}

// statusChoices are the statuses that there are, those that need somebody first.
func statusChoices(r Request, count map[string]int, fits int) []choice {
	all := []choice{{Word: "all", Count: text.Thousands(fits), Chosen: r.Status == ""}}
	for _, s := range append([]resource.Status{needing}, bySeverity()...) {
		n, value := count[string(s)], string(s)
		if n == 0 && r.Status != value {
			continue
		}
		c := choice{Value: value, Word: word(s), Class: statusClass(s), Count: text.Thousands(n), Chosen: r.Status == value}
		if s == needing {
			c.Word, c.Class = "needs somebody", ""
		}
		all = append(all, c)
	}
	return all
}

// choices are the values that there are, by name, after the choice of all.
func choices(chosen string, count map[string]int, all string) []choice {
	cs := []choice{{Word: word(all), Chosen: chosen == ""}}
	if chosen != "" && count[chosen] == 0 {
		cs = append(cs, choice{Value: chosen, Word: word(chosen), Count: "0", Chosen: true})
	}
	for _, value := range slices.Sorted(maps.Keys(count)) {
		cs = append(cs, choice{
			Value: value, Word: word(value), Count: text.Thousands(count[value]), Chosen: chosen == value,
		})
	}
	return cs
}

// columnsOf are the columns of the list. It is sorted by one of them.
func columnsOf(r Request) []column {
	const rising, falling = "ascending", "descending"
	all := []column{
		{"Status", "status", "status, worst first", func(a, b row) int {
			return cmp.Compare(severity(a.Status), severity(b.Status))
		}, rising, ""},
		{"Path", "", "path", nil, rising, ""},
		{"Live", "live", "live, most first", func(a, b row) int { return cmp.Compare(b.live, a.live) }, falling, ""},
		{"Progress", "", "", nil, "", ""},
		{"Plan", "plan", "plan", func(a, b row) int {
			return cmp.Or(cmp.Compare(planOrder(a.Plan), planOrder(b.Plan)), cmp.Compare(b.Plan, a.Plan))
		}, rising, ""},
		{"Age", "age", "age, youngest first", func(a, b row) int { return b.Created.Compare(a.Created) }, rising, ""},
		{"Last run", "last", "last run, latest first", func(a, b row) int {
			return cmp.Compare(b.Last, a.Last)
		}, falling, ""},
	}
	if !slices.ContainsFunc(all, func(c column) bool { return c.By == r.Sort }) {
		r.Sort = ""
	}
	for i := range all {
		c := &all[i]
		if c.Order == "" {
			continue
		}
		if c.By != r.Sort {
			c.Sorted = ""
		}
		to := r
		to.Sort = c.By
		c.Href = to.URL()
	}
	return all
}

// row is what the overview shows of a resource, and what its own page begins with. It is a key of the cache of HTML, so
// it has no pointers.
type row struct {
	Dir, Name word // the path: its folder with the slash, and its name
	Kind      string
	Status    resource.Status
	Classic   bool
	idle      string // what is amiss while nobody is live; empty: nothing
	live      int    // -1: not known
	Progress  string
	Plan      string    // what a plan does with it; a dash: nothing; empty: there is no configuration
	Created   time.Time // zero: not known
	Last      string    // run of a job: when it completed
	LastID    word

	ID, Href, Class, Live string // see drawn
}

// rowOf reads what a row of j shows.
func rowOf(j *view.Resource) row {
	o := &j.Observed
	display := view.DisplayOf(o)
	r := rowAt(j.Path)
	r.Kind, r.Status, r.Classic, r.idle = view.KindOf(o).Name, o.Status(), o.Classic, display.Idle()
	r.live, r.Created = -1, o.Created
	if view.HasCounts(o) {
		r.live, r.Progress = o.Live, display.Progress(o)
	}
	if last := job.LastRun(o.Record); last != nil {
		r.Last, r.LastID = last.Completed, word(view.RunName(last.ID))
	}
	return r
}

// rowAt is a row of which only the path is known.
func rowAt(path string) row {
	i := strings.LastIndexByte(path, '/') + 1
	return row{Dir: word(path[:i]), Name: word(path[i:])}
}

func (r row) path() string { return string(r.Dir + r.Name) }

// drawn is r with what follows from it, for templates. The id of an element follows from the path alone.
func (r row) drawn() row {
	path := r.path()
	r.ID, r.Href = hashID("r", path), Request{View: Resource, Path: path}.URL()
	r.Class, r.Live = statusClass(r.Status), "–"
	if r.live >= 0 {
		r.Live = text.Thousands(r.live)
	}
	return r
}

// statusClass is the class of a status in the style sheet: the status itself if that is known.
func statusClass(s resource.Status) string {
	if severity(s) < 0 {
		return "s-other"
	}
	return "s-" + string(s)
}

// severity orders statuses by how much they need somebody, the worst first; -1 is not known.
func severity(s resource.Status) int { return slices.Index(bySeverity(), s) }

func bySeverity() []resource.Status {
	return []resource.Status{
		resource.StatusDamaged, resource.StatusUnreadable, resource.StatusDegraded, resource.StatusFailing,
		resource.StatusStale, resource.StatusForeign, resource.StatusTerminating, resource.StatusMissing, job.Forming,
		resource.StatusReady, resource.StatusRunning, job.Completed,
	}
}

// needsSomebody reports whether a resource does not get better by itself. A group without members is one: nobody does
// its duties.
func needsSomebody(r row) bool {
	switch r.Status {
	case resource.StatusReady:
		return r.idle != ""
	case resource.StatusMissing:
		return false
	}
	return severity(r.Status) >= 0 && severity(r.Status) <= severity(resource.StatusTerminating)
}

// matches reports whether each of the words, which are in lower case, is in what is known of e.
func (e entry) matches(words []string) bool {
	if len(words) == 0 {
		return true
	}
	all := strings.ToLower(e.path())
	if e.known != nil {
		all += " " + strings.ToLower(e.stack+" "+e.known.ID().Address)
		for name, value := range e.known.LabelMap() {
			all += " " + strings.ToLower(name+"="+value)
		}
	}
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(all, w) })
}

// step is a next step, with its command apart.
type step struct{ Before, Command, After word }

// stepsOf are the next steps for j.
func stepsOf(j view.Resource) []step { return stepsIn(j.NextStep()) }

// stepsIn are the steps that a next step names: one for each thing that can be done.
func stepsIn(next string) []step {
	var all []step
	if next != "" {
		for _, line := range report.StepLines(next, 1) {
			all = append(all, splitStep(line))
		}
	}
	return all
}

// splitStep finds the command in a sentence: "muster", the name of the command, and all up to its last flag, path or
// placeholder.
func splitStep(line string) step {
	start := strings.Index(line, "muster ")
	if start < 0 {
		return step{Before: word(line)}
	}
	words := shellWords(line[start:])
	end := 2
	if len(words) > 1 && (words[1] == "group" || words[1] == "queue") { // "muster queue retry"
		end = 3
	}
	end = min(end, len(words))
	for i := end; i < len(words) && !strings.HasSuffix(words[i-1], ",") && !strings.HasSuffix(words[i-1], ";"); i++ {
		w, before := words[i], words[i-1]
		isArgument := w != "" && strings.ContainsAny(w[:1], "/-'") || w == strings.ToUpper(w)
		isValue := strings.HasPrefix(before, "--") && before != "--" && before != "--watch" && before != "--dead"
		if isArgument || isValue {
			end = i + 1
		}
	}
	command := strings.Join(words[:end], " ")
	after := strings.TrimPrefix(line[start:], command)
	if trimmed := strings.TrimRight(command, ",;"); trimmed != command {
		command, after = trimmed, command[len(trimmed):]+after
	}
	return step{word(line[:start]), word(command), word(after)}
}

// shellWords splits s at its spaces, but not at those that text.ShellWord has quoted.
func shellWords(s string) []string {
	var words []string
	start, quoted := 0, false
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\'':
			quoted = !quoted
		case s[i] == '\\' && !quoted:
			i++
		case s[i] == ' ' && !quoted:
			words, start = append(words, s[start:i]), i+1
		}
	}
	return append(words, s[start:])
}
