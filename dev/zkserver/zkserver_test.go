package zkserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/google/go-cmp/cmp"

	"muster/dev/daemon"
	"muster/dev/fault"
)

func start(t *testing.T, o Options) *Ensemble {
	t.Helper()
	begin := time.Now()
	e, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d server(s) served after %s", len(e.Addrs()), time.Since(begin).Round(time.Millisecond))
	t.Cleanup(func() {
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// connect returns a client with a session.
func connect(t *testing.T, addrs ...string) *zk.Conn {
	t.Helper()
	conn, events, err := zk.Connect(addrs, 10*time.Second, zk.WithLogger(quiet{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	deadline := time.After(20 * time.Second)
	for {
		select {
		case e := <-events:
			if e.State == zk.StateHasSession {
				return conn
			}
		case <-deadline:
			t.Fatalf("no session with %s", addrs)
		}
	}
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

func create(conn *zk.Conn, path string) error {
	_, err := conn.Create(path, []byte("data"), 0, zk.WorldACL(zk.PermAll))
	return err
}

// eventually repeats an attempt until it succeeds.
func eventually(t *testing.T, attempt func() error) {
	t.Helper()
	deadline, tick := time.After(20*time.Second), time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		err := attempt()
		if err == nil {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("still: %v", err)
		case <-tick.C:
		}
	}
}

func TestOneServer(t *testing.T) {
	t.Parallel()
	e := start(t, Options{})
	if e.Connect() != e.Server(0).Addr() {
		t.Errorf("Connect %s, Addr %s", e.Connect(), e.Server(0).Addr())
	}
	if err := create(connect(t, e.Addrs()...), "/a"); err != nil {
		t.Error(err)
	}
	stat, err := e.Server(0).Stat(within(t, 5*time.Second))
	if err != nil || stat["Mode"] != "standalone" {
		t.Errorf("Stat %v, %v", stat, err)
	}
	mntr, err := e.Server(0).Mntr(within(t, 5*time.Second))
	if err != nil || mntr["zk_znode_count"] != "6" {
		t.Errorf("Mntr %v, %v", mntr, err)
	}
	if leader, err := e.Leader(within(t, 5*time.Second)); leader != 0 || err != nil {
		t.Errorf("Leader %d, %v", leader, err)
	}
}

func TestStopIsIdempotentAndRemovesItsDirectory(t *testing.T) {
	t.Parallel()
	e := start(t, Options{})
	for range 2 {
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(e.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("temporary directory after Stop: %v", err)
	}
	if _, err := e.Server(0).Stat(within(t, 5*time.Second)); err == nil {
		t.Error("still answers after Stop")
	}
	if err := e.Server(0).Restart(t.Context()); err == nil || !strings.Contains(err.Error(), "was stopped") {
		t.Errorf("Restart after Stop: %v", err)
	}
}

func TestGivenDirectoryKeepsItsData(t *testing.T) {
	t.Setenv("LC_ALL", "C") // in which Java cannot use every directory name
	for _, servers := range []int{1, 3} {
		t.Run(fmt.Sprint(servers), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), `a b\c:ü`)
			first := start(t, Options{Servers: servers, Dir: dir})
			if err := create(connect(t, first.Addrs()...), "/kept"); err != nil {
				t.Fatal(err)
			}
			if err := first.Stop(); err != nil {
				t.Fatal(err)
			}
			second := start(t, Options{Servers: servers, Dir: dir})
			if d := cmp.Diff(first.Addrs(), second.Addrs()); d == "" {
				t.Error("a new start is expected to choose new ports")
			}
			if there, _, err := connect(t, second.Addrs()...).Exists("/kept"); !there || err != nil {
				t.Errorf("exists %t, %v", there, err)
			}
		})
	}
}

func TestRestartKeepsDataAndAddress(t *testing.T) {
	t.Parallel()
	e := start(t, Options{})
	s := e.Server(0)
	if err := create(connect(t, s.Addr()), "/kept"); err != nil {
		t.Fatal(err)
	}
	before := s.Run().OS.Pid
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Kill(); err != nil {
		t.Errorf("second Kill: %v", err)
	}
	if err := s.Pause(); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("Pause of a dead server: %v", err)
	}
	if err := s.Restart(within(t, 20*time.Second)); err != nil {
		t.Fatal(err)
	}
	if s.Run().OS.Pid == before {
		t.Error("Restart has to be a new process")
	}
	if _, _, err := connect(t, s.Addr()).Get("/kept"); err != nil { // a new client, since the old one may wait a minute
		t.Error(err)
	}
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	e := start(t, Options{})
	s := e.Server(0)
	for range 3 {
		if err := errors.Join(s.Pause(), s.Pause()); err != nil {
			t.Fatal(err)
		}
		conn, err := net.DialTimeout("tcp", s.Addr(), time.Second)
		if err != nil {
			t.Fatalf("a paused server is expected to accept: %v", err)
		}
		conn.Close()
		if _, err := s.Stat(within(t, 50*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Stat of a paused server: %v", err)
		}
		if err := s.Resume(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Stat(within(t, 5*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(s.Pause(), s.Kill()); err != nil {
		t.Errorf("Kill of a paused server: %v", err)
	}
}

func TestThreeServersElectAnotherLeader(t *testing.T) {
	t.Parallel()
	e := start(t, Options{Servers: 3})
	old, err := e.Leader(within(t, 2*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	if err := create(connect(t, e.Server(old).Addr()), "/a"); err != nil {
		t.Fatal(err)
	}
	for _, fault := range []struct {
		name       string
		begin, end func(*Server) error
	}{
		{"kill", (*Server).Kill, func(s *Server) error { return s.Restart(within(t, 2*time.Minute)) }},
		{"pause", (*Server).Pause, (*Server).Resume},
	} {
		if err := fault.begin(e.Server(old)); err != nil {
			t.Fatal(err)
		}
		leader, err := e.Leader(within(t, 2*time.Minute))
		if err != nil || leader == old {
			t.Fatalf("%s: leader %d after %d, %v", fault.name, leader, old, err)
		}
		if there, _, err := connect(t, e.Server(leader).Addr()).Exists("/a"); !there || err != nil {
			t.Errorf("%s: the znode is there: %t, %v", fault.name, there, err)
		}
		if err := fault.end(e.Server(old)); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error { _, err := e.Server(old).Stat(within(t, time.Second)); return err })
		old = leader
	}
}

func TestWholeEnsembleRestarts(t *testing.T) {
	t.Parallel()
	e := start(t, Options{Servers: 3})
	for i := range 3 {
		if err := e.Server(i).Kill(); err != nil {
			t.Fatal(err)
		}
	}
	restarted := make(chan error)
	for i := range 3 {
		go func() { restarted <- e.Server(i).Restart(within(t, 2*time.Minute)) }()
	}
	for range 3 {
		if err := <-restarted; err != nil {
			t.Error(err)
		}
	}
}

func TestTwoEnsemblesAtOnce(t *testing.T) {
	t.Parallel()
	one, two := start(t, Options{}), start(t, Options{Netty: true, SuperPassword: "pw"})
	a, b := connect(t, one.Addrs()...), connect(t, two.Addrs()...)
	if err := errors.Join(create(a, "/one"), create(b, "/two")); err != nil {
		t.Fatal(err)
	}
	if there, _, err := b.Exists("/one"); there || err != nil {
		t.Errorf("the second ensemble has the first one's znode: %t, %v", there, err)
	}
	if err := one.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := b.AddAuth("digest", []byte("super:pw")); err != nil {
		t.Error(err)
	}
	if _, err := b.Create("/two/closed", nil, 0, zk.DigestACL(zk.PermAll, "someone", "else")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Set("/two/closed", []byte("open"), -1); err != nil {
		t.Errorf("written by the super user: %v", err)
	}
}

func TestInvalidOptions(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{
		"2 servers": {Servers: 2},
	} {
		if _, err := Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("want an error about %q, got %v", name, err)
		}
	}
}

func TestNotInstalledSaysWhatToInstall(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		files []string // what the machine has
		goos  string
		env   map[string]string
		netty bool
		want  string // "" is an installation
	}{
		{name: "debian without anything", files: []string{"etc/debian_version"},
			want: "apt-get install -y zookeeper libnetty-java"},
		{name: "debian without zookeeper", files: []string{"etc/debian_version", "bin/java"},
			want: "apt-get install -y zookeeper libnetty-java"},
		{name: "debian", files: []string{"etc/debian_version", "bin/java", "usr/share/java/zookeeper.jar"}},
		{name: "debian without netty",
			files: []string{"etc/debian_version", "bin/java", "usr/share/java/zookeeper.jar"}, netty: true,
			want: "netty-codec.jar); run: apt-get install -y zookeeper libnetty-java"},
		{name: "debian with netty",
			files: []string{"bin/java", "usr/share/java/zookeeper.jar", "usr/share/java/netty-codec.jar",
				"usr/share/java/netty-resolver.jar", "usr/share/java/netty-handler.jar"}, netty: true},
		{name: "macOS without anything", goos: "darwin", want: "brew install zookeeper"},
		{name: "macOS", goos: "darwin", netty: true, files: []string{"opt/homebrew/opt/openjdk/bin/java",
			"opt/homebrew/opt/zookeeper/libexec/lib/zookeeper-3.9.3.jar"}},
		{name: "elsewhere", files: []string{"bin/java"}, want: "set ZOOKEEPER_HOME"},
		{name: "empty home", files: []string{"etc/debian_version", "bin/java", "usr/share/java/zookeeper.jar"},
			env: map[string]string{"ZOOKEEPER_HOME": "home"}, want: "no lib/zookeeper-*.jar in ZOOKEEPER_HOME="},
		{name: "home", files: []string{"bin/java", "home/lib/zookeeper-3.5.9.jar"},
			env: map[string]string{"ZOOKEEPER_HOME": "home"}},
		{name: "empty java home", files: []string{"bin/java"}, env: map[string]string{"JAVA_HOME": "jdk"},
			want: "no bin/java in JAVA_HOME="},
		{name: "java home", files: []string{"jdk/bin/java", "usr/share/java/zookeeper.jar"},
			env: map[string]string{"JAVA_HOME": "jdk"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			for _, name := range c.files {
				writeFile(t, filepath.Join(root, name))
			}
			getenv := func(name string) string {
				if name == "PATH" {
					return filepath.Join(root, "bin")
				}
				if c.env[name] == "" {
					return ""
				}
				return filepath.Join(root, c.env[name])
			}
			found, err := machine{root: root, goos: c.goos, getenv: getenv}.locate(c.netty)
			if c.want == "" {
				if err != nil || found.java == "" || len(found.classes) == 0 {
					t.Errorf("found %+v, %v", found, err)
				}
				return
			}
			if !errors.Is(err, ErrNotInstalled) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("want %q, got: %v", c.want, err)
			}
		})
	}
}

func writeFile(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o755); err != nil {
		t.Fatal(err)
	}
}

func TestStartWithoutInstallationLeavesNothing(t *testing.T) {
	t.Setenv("ZOOKEEPER_HOME", t.TempDir())
	t.Setenv("TMPDIR", t.TempDir())
	if _, err := Start(t.Context(), Options{}); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("empty ZOOKEEPER_HOME: %v", err)
	}
	t.Setenv("ZOOKEEPER_HOME", "")
	t.Setenv("JAVA_HOME", "")
	t.Setenv("PATH", "")
	if _, err := Start(t.Context(), Options{}); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("empty PATH: %v", err)
	}
	nothingIn(t, os.TempDir())
}

func nothingIn(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

// TestServerFromZooKeeperHome: a binary release has all jars in one folder. The test creates such a folder with links
// to the installed jars.
func TestServerFromZooKeeperHome(t *testing.T) {
	home := t.TempDir()
	if err := os.Mkdir(filepath.Join(home, "lib"), 0o755); err != nil {
		t.Fatal(err)
	}
	found, err := machine{root: "/", getenv: os.Getenv}.locate(false)
	if err != nil {
		t.Fatal(err)
	}
	for _, jar := range found.classes {
		name := strings.Replace(filepath.Base(jar), "zookeeper.jar", "zookeeper-3.8.0.jar", 1)
		if err := os.Symlink(jar, filepath.Join(home, "lib", name)); err != nil && !errors.Is(err, fs.ErrExist) {
			t.Fatal(err)
		}
	}
	t.Setenv("ZOOKEEPER_HOME", home)
	start(t, Options{})
}

func TestCancelledStartLeavesNothing(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := Start(ctx, Options{Servers: 3}); !errors.Is(err, context.Canceled) {
		t.Errorf("Start: %v", err)
	}
	nothingIn(t, os.TempDir())
}

func TestFailedStartShowsTheServersOutput(t *testing.T) {
	t.Parallel()
	_, err := Start(t.Context(), Options{Heap: "no-size"})
	if err == nil || !strings.Contains(err.Error(), "Invalid maximum heap size") {
		t.Errorf("Start: %v", err)
	}
}

func TestGivenPorts(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", daemon.Loopback(0))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	_, err = Start(t.Context(), Options{Port: port})
	if err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("taken port: %v", err)
	}
	port = freePort(t)
	if e := start(t, Options{Port: port}); e.Connect() != daemon.Loopback(port) {
		t.Errorf("serves at %s, not at port %d", e.Connect(), port)
	}
}

// freePort is a port that no other program gets before the test ends.
func freePort(t *testing.T) int {
	t.Helper()
	r, err := daemon.ReservePort(0)
	if err == nil {
		err = r.AllowListen()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r.Port
}

func TestRefusing(t *testing.T) {
	t.Parallel()
	addr, free, err := Refusing()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial: %v", err)
	}
	if err := free(); err != nil {
		t.Error(err)
	}
}

// TestPortsTakenMeanwhile: a port can be taken before the server binds it, also by another ensemble, which then
// answers.
func TestPortsTakenMeanwhile(t *testing.T) {
	t.Parallel()
	other := start(t, Options{})
	_, text, _ := net.SplitHostPort(other.Connect())
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	for name, take := range map[string]func(*place){
		"client":   func(p *place) { p.client = port },
		"election": func(p *place) { p.election = port },
		"quorum":   func(p *place) { p.quorum = port },
	} {
		t.Run(name, func(t *testing.T) {
			o, err := Options{Servers: 3}.complete()
			if err != nil {
				t.Fatal(err)
			}
			e := &Ensemble{dir: t.TempDir()}
			places, err := e.choosePlaces(o)
			if err != nil {
				t.Fatal(err)
			}
			defer e.freePorts()
			for i := range places {
				take(&places[i])
			}
			found, err := machine{root: "/", getenv: os.Getenv}.locate(false)
			if err != nil {
				t.Fatal(err)
			}
			if err := e.run(within(t, 2*time.Minute), places, o, found); !errors.Is(err, errPortTaken) {
				t.Errorf("run: %v", err)
			}
		})
	}
}

func TestThreeServersWithTLS(t *testing.T) {
	t.Parallel()
	for _, clientCert := range []bool{false, true} {
		e := start(t, Options{Servers: 3, TLS: !clientCert, ClientCert: clientCert})
		config, err := e.Certs().Config()
		if err != nil {
			t.Fatal(err)
		}
		dial := func(_, addr string, limit time.Duration) (net.Conn, error) {
			return tls.DialWithDialer(&net.Dialer{Timeout: limit}, "tcp", addr, config)
		}
		proxy, err := fault.NewProxy(e.Server(0).Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer proxy.Close()
		conn, _, err := zk.Connect([]string{proxy.Addr()}, 10*time.Second, zk.WithDialer(dial), zk.WithLogger(quiet{}))
		if err != nil {
			t.Fatal(err)
		}
		if err := create(conn, "/a"); err != nil {
			t.Errorf("ClientCert %t: %v", clientCert, err)
		}
		conn.Close()

		config.Certificates = nil
		stranger := Server{addr: e.Server(1).Addr(), dial: (&tls.Dialer{Config: config}).DialContext}
		_, err = stranger.ask(within(t, 5*time.Second), "srvr")
		if (err != nil) != clientCert {
			t.Errorf("ClientCert %t, client without one: %v", clientCert, err)
		}
	}
}
