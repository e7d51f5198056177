package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/chromedp/cdproto/page"
)

// reloads is a server whose page is always too old: the first streams say "reload", or have a patch that does not fit;
// then one is as it should be until it says "reload"; then all is well.
type reloads struct{ streams atomic.Int64 }

const tooOld = 8 // streams

func (s *reloads) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/page.js":
		http.ServeFile(w, r, "../assets/page.js")
		return
	case "/stream":
		s.stream(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/html")
	fmt.Fprint(w, `<!doctype html><title>muster</title><link rel="icon" href="data:,">`+
		`<script src="/page.js" defer></script>`+
		`<body data-version="1" data-view="overview"><div id="source-slot" data-slot></div><p id="stream"></p>`+
		`<p id="alarm" hidden></p><main id="main" data-slot></main><input type="checkbox" id="keys">`)
}

func (s *reloads) stream(w http.ResponseWriter, r *http.Request) {
	const reload = "event: reload\ndata: {}\n\n"
	w.Header().Set("Content-Type", "text/event-stream")
	events := "event: alive\ndata: {}\n\n"
	switch n := s.streams.Add(1); {
	case n == 3:
		events = `event: patch` + "\n" + `data: {"v":"1","set":[{"id":"x","in":"none","html":"<p id=x></p>"}]}` + "\n\n"
	case n <= tooOld:
		events = reload
	case n == tooOld+1:
		events += reload
	}
	fmt.Fprint(w, events)
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

// TestReloads: a page that is told to load itself again, and again, asks less and less often; and at once when the
// server was well in between.
func TestReloads(t *testing.T) {
	fake := httptest.NewServer(&reloads{})
	t.Cleanup(fake.Close)
	b := newTab(t, fake.URL)
	t.Cleanup(func() { b.open("/page.js") }) // no stream stays open
	b.allow("^request: data:")
	// The page is told that its time is over at once. The test sees how long it would have waited.
	b.do(command(page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: `
		window.waits = []
		const later = window.setTimeout
		window.setTimeout = (f, ms) => {
			if (f.name !== "refresh") return later(f, ms)
			waits.push(ms)
			return later(f, 0)
		}`}))
	b.open("/")
	b.await("the last reload", fmt.Sprint("waits.length >= ", tooOld+1))
	want := 500.0
	for i, wait := range eval[[]float64](b, "waits") {
		if i == tooOld {
			want = 500
		}
		if wait < want*0.7 || wait > want*1.3 {
			t.Errorf("before it loads itself for time %d it waits %.0f ms, not about %.0f", i+1, wait, want)
		}
		want = min(want*2, 10_000)
	}
}
