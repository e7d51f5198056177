package differ

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/dev/zkmodel"
	"muster/dev/zkserver"
	"muster/sim/needs"
	"muster/zkstate/zkconn"
)

// superPassword is the administrator's on the real servers.
const superPassword = "tidy"

// servers are real servers, with a connection of an administrator to each: for the roots of traces, and to nudge.
type servers struct {
	addrs  []string
	admins []*wire
	leader int
	xid    int32
	seen   []int64 // by server: a zxid that it has applied
	roots  int
}

// startServers starts one server or three.
func startServers(t *testing.T, n int) *servers {
	t.Helper()
	// A short tick ends silent sessions soon. In an ensemble it also limits how long a busy machine may stop a server.
	o := zkserver.Options{Servers: n, TickTime: 100 * time.Millisecond, SuperPassword: superPassword}
	if n > 1 {
		o.TickTime = 500 * time.Millisecond
	}
	ensemble, err := zkserver.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ensemble.Stop(); err != nil {
			t.Error(err)
		}
	})
	needTheVersion(t, ensemble)
	s := &servers{addrs: ensemble.Addrs(), seen: make([]int64, n)}
	if s.leader, err = ensemble.Leader(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range s.addrs {
		if err := s.connect(i); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// needTheVersion ends a test beside another ZooKeeper than that of the model. 3.9 differs in events, in exists, in
// create2 in a multi, and in requests that cannot be read.
func needTheVersion(t *testing.T, e *zkserver.Ensemble) {
	t.Helper()
	stat, err := e.Server(0).Stat(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	version, _, _ := strings.Cut(stat["Zookeeper version"], "-")
	if !strings.HasPrefix(version, "3.8.") {
		needs.Missing(t, "the model is of ZooKeeper 3.8, and this one is %s", version)
	}
}

// connect connects the administrator to a server.
func (s *servers) connect(server int) error {
	w, err := dialWire(s.addrs[server], nil)
	if err != nil {
		return err
	}
	s.admins = append(s.admins, w)
	w.send(framed((&op{timeout: 600_000}).handshake(0, make([]byte, 16), 0)))
	if _, err := w.receive(); err != nil {
		return err
	}
	w.nudge = func() { w.send(framed((&op{code: opPing}).frame(xidPing, "", 0))) }
	_, _, err = s.ask(server, op{code: opAuth, scheme: "digest", data: []byte("super:" + superPassword)})
	return err
}

// dial connects a client to a server.
func (s *servers) dial(server int) (*wire, error) {
	return dialWire(s.addrs[server], func() { _, _, _ = s.ask(server, op{code: opExists, path: "/"}) })
}

// keepAlive lets no session of the administrator expire: that would be a change in the middle of a trace.
func (s *servers) keepAlive() error {
	for i := range s.addrs {
		if _, _, err := s.ask(i, op{code: opExists, path: "/"}); err != nil {
			return err
		}
	}
	return nil
}

// do executes a request of the administrator on the leader, which applies a change after it has told the others. A
// refusal is an error.
func (s *servers) do(o op) (zxid int64, err error) {
	_, zxid, err = s.ask(s.leader, o)
	return zxid, err
}

// ask executes a request of the administrator, and returns what follows the header of the reply.
func (s *servers) ask(server int, o op) (*decoder, int64, error) {
	s.xid++
	s.admins[server].send(framed(o.frame(o.xid(s.xid), "", 0)))
	d := &decoder{}
	for xid := xidPing; xid == xidPing; xid = d.int() { // those are of nudges
		frame, err := s.admins[server].receive()
		if err != nil {
			return nil, 0, fmt.Errorf("administrator: %s: %w", o.String(), err)
		}
		d = &decoder{rest: frame}
	}
	zxid, code := d.long(), d.int()
	if code != 0 {
		return nil, zxid, fmt.Errorf("administrator: %s: %w", o.String(), refusal(code))
	}
	return d, zxid, d.err
}

// refusal is an error code of ZooKeeper.
type refusal int32

const noNode refusal = -101

func (r refusal) Error() string { return fmt.Sprintf("error %d", int32(r)) }

// newRoot is a path that no other trace has.
func (s *servers) newRoot() string {
	s.roots++
	return fmt.Sprintf("/t%06d", s.roots)
}

// saw keeps the zxid of a server's reply.
func (s *servers) saw(server int, zxid int64) { s.seen[server] = max(s.seen[server], zxid) }

// await waits until the leader has applied a zxid.
func (s *servers) await(zxid int64) error {
	for late := time.Now().Add(replyLimit); time.Now().Before(late); {
		if there, err := s.applied(zxid); there || err != nil {
			return err
		}
		zkconn.Pause(context.Background(), 10*time.Millisecond)
	}
	return &difference{"the latest step", "the real servers have not made its change after " + replyLimit.String()}
}

// applied reports whether the leader has applied a zxid.
func (s *servers) applied(zxid int64) (bool, error) {
	last, err := s.do(op{code: opExists, path: "/"})
	return last >= zxid, err
}

// awaitExpiry waits until a silent session has ended, which is the zxid. The handshake resumes it with a short timeout.
// In an ensemble the follower of an earlier connection may tell the leader later of that connection's timeout, and so
// lengthen the session's life again: then another handshake shortens it.
func (s *servers) awaitExpiry(zxid int64, server int, handshake []byte) error {
	for late := time.Now().Add(replyLimit); time.Now().Before(late); {
		for soon := time.Now().Add(3 * time.Second); time.Now().Before(soon); {
			if there, err := s.applied(zxid); there || err != nil {
				return err
			}
			zkconn.Pause(context.Background(), 10*time.Millisecond)
		}
		w, err := s.dial(server)
		if err != nil {
			return err
		}
		w.send(framed(handshake))
		_, _ = w.receive()
		w.conn.Close()
	}
	return &difference{"the end of a session", "the real servers have not ended it after " + replyLimit.String()}
}

// remove removes a znode and all below it. An ephemeral one may go by itself: the leader is the last to learn of the
// end of a session.
func (s *servers) remove(path string) error {
	d, _, err := s.ask(s.leader, op{code: opGetChildren, path: path})
	if err != nil {
		return exceptNoNode(err)
	}
	names := make([]string, d.count())
	for i := range names {
		names[i] = d.string()
	}
	for _, name := range names {
		if err := s.remove(path + "/" + name); err != nil {
			return err
		}
	}
	_, err = s.do(op{code: opDelete, path: path, version: -1})
	return exceptNoNode(err)
}

func exceptNoNode(err error) error {
	if errors.Is(err, noNode) {
		return nil
	}
	return err
}

// endSession ends a session that a trace has left, so that it does not end in the middle of another trace.
func (s *servers) endSession(id int64, password []byte) error {
	w, err := s.dial(s.leader)
	if err != nil {
		return err
	}
	defer w.conn.Close()
	w.send(framed((&op{timeout: 600_000}).handshake(id, password, 0)))
	w.send(framed((&op{code: opClose}).frame(1, "", 0)))
	for {
		if _, err := w.receive(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// TestKazooCannotTellTheModel: the recipes of kazoo, a client in Python that others wrote, come to the same results on
// the model as on a real server: locks, elections, barriers, queues and more, with several clients, some of which die.
func TestKazooCannotTellTheModel(t *testing.T) {
	t.Parallel()
	python := needs.Program(t, "python3", "python3")
	const module = "/usr/lib/python3/dist-packages/kazoo"
	if _, err := os.Stat(module); err != nil {
		needs.Missing(t, "no %s (apt-get install python3-kazoo)", module)
	}
	if _, err := os.Stat("/usr/bin/python3"); err == nil {
		python = "/usr/bin/python3" // Debian's own, which has the module
	}
	results := make(chan string, 1)
	model, server := modelAddr(t), realAddr(t)
	go func() { results <- recipes(t, python, model) }()
	want := recipes(t, python, server)
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(<-results, "\n")); diff != "" {
		t.Errorf("results differ (-real server +model):\n%s", diff)
	}
	if n := strings.Count(want, "\n"); n < 100 {
		t.Errorf("only %d lines:\n%s", n, want)
	}
}

func realAddr(t *testing.T) string {
	ensemble, err := zkserver.Start(t.Context(), zkserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ensemble.Stop(); err != nil {
			t.Error(err)
		}
	})
	needTheVersion(t, ensemble)
	return ensemble.Connect()
}

func modelAddr(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := zkmodel.New(zkmodel.Options{MinTimeout: leastTimeout, MaxTimeout: mostTimeout})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		<-served
	})
	return l.Addr().String()
}

// recipes runs testdata/recipes.py and returns what it printed.
func recipes(t *testing.T, python, addr string) string {
	begun := time.Now()
	cmd := exec.CommandContext(t.Context(), python, "testdata/recipes.py", addr)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // it starts a process
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var out, messages bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &messages
	if err := cmd.Run(); err != nil {
		t.Errorf("recipes.py %s: %v\n%s\n%s", addr, err, out.String(), messages.String())
	}
	t.Logf("%d lines in %.1f s", bytes.Count(out.Bytes(), []byte("\n")), time.Since(begun).Seconds())
	return out.String()
}
