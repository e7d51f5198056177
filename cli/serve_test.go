package cli_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/dev/fault"
	"muster/sim/rig"
)

// served is a running muster serve.
type served struct {
	t    *testing.T
	cmd  *exec.Cmd
	seen *screen
	url  string // without a slash at the end
}

// serve runs muster serve on a free port.
func (f fixture) serve(t *testing.T, servers string, more ...string) *served {
	t.Helper()
	return startServe(t, f.command(servers, append([]string{"serve", "--listen", "127.0.0.1:0"}, more...)...))
}

func startServe(t *testing.T, cmd *exec.Cmd) *served {
	t.Helper()
	s := &served{t: t, cmd: cmd, seen: startOnScreen(t, cmd)}
	address := regexp.MustCompile(`(?m)^https?://\S+`)
	rig.Await(t, "the URL of the page", func() bool {
		s.url = strings.TrimSuffix(address.FindString(s.seen.String()), "/")
		return s.url != ""
	})
	return s
}

func (s *served) get(path string) (code int, body string) { return httpGet(s.url + path) }

// httpGet is the answer to a GET; 0 if there is none.
func httpGet(url string) (code int, body string) {
	answer, err := http.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return 0, err.Error()
	}
	return answer.StatusCode, string(text)
}

// shows waits until a document is what a command prints.
func (s *served) shows(path string, command func() *exec.Cmd) {
	s.t.Helper()
	var want, got string
	late := time.Now().Add(time.Minute)
	for {
		printed := result(command())
		if printed.code != 0 {
			s.t.Fatalf("%s: the command ended with %d\n%s", path, printed.code, printed.stderr)
		}
		_, got = s.get(path)
		if want = printed.stdout; got == want {
			return
		}
		if time.Now().After(late) {
			s.t.Fatalf("%s is not what the command prints (-want +got):\n%s", path, cmp.Diff(want, got))
		}
	}
}

// TestTheAPIIsWhatCommandsPrint: byte by byte, of a job, a group and a queue.
func TestTheAPIIsWhatCommandsPrint(t *testing.T) {
	t.Parallel()
	f := newQueueFixture(t, "")
	f.write(t, 2, queueAndGroup(f.root))
	f.mustApply(t)
	f.submit("batch", []byte("a"), []byte("b"))
	startOnScreen(t, f.worker(servers.Connect(), "j0", "w0", "--", "sh", "-c",
		"while [ ! -e members ]; do sleep 0.1; done; muster members --json > all; "+
			"muster members --live --json > live; mv live live.json; exec sleep 1000")).await(t, "joined")
	f.duty("main", "exec sleep 1000")
	f.memberWithDuties(servers.Connect(), "m0", "1.0.0")
	s := startServe(t, f.command(servers.Connect(), "serve", "--listen", "127.0.0.1:0"))
	muster := func(args ...string) func() *exec.Cmd {
		return func() *exec.Cmd { return f.command(servers.Connect(), args...) }
	}
	s.shows("/api/status", muster("status", "--json"))
	for _, name := range []string{"j0", "j1", "shop", "primes"} {
		s.shows("/api/status"+f.root+"/"+name, muster("status", f.root+"/"+name, "--json"))
	}
	s.shows("/api/history", muster("history", "--json"))
	s.shows("/api/batches"+f.root+"/primes", muster("queue", "batches", "primes", "--root", f.root, "--json"))
	s.shows("/api/batch"+f.root+"/primes/batch", muster("queue", "batches", f.root+"/primes", "batch", "--json"))
	expect(t, result(muster("queue", "cancel", f.root+"/primes", "batch", "--yes")()), 0)
	s.shows("/api/batch"+f.root+"/primes/batch", muster("queue", "batches", f.root+"/primes", "batch", "--json"))
	write(t, filepath.Join(f.dir, "members"), "")
	live := filepath.Join(f.dir, "live.json")
	rig.Await(t, "the members", func() bool { _, err := os.Stat(live); return err == nil })
	members := "/api/members" + f.root + "/j0"
	for query, file := range map[string]string{"": "all", "?live": "live.json"} {
		_, got := s.get(members + query)
		if d := cmp.Diff(read(t, filepath.Join(f.dir, file)), got); d != "" {
			t.Errorf("members%s (-command +API):\n%s", query, d)
		}
	}
	for path, says := range map[string]string{
		"/api/status/nothing": "there is no job", "/api/members" + f.root + "/shop": "is not a job",
		"/api/batches" + f.root + "/j0": "is not a queue", "/api/nothing": "there is no such document",
		"/api/batch" + f.root + "/primes/none": "there is no batch none", "/api/batch" + f.root + "/j0/b": "is not a queue",
	} {
		code, body := s.get(path)
		if code != http.StatusNotFound || !strings.Contains(body, says) || !strings.Contains(body, `"next":`) {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}

// queueAndGroup is more of a configuration: the queue and the group of fixtures.
func queueAndGroup(root string) string {
	return `queue "primes" {
  root  = "` + root + `"
  redis = "redis://` + shared.redis.Addr() + `/0"
}
group "shop" {
  root = "` + root + `"
  leader "main" {}
  cron "nightly" {
    schedule = "0 2 * * *"
  }
}
`
}

// TestServeReadsOnlyWhatChanges: with 200 jobs, a change of one is a few requests, and nothing happens without one. No
// request writes.
func TestServeReadsOnlyWhatChanges(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 200, "")
	f.mustApply(t)
	proxy := newProxy(t, 0)
	s := f.serve(t, proxy.Addr())
	s.says("/api/status", f.root+"/j199")
	sum := func() (n int) {
		for op, count := range proxy.Requests() {
			if op != fault.OpPing {
				n += count
			}
		}
		return n
	}
	settled := func() int { // until two looks agree
		n := -1
		rig.Await(t, "quiet", func() bool { last := n; n = sum(); return n == last })
		return n
	}
	first := settled()
	startOnScreen(t, f.worker(servers.Connect(), "j7", "w0", "--", "sleep", "1000")).await(t, "joined")
	s.says("/api/status"+f.root+"/j7", `"identity": "w0"`)
	const most = 100 // of 5 or more for each of 200 jobs
	if n := settled() - first; n == 0 || n > most {
		t.Errorf("a worker joined one of 200 jobs: %d requests, more than %d", n, most)
	}
	for op := range proxy.Requests() {
		if !isRead(op) {
			t.Errorf("it has sent a request of kind %d, which is no read", op)
		}
	}
}

// isRead reports whether a kind of request writes nothing but the session itself.
func isRead(op int32) bool {
	const connect, getChildren, addWatches = 0, 8, 105
	return slices.Contains([]int32{
		connect, fault.OpExists, fault.OpGetData, fault.OpGetACL, getChildren, fault.OpSync, fault.OpPing,
		fault.OpGetChildren2, fault.OpAuth, fault.OpSetWatches, addWatches, fault.OpCloseSession,
	}, op)
}

// says waits until a document contains a text.
func (s *served) says(path, text string) {
	s.t.Helper()
	rig.Await(s.t, path+" says "+text, func() bool {
		_, body := s.get(path)
		return strings.Contains(body, text)
	})
}

// TestServeGoesOnAfterZooKeeperWasAway: it keeps what it knew, says so, and goes on with another session.
func TestServeGoesOnAfterZooKeeperWasAway(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 2, "zookeeper {\n  session_timeout = \"3s\"\n}\n")
	f.mustApply(t)
	proxy := newProxy(t, 0)
	s := f.serve(t, proxy.Addr())
	s.says("/healthz", "ok")
	proxy.Refuse(true)
	proxy.Cut()
	s.says("/healthz", "ZooKeeper does not answer; it last did at")
	if code, body := s.get("/"); code != http.StatusOK || !strings.Contains(body, f.root+"/j1") {
		t.Errorf("the page has lost what it knew: %d", code)
	}
	if code, body := s.get("/api/status"); code != http.StatusServiceUnavailable || !strings.Contains(body, `"error":`) {
		t.Errorf("the API answers with what was: %d %s", code, body)
	}
	rig.Await(t, "the end of the session", func() bool { return strings.Contains(s.seen.String(), "keeps what it knew") })
	f.write(t, 3, "")
	f.mustApply(t)
	proxy.Refuse(false)
	s.says("/api/status", f.root+"/j2")
	s.says("/healthz", "ok")
	if _, body := s.get("/metrics"); !strings.Contains(body, "\nmuster_serve_sessions_total 2\n") {
		t.Errorf("not the second session:\n%s", body)
	}
}

// TestServeComparesWithTheConfiguration: the page follows its files, also through a time in which they are broken.
func TestServeComparesWithTheConfiguration(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 2, "")
	f.mustApply(t)
	s := f.serve(t, servers.Connect())
	s.says("/", "<p>2 in sync</p>")
	f.write(t, 3, "")
	s.says("/", "<p>1 missing, 2 in sync</p>")
	s.says("/resource"+f.root+"/j2", "and missing: <code>muster apply</code> makes it")
	f.write(t, 3, "job {\n")
	s.says("/", "It cannot be read, so what follows is of what was read before: ")
	s.says("/", "<p>1 missing, 2 in sync</p>")
	f.write(t, 3, "")
	f.mustApply(t)
	s.says("/", "<p>3 in sync</p>")
	beside := filepath.Join(f.dir, "other.hcl")
	write(t, beside, "job \"there\" {\n  root    = \""+f.root+"-other\"\n  workers = 1\n}\n")
	s.says("/", "<p>1 missing, 3 in sync</p>")
}

// TestServeSaysThatZooKeeperIsAway: also if a reading waits for a connection, and long before the session ends.
func TestServeSaysThatZooKeeperIsAway(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 2, "zookeeper {\n  session_timeout = \"40s\"\n}\n")
	f.mustApply(t)
	proxy := newProxy(t, 0)
	s := f.serve(t, proxy.Addr())
	s.says("/healthz", "ok")
	proxy.Refuse(true)
	cut := proxy.BeforeSend(func(op int32, _ []byte) bool { return op != fault.OpPing && isRead(op) })
	f.write(t, 3, "")
	f.mustApply(t)
	select {
	case <-cut:
	case <-time.After(time.Minute):
		t.Fatal("it reads nothing after a change")
	}
	s.says("/healthz", "ZooKeeper does not answer; it last did at")
	if strings.Contains(s.seen.String(), "keeps what it knew") {
		t.Error("it says so only after the session has ended")
	}
	proxy.Refuse(false)
	s.says("/api/status", f.root+"/j2")
	s.says("/healthz", "ok")
}

// TestServeEndsWhenAsked: with the code of the signal, also with open streams.
func TestServeEndsWhenAsked(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1, "")
	f.mustApply(t)
	for sig, code := range map[syscall.Signal]int{syscall.SIGTERM: 143, syscall.SIGINT: 130} {
		s := f.serve(t, servers.Connect())
		stream, err := http.Get(s.url + "/stream?v=1&u=" + url.QueryEscape("/"))
		if err != nil || stream.StatusCode != http.StatusOK {
			t.Fatalf("stream: %v", err)
		}
		begun := time.Now()
		sendSignal(t, s.cmd, sig)
		if _, err := io.Copy(io.Discard, stream.Body); err != nil {
			t.Errorf("the stream was cut: %v", err)
		}
		_ = stream.Body.Close()
		endsWith(t, s.cmd, s.seen, code)
		if long := time.Since(begun); long > 30*time.Second {
			t.Errorf("it took %s", long)
		}
	}
}

// TestServeWarnsOfOthers: whoever can be reached by others is told what is missing.
func TestServeWarnsOfOthers(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1, "")
	f.mustApply(t)
	s := startServe(t, f.command(servers.Connect(), "serve", "--listen", "0.0.0.0:0"))
	s.seen.await(t, "MUSTER_SERVE_TOKEN_FILE")
	s.seen.await(t, "--listen-cert")
	if !strings.HasPrefix(s.url, "http://localhost:") {
		t.Errorf("it says %s", s.url)
	}
	if got := f.serve(t, servers.Connect()).seen.String(); strings.Contains(got, "warning") {
		t.Errorf("it warns on loopback:\n%s", got)
	}
}

// certificate writes a certificate that is valid until then, and its key.
func certificate(t *testing.T, until time.Time) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: until.Add(-time.Hour), NotAfter: until}
	body, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", body), write("key.pem", "PRIVATE KEY", secret)
}

// TestServeRefusesWhatCannotBe: the message says what to do. Nothing of it needs ZooKeeper.
func TestServeRefusesWhatCannotBe(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1, "")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	short := filepath.Join(f.dir, "short")
	write(t, short, "secret\n")
	cert, key := certificate(t, time.Now().Add(time.Hour))
	_, another := certificate(t, time.Now().Add(time.Hour))
	for _, c := range []struct {
		args  []string
		token string
		code  int
		says  string
	}{
		{[]string{"--listen", taken.Addr().String()}, "", 1,
			"next: another process listens there: end it, or take a free port: --listen 127.0.0.1:0\n"},
		{[]string{"--listen", "nonsense"}, "", 64, "next: give --listen an address"},
		{[]string{"--listen-cert", "x"}, "", 64, "next: give both --listen-cert and --listen-key"},
		{[]string{"--listen-cert", cert, "--listen-key", "none"}, "", 1, "next: check the name"},
		{[]string{"--listen-cert", cert, "--listen-key", f.dir}, "", 64, "next: name a file in it\n"},
		{[]string{"--listen-cert", cert, "--listen-key", another}, "", 1, "next: name a certificate and its own key"},
		{[]string{"--listen-cert", short, "--listen-key", key}, "", 1, "next: name a certificate and its own key"},
		{nil, short, 64, "next: openssl rand -hex 32 > " + short + "\n"},
		{nil, filepath.Join(f.dir, "no token"), 1, "next: openssl rand -hex 32 > '" + f.dir + "/no token'\n"},
		{nil, f.dir, 64, "MUSTER_SERVE_TOKEN_FILE: " + f.dir + " is a directory\n  next: name a file in it\n"},
		{nil, "", 8, "next: check --servers"},
	} {
		cmd := f.command(refusingAddr, append([]string{"serve", "--listen", "127.0.0.1:0"}, c.args...)...)
		cmd.Env = append(cmd.Env, "MUSTER_SERVE_TOKEN_FILE="+c.token)
		got := result(cmd)
		expect(t, got, c.code, c.says)
		if strings.Contains(got.stderr, "secret") {
			t.Errorf("it shows the token:\n%s", got.stderr)
		}
		if got.stdout != "" {
			t.Errorf("%v: it says that it serves:\n%s", c.args, got.stdout)
		}
	}
}

// TestServeWarnsOfAnExpiredCertificate: it serves, but no browser goes on.
func TestServeWarnsOfAnExpiredCertificate(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 1, "")
	f.mustApply(t)
	until := time.Now().Add(-time.Hour)
	cert, key := certificate(t, until)
	s := f.serve(t, servers.Connect(), "--listen-cert", cert, "--listen-key", key)
	s.seen.await(t, "warning: browsers will refuse the certificate")
	s.seen.await(t, " to "+until.UTC().Format(time.RFC3339))
	cert, key = certificate(t, time.Now().Add(time.Minute))
	s = f.serve(t, servers.Connect(), "--listen-cert", cert, "--listen-key", key)
	if got := s.seen.String(); strings.Contains(got, "warning") || !strings.HasPrefix(s.url, "https://") {
		t.Errorf("a good certificate:\n%s", got)
	}
}
