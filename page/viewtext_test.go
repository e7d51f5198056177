package page

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"

	"muster/resource"
	"muster/resource/job"
	"muster/text"
	"muster/view"
)

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
	workers := []view.Worker{{Identity: name, Address: name, State: view.Live, LastExit: name}}
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
			{View: Resource, Path: "/jobs/" + name}, {View: History, Stack: strings.TrimSpace(name)},
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
	for _, bad := range []string{"/x", "/resource", "/resource/", "/history/x", "/favicon.ico"} {
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
		"[muster batches q --root /r] shows whether an executor", "[muster executor q --root /r -- CMD] executes what waits",
		"[muster explain '/jobs/a b; c'] shows it", "[muster member --group g --root / --version VERSION] joins it",
		"restart the workers that left (they keep their ids)[]", "[muster resume /jobs/api/reaper]",
		`[muster explain '/jobs/it'\''s a'] or so`, "[muster apply]", "muster[]",
	} {
		line := strings.NewReplacer("[", "", "]", "").Replace(want)
		s := splitStep(line)
		if got := fmt.Sprintf("%s[%s]%s", string(s.Before), string(s.Command), string(s.After)); got != want {
			t.Errorf("%s:\n got %s\nwant %s", line, got, want)
		}
	}
	foreign := view.Resource{Path: "/jobs/a; rm -rf ~", Observed: resource.Observed{Foreign: true}}
	want := []step{{"", `muster explain '/jobs/a; rm -rf ~'`, ""}}
	if d := cmp.Diff(want, stepsOf(foreign)); d != "" {
		t.Errorf("steps (-want +got):\n%s", d)
	}
}
