package browser

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/google/go-cmp/cmp"
)

// views are the pages of a town, by the names of their pictures.
func views() map[string]string {
	return map[string]string{
		"overview": "/", "running": "/resource/jobs/ingest", "degraded": "/resource/jobs/nightly",
		"stale": "/resource/jobs/died", "damaged": "/resource/jobs/hurt", "group": "/resource/apps/shop",
		"queue": "/resource/queues/primes", "history": "/history", "filtered": "/?q=night&status=degraded",
		"absent": "/resource/jobs/none", "batch": "/batch/queues/primes/numbers",
	}
}

// TestPage: the page of a town, as people see it. Its parts share the town; those that change it come last.
func TestPage(t *testing.T) {
	w := newTown(t)
	s := w.serve()
	on := func(f func(*testing.T, *town, *server)) func(*testing.T) {
		return func(t *testing.T) {
			inner := *w
			inner.t = t
			server := *s
			server.t = t
			f(t, &inner, &server)
		}
	}
	t.Run("shown", on(testShown))
	t.Run("accessible", on(testAccessible))
	t.Run("keyboard", on(testKeyboard))
	t.Run("without_scripts", on(testWithoutScripts))
	t.Run("other_media", on(testOtherMedia))
	t.Run("planned", on(testPlanned))
	t.Run("requests", func(t *testing.T) { testHostileRequests(t, s) })
	t.Run("worker_dies", on(testWorkerDies))
	t.Run("server_is_gone", on(testServerIsGone))
}

// testShown: each view says what muster status says, and more.
func testShown(t *testing.T, w *town, s *server) {
	b := newTab(t, s.url)
	b.allow("404") // of what is not there
	b.open("/")
	b.awaitText("3 of 9 need somebody")
	for path, status := range townStatuses() {
		row := eval[string](b, `[...document.querySelectorAll("#rows tr")].map(r => r.innerText.replace(/\s+/g, " "))`+
			`.filter(r => r.includes(`+quote(path)+`)).join()`)
		if !strings.Contains(row, status) {
			t.Errorf("the row of %s, which is %s: %q", path, status, row)
		}
	}
	needs := b.textOf("#needs")
	for _, want := range []string{"/jobs/nightly", "/jobs/died", "/jobs/hurt", "muster "} {
		if !strings.Contains(needs, want) {
			t.Errorf("what needs somebody lacks %q:\n%s", want, needs)
		}
	}
	for _, c := range []struct {
		at    string
		texts []string
	}{
		{"overview", []string{"etl", "8 in /apps, /jobs, /queues", "Last apply", "8 created", "ops", "1 in /ops"}},
		{"history", []string{"etl", "ops", "tester@", "8 created", "1 created", "finished"}},
		{"running", []string{
			"/jobs/ingest", "running", "ingest-a", "ingest-b", "ingest-c", "live", "loaded", "1 of 3", "team", "data", "etl",
			"Workers that joined 0", "Workers that left or were lost 0", "Not known before ",
		}},
		{"degraded", []string{"degraded", "nightly-a", "nightly-b", "left", "3", "muster "}},
		{"stale", []string{"stale", "died-a", "died-b", "left", "1", "muster "}},
		{"damaged", []string{"damaged", "/jobs/hurt", "muster explain"}},
		{"group", []string{"shop-0", "shop-1", "1.9.0", "2.1.0", "coordinator", "nightly-report", "0 2 * * *", "Next"}},
		{"queue", []string{
			"numbers", "slow", "hand-a", "executor", "2 tasks of slow", "unlucky number", "dead", "18 waiting", "13", "eye-a",
			"100%", "1 dead", "muster queue retry", "Tasks a second 0/s", "Dead tasks 1", "Not known before ",
		}},
		{"batch", []string{
			"/queues/primes", "numbers", "completed", "5 of 6 done, 1 dead", "unlucky number", "exit 65", "eye-a",
			"muster queue retry /queues/primes/numbers",
		}},
		{"filtered", []string{"/jobs/nightly", "1 of 9"}},
		{"absent", []string{"There is no /jobs/none"}},
	} {
		b.open(views()[c.at])
		b.awaitText(c.texts...)
	}
	if filtered := b.textOf("#rows"); strings.Contains(filtered, "ingest") {
		t.Errorf("filtered: %s", filtered)
	}
}

// testPlanned: what the configuration says that is not so, also after its files have changed and while they are broken.
func testPlanned(t *testing.T, w *town, _ *server) {
	s := w.serve("-f", "etl")
	b := newTab(t, s.url)
	b.open("/")
	b.awaitText("Configuration of stack etl", "in sync")
	file := filepath.Join(w.dir, "etl", "main.hcl")
	body, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	change := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	changed := strings.Replace(string(body), "workers = 8", "workers = 9", 1)
	change(changed + "job \"wanted\" {\n  root = \"/jobs\"\n  workers = 1\n}\n")
	b.awaitText("1 missing", "2 to replace", "muster plan", "wanted")
	b.accessible("planned")
	change("job {")
	b.awaitText("It cannot be read, so what follows is of what was read before", "1 missing")
	b.open("/resource/jobs/idle")
	b.awaitText("What a plan would do: replace", "workers: 8 → 9")
	b.accessible("planned-job")
}

// testAccessible: every view can be read by everybody.
func testAccessible(t *testing.T, w *town, s *server) {
	for name, at := range views() {
		t.Run(name, func(t *testing.T) {
			b := newTab(t, s.url)
			if name == "absent" {
				b.allow("404")
			}
			b.open(at)
			b.await("the page", `document.querySelector("h1")`)
			b.accessible(name)
			for _, request := range b.requests {
				if !strings.HasPrefix(request, "/stream?") && !strings.HasPrefix(request, "/assets/") && request != at {
					t.Errorf("the page asks for %s", request)
				}
			}
		})
	}
}

// testKeyboard: everything can be reached and done without a mouse, and one sees where one is.
func testKeyboard(t *testing.T, w *town, s *server) {
	b := newTab(t, s.url)
	b.view(1280, 500)
	if order := b.focusable("/", 60); len(order) < 15 || order[0] != "A #main" {
		t.Errorf("the Tab key leads to %q", order)
	}
	b.focusable(views()["queue"], 40)
	b.do(chromedp.Click(chromedp.CSS("#batches-list a")))
	b.await("the page of a batch", `document.querySelector("h1").textContent === "numbers"`)
	b.live()
	b.open("/")
	b.live()
	b.keys("/")
	b.await("the focus", `document.activeElement.id === "q"`)
	b.keys("night")
	b.await("the filter", `document.querySelectorAll("#rows tr").length === 1 && location.search.includes("q=night")`)
	if at := eval[string](b, "document.activeElement.id + document.activeElement.value"); at != "qnight" {
		t.Errorf("after typing the focus is at %s", at)
	}
	b.keys(kb.Escape) // the browser empties the field
	b.keys(kb.Escape)
	b.await("the end of the filter", `document.activeElement.id !== "q"`)
	b.await("all rows", `document.querySelectorAll("#rows tr").length === 9`)
	b.keys("j")
	first := eval[string](b, `document.activeElement.textContent`)
	b.keys(kb.Enter)
	b.await("the page of "+first, `document.querySelector("h1").textContent === `+quote(first))
	b.live()
	b.keys("u")
	b.awaitText("9 in all")
	b.live()
	for range 3 {
		b.keys("j")
	}
	b.keys("k")
	third := eval[string](b, `document.activeElement.closest("[data-row]").innerText`)
	b.keys("j")
	b.keys("k")
	if again := eval[string](b, `document.activeElement.closest("[data-row]").innerText`); again != third || third == "" {
		t.Errorf("down and up leads from %q to %q", third, again)
	}
}

// live waits until the page says that it is kept up to date.
func (b *tab) live() {
	b.t.Helper()
	b.await("a stream", `performance.getEntriesByType("navigation").length &&`+
		` document.body.dataset.live === "true"`)
}

// testWithoutScripts: without JavaScript the same is shown, and the filter works.
func testWithoutScripts(t *testing.T, w *town, s *server) {
	// What only one of them shows is left out: ages beside times, and the button of the filter.
	const shown = `(() => {
		const c = document.querySelector("main").cloneNode(true)
		for (const e of c.querySelectorAll("time, .nojs, .js")) e.remove()
		return c.textContent.replace(/\s+/g, " ")
	})()`
	with, without := newTab(t, s.url), newTab(t, s.url)
	with.allow("404")
	without.allow("404")
	without.scripts(false)
	for name, at := range views() {
		with.open(at)
		with.live()
		without.open(at)
		if a, b := eval[string](with, shown), eval[string](without, shown); a != b {
			t.Errorf("%s: with scripts\n%s\nand without\n%s", name, a, b)
		}
	}
	without.open("/")
	if text := without.text(); !strings.Contains(text, "This page is as of 20") {
		t.Errorf("it does not say how old it is:\n%s", text)
	}
	without.do(
		chromedp.SendKeys(chromedp.CSS("#q"), "night"), chromedp.Click(chromedp.CSS("#apply-filter")),
		chromedp.WaitVisible(chromedp.CSS("#shown a")),
	)
	if rows := eval[int](without, `document.querySelectorAll("#rows tr").length`); rows != 1 {
		t.Errorf("the filter leaves %d rows; the address is %s", rows, eval[string](without, "location.href"))
	}
	for _, request := range without.requests {
		if strings.HasPrefix(request, "/stream") {
			t.Error("without scripts the page asks for the stream")
		}
	}
}

// testOtherMedia: on paper, and in colours that the system chooses, the state of everything is still told by words.
func testOtherMedia(t *testing.T, w *town, s *server) {
	const told = `[...document.querySelectorAll("#headline h1, .badge, .tag, .bad-text, .bar b")]` +
		`.filter(e => e.checkVisibility({ visibilityProperty: true, opacityProperty: true })).map(e => e.innerText.trim())`
	b := newTab(t, s.url)
	b.view(794, 1123) // A4
	for _, name := range []string{"overview", "stale", "group", "queue", "history"} {
		b.media("", "light", "none")
		b.open(views()[name])
		b.live()
		b.settle()
		screen := eval[[]string](b, told)
		if len(screen) == 0 {
			t.Fatalf("%s tells no state", name)
		}
		b.media("", "dark", "active")
		b.settle()
		if diff := cmp.Diff(screen, eval[[]string](b, told)); diff != "" {
			t.Errorf("%s in forced colours (-screen +forced):\n%s", name, diff)
		}
		b.picture(name + "-forced")
		b.bar(name)
		b.media("print", "dark", "none")
		b.settle()
		if diff := cmp.Diff(screen, eval[[]string](b, told)); diff != "" {
			t.Errorf("%s printed (-screen +paper):\n%s", name, diff)
		}
		b.onPaper(name)
	}
}

// onPaper checks the page as it is printed.
func (b *tab) onPaper(name string) {
	b.t.Helper()
	b.picture(name + "-print")
	b.bar(name)
	for _, problem := range eval[[]string](b, accessScript) {
		if strings.Contains(problem, "contrast") || strings.Contains(problem, "pixels wide") {
			b.t.Errorf("%s printed: %s", name, problem)
		}
	}
	const ages = `[...document.querySelectorAll("main time")].filter(e => e.checkVisibility() &&
		getComputedStyle(e, "::after").content !== JSON.stringify(e.title)).map(e => e.textContent)`
	if found := eval[[]string](b, ages); len(found) > 0 {
		b.t.Errorf("%s printed: ages without a time: %q", name, found)
	}
	if colour := eval[string](b, "getComputedStyle(document.body).backgroundColor"); colour != "rgb(255, 255, 255)" {
		b.t.Errorf("%s is printed on %s", name, colour)
	}
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	made, err := chromedp.Call(ctx, page.PrintToPDF, page.PrintToPDFParams{})
	if err != nil {
		b.t.Fatal(err)
	}
	if n := bytes.Count(made.Data, []byte("/Type /Page\n")); n < 1 || n > 2 {
		b.t.Errorf("%s is printed on %d sheets", name, n)
	}
}

// bar checks that the bar of a batch is drawn, and what is dead apart from what is done: also on paper, and where
// colours are forced.
func (b *tab) bar(name string) {
	b.t.Helper()
	const place = `(() => {
		const r = document.querySelector(".meter:has(.dead)")?.getBoundingClientRect()
		return r ? [r.left, r.width, r.top + scrollY + r.height / 2] : []
	})()`
	at := eval[[]float64](b, place)
	if name != "queue" && len(at) == 0 {
		return
	}
	drawn, err := png.Decode(bytes.NewReader(b.drawn()))
	if err != nil {
		b.t.Fatal(err)
	}
	pixel := func(share float64) color.Color { return drawn.At(int(at[0]+at[1]*share), int(at[2])) }
	done, dead, page := pixel(0.4), pixel(0.838), drawn.At(1, 1) // 5 of 6 are done
	if done == page || dead == page || done == dead {
		b.t.Errorf("%s: of a batch what is done is %v, what is dead %v, and the page %v", name, done, dead, page)
	}
}

// accessScript finds what a reader of the page could trip over.
//
//go:embed testdata/access.js
var accessScript string

// accessible checks the page as it is shown, in light and dark, and on screens of all widths.
func (b *tab) accessible(name string) {
	b.t.Helper()
	for _, scheme := range []string{"light", "dark"} {
		b.scheme(scheme)
		for _, width := range []int64{1280, 390, 320} {
			b.view(width, 844)
			b.settle()
			for _, problem := range eval[[]string](b, accessScript) {
				b.t.Errorf("%s, %s, %d pixels: %s", name, scheme, width, problem)
			}
			if width != 320 {
				b.picture(fmt.Sprintf("%s-%d-%s", name, width, scheme))
			}
		}
	}
	b.scheme("light")
	b.view(1280, 900)
	b.named(name)
}

// settle waits until the page is drawn and nothing moves any more.
func (b *tab) settle() {
	b.t.Helper()
	eval[bool](b, `new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() =>
		Promise.allSettled(document.getAnimations().map(a => a.finished)).then(() => done(true)))))`)
}

// named checks that a screen reader has a name for everything that it must have one for.
func (b *tab) named(page string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	tree, err := chromedp.Call(ctx, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	if err != nil {
		b.t.Fatal(err)
	}
	const need = " button link checkbox radio textbox searchbox combobox listbox option img image progressbar region " +
		"table heading navigation search form tab menuitem "
	found := map[string]int{}
	for _, n := range tree.Nodes {
		role := axText(n.Role)
		if n.Ignored || !strings.Contains(need, " "+role+" ") {
			continue
		}
		found[role]++
		if strings.TrimSpace(axText(n.Name)) == "" {
			b.t.Errorf("%s: a %s without a name", page, role)
		}
	}
	if found["link"] == 0 || found["heading"] == 0 {
		b.t.Errorf("%s: a screen reader finds only %v", page, found)
	}
}

func axText(v *accessibility.Value) string {
	if v == nil {
		return ""
	}
	return strings.Trim(string(v.Value), `"`)
}

// focusable goes through the page with the Tab key until it comes around, at most n times, and checks that one sees
// where one is. It returns where it was.
func (b *tab) focusable(page string, n int) []string {
	b.t.Helper()
	b.open(page)
	var order []string
	for range n {
		b.keys(kb.Tab)
		b.settle()
		at := eval[struct {
			What, Outline, Shadow string
			Width                 float64
			Seen                  bool
		}](b, `(() => {
			const e = document.activeElement, s = getComputedStyle(e), r = e.getBoundingClientRect()
			const around = e.closest("label"), a = around ? around.querySelector(".chip") || e : e, t = getComputedStyle(a)
			return {
				What: e.tagName + " " + (e.id || e.getAttribute("href") || e.name || ""),
				Outline: s.outlineStyle !== "none" ? s.outlineStyle : t.outlineStyle,
				Width: Math.max(parseFloat(s.outlineWidth), parseFloat(t.outlineWidth)),
				Shadow: t.boxShadow, Seen: r.bottom > 0 && r.top < innerHeight && r.width > 0,
			}
		})()`)
		if strings.HasPrefix(at.What, "BODY") {
			return order
		}
		order = append(order, at.What)
		if (at.Outline == "none" || at.Width < 1) && at.Shadow == "none" {
			b.t.Errorf("%s: nobody sees that the focus is at %s", page, at.What)
		}
		if !at.Seen {
			b.t.Errorf("%s: the focus is out of sight, at %s", page, at.What)
		}
	}
	return order
}

// TestAccessibleFindsWhatIsWrong: the script above, on a page that has everything wrong.
func TestAccessibleFindsWhatIsWrong(t *testing.T) {
	b := newTab(t, "http://127.0.0.1:1")
	b.allow(".")
	eval[bool](b, `(() => {
		document.documentElement.innerHTML = '<body><h3>x</h3><p style="color:#999;background:#fff">grey</p>' +
			'<p id=a>1</p><p id=a aria-labelledby=none>2</p><img src="data:,"><a href="#nowhere" tabindex=3>l</a>' +
			'<table><tr><td>1</table><div style="width:3000px">wide</div><nav><li>i</nav><input onclick="x()">'
		return true
	})()`)
	found := strings.Join(eval[[]string](b, accessScript), "\n")
	for _, want := range []string{
		"text has a contrast of 2.85", "a second element with this id", "names none", "no alt", "leads to nothing",
		"a tabindex above 0", "without headings", "pixels wide", "without a name", "outside of a list", "no lang",
		"its title is", "0 times main", "0 times h1", "level 3 after 0", "cannot be zoomed", "inline style",
		"an attribute onclick", "a control of",
	} {
		if !strings.Contains(found, want) {
			t.Errorf("%q was not found:\n%s", want, found)
		}
	}
}
