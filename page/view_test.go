package page

import (
	"bytes"
	"flag"
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
	b, lost := sample(), sample()
	lost.Unindexed = "/.muster cannot be read"
	lost.Connected, lost.Unlisted, lost.Resources = false, []string{"/jobs/hidden: no permission"}, nil
	return map[string]page{
		"overview": {Request{View: Overview}, b, nil},
		"filtered": {Request{View: Overview, Filter: "JOBS team=data", Status: needing, Kind: "job", Sort: "status"}, b, nil},
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
	for _, name := range []string{"overview", "filtered", "lost", "history", "absent", "job", "group", "queue"} {
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
		{Request{Filter: "tier=1 backfill"}, "backfill-2026-06"},
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
