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
	all := make([]rowKey, len(p.board.Resources))
	var needs []int // indexes of all
	for i := range p.board.Resources {
		all[i] = rowKeyOf(&p.board.Resources[i])
		if needsSomebody(all[i]) {
			needs = append(needs, i)
		}
	}
	slices.SortStableFunc(needs, func(a, b int) int {
		return cmp.Compare(severity(all[a].status), severity(all[b].status))
	})
	p.headline(len(all)+len(p.board.Unlisted), len(needs)+len(p.board.Unlisted))
	p.needs(all, needs)
	p.stacks()
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

// needView is one resource that needs somebody.
type needView struct {
	ID, Href     string
	Dir, Name    word
	Kind, Status word
	Class        string
	Why          word
	Steps        []step
}

func (p *painter) needs(all []rowKey, needs []int) {
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
			ID: hashID("u", root), Name: word(root), Status: "unreadable", Class: statusClass(resource.StatusUnreadable),
			Why: "this root cannot be listed: what is below it is not shown", Kind: "root",
		})
	}
	for _, i := range needs[:min(len(needs), maxNeeds)] {
		p.add("needs-list", "need", needOf(all[i], p.board.Resources[i]))
	}
}

// moreText is "12 more", or nothing.
func moreText(n int) string {
	if n <= 0 {
		return ""
	}
	return text.Thousands(n) + " more"
}

func needOf(k rowKey, j view.Resource) needView {
	n := needView{
		ID: hashID("n", j.Path), Href: resourceURL(j.Path), Kind: word(k.kind), Status: word(k.status),
		Class: statusClass(k.status), Why: word(view.Meaning(&j.Observed, k.kind)), Steps: stepsOf(j),
	}
	n.Dir, n.Name = splitPath(j.Path)
	if len(n.Steps) == 0 {
		n.Steps = []step{{Command: word("muster explain " + text.ShellWord(j.Path))}}
	}
	if k.status == resource.StatusReady {
		n.Why = word(k.idle)
	}
	return n
}

// stackView is one stack with its last apply.
type stackView struct {
	Name      string
	Roots     []string
	Resources string
	Last      *applyView
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
		v := stackView{Name: s.Name, Roots: s.Roots, Resources: text.Thousands(count[s.Name])}
		if s.Last != nil {
			last := applyOf(*s.Last)
			v.Last = &last
		}
		p.add("stacks-list", "stack", v)
	}
}

// choice is one choice of the filter.
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
	Sorts              []choice
	Shown, All         string
	Filtered, Nothing  bool
	Columns            []column
	HasStacks, HasKind bool
}

// column is a heading of the list.
type column struct {
	Word, Href, Class string
	Sorted            string // aria-sort
}

func (p *painter) list(all []rowKey) {
	r := p.request
	words := strings.Fields(strings.ToLower(r.Filter))
	byStatus, kinds, stacks := map[string]int{}, map[string]int{}, map[string]int{}
	var shown []rowKey
	fits := 0
	for i, k := range all {
		j := &p.board.Resources[i]
		stack := ""
		if j.Observed.Record != nil {
			stack = j.Observed.Record.Stack
			stacks[stack]++
		}
		kinds[k.kind]++
		if r.Kind != "" && r.Kind != k.kind || r.Stack != "" && r.Stack != stack || !matches(j, words) {
			continue
		}
		fits++
		byStatus[string(k.status)]++
		needs := needsSomebody(k)
		if needs {
			byStatus[needing]++
		}
		if r.Status == "" || r.Status == string(k.status) || r.Status == needing && needs {
			shown = append(shown, k)
		}
	}
	sortRows(shown, r.Sort)
	p.add(mainSlot, "all", listView{
		Filter: r.Filter, Statuses: statusChoices(r, byStatus, fits), Kinds: choices(r.Kind, kinds, "all kinds"),
		Stacks: choices(r.Stack, stacks, "all stacks"), Sorts: sortChoices(r.Sort), Shown: text.Thousands(len(shown)),
		All: text.Thousands(len(all)), Filtered: r.Filter+r.Status+r.Kind+r.Stack != "", Nothing: len(shown) == 0,
		Columns: columns(r), HasStacks: len(stacks) > 1 || r.Stack != "", HasKind: len(kinds) > 1 || r.Kind != "",
	})
	p.chunks(shown)
}

// chunkSize is how many rows the browser lays out together when they come near the screen. One by one is far slower,
// and all at once too.
const chunkSize = 100

func (p *painter) chunks(rows []rowKey) {
	n := 0
	for chunk := range slices.Chunk(rows, chunkSize) {
		id := fmt.Sprintf("rows-%d", n)
		p.add("rows", "chunk", id)
		for _, k := range chunk {
			p.addHTML(id, p.row(k))
		}
		n++
	}
}

// statusChoices are the statuses that there are, those that need somebody first.
func statusChoices(r Request, count map[string]int, fits int) []choice {
	all := []choice{{Word: "all", Count: text.Thousands(fits), Chosen: r.Status == ""}}
	if n := count[needing]; n > 0 || r.Status == needing {
		all = append(all, choice{
			Value: needing, Word: "needs somebody", Count: text.Thousands(n), Chosen: r.Status == needing,
		})
	}
	for _, s := range bySeverity() {
		if n := count[string(s)]; n > 0 || r.Status == string(s) {
			all = append(all, choice{
				Value: string(s), Word: word(s), Class: statusClass(s), Count: text.Thousands(n),
				Chosen: r.Status == string(s),
			})
		}
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

func sortChoices(chosen string) []choice {
	return []choice{
		{Value: "", Word: "path", Chosen: chosen == ""},
		{Value: "status", Word: "status, worst first", Chosen: chosen == "status"},
		{Value: "live", Word: "live, most first", Chosen: chosen == "live"},
		{Value: "age", Word: "age, youngest first", Chosen: chosen == "age"},
		{Value: "last", Word: "last run, latest first", Chosen: chosen == "last"},
	}
}

// columns are the headings, with links that sort.
func columns(r Request) []column {
	all := []column{ // the class is what it sorts by
		{Word: "Status", Class: "status"}, {Word: "Path"}, {Word: "Live", Class: "live"}, {Word: "Progress"},
		{Word: "Age", Class: "age"}, {Word: "Last run", Class: "last"},
	}
	for i := range all {
		c := &all[i]
		if c.Word == "Progress" {
			continue
		}
		to := r
		to.Sort = c.Class
		c.Href = to.URL()
		if r.Sort == c.Class {
			c.Sorted = map[bool]string{true: "descending", false: "ascending"}[c.Class == "live" || c.Class == "last"]
		}
	}
	return all
}

// rowKey is what a row of the overview shows. Rows are cached by it.
type rowKey struct {
	path, kind   string
	status       resource.Status
	classic      bool
	idle         string // what is amiss while nobody is live; empty: nothing
	live         int    // -1: not known
	progress     string
	created      int64  // seconds; 0: not known
	last, lastID string // run of a job
}

// rowKeyOf reads what a row of j shows.
func rowKeyOf(j *view.Resource) rowKey {
	o := &j.Observed
	display := view.DisplayOf(o)
	k := rowKey{
		path: j.Path, kind: view.KindOf(o).Name, status: o.Status(), classic: o.Classic, idle: display.Idle(), live: -1,
	}
	if !o.Created.IsZero() {
		k.created = o.Created.Unix()
	}
	if view.HasCounts(o) {
		k.live, k.progress = o.Live, display.Progress(o)
	}
	if last := job.LastRun(o.Record); last != nil {
		k.last, k.lastID = last.Completed, last.ID
	}
	return k
}

// rowView is a row as its template shows it.
type rowView struct {
	ID, Href     string
	Dir, Name    word
	Kind, Status word
	Class        string
	Classic      bool
	Live         string
	Progress     string
	Created      time.Time
	LastRun      time.Time
	LastID       word
}

// row is the fragment of a row. Its id follows from the path alone.
func (v *views) row(k rowKey) string {
	return v.rows.html(k, func() string {
		r := rowView{
			ID: hashID("r", k.path), Href: resourceURL(k.path), Kind: word(k.kind), Status: word(k.status),
			Class: statusClass(k.status), Classic: k.classic, Progress: k.progress, LastRun: parseTime(k.last),
			LastID: word(k.lastID), Live: "–",
		}
		r.Dir, r.Name = splitPath(k.path)
		if k.live >= 0 {
			r.Live = text.Thousands(k.live)
		}
		if k.created != 0 {
			r.Created = time.Unix(k.created, 0)
		}
		return v.html("row", r)
	})
}

// splitPath splits a path into its folder with the slash, and its name.
func splitPath(path string) (dir, name word) {
	i := strings.LastIndexByte(path, '/') + 1
	return word(path[:i]), word(path[i:])
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
		resource.StatusDamaged, resource.StatusUnreadable, resource.StatusDegraded, resource.StatusStale,
		resource.StatusForeign, resource.StatusTerminating, resource.StatusMissing, job.Forming,
		resource.StatusReady, resource.StatusRunning, job.Completed,
	}
}

// needsSomebody reports whether a resource does not get better by itself. A group without members is one: nobody does
// its duties.
func needsSomebody(k rowKey) bool {
	switch k.status {
	case resource.StatusReady:
		return k.idle != ""
	case resource.StatusMissing:
		return false
	}
	return severity(k.status) >= 0 && severity(k.status) <= severity(resource.StatusTerminating)
}

// sortRows sorts rows, which are in the order of their paths.
func sortRows(rows []rowKey, by string) {
	compare := map[string]func(a, b rowKey) int{
		"status": func(a, b rowKey) int { return cmp.Compare(severity(a.status), severity(b.status)) },
		"live":   func(a, b rowKey) int { return cmp.Compare(b.live, a.live) },
		"age":    func(a, b rowKey) int { return cmp.Compare(b.created, a.created) }, // the youngest first
		"last":   func(a, b rowKey) int { return cmp.Compare(b.last, a.last) },       // the latest first
	}[by]
	if compare != nil {
		slices.SortStableFunc(rows, compare)
	}
}

// matches reports whether each of the words, which are in lower case, is in what is known of j.
func matches(j *view.Resource, words []string) bool {
	if len(words) == 0 {
		return true
	}
	all := strings.ToLower(j.Path)
	if rec := j.Observed.Record; rec != nil {
		all += " " + strings.ToLower(rec.Stack+" "+rec.Declaration.ID().Address)
		for name, value := range resource.LabelsOf(rec.Declaration) {
			all += " " + strings.ToLower(name+"="+value)
		}
	}
	return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(all, w) })
}

// step is a next step, with its command apart.
type step struct{ Before, Command, After word }

// steps splits what report says that one can do next: one step for each thing that can be done.
func steps(next string) []step {
	if next == "" {
		return nil
	}
	var all []step
	for _, line := range report.StepLines(next, 1) {
		all = append(all, splitStep(line))
	}
	return all
}

// stepsOf are the next steps for j. Those for batches that failed are only here: status prints them as what is amiss.
func stepsOf(j view.Resource) []step {
	all := steps(j.NextStep())
	if j.Queue == nil {
		return all
	}
	if lost := j.Queue.Lost; len(lost) > 0 {
		all = append(all, step{Before: word("submit " + text.List(lost, 3) + " again with the same --id")})
	}
	if failed := j.Queue.Failed; len(failed) > 0 {
		batch := text.ShellWord(j.Path + "/" + failed[0])
		all = append(all, step{"", word("muster batch " + batch), " says why watchers failed"},
			step{"", word("muster retry " + batch), " lets them try again"})
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
	end := min(2, len(words))
	for i := end; i < len(words) && !strings.HasSuffix(words[i-1], ",") && !strings.HasSuffix(words[i-1], ";"); i++ {
		w, before := words[i], words[i-1]
		isArgument := w != "" && strings.ContainsAny(w[:1], "/-'") || w == strings.ToUpper(w)
		isValue := strings.HasPrefix(before, "--") && before != "--" && before != "--watch"
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
