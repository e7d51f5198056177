package browser

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"muster/sim/soak"
)

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
	soak.Await(t, patience, "the end of the connection to ZooKeeper", func() string {
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
	soak.Await(t, patience, "that the page is current again", func() string {
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
	soak.Await(t, patience, "the page", func() string {
		if code, _, body := s.get("/"); code != 200 {
			return fmt.Sprint(code, body)
		}
		return ""
	})
	if rss := s.memory("VmRSS"); rss > maxMemory() {
		t.Errorf("muster serve has %d MB, more than %d", rss>>20, maxMemory()>>20)
	}
}
