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

// codeFixture is a directory with the configurations of testdata/codes.txtar, a root, and a session of the test.
type codeFixture struct {
	t         *testing.T
	dir, root string
	session   *zkconn.Session
	unlock    func() // releases what lock took
	pid       int    // of muster
}

func newCodeFixture(t *testing.T, s *zkconn.Session) *codeFixture {
	f := &codeFixture{t: t, dir: t.TempDir(), root: "/t-" + zkstate.NewID()[:12], session: s}
	archive, err := txtar.ParseFile("testdata/codes.txtar")
	f.check(err)
	shared := archive.Files[0]
	for _, file := range archive.Files[1:] {
		dir := filepath.Join(f.dir, filepath.Dir(file.Name))
		f.check(os.MkdirAll(dir, 0o777))
		f.check(os.WriteFile(filepath.Join(f.dir, file.Name), file.Data, 0o666))
		f.check(os.WriteFile(filepath.Join(dir, shared.Name), shared.Data, 0o666))
	}
	// The tests run a script as muster that first writes its process id. The shell cannot tell it: muster is in a pipe.
	script := "#!/bin/sh\necho $$ > \"$PIDS\"\nexec " + filepath.Join(bin, "muster") + " \"$@\"\n"
	// A process that another test forks now would inherit the open file, and a file open for writing cannot be run.
	syscall.ForkLock.RLock()
	err = os.WriteFile(filepath.Join(f.dir, "muster"), []byte(script), 0o777)
	syscall.ForkLock.RUnlock()
	f.check(err)
	return f
}

func (f *codeFixture) check(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// shell runs a script with bash, where muster is that of the fixture.
func (f *codeFixture) shell(script string) *exec.Cmd {
	cmd := exec.Command("bash", "-c", script)
	cmd.Dir = f.dir
	cmd.Env = []string{
		"PATH=" + f.dir + ":" + bin + ":" + os.Getenv("PATH"), "PIDS=" + filepath.Join(f.dir, "pids"), "USER=tester",
		"MUSTER_SERVERS=" + servers.Connect(), "MUSTER_VAR_root=" + f.root, "ROOT=" + f.root, "NOBODY=" + refusingAddr,
	}
	return cmd
}

// runCase prepares the fixture, runs a script for a case, and returns its code and its output.
func (f *codeFixture) runCase(c codeCase, script string) (int, string) {
	if c.setup != "" {
		if out, err := f.shell("set -euo pipefail\n" + c.setup).CombinedOutput(); err != nil {
			f.t.Fatalf("what is given ends with %v\n%s", err, out)
		}
	}
	if c.before != nil {
		c.before(f)
	}
	seen := newScreen()
	cmd := f.shell(script)
	cmd.Stdout, cmd.Stderr = seen, seen
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	f.check(cmd.Start())
	f.t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }) // if the test fails half-way
	for _, s := range c.steps {
		seen.await(f.t, s.until)
		pid, err := os.ReadFile(filepath.Join(f.dir, "pids"))
		f.check(err)
		f.pid, err = strconv.Atoi(strings.TrimSpace(string(pid)))
		f.check(err)
		s.then(f)
	}
	limit := time.AfterFunc(2*time.Minute, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer limit.Stop()
	_ = cmd.Wait() // the code tells
	return cmd.ProcessState.ExitCode(), seen.String()
}

func (f *codeFixture) signal(sig syscall.Signal) { f.check(syscall.Kill(f.pid, sig)) }

// lock takes the apply lock of stack "tests".
func (f *codeFixture) lock() {
	store, err := zkstate.NewStore(f.session, zkstate.Config{
		Home: f.root + "-home", Stack: "tests", By: "somebody@else", At: time.Now(),
		Kinds: []zkstate.Kind{zkstate.Job()},
	})
	f.check(err)
	_, release, err := store.Lock(f.t.Context(), "", time.Minute, nil)
	f.check(err)
	f.unlock = func() { f.check(release()) }
}

// breakLock deletes the znodes of all that hold or wait for the lock.
func (f *codeFixture) breakLock() {
	dir := f.root + "-home/lock/tests"
	names, _, err := f.session.Children(f.t.Context(), dir)
	f.check(err)
	for _, name := range names {
		f.check(f.session.Delete(f.t.Context(), dir+"/"+name, -1))
	}
}

// touchRecord writes the Record of job a unchanged, which gives it another version.
func (f *codeFixture) touchRecord() {
	record := f.root + "/.muster/job/a"
	body, stat, err := f.session.Get(f.t.Context(), record)
	f.check(err)
	_, err = f.session.Set(f.t.Context(), record, body, stat.Version)
	f.check(err)
}

// addDeafWorker creates a live znode. No worker is behind it, so a request to stop has no effect.
func (f *codeFixture) addDeafWorker() {
	_, err := f.session.Create(f.t.Context(), f.root+"/a/somebody", nil, zkconn.Ephemeral, zkconn.World(zkconn.PermAll))
	f.check(err)
}

// replaceWorker pauses the worker until its session has expired and another process has its identity.
func (f *codeFixture) replaceWorker() {
	f.signal(syscall.SIGSTOP)
	seen := newScreen()
	other := f.shell("exec " + filepath.Join(bin, "muster") +
		" worker --root $ROOT --job a --identity w --advertise 127.0.0.1:7001")
	other.Stdout, other.Stderr = seen, seen
	f.check(other.Start())
	f.t.Cleanup(func() { _ = other.Process.Kill(); _ = other.Wait() })
	seen.await(f.t, "as worker 0")
	f.signal(syscall.SIGCONT)
}
