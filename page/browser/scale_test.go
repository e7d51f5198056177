package browser

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"muster/sim/soak"
	"muster/zkstate/znode"
)

// maxMemory is what muster serve may have, in bytes: 300 MB with 10,000 jobs, 100 readers and 100 slow ones, and half a
// megabyte for each one more.
func maxMemory() int { return (300 + (manyReaders()-100)/2) << 20 }

// TestCrowdSoak: 10,000 jobs, and a job of 10,000 workers. The long form has more readers.
func TestCrowdSoak(t *testing.T) {
	w := newCrowd(t)
	start := time.Now()
	s := w.serve()
	s.ready("/")
	t.Logf("everything is shown %s after the start; it has %d MB", time.Since(start).Round(10*time.Millisecond),
		s.memory("VmRSS")>>20)
	on := func(f func(*testing.T, *world, *server)) func(*testing.T) {
		return func(t *testing.T) {
			inner, server := *w, *s
			inner.t, server.t = t, t
			f(t, &inner, &server)
		}
	}
	t.Run("many_jobs", on(testManyJobs))
	t.Run("many_workers", on(testManyWorkers))
	t.Run("many_readers", on(testManyReaders))
	t.Run("slow_readers", on(testSlowReaders))
	t.Run("many_connections", on(testManyConnections))
	t.Run("flood", on(testFlood))
	if peak := s.memory("VmHWM"); peak > maxMemory() {
		t.Errorf("muster serve had %d MB, more than %d", peak>>20, maxMemory()>>20)
	} else {
		t.Logf("muster serve had at most %d MB", peak>>20)
	}
}

// ready waits until a page is there: what is read for the first time may take longer than a reader waits.
func (s *server) ready(page string) {
	s.t.Helper()
	soak.Await(s.t, patience, page, func() string {
		code, _, body := s.get(page)
		if code == 503 {
			return body
		}
		if code != 200 || !strings.Contains(body, "/big/") {
			s.t.Fatalf("%d %.300s", code, body)
		}
		return ""
	})
}

// watch counts in the page what is changed in a part of it, and how long the page is busy at a time.
func (b *tab) watch(selector string) {
	b.t.Helper()
	eval[bool](b, `(() => {
		window.changes = { added: 0, removed: 0, longest: 0, frames: 0 }
		new MutationObserver(all => {
			for (const m of all) {
				changes.added += m.addedNodes.length
				changes.removed += m.removedNodes.length
			}
		}).observe(document.querySelector(`+quote(selector)+`), { childList: true })
		new PerformanceObserver(list => {
			for (const e of list.getEntries()) changes.longest = Math.max(changes.longest, e.duration)
		}).observe({ type: "longtask" })
		return true
	})()`)
}

// changes is what watch has counted.
type changes struct {
	Added, Removed int
	Longest        float64 // ms
}

func (b *tab) changes() changes { b.t.Helper(); return eval[changes](b, "window.changes") }

// end ends one of the 10,000 workers.
func (w *world) end(i int) {
	w.t.Helper()
	if err := w.s.Delete(w.t.Context(), znode.Live("/big", "job", identityOf(i)), 0); err != nil {
		w.t.Fatal(err)
	}
}

// testManyJobs: the list scrolls, a change far down is seen there, only its row is drawn, and the filter is fast.
func testManyJobs(t *testing.T, w *world, s *server) {
	b := newTab(t, s.url)
	start := time.Now()
	b.open("/")
	b.live()
	rows := eval[int](b, `document.querySelectorAll("#rows tr").length`)
	t.Logf("%d rows after %s", rows, time.Since(start).Round(10*time.Millisecond))
	if rows != manyJobs+1 {
		t.Errorf("%d rows", rows)
	}
	row := `[...document.querySelectorAll("#rows tr")].find(r => r.textContent.includes("j-9998"))`
	eval[bool](b, `(`+row+`.scrollIntoView({ block: "center" }), true)`)
	b.settle()
	top := eval[float64](b, row+`.getBoundingClientRect().top`)
	b.watch("#rows")
	b.remember(row + `.textContent.includes("forming")`)
	w.joinAll("/many", "j-9998", 1)
	changed := time.Now()
	took := b.remembered().Sub(changed)
	now := b.changes()
	t.Logf("a change of one of 10,000 jobs is seen after %s; %+v", took.Round(time.Millisecond), now)
	if took > seenSoon || now.Added > 5 || now.Removed > 5 {
		t.Errorf("after %s: %+v", took, now)
	}
	if after := eval[float64](b, row+`.getBoundingClientRect().top`); after < top-2 || after > top+2 {
		t.Errorf("the row moved from %f to %f under the eyes of its reader", top, after)
	}
	b.keys("/")
	for _, key := range "j-9998" {
		b.keys(string(key))
	}
	filtered := b.await("the filter", `document.querySelectorAll("#rows tr").length === 1`)
	t.Logf("the filter took %s; %+v", filtered.Round(time.Millisecond), b.changes())
}

// testManyWorkers: one of 10,000 workers dies, and one cell changes.
func testManyWorkers(t *testing.T, w *world, s *server) {
	s.ready("/resource/big/job")
	b := newTab(t, s.url)
	start := time.Now()
	b.open("/resource/big/job")
	b.live()
	b.await("the grid", fmt.Sprintf(`document.querySelectorAll("#cells .cell.live").length === %d`, manyWorkers))
	t.Logf("%d cells after %s", manyWorkers, time.Since(start).Round(10*time.Millisecond))
	b.picture("grid")
	b.watch("#cells")
	const dead = 4321
	cell := fmt.Sprintf(`[...document.querySelectorAll("#cells .cell")].find(c => c.dataset.identity === %s)`,
		quote(identityOf(dead)))
	b.remember(fmt.Sprintf(`document.querySelectorAll("#cells .cell.live").length === %d`, manyWorkers-1))
	w.end(dead)
	died := time.Now()
	took := b.remembered().Sub(died)
	now := b.changes()
	t.Logf("the death of one of 10,000 workers is seen after %s; %+v", took.Round(time.Millisecond), now)
	if took > seenSoon || now.Added > 3 || now.Removed > 3 {
		t.Errorf("after %s: %+v", took, now)
	}
	if class := eval[string](b, cell+".className"); strings.Contains(class, "live") {
		t.Errorf("its cell is %q", class)
	}
	b.awaitText(identityOf(dead)) // in the table of those that were lost
	eval[bool](b, `(document.querySelector("#cells").focus(), true)`)
	b.keys(kb.ArrowRight)
	if shown := b.textOf("#selected"); !strings.Contains(shown, "w-") {
		t.Errorf("with the arrow keys in the grid: %q", shown)
	}
	b.view(390, 844)
	b.settle()
	if wide := eval[int](b, "document.documentElement.scrollWidth"); wide > 390 {
		t.Errorf("the page is %d pixels wide", wide)
	}
	b.picture("grid-390")
}

// manyReaders is how many pages are open, and how many read too slowly. They are all from one machine here.
func manyReaders() int {
	if soak.Long() {
		return 400
	}
	return 100
}

// testManyReaders: 100 pages are open, of several views, while things change: all get the changes, and the server asks
// ZooKeeper no more than for one.
func testManyReaders(t *testing.T, w *world, s *server) {
	files, before := s.files(), s.processorTime()
	clients := newClients(t)
	var patches, reloads atomic.Int64
	for i := range manyReaders() {
		page := []string{"/", "/?status=ready", "/resource/big/job", "/history", "/?q=j-77"}[i%5]
		clients.reader(s, page, func(event, data string) {
			switch event {
			case "patch":
				patches.Add(1)
				if !json.Valid([]byte(data)) {
					clients.fail(fmt.Errorf("%s: %.100s", page, data))
				}
			case "reload":
				reloads.Add(1)
			}
		})
	}
	soak.Await(t, patience, "all readers", func() string {
		if n := clients.streams.Load(); n < int64(manyReaders()) {
			return fmt.Sprintf("%d streams are open; %v", n, clients.problems())
		}
		return ""
	})
	changed := 0
	soak.Await(t, patience, "patches", func() string {
		w.end(100 + changed)
		changed++
		if n := patches.Load(); n < int64(5*manyReaders()) {
			return fmt.Sprintf("%d patches after %d changes", n, changed)
		}
		return ""
	})
	rss := s.memory("VmRSS")
	t.Logf("%d patches, %d reloads; %d MB and %s of processor time for %d changes and %d readers", patches.Load(),
		reloads.Load(), rss>>20, s.processorTime()-before, changed, manyReaders())
	if rss > maxMemory() {
		t.Errorf("muster serve has %d MB, more than %d", rss>>20, maxMemory()>>20)
	}
	if err := clients.problems(); err != nil {
		t.Error(err)
	}
	clients.leave()
	s.awaitFiles(files)
}

// awaitFiles waits until the server has no more files and sockets open than it had, but for a few.
func (s *server) awaitFiles(most int) {
	s.t.Helper()
	soak.Await(s.t, patience, "that connections are closed", func() string {
		if n := s.files(); n > most+2 {
			return fmt.Sprintf("%d files are open; there were %d", n, most)
		}
		return ""
	})
}
