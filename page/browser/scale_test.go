package browser

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
	"golang.org/x/sync/errgroup"

	"muster/dev/zkserver"
	"muster/sim/rig"
	"muster/zkstate/zkconn"
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
	rig.Until(s.t, patience, page, func() string {
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
	if rig.Long() {
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
	rig.Until(t, patience, "all readers", func() string {
		if n := clients.streams.Load(); n < int64(manyReaders()) {
			return fmt.Sprintf("%d streams are open; %v", n, clients.problems())
		}
		return ""
	})
	changed := 0
	rig.Until(t, patience, "patches", func() string {
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
	rig.Until(s.t, patience, "that connections are closed", func() string {
		if n := s.files(); n > most+2 {
			return fmt.Sprintf("%d files are open; there were %d", n, most)
		}
		return ""
	})
}

const (
	manyJobs    = 10_000
	manyWorkers = 10_000
)

// newCrowd is a world of 10,000 jobs /many/j-0000 … and one job of 10,000 workers, /big/job, all of whom are live.
func newCrowd(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, zkserver.Options{Heap: "1g", Netty: true})
	w.apply("crowd", `"/many", "/big"`, fmt.Sprintf(`job "many" {
  for_each = toset(flatten([for a in range(100) : [for b in range(%d) : format("%%02d%%02d", a, b)]]))
  name     = "j-${each.key}"
  root     = "/many"
  workers  = 8
  labels   = { team = "data" }
}
job "job" {
  root    = "/big"
  workers = %d
}
`, manyJobs/100, manyWorkers))
	w.joinAll("/big", "job", manyWorkers)
	return w
}

// identityOf is a worker of joinAll. Their ids follow no order.
func identityOf(i int) string { return fmt.Sprintf("w-%05d", i) }

// joinAll lets n workers join a job as one process cannot: many transactions at a time, all of one session.
func (w *world) joinAll(root, name string, n int) {
	w.t.Helper()
	g := w.generation("job", root, name)
	ctx, acl := w.t.Context(), zkconn.World(zkconn.PermAll)
	var folders []zkconn.Op
	for _, dir := range []string{znode.IDs(root, g), znode.By(root, g), znode.End(root, g), znode.Barriers(root, g)} {
		folders = append(folders, zkconn.CreateOp(dir, nil, zkconn.Persistent, acl))
	}
	if _, err := w.s.Multi(ctx, folders...); err != nil {
		w.t.Fatal(err)
	}
	var joins errgroup.Group
	joins.SetLimit(100)
	for i := range n {
		joins.Go(func() error {
			info, err := znode.EncodeWorker(znode.Worker{ID: znode.NoID, IP: "10.0.0.1", Port: 7000})
			if err != nil {
				return err
			}
			claim, err := znode.Encode(znode.Claim{Nonce: fmt.Sprintf("n%d", i), Lives: 1, State: znode.In})
			if err != nil {
				return err
			}
			_, err = w.s.Multi(ctx,
				zkconn.CreateOp(znode.ByIdentity(root, g, identityOf(i)), claim, zkconn.Persistent, acl),
				zkconn.CreateOp(znode.NewID(root, g), info, zkconn.PersistentSequential, acl),
				zkconn.CreateOp(znode.Live(root, name, identityOf(i)), info, zkconn.Ephemeral, acl))
			return err
		})
	}
	if err := joins.Wait(); err != nil {
		w.t.Fatal(err)
	}
}

// request is a GET of a browser that keeps its connection.
func request(s *server, path string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: " + s.addr + "\r\n\r\n"
}

// testSlowReaders: 100 readers that read nothing, or a byte a second, of a page of megabytes and of streams, while
// ZooKeeper goes and comes back. Who reads is served all the time, and the slow ones are dropped.
func testSlowReaders(t *testing.T, w *world, s *server) {
	files := s.files()
	slow := newClients(t)
	for i := range manyReaders() {
		slow.slow(s, request(s, []string{"/", "/metrics", "/api/status"}[i%3]), i%2 == 0)
	}
	quick := newClients(t)
	var seen atomic.Int64
	quick.reader(s, "/", func(event, _ string) {
		if event == "patch" {
			seen.Add(1)
		}
	})
	for n := range 3 {
		start := time.Now()
		if code, _, body := s.get("/"); code != 200 || !strings.HasSuffix(strings.TrimSpace(body), "</html>") {
			t.Errorf("beside slow readers: %d, %d bytes", code, len(body))
		}
		t.Logf("beside slow readers the page takes %s; the server has %d MB", time.Since(start).Round(time.Millisecond),
			s.memory("VmRSS")>>20)
		w.end(1500 + n)
	}
	server := w.ensemble.Server(0)
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	rig.Until(t, patience, "the end of the connection to ZooKeeper", func() string {
		if _, _, body := s.get("/history"); !strings.Contains(body, "does not answer") {
			return "it is not noticed"
		}
		return ""
	})
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	patches := seen.Load()
	n := 0
	rig.Until(t, patience, "that the page is current again", func() string {
		w.end(2000 + n)
		if n++; seen.Load() < patches+2 {
			return "no patch"
		}
		return ""
	})
	if err := quick.problems(); err != nil {
		t.Error(err)
	}
	quick.leave()
	s.awaitFiles(files) // the slow ones are still there, but not for the server
	if rss := s.memory("VmRSS"); rss > maxMemory() {
		t.Errorf("muster serve has %d MB, more than %d", rss>>20, maxMemory()>>20)
	}
}

// testManyConnections: more connections than there may be, which say nothing. Each one too many closes the one that has
// waited longest, so who asks something is answered all the while.
func testManyConnections(t *testing.T, w *world, s *server) {
	files := s.files()
	idle := newClients(t)
	for n := range 1100 {
		if _, err := idle.connect(s, ""); err != nil {
			t.Fatal(err)
		}
		if n%100 != 0 {
			continue
		}
		if answer, err := s.exchange(request(s, "/healthz")); err != nil || !strings.HasPrefix(answer, "200 ") {
			t.Errorf("beside %d others it answers %q, %v", n, answer, err)
		}
	}
	if n := s.files(); n > files+510 { // all have one address
		t.Errorf("%d files are open", n)
	}
	idle.leave()
	s.awaitFiles(files)
}

// testFlood: more different pages than are kept, from many clients at a time. It costs no memory that stays, and who
// asks for a page gets it afterwards.
func testFlood(t *testing.T, w *world, s *server) {
	var answers sync.Map
	var clients sync.WaitGroup
	for c := range 8 {
		clients.Go(func() {
			for i := range 15 {
				code, _, _, err := s.tryGet(fmt.Sprintf("/?q=j-%d-%d&sort=age", c, i))
				if err != nil {
					code = -1
				}
				n, _ := answers.LoadOrStore(code, new(atomic.Int64))
				n.(*atomic.Int64).Add(1)
			}
		})
	}
	clients.Wait()
	answers.Range(func(code, n any) bool {
		t.Logf("%d answers %v", n.(*atomic.Int64).Load(), code)
		if code != 200 && code != 503 {
			t.Errorf("%v", code)
		}
		return true
	})
	rig.Until(t, patience, "the page", func() string {
		if code, _, body := s.get("/"); code != 200 {
			return fmt.Sprint(code, body)
		}
		return ""
	})
	if rss := s.memory("VmRSS"); rss > maxMemory() {
		t.Errorf("muster serve has %d MB, more than %d", rss>>20, maxMemory()>>20)
	}
}
