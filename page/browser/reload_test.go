package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
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

// chips is a server whose page has a form; a patch puts one more choice before the one that was chosen.
type chips struct{ patch chan struct{} }

func (c chips) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	form := func(status string, values ...string) string {
		html := `<form id='filter' action='/'>`
		for _, value := range values {
			chosen := ""
			if value == status {
				chosen = " checked"
			}
			html += fmt.Sprintf(`<label><input type='radio' name='status' value='%s'%s></label>`, value, chosen)
		}
		return html + `</form>`
	}
	switch r.URL.Path {
	case "/page.js":
		http.ServeFile(w, r, "../assets/page.js")
	case "/stream":
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "event: alive\ndata: {}\n\n")
		w.(http.Flusher).Flush()
		patch := c.patch
		if !strings.Contains(r.FormValue("u"), "degraded") {
			patch = nil // of the page before the choice
		}
		select {
		case <-patch:
			fmt.Fprintf(w, "event: patch\ndata: "+`{"v":"2","set":[{"id":"filter","in":"main","html":"%s"}]}`+"\n\n",
				form("degraded", "", "damaged", "degraded", "ready"))
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
		<-r.Context().Done()
	default:
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<!doctype html><title>muster</title><link rel="icon" href="data:,">`+
			`<script src="/page.js" defer></script>`+
			`<body data-version="1" data-view="overview"><div id="source-slot" data-slot></div><p id="stream"></p>`+
			`<p id="alarm" hidden></p><main id="main" data-slot>%s</main><input type="checkbox" id="keys">`,
			form(r.FormValue("status"), "", "degraded", "ready"))
	}
}

// TestAPatchKeepsWhatWasChosen: the form says what the URL says, also if a choice comes before the one that was made.
func TestAPatchKeepsWhatWasChosen(t *testing.T) {
	server := chips{make(chan struct{})}
	fake := httptest.NewServer(server)
	t.Cleanup(fake.Close)
	b := newTab(t, fake.URL)
	t.Cleanup(func() { b.open("/page.js") }) // no stream stays open
	b.allow("^request: data:")
	b.open("/")
	b.await("the stream", `document.body.dataset.live === "true"`)
	for _, choice := range []string{"ready", "degraded"} {
		eval[bool](b, `(document.querySelector("[value=`+choice+`]").click(), true)`)
	}
	b.await("the choice", `location.search === "?status=degraded" && document.querySelector("[value=degraded]").checked`)
	server.patch <- struct{}{}
	b.await("the patch", `!!document.querySelector("[value=damaged]")`)
	if got := eval[string](b, `new FormData(document.querySelector("#filter")).get("status")`); got != "degraded" {
		t.Errorf("the form says %q", got)
	}
}
