package browser

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"muster/dev/fault"
	"muster/dev/zkserver"
	"muster/sim/rig"
)

// reads are the requests that change nothing: exists, getData, getACL, getChildren, sync, ping, getChildren2,
// multiRead, auth, setWatches, setWatches2, and the end of a session.
func reads() map[int32]bool {
	return map[int32]bool{
		fault.OpExists: true, fault.OpGetData: true, fault.OpGetACL: true, 8: true, fault.OpSync: true,
		fault.OpPing: true, fault.OpGetChildren2: true, 22: true, fault.OpAuth: true,
		fault.OpSetWatches: true, 105: true, fault.OpCloseSession: true,
	}
}

// zxid is the last transaction of the server.
func (w *world) zxid() int64 {
	w.t.Helper()
	stat, err := w.ensemble.Server(0).Stat(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	n, err := strconv.ParseInt(stat["Zxid"], 0, 64)
	if err != nil {
		w.t.Fatalf("%v in %v", err, stat)
	}
	return n
}

// TestNoTransaction: all that happens in ZooKeeper is that sessions begin and end, where nobody else is at work.
func TestNoTransaction(t *testing.T) {
	w := newWorld(t, zkserver.Options{})
	w.apply("etl", `"/jobs"`, `job "a" {
  root    = "/jobs"
  workers = 2
}
group "b" {
  root = "/jobs"
  leader "main" {}
}
queue "c" {
  root  = "/jobs"
  redis = "redis://127.0.0.1:1/0"
}`)
	proxy := rig.Proxy(t, w.ensemble.Addrs()[0])
	quiet := w.zxid()
	s := w.serveThrough(proxy.Addr())
	for _, at := range []string{
		"/", "/resource/jobs/a", "/resource/jobs/b", "/resource/jobs/c", "/history", "/api/status", "/metrics", "/healthz",
	} {
		if code, _, body := s.get(at); code != 200 {
			t.Errorf("%s: %d %.300s", at, code, body)
		}
	}
	testHostileRequests(t, s)
	ended := int64(proxy.Requests()[fault.OpCloseSession])
	if after := w.zxid(); after != quiet+2*ended+1 || ended > 1 {
		t.Errorf("there were %d transactions; want only the begins of sessions, and the ends of %d", after-quiet, ended)
	}
}

// TestReadOnlyUser: who may only read sees everything.
func TestReadOnlyUser(t *testing.T) {
	w := newWorld(t, zkserver.Options{})
	w.environ = []string{"MUSTER_ZK_AUTH=digest:ops:open-sesame"}
	w.apply("etl", `"/jobs"`, `zookeeper {
  acl = ["auth::cdrwa", "world:anyone:r"]
}
job "a" {
  root    = "/jobs"
  workers = 1
}
group "b" {
  root = "/jobs"
  leader "main" {}
}`)
	w.start("joined", "worker", "--root", "/jobs", "--job", "a", "--identity", "reader-a")
	w.environ = nil
	rig.Until(t, patience, "the worker's last write, the roll", func() string {
		if roll, _, err := w.s.Get(t.Context(), "/jobs/a"); err != nil || len(roll) == 0 {
			return fmt.Sprintf("%d bytes, %v", len(roll), err)
		}
		return ""
	})
	before := w.zxid()
	s := w.serve()
	for at, want := range map[string]string{
		"/": "/jobs/</span>b", "/resource/jobs/a": "reader-a", "/resource/jobs/b": "ready", "/history": "2 created",
		"/api/status/jobs/a": `"status": "running"`,
	} {
		code, _, body := s.get(at)
		if code != 200 || !strings.Contains(body, want) || strings.Contains(body, "no permission") {
			t.Errorf("%s: %d without %q: %.3000s", at, code, want, body)
		}
	}
	if after := w.zxid(); after > before+3 { // two sessions, one of which has ended
		t.Errorf("%d transactions", after-before)
	}
}

// TestNothingIsWritten: whatever is looked at, the server sends only reads.
func TestNothingIsWritten(t *testing.T) {
	w := newTown(t)
	proxy := rig.Proxy(t, w.ensemble.Addrs()[0])
	s := w.serveThrough(proxy.Addr())
	for name, at := range views() {
		b := newTab(t, s.url)
		b.allow("404|net::ERR_CONNECTION_REFUSED|net::ERR_INCOMPLETE_CHUNKED_ENCODING") // at the end the server ends
		b.open(at)
		b.live()
		if name == "overview" {
			b.keys("/")
			b.keys("night")
		}
	}
	for _, at := range []string{
		"/api/status", "/api/status/jobs/ingest", "/api/members/jobs/ingest", "/api/batches/queues/primes", "/api/history",
		"/metrics", "/healthz",
	} {
		if code, _, body := s.get(at); code != 200 {
			t.Errorf("%s: %d %.300s", at, code, body)
		}
	}
	proxy.Cut() // it connects again, and sets its watches again
	if err := w.ensemble.Server(0).Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := newTab(t, s.url)
	b.allow("net::ERR_CONNECTION_REFUSED|net::ERR_INCOMPLETE_CHUNKED_ENCODING") // as above
	b.open("/")
	b.awaitText("connected")
	endProcess(s.run)
	seen := proxy.Requests()
	for op, n := range seen {
		if !reads()[op] {
			t.Errorf("%d requests have the opcode %d", n, op)
		}
	}
	if seen[fault.OpGetData] == 0 {
		t.Errorf("the proxy saw only %v", seen)
	}
	t.Logf("requests by opcode: %v", seen)
}
