package browser

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/page"

	"muster/sim/rig"
)

// seenSoon is how long a change may take from ZooKeeper to the screen. It is a second on a quiet machine; this one runs
// other tests, and needed 14 seconds to draw one of 10,000 workers while it did.
const seenSoon = time.Minute

// testWorkerDies: a worker that is killed is seen at once after ZooKeeper has ended its session, and one that leaves.
func testWorkerDies(t *testing.T, w *town, s *server) {
	b := newTab(t, s.url)
	b.open(views()["running"])
	b.live()
	overview := newTab(t, s.url)
	overview.open("/")
	overview.live()
	const left = `document.querySelector("#workers-list").innerText.match(/\b(left|lost)\b/g).length >= %d`
	for i, end := range []struct {
		identity string
		signal   syscall.Signal
		shows    string
	}{{"ingest-b", syscall.SIGKILL, "lost"}, {"ingest-c", syscall.SIGTERM, "left"}} {
		b.remember(fmt.Sprintf(left, i+1))
		overview.remember(fmt.Sprintf(`[...document.querySelectorAll("#rows tr")].some(
			r => r.textContent.includes("/jobs/ingest") && parseInt(r.querySelector("td.live").textContent) === %d)`, 2-i))
		if err := w.workers[end.identity].OS.Signal(end.signal); err != nil {
			t.Fatal(err)
		}
		gone := w.goneAt("/jobs/ingest/" + end.identity)
		for name, tab := range map[string]*tab{"its job": b, "the overview": overview} {
			took := tab.remembered().Sub(gone)
			t.Logf("%s: %s is seen on the page of %s %s after its znode was gone", end.signal, end.shows, name,
				took.Round(time.Millisecond))
			if took > seenSoon {
				t.Errorf("%s is seen after %s", end.signal, took)
			}
		}
	}
	overview.awaitText("4 of 9 need somebody")
	b.awaitText("Workers that left or were lost 2")
	if n := eval[int](b, `performance.getEntriesByType("navigation").length`); n != 1 {
		t.Errorf("the page was loaded %d times", n)
	}
}

// remember notes in the page when an expression is true for the first time.
func (b *tab) remember(expr string) {
	b.t.Helper()
	eval[bool](b, `(() => {
		window.rememberedAt = new Promise(done => {
			const look = () => {
				let ok = false
				try { ok = !!(`+expr+`) } catch (e) { }
				if (ok) done(Date.now()); else setTimeout(look, 5)
			}
			look()
		})
		return true
	})()`)
}

// remembered waits for what remember notes.
func (b *tab) remembered() time.Time {
	b.t.Helper()
	return time.UnixMilli(int64(eval[float64](b, "window.rememberedAt")))
}

// goneAt waits until a znode is gone, and returns when that was.
func (w *world) goneAt(path string) time.Time {
	w.t.Helper()
	at, err := w.waitGone(path)
	if err != nil {
		w.t.Fatal(err)
	}
	return at
}

func (w *world) waitGone(path string) (time.Time, error) {
	for {
		_, there, changed, err := w.s.ExistsW(w.t.Context(), path)
		if err != nil || !there {
			return time.Now(), err
		}
		<-changed
	}
}

// testServerIsGone: the page says when the server does not answer, and is current again without being loaded when it
// does. The same when ZooKeeper is gone.
func testServerIsGone(t *testing.T, w *town, s *server) {
	b := newTab(t, s.url)
	b.open("/")
	b.live()
	eval[bool](b, "window.mark = true")
	server := w.ensemble.Server(0)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	b.awaitText("ZooKeeper does not answer")
	b.picture("no-zookeeper")
	one := newTab(t, s.url) // nobody has looked at this one lately: maybe not all of it is known
	one.open("/resource/jobs/idle")
	one.awaitText("ZooKeeper does not answer", "What is shown was so at", "Declared as")
	one.picture("no-zookeeper-job")
	fresh := newTab(t, s.url)
	fresh.open("/")
	fresh.awaitText("ZooKeeper does not answer", "/jobs/nightly")
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.await("ZooKeeper", `!document.body.innerText.includes("ZooKeeper does not answer")`)
	w.apply("more", `"/more"`, `job "later" {
  root = "/more"
  workers = 1
}`)
	b.awaitText("/more/later")

	for _, tab := range []*tab{b, fresh, one} {
		tab.allow("net::ERR_(CONNECTION_|INCOMPLETE_CHUNKED_ENCODING|EMPTY_RESPONSE)")
	}
	if err := s.run.Pause(); err != nil { // it holds its connections and says nothing
		t.Fatal(err)
	}
	if err := s.run.OS.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := s.run.Kill(); err != nil {
		t.Fatal(err)
	}
	b.await("that the server is gone", `document.querySelector("#alarm").checkVisibility() &&`+
		` document.querySelector("#alarm").innerText.trim() !== ""`)
	t.Logf("the page says: %s", b.textOf("#alarm"))
	b.picture("no-server")
	again := w.serveAt(s.addr)
	_ = again
	w.apply("most", `"/most"`, `job "last" {
  root = "/most"
  workers = 1
}`)
	b.awaitText("/most/last")
	b.await("the end of the alarm", `!document.querySelector("#alarm").checkVisibility()`)
	if !eval[bool](b, "window.mark === true") {
		t.Error("the page was loaded again")
	}
	rig.Until(t, patience, "the stream", func() string {
		if eval[string](b, "document.body.dataset.live||''") != "true" {
			return "it is not live"
		}
		return ""
	})
}

// serveAt starts muster serve at an address.
func (w *world) serveAt(addr string) *server {
	w.t.Helper()
	return w.launch(w.command("serve", "--listen", addr))
}

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

// rawRequest is bytes that a client sends, and the codes that it may get; "-" is a closed connection.
type rawRequest struct{ name, request, want string }

func (c rawRequest) check(t *testing.T, s *server) {
	got, err := s.exchange(c.request)
	code, body, _ := strings.Cut(got, " ")
	if err != nil {
		code = "-"
	}
	if !strings.Contains(c.want, code) {
		t.Errorf("%s: %s (%v) %.200s; want %s", c.name, code, err, body, c.want)
	}
	if strings.Contains(body, "root:") || strings.Contains(body, `"><script>`) {
		t.Errorf("%s: %s", c.name, body)
	}
}

// rawRequests are requests of clients that mean ill.
func rawRequests(host string) []rawRequest {
	get := func(path string) string {
		return "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n"
	}
	with := func(header string) string { return strings.Replace(get("/"), "\r\n\r\n", "\r\n"+header+"\r\n\r\n", 1) }
	method := func(m string) string {
		return m + " / HTTP/1.1\r\nHost: " + host + "\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
	}
	return []rawRequest{
		{"get", get("/"), "200"},
		{"post", method("POST"), "405"},
		{"put", method("PUT"), "405"},
		{"delete", method("DELETE"), "405"},
		{"patch", method("PATCH"), "405"},
		{"options", method("OPTIONS"), "405"},
		{"trace", method("TRACE"), "405"},
		{"a method of its own", method("FROBNICATE"), "405"},
		{"connect", "CONNECT example.org:443 HTTP/1.1\r\nHost: example.org:443\r\n\r\n", "403 405 421"},
		{"another host", strings.Replace(get("/"), host, "evil.example", 1), "403 421"},
		{"another host of the API", strings.Replace(get("/api/status"), host, "evil.example", 1), "403 421"},
		{"another host of the stream", strings.Replace(get("/stream?u=/"), host, "evil.example:80", 1), "403 421"},
		{"loopback as part of a name", strings.Replace(get("/"), host, "127.0.0.1.evil.example", 1), "403 421"},
		{"two hosts", with("Host: evil.example"), "400"},
		{"no host", "GET / HTTP/1.1\r\n\r\n", "400"},
		{"a host in the line", get("http://evil.example/"), "403 421"},
		{"path traversal", get("/assets/../../../../etc/passwd"), "301 307 400 403 404"},
		{"escaped path traversal", get("/assets/%2e%2e/%2e%2e/%2e%2e/etc/passwd"), "301 307 400 403 404"},
		{"doubly escaped", get("/assets/%252e%252e%252flimits.go"), "400 403 404"},
		{"backslashes", get(`/assets/..\..\limits.go`), "400 403 404"},
		{"a zero byte", get("/resource/%00"), "200 400 404"},
		{"not UTF-8", get("/resource/%ff%fe"), "200 400 403 404"},
		{"a folder", get("/assets/"), "301 403 404"},
		{"a template", get("/templates/page.html"), "404"},
		{"a long line", get("/?q=" + strings.Repeat("a", 8<<10)), "400 404 414 431"},
		{"a longer line", get("/?q=" + strings.Repeat("a", 256<<10)), "414 431"},
		{"huge headers", with("X: " + strings.Repeat("a", 256<<10)), "431"},
		{"many headers", with(strings.Repeat("X: a\r\n", 1<<15) + "Y: b"), "431"},
		{"two lengths", with("Content-Length: 1\r\nTransfer-Encoding: chunked") + "0\r\n\r\n", "200 400"},
		{"a version of the future", "GET / HTTP/9.9\r\nHost: " + host + "\r\n\r\n", "400 505"},
		{"no HTTP", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", "400 -"},
		{"an unknown page", get("/nothing-here"), "404"},
		{"a sort of no column", get("/?sort=%22%3E%3Cscript%3E&status=x&kind=y"), "200 400 404"},
		{"an API of nothing", get("/api/status/jobs/none"), "404"},
	}
}

// testHostileRequests: each gets the answer that it should, nothing of it comes back unescaped, and the server goes on.
func testHostileRequests(t *testing.T, s *server) {
	var all sync.WaitGroup // some wait until the server has had enough
	for _, c := range rawRequests(s.addr) {
		all.Go(func() { c.check(t, s) })
	}
	all.Wait()
	for i := range 50 { // half a request, and away
		conn, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\nX-Half: y"[:5+i%30]); err != nil {
			t.Error(err)
		}
		conn.Close()
	}
	if code, _, _ := s.get("/healthz"); code != 200 {
		t.Errorf("/healthz: %d", code)
	}
}
