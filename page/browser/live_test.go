package browser

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"muster/sim/soak"
)

// seenSoon is how long a change may take from ZooKeeper to the screen. It is a second on a quiet machine; this one runs
// other tests.
const seenSoon = 10 * time.Second

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

	for _, tab := range []*tab{b, fresh} {
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
	soak.Await(t, patience, "the stream", func() string {
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
