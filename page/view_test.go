package page

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/resource/queue"
	"muster/text"
	"muster/view"
)

// update rewrites the golden pages.
func update() bool { f := flag.Lookup("update"); return f != nil && f.Value.String() == "true" }

func TestMain(m *testing.M) {
	flag.Bool("update", false, "rewrite the golden pages")
	flag.Parse()
	os.Exit(m.Run())
}

// pages are requests that together show every template, with what is known.
func pages() map[string]struct {
	r Request
	b *Board
	d *Detail
} {
	type page = struct {
		r Request
		b *Board
		d *Detail
	}
	of := func(b *Board, name string) page {
		return page{Request{View: Resource, Path: "/jobs/prod/" + name}, b, detail(b, name)}
	}
	batch := func(b *Board, id string) page {
		return page{Request{View: Batch, Path: "/jobs/prod/primes", Batch: id}, b, batchDetail(b, id)}
	}
	b, lost := sample(), sample()
	lost.Unindexed = "/.muster cannot be read"
	lost.Connected, lost.Unlisted, lost.Resources = false, []string{"/jobs/hidden: no permission"}, nil
	return map[string]page{
		"overview": {Request{View: Overview}, b, nil},
		"filtered": {Request{View: Overview, Filter: "JOBS team=data", Status: needing, Kind: "job", Sort: "status"}, b, nil},
		"batch":    batch(b, "nightly-7"), "ended": batch(b, "nightly-5"), "gone": batch(b, "nightly-1"),
		"planned":  {Request{View: Overview, Sort: "plan"}, planned("jobs.hcl:3: <b>"), nil},
		"replaced": of(planned(""), "ingest-eu"), "undeclared": of(planned(""), "archive"),
		"declared": of(planned(""), "new <b>"),
		"nothing":  {Request{View: Overview, Filter: "no such job", Stack: "etl-prod"}, b, nil},
		"lost":     {Request{View: Overview}, lost, nil},
		"history":  {Request{View: History}, b, nil},
		"one":      {Request{View: History, Stack: "web"}, b, nil},
		"absent":   {Request{View: Resource, Path: "/jobs/prod/none"}, b, nil},
		"job":      of(b, "backfill-2026-06"), "large": of(b, "train"), "ready": of(b, "nightly"),
		"unreadable": of(b, "secret"), "group": of(b, "api"), "vacant": of(b, "spare"), "queue": of(b, "primes"),
	}
}

// shown is the document of a page.
func shown(t testing.TB, v *views, r Request, b *Board, d *Detail) string {
	t.Helper()
	var out bytes.Buffer
	if err := v.document(&out, r, v.render(r, b, d)); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestGoldenPages(t *testing.T) {
	v := newViews()
	all := pages()
	for _, name := range []string{"overview", "filtered", "lost", "history", "absent", "job", "group", "queue", "batch"} {
		p, file := all[name], filepath.Join("testdata", name+".html")
		got := shown(t, v, p.r, p.b, p.d)
		if update() {
			if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); d != "" {
			t.Errorf("%s (-want +got), go test ./page -run Golden -update accepts it:\n%s", name, d)
		}
	}
}

// problems says what is wrong with a document, as far as that can be told without a browser.
func problems(doc string) []string {
	var all []string
	root, err := html.Parse(strings.NewReader(doc))
	if err != nil {
		return []string{err.Error()}
	}
	ids := map[string]bool{}
	var refs []string
	level, h1 := 0, 0
	for n := range root.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		if len(n.Data) == 2 && n.Data[0] == 'h' && n.Data[1] >= '1' && n.Data[1] <= '6' {
			is := int(n.Data[1] - '0')
			if is > level+1 {
				all = append(all, "a heading "+n.Data+" after level "+string(rune('0'+level)))
			}
			if level = is; is == 1 {
				h1++
			}
		}
		for _, a := range n.Attr {
			switch {
			case a.Key == "id":
				if ids[a.Val] || a.Val == "" {
					all = append(all, "the id "+a.Val+" twice, or empty")
				}
				ids[a.Val] = true
			case strings.HasPrefix(a.Key, "aria-labelledby"), a.Key == "aria-describedby":
				refs = append(refs, a.Val)
			case a.Key == "style", strings.HasPrefix(a.Key, "on"):
				all = append(all, "an attribute "+a.Key)
			case a.Key == "href" && !regexp.MustCompile(`^(/|#|https?://)`).MatchString(a.Val):
				all = append(all, "a link to "+a.Val)
			}
		}
	}
	for _, ref := range refs {
		if !ids[ref] {
			all = append(all, "there is no id "+ref)
		}
	}
	if h1 != 1 {
		all = append(all, "not one h1")
	}
	return all
}

func TestEveryPageIsSound(t *testing.T) {
	v := newViews()
	for name, p := range pages() {
		if found := problems(shown(t, v, p.r, p.b, p.d)); len(found) > 0 {
			t.Errorf("%s: %s", name, strings.Join(found, "; "))
		}
	}
	wrong := `<h1 id=a>x</h1><h3 id=a style="x" aria-labelledby=b>x</h3><a href="javascript:x">`
	if found := problems(wrong); len(found) != 5 {
		t.Errorf("problems are not found: %q", found)
	}
}

// TestFragmentsAreOneElement: each has its id and its slot, and a document holds each once and in order.
func TestFragmentsAreOneElement(t *testing.T) {
	v := newViews()
	for name, p := range pages() {
		rendered := v.render(p.r, p.b, p.d)
		slots := []string{"main", "source-slot"}
		for _, f := range rendered.Fragments {
			context := &html.Node{Type: html.ElementNode, Data: "template", DataAtom: atom.Template}
			nodes, err := html.ParseFragment(strings.NewReader(f.HTML), context)
			if err != nil || len(nodes) != 1 || nodes[0].Type != html.ElementNode || attribute(nodes[0], "id") != f.ID {
				t.Errorf("%s: fragment %s is not one element with its id (%v): %.200s", name, f.ID, err, f.HTML)
				continue
			}
			if !slices.Contains(slots, f.In) {
				t.Errorf("%s: fragment %s is in %s, which is not there yet", name, f.ID, f.In)
			}
			for _, n := range append(slices.Collect(nodes[0].Descendants()), nodes[0]) {
				isSlot := func(a html.Attribute) bool { return a.Key == "data-slot" }
				if slices.ContainsFunc(n.Attr, isSlot) {
					slots = append(slots, attribute(n, "id"))
				}
			}
		}
		doc := shown(t, v, p.r, p.b, p.d)
		for _, f := range rendered.Fragments {
			if !strings.Contains(doc, ` id="`+f.ID+`"`) {
				t.Errorf("%s: the document does not have %s", name, f.ID)
			}
		}
	}
}

func attribute(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}

// TestOutputOfRuns: of much output the end is shown, a new run changes its cron and nothing of the other runs.
func TestOutputOfRuns(t *testing.T) {
	r := runOf("nightly", view.Run{State: "done", Output: strings.Repeat("line\n", maxOutputLines+7) + "<end>"})
	if n := strings.Count(r.Output, "\n"); n != maxOutputLines-1 || r.Hidden != 8 || r.Last != "<end>" {
		t.Errorf("%d line ends, %d hidden, the last line %q", n, r.Hidden, r.Last)
	}
	v, b := newViews(), sample()
	d := detail(b, "api")
	fragments := func() map[string]string {
		all := map[string]string{}
		for _, f := range v.render(Request{View: Resource, Path: d.Path}, b, d).Fragments {
			all[f.ID] = f.HTML
		}
		return all
	}
	before := fragments()
	cron := &d.Group.Duties[1]
	cron.Runs = append([]view.Run{{Asked: 4, State: "waiting"}}, cron.Runs...)
	changed := 0
	for id, html := range fragments() {
		if before[id] != html {
			changed++
		}
	}
	if changed != 3 {
		t.Errorf("%d fragments have changed, not the cron, the mark and the row", changed)
	}
}

// TestMeter: what is dead is seen beside what is done, and hostile counts stay in the bar.
func TestMeter(t *testing.T) {
	for _, c := range []struct {
		done, dead, tasks int64
		want              [2]float64
	}{
		{0, 0, 0, [2]float64{}}, {5, 1, 6, [2]float64{83.3, 16.7}}, {999_999, 1, 1_000_000, [2]float64{99, 1}},
		{-5, 7, 2, [2]float64{0, 100}}, {1 << 62, 1, 1, [2]float64{0, 100}}, {3, 0, 4, [2]float64{75, 0}},
	} {
		if m := meterOf(c.done, c.dead, c.tasks); [2]float64{m.Done, m.Dead} != c.want {
			t.Errorf("%+v: %+v", c, m)
		}
	}
}

// TestRedisIsAway: what it told last stays, of the batches that are there.
func TestRedisIsAway(t *testing.T) {
	q := &view.Queue{Batches: []view.Batch{{ID: "a"}, {ID: "new"}}}
	d, away := &Detail{Resource: view.Resource{Queue: q}}, errors.New("refused")
	if got := (asked{}).as(d, away); got.Redis != "refused" || len(got.Batches) != 0 {
		t.Errorf("it never answered: %+v", got)
	}
	b := func(id string, done int64) BatchProgress {
		return BatchProgress{BatchRow: view.BatchRow{Batch: view.Batch{ID: id},
			BatchCounts: &view.BatchCounts{Done: done}}, PerSecond: 3}
	}
	told := asked{Told: epoch(), Progress: Progress{Batches: []BatchProgress{b("gone", 1), b("a", 2)}}}
	got := told.as(d, away)
	if len(got.Batches) != 2 || got.Batches[0].Done != 2 || got.Batches[0].PerSecond != 0 ||
		got.Batches[1].BatchCounts != nil || !got.Told.Equal(epoch()) || got.Redis == "" || told.Batches[1].PerSecond != 3 {
		t.Errorf("%+v", got)
	}
}

// TestOnlyWhatChangedIsNew: a job that changes has a new row, a new need, and new counts. Nothing else changes, though
// the board is of another time.
func TestOnlyWhatChangedIsNew(t *testing.T) {
	v, before, after := newViews(), sample(), sample()
	after.At = epoch().AddDate(0, 0, 1)
	i := slices.IndexFunc(after.Resources, func(j view.Resource) bool { return strings.HasSuffix(j.Path, "/etl-a") })
	after.Resources[i] = with(after.Resources[i], func(o *resource.Observed) { o.Live = 7 })
	was := map[string]string{}
	for _, f := range v.render(Request{View: Overview}, before, nil).Fragments {
		was[f.ID] = f.HTML
	}
	var changed []string
	for _, f := range v.render(Request{View: Overview}, after, nil).Fragments {
		if was[f.ID] != f.HTML {
			changed = append(changed, f.ID)
		}
	}
	want := []string{"headline", hashID("n", "/jobs/prod/etl-a"), "all", hashID("r", "/jobs/prod/etl-a")}
	if d := cmp.Diff(want, changed); d != "" {
		t.Errorf("changed (-want +got):\n%s", d)
	}
}

func TestFilterAndSort(t *testing.T) {
	v, b := newViews(), sample()
	for _, r := range b.Resources {
		if rec := r.Observed.Record; r.Path == "/jobs/prod/api" {
			g := group.Of(rec)
			g.Labels = map[string]string{"team": "shop"}
			rec.Declaration = g
		}
	}
	rows := func(r Request) []string {
		r.View = Overview
		var names []string
		for _, f := range v.render(r, b, nil).Fragments {
			if strings.HasPrefix(f.In, "rows-") {
				i := slices.IndexFunc(b.Resources, func(j view.Resource) bool { return hashID("r", j.Path) == f.ID })
				names = append(names, strings.TrimPrefix(b.Resources[i].Path, "/jobs/prod/"))
			}
		}
		return names
	}
	for _, c := range []struct {
		r    Request
		want string
	}{
		{Request{Filter: "/PROD/ job.etl"}, "etl-a etl-b"},
		{Request{Filter: "tier=1 backfill"}, "backfill-2026-06"}, {Request{Filter: "team=shop"}, "api"},
		{Request{Kind: "queue"}, "mail primes"}, {Request{Kind: "queue", Status: "degraded"}, "primes"},
		{Request{Kind: "queue", Status: needing}, "primes"}, {Request{Stack: "web"}, ""},
		{Request{Kind: "group", Sort: "live"}, "api spare"}, {Request{Kind: "queue", Sort: "status"}, "primes mail"},
		{Request{Status: "no such status"}, ""}, {Request{Filter: "nightly", Sort: "no such order"}, "nightly"},
	} {
		if got := strings.Join(rows(c.r), " "); got != c.want {
			t.Errorf("%+v: %s, want %s", c.r, got, c.want)
		}
	}
}

// TestWhatAPlanWouldDo: each resource that is declared, or was, says what apply would do with it; also one that is
// missing, unless its root is not shown.
func TestWhatAPlanWouldDo(t *testing.T) {
	v, b := newViews(), planned("jobs.hcl:3: <b>")
	doc := shown(t, v, Request{View: Overview, Sort: "plan"}, b, nil)
	all := ""
	for _, e := range b.entries() {
		if e.Plan != inSync && e.Plan != "blocked" {
			all += fmt.Sprintf("%s: %s, %s\n", e.Name, e.Status, e.Plan)
		}
	}
	if want := `archive: completed, delete
classic-one: running, –
ingest-eu: ready, replace
new <b>: missing, missing
old-thing: damaged, update
rebuild: stale, replace
secret: unreadable, –
unknown-thing: foreign, –
`; all != want {
		t.Errorf("the column:\n%swant\n%s", all, want)
	}
	for _, want := range []string{
		"It cannot be read, so what follows is of what was read before: jobs.hcl:3: &lt;b&gt;", "<code>muster plan</code>",
	} {
		if !strings.Contains(doc, want) {
			t.Errorf("the overview lacks %q", want)
		}
	}
	if strings.Contains(doc, "/elsewhere") || strings.Index(doc, ">missing<") > strings.Index(doc, ">running<") {
		t.Error("the order, or what is not shown")
	}
	for name, want := range map[string]string{
		"ingest-eu": "replace (delete, then create)", "etl-a": "8 workers are live", "archive": "delete, because: owned by",
		"new <b>": "missing: <code>muster apply</code> makes it", "etl-b": "",
	} {
		doc := shown(t, v, Request{View: Resource, Path: "/jobs/prod/" + name}, b, detail(b, name))
		if !strings.Contains(doc, want) || want == "" && strings.Contains(doc, "What a plan would do") {
			t.Errorf("%s lacks %q:\n%s", name, want, doc)
		}
	}
}

// manyJobs is a board of n jobs.
func manyJobs(n int) *Board {
	b := &Board{At: epoch(), Connected: true}
	for i := range n {
		b.Resources = append(b.Resources, aJob(fmt.Sprintf("job-%05d", i), 8, 8, 8, 0))
	}
	return b
}

// BenchmarkOverview draws 10,000 jobs: cold, with nothing in the cache; warm, after one job has changed; and the whole
// document of it.
func BenchmarkOverview(b *testing.B) {
	board := manyJobs(10_000)
	r := Request{View: Overview}
	b.Run("cold", func(b *testing.B) {
		for b.Loop() {
			newViews().render(r, board, nil)
		}
	})
	warm := newViews()
	warm.render(r, board, nil)
	b.Run("warm", func(b *testing.B) {
		live := 0
		for b.Loop() {
			live = 1 - live
			board.Resources[5_000] = with(board.Resources[5_000], func(o *resource.Observed) { o.Live = 7 + live })
			warm.render(r, board, nil)
		}
	})
	b.Run("document", func(b *testing.B) {
		for b.Loop() {
			if err := warm.document(io.Discard, r, warm.render(r, board, nil)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkGrid draws a job of 10,000 workers, cold and after one worker was lost.
func BenchmarkGrid(b *testing.B) {
	j := aJob("large", 10_000, 10_000, 10_000, 0)
	board := &Board{At: epoch(), Connected: true, Resources: []view.Resource{j}}
	j.Workers = workersOf(10_000, 0)
	d := &Detail{Resource: j}
	r := Request{View: Resource, Path: j.Path}
	b.Run("cold", func(b *testing.B) {
		for b.Loop() {
			newViews().render(r, board, d)
		}
	})
	warm := newViews()
	b.Run("warm", func(b *testing.B) {
		states := []view.WorkerState{view.Lost, view.Live}
		for i := 0; b.Loop(); i++ {
			d.Workers[100].State = states[i%2]
			warm.render(r, board, d)
		}
	})
}

// hostile are names that try to be more than text.
func hostile() []string {
	return []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='x`, `</title></textarea></script>`,
		"a\u202eb\u2066c", "a\x00b\x1b[2Jc\nd\r\te", "bad\xff\xfeutf8", `{{.}}`, "<!--", "]]>", `javascript:alert(1)`,
		"👩‍💻🏳️‍🌈", strings.Repeat("x", 128), "שלום", "a b;rm -rf ~ `x` $(y)", "%2e%2e%2f", "?q=#a", ` data-slot>`,
		`id="rows" data-slot>`, "&lt;b&gt;", "\u2028\u2029", "\ufeff",
	}
}

// textOf is the text of the first element for which is is true; ok is false if there is none.
func textOf(doc string, is func(n *html.Node) bool) (string, bool) {
	root, err := html.Parse(strings.NewReader(doc))
	if err != nil {
		return "", false
	}
	for n := range root.Descendants() {
		if n.Type != html.ElementNode || !is(n) {
			continue
		}
		var b strings.Builder
		for d := range n.Descendants() {
			if d.Type == html.TextNode {
				b.WriteString(d.Data)
			}
		}
		return b.String(), true
	}
	return "", false
}

// checkName shows a name wherever somebody else than muster can put one, and looks for it as text.
func checkName(t *testing.T, name string) {
	t.Helper()
	if strings.TrimSpace(name) == "" {
		return // it would be nothing to look for
	}
	path := "/jobs/" + strings.ReplaceAll(name, "/", "")
	foreign := view.Resource{Path: path, Observed: resource.Observed{Foreign: true, Problem: name}}
	labelled := aJob("labelled", 2, 2, 1, 0)
	j := job.Of(labelled.Observed.Record)
	j.Labels = map[string]string{name: name}
	labelled.Observed.Record.Declaration, labelled.Observed.Record.Stack = j, name
	labelled.Observed.Record.By, labelled.Observed.Strangers = name, []string{name}
	b := &Board{
		Servers: name, Unlisted: []string{name}, Resources: []view.Resource{foreign, labelled},
		Stacks: []Stack{{Name: name, Roots: []string{name}}},
	}
	slices.SortFunc(b.Resources, func(x, y view.Resource) int { return strings.Compare(x.Path, y.Path) })
	workers := []view.Worker{{Identity: name, Address: name, State: view.Live, LastExit: name, Rack: name}}
	v := newViews()
	shows := map[string]string{}
	for view, r := range map[string]Request{
		"overview": {View: Overview, Filter: name, Stack: name, Status: name, Kind: name, Sort: name},
		"foreign":  {View: Resource, Path: path},
		"labelled": {View: Resource, Path: labelled.Path},
		"absent":   {View: Resource, Path: "/none/" + name},
	} {
		var d *Detail
		if view == "labelled" {
			d = &Detail{Resource: labelled}
			d.Workers = workers
		}
		shows[view] = shown(t, v, r, b, d)
		if found := problems(shows[view]); len(found) > 0 {
			t.Errorf("%q, %s: %s", name, view, strings.Join(found, "; "))
		}
		if _, script := textOf(shows[view], func(n *html.Node) bool {
			return n.Data == "img" && attribute(n, "src") != "/assets/icon.svg" ||
				n.Data == "script" && attribute(n, "src") != "/assets/page.js"
		}); script {
			t.Errorf("%q, %s: a name became an element", name, view)
		}
	}
	class := func(want string) func(n *html.Node) bool {
		return func(n *html.Node) bool { return strings.Contains(" "+attribute(n, "class")+" ", " "+want+" ") }
	}
	heading := func(n *html.Node) bool { return n.Data == "h1" }
	visible := func(s string) string { return text.Visible(s) }
	for _, c := range []struct {
		view, want string
		is         func(n *html.Node) bool
	}{
		{"foreign", visible(path), heading}, {"overview", visible(name), class("servers")},
		{"absent", "There is no " + visible("/none/"+name), heading},
		{"labelled", visible(name), func(n *html.Node) bool {
			return n.Data == "bdi" && n.Parent.Data == "dd" && n.Parent.Parent.Parent.Data == "dl" &&
				attribute(n.Parent.Parent.Parent, "class") == "labels"
		}},
		{"labelled", visible(name), func(n *html.Node) bool {
			return n.Data == "bdi" && attribute(n.Parent, "class") == "long"
		}},
		{"overview", "unreadable root " + visible(name), func(n *html.Node) bool {
			return n.Data == "div" && n.Parent != nil && attribute(n.Parent, "id") == hashID("u", name)
		}},
	} {
		got, ok := textOf(shows[c.view], c.is)
		if got = strings.TrimSpace(got); !ok || got != strings.TrimSpace(c.want) {
			t.Errorf("%q: %s shows %q, want %q", name, c.view, got, c.want)
		}
	}
}

func TestNamesAreText(t *testing.T) {
	for _, name := range hostile() {
		checkName(t, name)
	}
}

// FuzzNamesAreText: any name yields a sound document, whose text is the name with what is not printable as escapes.
func FuzzNamesAreText(f *testing.F) {
	for _, name := range hostile() {
		f.Add(name)
	}
	f.Fuzz(checkName)
}

func TestRequestsSurviveTheirURL(t *testing.T) {
	for _, name := range hostile() {
		name = strings.ReplaceAll(name, "/", "")
		for _, r := range []Request{
			{View: Resource, Path: "/jobs/" + name},
			{View: Batch, Path: "/jobs/" + name, Batch: "nightly-7"},
			{View: History, Stack: strings.TrimSpace(name)},
			{View: Overview, Filter: strings.TrimSpace(name), Stack: name, Kind: name, Status: name, Sort: name},
		} {
			u, err := url.Parse(r.URL())
			if err != nil {
				t.Fatalf("%q: %v", r.URL(), err)
			}
			if got, ok := parseRequest(u); !ok || got != r {
				t.Errorf("%+v became %+v", r, got)
			}
		}
	}
	for _, bad := range []string{
		"/x", "/resource", "/resource/", "/history/x", "/batch/", "/batch/a", "/batch/a/b c", "/favicon.ico",
	} {
		if u, _ := url.Parse(bad); u == nil {
			t.Error(bad)
		} else if r, ok := parseRequest(u); ok {
			t.Errorf("%s is %+v", bad, r)
		}
	}
}

func TestLinksOfTheWebOnly(t *testing.T) {
	for s, want := range map[string]string{
		"https://ci.example/runs/118?a=b#c": "https://ci.example/runs/118?a=b#c", "http://ci:8080/x": "http://ci:8080/x",
		"javascript:alert(1)": "", "data:text/html,x": "", "//evil.example/x": "", "https:evil": "",
		"HTTPS://x/":               "https://x/",
		"https://user:secret@ci/x": "", "ftp://x/": "", "": "", "http://": "", " https://x/": "", "java\nscript:x": "",
	} {
		if got := webURL(s); got != want {
			t.Errorf("%q is a link to %q, want %q", s, got, want)
		}
	}
}

func TestCommandsOfSteps(t *testing.T) {
	for _, want := range []string{
		"[muster apply] makes it if it is declared", "[muster status /jobs/a --watch], until all have left",
		"or [muster terminate /jobs/a]", "[muster worker --job a --root /r], or the same with -- COMMAND",
		"[muster queue batches q --root /r] shows whether an executor",
		"[muster executor q --root /r -- CMD] executes what waits",
		"[muster explain '/jobs/a b; c'] shows it", "[muster member --group g --root / --version VERSION] joins it",
		"restart the workers that left (they keep their ids)[]", "[muster group resume /jobs/api/reaper]",
		`[muster explain '/jobs/it'\''s a'] or so`, "[muster apply]", "muster[]",
	} {
		line := strings.NewReplacer("[", "", "]", "").Replace(want)
		s := splitStep(line)
		if got := fmt.Sprintf("%s[%s]%s", string(s.Before), string(s.Command), string(s.After)); got != want {
			t.Errorf("%s:\n got %s\nwant %s", line, got, want)
		}
	}
	failing := aQueue("q", queue.Found{Executors: 1, Watchers: 1, Batches: 2, Failed: 1}, 2, view.Queue{})
	failing.Queue = nil // as the overview has it
	which := step{"", "muster queue batches /jobs/prod/q", " shows which of them, and what to do with it"}
	if d := cmp.Diff([]step{which}, stepsOf(failing)); d != "" {
		t.Errorf("steps of a queue (-want +got):\n%s", d)
	}
	foreign := view.Resource{Path: "/jobs/a; rm -rf ~", Observed: resource.Observed{Foreign: true}}
	want := []step{{"", `muster explain '/jobs/a; rm -rf ~'`, ""}}
	if d := cmp.Diff(want, stepsOf(foreign)); d != "" {
		t.Errorf("steps (-want +got):\n%s", d)
	}
}
