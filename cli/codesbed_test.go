package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"muster/zkstate"
	"muster/zkstate/zkconn"
)

// codeBed is a directory with the configurations of testdata/codes.txtar, a root of its own, and a session beside muster.
type codeBed struct {
	t         *testing.T
	dir, root string
	session   *zkconn.Session
	unlock    func() // what lock took
	pid       int    // of muster
}

func newCodeBed(t *testing.T, s *zkconn.Session) *codeBed {
	b := &codeBed{t: t, dir: t.TempDir(), root: "/t-" + zkstate.NewID()[:12], session: s}
	archive, err := txtar.ParseFile("testdata/codes.txtar")
	b.check(err)
	shared := archive.Files[0]
	for _, f := range archive.Files[1:] {
		dir := filepath.Join(b.dir, filepath.Dir(f.Name))
		b.check(os.MkdirAll(dir, 0o777))
		b.check(os.WriteFile(filepath.Join(b.dir, f.Name), f.Data, 0o666))
		b.check(os.WriteFile(filepath.Join(dir, shared.Name), shared.Data, 0o666))
	}
	// What the tests run as muster writes down its process id first: in a pipe nobody else knows it.
	script := "#!/bin/sh\necho $$ > \"$PIDS\"\nexec " + filepath.Join(bin, "muster") + " \"$@\"\n"
	syscall.ForkLock.RLock() // a process that another test forks now would hold the file open for writing: it could not be run
	err = os.WriteFile(filepath.Join(b.dir, "muster"), []byte(script), 0o777)
	syscall.ForkLock.RUnlock()
	b.check(err)
	return b
}

func (b *codeBed) check(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// shell is bash with this bed's muster.
func (b *codeBed) shell(script string) *exec.Cmd {
	cmd := exec.Command("bash", "-c", script)
	cmd.Dir = b.dir
	cmd.Env = []string{
		"PATH=" + b.dir + ":" + bin + ":" + os.Getenv("PATH"), "PIDS=" + filepath.Join(b.dir, "pids"), "USER=tester",
		"MUSTER_SERVERS=" + servers.Connect(), "MUSTER_VAR_root=" + b.root, "ROOT=" + b.root, "NOBODY=" + nobody,
	}
	return cmd
}

// end prepares the bed, runs the script of a case, and returns its code and all that it printed.
func (b *codeBed) end(c codeCase, script string) (int, string) {
	if c.given != "" {
		if out, err := b.shell("set -euo pipefail\n" + c.given).CombinedOutput(); err != nil {
			b.t.Fatalf("what is given ends with %v\n%s", err, out)
		}
	}
	if c.with != nil {
		c.with(b)
	}
	seen := newScreen()
	cmd := b.shell(script)
	cmd.Stdout, cmd.Stderr = seen, seen
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	b.check(cmd.Start())
	b.t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }) // of a test that failed half-way
	for _, s := range c.steps {
		seen.await(b.t, s.until)
		pid, err := os.ReadFile(filepath.Join(b.dir, "pids"))
		b.check(err)
		b.pid, err = strconv.Atoi(strings.TrimSpace(string(pid)))
		b.check(err)
		s.then(b)
	}
	limit := time.AfterFunc(2*time.Minute, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer limit.Stop()
	_ = cmd.Wait() // the code tells
	return cmd.ProcessState.ExitCode(), seen.String()
}

func (b *codeBed) signal(sig syscall.Signal) { b.check(syscall.Kill(b.pid, sig)) }

// lock takes the apply lock of stack "tests".
func (b *codeBed) lock() {
	store, err := zkstate.NewStore(b.session, zkstate.Config{
		Home: b.root + "-home", Stack: "tests", By: "somebody@else", At: time.Now(), Kinds: []zkstate.Kind{zkstate.Job()},
	})
	b.check(err)
	_, release, err := store.Lock(b.t.Context(), "", time.Minute, nil)
	b.check(err)
	b.unlock = func() { b.check(release()) }
}

// breakLock removes everybody's place in the queue.
func (b *codeBed) breakLock() {
	dir := b.root + "-home/lock/tests"
	names, _, err := b.session.Children(b.t.Context(), dir)
	b.check(err)
	for _, name := range names {
		b.check(b.session.Delete(b.t.Context(), dir+"/"+name, -1))
	}
}

// move writes the record of job a as it is: it is another version then.
func (b *codeBed) move() {
	record := b.root + "/.muster/job/a"
	body, stat, err := b.session.Get(b.t.Context(), record)
	b.check(err)
	_, err = b.session.Set(b.t.Context(), record, body, stat.Version)
	b.check(err)
}

// worksForever is a live znode of a worker that answers no request to stop.
func (b *codeBed) worksForever() {
	_, err := b.session.Create(b.t.Context(), b.root+"/a/somebody", nil, zkconn.Ephemeral, zkconn.World(zkconn.PermAll))
	b.check(err)
}

// replaceWorker stops the worker until it has lost its session and another process has its identity.
func (b *codeBed) replaceWorker() {
	b.signal(syscall.SIGSTOP)
	seen := newScreen()
	other := b.shell("exec " + filepath.Join(bin, "muster") + " worker --root $ROOT --job a --identity w --advertise 127.0.0.1:7001")
	other.Stdout, other.Stderr = seen, seen
	b.check(other.Start())
	b.t.Cleanup(func() { _ = other.Process.Kill(); _ = other.Wait() })
	seen.await(b.t, "as worker 0")
	b.signal(syscall.SIGCONT)
}
