package browser

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// views are the pages of a town, by the names of their pictures.
func views() map[string]string {
	return map[string]string{
		"overview": "/", "running": "/resource/jobs/ingest", "degraded": "/resource/jobs/nightly",
		"stale": "/resource/jobs/died", "damaged": "/resource/jobs/hurt", "group": "/resource/apps/shop",
		"queue": "/resource/queues/primes", "history": "/history", "filtered": "/?q=night&status=degraded",
		"absent": "/resource/jobs/none",
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
		}},
		{"degraded", []string{"degraded", "nightly-a", "nightly-b", "left", "3", "muster "}},
		{"stale", []string{"stale", "died-a", "died-b", "left", "1", "muster "}},
		{"damaged", []string{"damaged", "/jobs/hurt", "muster explain"}},
		{"group", []string{"shop-0", "shop-1", "1.9.0", "2.1.0", "coordinator", "nightly-report", "0 2 * * *", "Next"}},
		{"queue", []string{
			"numbers", "slow", "hand-a", "executor", "2 tasks of slow", "unlucky number", "dead", "18 waiting", "13", "eye-a",
			"100%", "1 dead", "muster retry",
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
