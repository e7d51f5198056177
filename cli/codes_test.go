package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"golang.org/x/sync/errgroup"

	"muster/sim/rig"
	"muster/zkstate"
	"muster/zkstate/zkconn"
)

// codeCase is a command that ends with a code. One condition causes the code; a second one may hold and loses.
type codeCase struct {
	code   int
	beats  int    // the code of the condition that loses; 0 if there is none
	name   string // the condition, or both
	setup  string // a shell script that runs first, in the directory with the configurations of testdata/codes.txtar
	run    string
	before func(*codeFixture) // runs after setup
	steps  []step             // run while the command runs
}

// step does something when the command has printed a text.
type step struct {
	until string
	then  func(*codeFixture)
}

// setupAll makes a job for each condition of configuration "all": a is replaced, b belongs to another stack, closed may
// be read but not written, late is stale and apply waits for it. Job new does not exist.
const setupAll = `
muster apply -q --yes before
muster apply -q --yes theirs
MUSTER_ZK_AUTH=digest:ops:secret muster apply -q --yes --only closed closed
! muster worker -q --root $ROOT --job late --identity w -- sh -c 'exit 9'`

// unwritableReport asks for a required report that cannot be written.
const unwritableReport = "--report json=nowhere/r.json "

const workerCommand = "muster worker --root $ROOT --advertise 127.0.0.1:7000 --identity w --job "

// codeCases has every code alone, and every pair of codes of which one comes before the other.
var codeCases = []codeCase{
	{code: 0, name: "changes, without --detailed-exitcode", run: "muster plan one"},
	{code: 0, name: "a blocked job, without --detailed-exitcode", setup: setupAll, run: "muster plan --only b all"},
	{code: 0, name: "everything applied", run: "muster apply --yes two"},
	{code: 0, name: "no drift", setup: "muster apply -q --yes one", run: "muster drift one"},
	{code: 1, name: "a wrong configuration", run: "muster plan wrong"},
	{code: 1, name: "a missing plan file", run: "muster apply nothing.json"},
	{code: 1, name: "a required report that is not written", run: "muster plan " + unwritableReport + "one"},
	{code: 2, name: "a plan with changes", run: "muster plan --detailed-exitcode one"},
	{code: 2, name: "something was changed", run: "muster apply --yes --detailed-exitcode one"},
	{code: 2, name: "drift", setup: "muster apply -q --yes one", run: "muster drift two"},
	{code: 2, name: "an untidy file", run: "muster fmt --check untidy"},
	{code: 3, name: "a plan with a blocked job", setup: setupAll, run: "muster plan --detailed-exitcode --only b all"},
	{code: 3, name: "an apply with a blocked job", setup: setupAll, run: "muster apply --yes --only b all"},
	{code: 3, name: "an apply with a job that may only be restarting", setup: setupAll,
		run: "muster apply --yes --no-wait --only late all"},
	{code: 3, name: "a check that could not see everything", setup: setupHidden, run: "muster drift one"},
	{code: 3, name: "a status that could not be read", setup: setupHidden, run: "muster status --root $ROOT"},
	{code: 4, name: "a job that moved", setup: setupAll, run: "muster apply --yes --only a all",
		before: (*codeFixture).lock, steps: moveWhileLocked},
	{code: 4, name: "workers that do not leave", setup: "muster apply -q --yes one",
		before: (*codeFixture).addDeafWorker,
		run:    "muster terminate --yes --timeout 1s --stack tests $ROOT/a"},
	{code: 5, name: "a plan applied twice", setup: "muster plan --out p.json one && muster apply p.json",
		run: "muster apply p.json"},
	{code: 5, name: "a plan that is too old", setup: "muster plan --out p.json one",
		run: "muster apply --max-age 0s p.json"},
	{code: 6, name: "another apply", before: (*codeFixture).lock, run: "muster apply --yes --lock-timeout 0s one"},
	{code: 6, name: "a check during an apply", before: (*codeFixture).lock, run: "muster drift --wait-lock 0s one"},
	{code: 7, name: "a configuration without jobs", run: "muster apply --yes none"},
	{code: 7, name: "more deletes than allowed", setup: "muster apply -q --yes two",
		run: "muster apply --yes --max-delete 0 one"},
	{code: 8, name: "no server", run: "muster plan --servers $NOBODY one"},
	{code: 8, name: "no permission", setup: setupAll, run: "muster apply --yes --only closed all"},
	{code: 64, name: "nobody to ask", run: "muster apply one"},
	{code: 64, name: "an unknown flag", run: "muster drift --quick one"},

	{code: 70, name: "the others do not come", setup: "muster apply -q --yes one",
		run: workerCommand + "a --start all --join-timeout 4s -- true"},
	{code: 71, name: "an aborted barrier", setup: "muster apply -q --yes one",
		run: workerCommand + "a -- muster barrier x --timeout 100ms"},
	{code: 72, name: "somebody else is this worker", setup: "muster apply -q --yes one",
		run:   workerCommand + "a -- sh -c 'echo works; exec sleep 1000'",
		steps: []step{{"works", (*codeFixture).replaceWorker}}},
	{code: 73, name: "a job whose workers have all joined", setup: setupAll,
		run: "muster worker --root $ROOT --job late --identity w2 -- true"},
	{code: 74, name: "a job that nobody created", run: workerCommand + "a --join-timeout 4s -- true"},
	{code: 75, name: "a gang that has failed",
		setup: "muster apply -q --yes gang; ! " + workerCommand + "a -- sh -c 'exit 9'", run: workerCommand + "a -- true"},
	{code: 126, name: "a command that is no program", setup: "muster apply -q --yes one",
		run: workerCommand + "a -- ./one/main.hcl"},
	{code: 127, name: "a command that is not there", setup: "muster apply -q --yes one",
		run: workerCommand + "a -- no-such-command"},
	{code: 137, name: "a command that is killed", setup: "muster apply -q --yes one",
		run: workerCommand + "a -- sh -c 'kill -9 $$'"},

	{code: 129, name: "SIGHUP during an apply", setup: setupAll, run: "muster apply --yes --only late all",
		steps: signalWhileStale(syscall.SIGHUP)},
	{code: 134, name: "aborted as when memory runs out", setup: setupAll,
		run: "(ulimit -c 0; muster apply --yes --only late all; exit $?)", steps: signalWhileStale(syscall.SIGABRT)},
	{code: 130, name: "SIGINT during an apply", setup: setupAll, run: "muster apply --yes --only late all",
		steps: signalWhileStale(syscall.SIGINT)},
	{code: 143, name: "SIGTERM during a check", before: (*codeFixture).lock, run: "muster drift one",
		steps: signalWhileLocked(syscall.SIGTERM)},

	{code: 143, beats: 8, name: "SIGTERM, and no permission", setup: setupAll,
		run: "muster apply --yes --only late --only closed all", steps: signalWhileStale(syscall.SIGTERM)},
	{code: 130, beats: 1, name: "SIGINT, and a required report is not written", setup: setupAll,
		run:   "muster apply --yes " + unwritableReport + "--only late all",
		steps: signalWhileStale(syscall.SIGINT)},
	{code: 129, beats: 4, name: "SIGHUP, and a job moved", setup: setupAll,
		run: "muster apply --yes --only late --only a all", before: (*codeFixture).lock,
		steps: append(moveWhileLocked, signalWhileStale(syscall.SIGHUP)...)},
	{code: 130, beats: 3, name: "SIGINT, and a job is blocked", setup: setupAll,
		run: "muster apply --yes --only late --only b all", steps: signalWhileStale(syscall.SIGINT)},
	{code: 143, beats: 2, name: "SIGTERM, and something was changed", setup: setupAll,
		run:   "muster apply --yes --detailed-exitcode --only late --only new all",
		steps: signalWhileStale(syscall.SIGTERM)},
	{code: 130, beats: 6, name: "SIGINT, waiting for the lock", before: (*codeFixture).lock,
		run: "muster apply --yes one", steps: signalWhileLocked(syscall.SIGINT)},
	{code: 143, beats: 5, name: "SIGTERM, and the plan moved",
		setup: setupAll + "\nmuster plan --only a --out p.json all", before: (*codeFixture).lock,
		run:   "muster apply p.json",
		steps: []step{{"waiting up to", func(f *codeFixture) { f.touchRecord(); f.signal(syscall.SIGTERM) }}}},

	{code: 8, beats: 1, name: "no server, and a required report is not written",
		run: "muster drift --servers $NOBODY " + unwritableReport + "one"},
	{code: 8, beats: 4, name: "no permission, and another job moved", setup: setupAll,
		run:    "muster apply --yes --only closed --only a all",
		before: (*codeFixture).lock, steps: moveWhileLocked},
	{code: 8, beats: 4, name: "no permission, and the lock was lost", setup: setupAll,
		run:   "muster apply --yes --only closed --only late all",
		steps: []step{{"stale job", (*codeFixture).breakLock}}},
	{code: 8, beats: 3, name: "no permission, and another job is blocked", setup: setupAll,
		run: "muster apply --yes --only closed --only b all"},
	{code: 8, beats: 2, name: "no permission, and something was changed", setup: setupAll,
		run: "muster apply --yes --detailed-exitcode --only closed --only new all"},

	{code: 5, beats: 1, name: "a plan applied twice, and a required report is not written",
		setup: "muster plan --out p.json one && muster apply p.json",
		run:   "muster apply " + unwritableReport + "p.json"},
	{code: 5, beats: 3, name: "a plan applied twice, and a job is blocked",
		setup: setupAll + "\nmuster plan --only b --only new --out p.json all && ! muster apply p.json",
		run:   "muster apply p.json"},
	{code: 6, beats: 1, name: "another apply, and a required report is not written", before: (*codeFixture).lock,
		run: "muster apply --yes --lock-timeout 0s " + unwritableReport + "one"},
	{code: 6, beats: 2, name: "a check during an apply, and drift", setup: "muster apply -q --yes one",
		before: (*codeFixture).lock, run: "muster drift --wait-lock 0s two"},
	{code: 7, beats: 1, name: "too many deletes, and a required report is not written",
		setup: "muster apply -q --yes two",
		run:   "muster apply --yes --max-delete 0 " + unwritableReport + "one"},
	{code: 7, beats: 2, name: "a plan with changes that a guard does not save", setup: "muster apply -q --yes one",
		run: "muster plan --detailed-exitcode --out p.json none"},
	{code: 7, beats: 3, name: "a plan with a blocked job that a guard does not save", setup: setupAll,
		run: "muster plan --detailed-exitcode --max-delete 0 --out p.json two-less"},
	{code: 64, beats: 1, name: "nobody to ask, and a required report is not written",
		run: "muster apply " + unwritableReport + "one"},

	{code: 1, beats: 4, name: "a required report is not written, and a job moved", setup: setupAll,
		run:    "muster apply --yes " + unwritableReport + "--only a all",
		before: (*codeFixture).lock, steps: moveWhileLocked},
	{code: 1, beats: 4, name: "a required report is not written, and the lock was lost", setup: setupAll,
		run:   "muster apply --yes " + unwritableReport + "--only late all",
		steps: []step{{"stale job", (*codeFixture).breakLock}}},
	{code: 1, beats: 3, name: "a required report is not written, and a job is blocked", setup: setupAll,
		run: "muster apply --yes " + unwritableReport + "--only b all"},
	{code: 1, beats: 2, name: "a required report is not written, and there is drift",
		setup: "muster apply -q --yes one", run: "muster drift " + unwritableReport + "two"},

	{code: 4, beats: 3, name: "a job moved, and another is blocked", setup: setupAll,
		run: "muster apply --yes --only a --only b all", before: (*codeFixture).lock, steps: moveWhileLocked},
	{code: 4, beats: 2, name: "a job moved, and another was changed", setup: setupAll,
		run:    "muster apply --yes --detailed-exitcode --only a --only new all",
		before: (*codeFixture).lock, steps: moveWhileLocked},
	{code: 3, beats: 2, name: "an apply changed something, and a job is blocked", setup: setupAll,
		run: "muster apply --yes --detailed-exitcode --only b --only new all"},
	{code: 2, beats: 3, name: "a plan with changes and a blocked job", setup: setupAll,
		run: "muster plan --detailed-exitcode --only b --only new all"},
	{code: 2, beats: 3, name: "drift, and a check that could not see everything", setup: setupHidden,
		run: "muster drift two"},
}

// setupHidden makes a job that cannot be read.
const setupHidden = `
muster apply -q --yes one
MUSTER_ZK_AUTH=digest:ops:secret muster apply -q --yes --only hidden hidden`

// moveWhileLocked changes job a while the apply waits for the lock.
var moveWhileLocked = []step{{"waiting up to", func(f *codeFixture) { f.touchRecord(); f.unlock() }}}

// signalWhileStale sends a signal while the apply waits for the grace of a stale job.
func signalWhileStale(sig syscall.Signal) []step {
	return []step{{"stale job", func(f *codeFixture) { f.signal(sig) }}}
}

// signalWhileLocked sends a signal while the command waits for the lock.
func signalWhileLocked(sig syscall.Signal) []step {
	return []step{{"waiting up to", func(f *codeFixture) { f.signal(sig) }}}
}

// TestExitCodes runs the real binary: a single condition without a pipe and in both kinds of pipe that
// docs/exit-codes.md shows, two conditions in the strict pipe.
func TestExitCodes(t *testing.T) {
	pipes := map[string]string{
		"as_it_is":        "%s",
		"set_-o_pipefail": "set -euo pipefail\n%s | cat\necho went on",
		"PIPESTATUS":      "set -eu\n%s | cat\nexit \"${PIPESTATUS[0]}\"",
	}
	session := rig.Dial(t, 30*time.Second, servers.Addrs()...)
	for _, c := range codeCases {
		for pipe, script := range pipes {
			if c.beats > 0 && pipe != "set_-o_pipefail" {
				continue
			}
			name := fmt.Sprintf("%d_%s_%s", c.code, strings.NewReplacer(" ", "_", ",", "").Replace(c.name), pipe)
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f := newCodeFixture(t, session)
				code, text := f.runCase(c, fmt.Sprintf(script, c.run))
				if code != c.code {
					t.Fatalf("code %d, want %d\n%s", code, c.code, text)
				}
				if went := strings.Contains(text, "went on"); pipe == "set_-o_pipefail" && went != (code == 0) {
					t.Errorf("the script went on: %v, after code %d\n%s", went, code, text)
				}
			})
		}
	}
}

// TestEveryExitCodeHasATest compares docs/exit-codes.md with the table above: each code alone, and each pair
// that is ordered there.
func TestEveryExitCodeHasATest(t *testing.T) {
	doc := read(t, "../docs/exit-codes.md")
	has := func(code, over int) bool {
		return slices.ContainsFunc(codeCases, func(c codeCase) bool { return c.code == code && c.beats == over })
	}
	rows := regexp.MustCompile(`(?m)^\| ([0-9n+, ]+) \|`).FindAllStringSubmatch(doc, -1)
	if len(rows) < 17 {
		t.Errorf("only %d rows found", len(rows))
	}
	for _, row := range rows {
		for code := range strings.SplitSeq(row[1], ", ") {
			n, err := strconv.Atoi(strings.Replace(code, "128+n", "137", 1))
			if err != nil {
				t.Errorf("%q is no code", code)
			} else if !has(n, 0) {
				t.Errorf("code %s is documented and has no test", code)
			}
		}
	}
	for _, c := range codeCases {
		code := strconv.Itoa(c.code)
		if c.code == 137 {
			code = `128\+n`
		}
		if !regexp.MustCompile(`(?m)^\| ([0-9n+, ]+, )?` + code + `(, [0-9n+, ]+)? \|`).MatchString(doc) {
			t.Errorf("code %s is tested and not documented", code)
		}
	}
	order := regexp.MustCompile(`When two hold at once: a signal, then ([0-9, ]+), 0\.`).FindStringSubmatch(doc)
	if order == nil {
		t.Fatal("docs/exit-codes.md has no order")
	}
	var first []int
	signals := []int{129, 130, 143}
	for text := range strings.SplitSeq(order[1], ", ") {
		code, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		for _, before := range first {
			if !has(before, code) {
				t.Errorf("%d comes before %d, and no test has both", before, code)
			}
		}
		if !slices.ContainsFunc(signals, func(sig int) bool { return has(sig, code) }) {
			t.Errorf("a signal comes before %d, and no test has both", code)
		}
		first = append(first, code)
	}
	if !has(2, 3) {
		t.Error("of plan and drift 2 comes before 3, and no test has both")
	}
}

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

// rejectedCases returns the cases of package spec that the binary can run: those whose options are flags or the
// environment.
func rejectedCases(t *testing.T) map[string]*txtar.Archive {
	t.Helper()
	files, err := filepath.Glob("../spec/testdata/rejected/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]*txtar.Archive{}
	for _, file := range files {
		ar, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(ar.Files, func(f txtar.File) bool {
			return f.Name == "options" && regexp.MustCompile(`(?m)^(now|version|open|file$|var oops$)`).Match(f.Data)
		}) {
			cases[strings.TrimSuffix(filepath.Base(file), ".txtar")] = ar
		}
	}
	if len(cases) < 100 {
		t.Fatalf("only %d cases", len(cases))
	}
	return cases
}

// runValidate runs validate on a case. It returns the outcome and the diagnostics that are expected.
func runValidate(t *testing.T, ar *txtar.Archive, env []string, flags ...string) (got outcome, want string) {
	t.Helper()
	f := fixture{dir: t.TempDir()}
	args := append([]string{"validate"}, flags...)
	for _, file := range ar.Files {
		switch file.Name {
		case "diags.txt":
			want = string(file.Data)
			continue
		case "options":
			for line := range strings.Lines(string(file.Data)) {
				switch word, rest, _ := strings.Cut(strings.TrimSpace(line), " "); word {
				case "var":
					args = append(args, "--var", rest)
				case "file":
					args = append(args, "--var-file", rest)
				case "env":
					env = append(env, rest)
				}
			}
			continue
		}
		at := filepath.Join(f.dir, file.Name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, file.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := f.command("", args...)
	cmd.Env = append(append(cmd.Env, "MUSTER_ZK_AUTH=digest:a:b"), env...)
	return result(cmd), want
}

// TestEveryErrorShowsItsPlaceWithoutColour checks more than 200 diagnostics, in a pipe, and with NO_COLOR against
// FORCE_COLOR, and that none is printed twice. A diagnostic about no line of source, such as a missing file, has no
// place. One about a password has a place but does not show the line. As JSON all fit the schema. That no diagnostic is
// printed that only follows from another is in script all_errors_once.
func TestEveryErrorShowsItsPlaceWithoutColour(t *testing.T) {
	place := regexp.MustCompile(`(?m)^ *--> [^:\n]+:[1-9]\d*:[1-9]\d*(,|$)`)
	carets := regexp.MustCompile(`(?m)^ +\| .*\^`)
	// There is no muster block; a flag is malformed; a file cannot be read.
	noSource := []string{"M1307", "M1409", "M1410"}
	hidden, perhaps := []string{"M2002"}, []string{"M1604", "M1605", "M1608"}
	shown, schema := 0, schemaOf(t, "validate", true)
	for name, ar := range rejectedCases(t) {
		t.Run(name, func(t *testing.T) {
			piped, want := runValidate(t, ar, nil)
			forced, _ := runValidate(t, ar, []string{"NO_COLOR=1", "FORCE_COLOR=1"})
			for _, got := range []outcome{piped, forced} {
				if d := cmp.Diff(want, got.stderr); d != "" || got.code != 1 || got.stdout != "" {
					t.Errorf("code %d, standard output %q, diagnostics (-want +got):\n%s", got.code, got.stdout, d)
				}
			}
			all := strings.Split(strings.TrimSpace(piped.stderr), "\n\n")
			slices.Sort(all)
			if once := slices.Compact(slices.Clone(all)); len(once) < len(all) {
				t.Errorf("%d of %d diagnostics are repeated\n%s", len(all)-len(once), len(all), piped.stderr)
			}
			json, _ := runValidate(t, ar, nil, "--json")
			err := schema.Validate(parseJSON(t, json.stdout))
			if err != nil || json.code != 1 || json.stderr != "" {
				t.Errorf("code %d, %v\n%s%s", json.code, err, json.stdout, json.stderr)
			}
			for _, d := range regexp.MustCompile(`\n\n(error|warning)\[`).Split("\n\n"+piped.stderr, -1)[1:] {
				shown++
				code := d[:5]
				if slices.Contains(noSource, code) {
					continue
				}
				secret := !carets.MatchString(d)
				if !place.MatchString(d) || secret != slices.Contains(hidden, code) && !slices.Contains(perhaps, code) {
					t.Errorf("no file:line:column, or no carets, or a secret is shown:\n%s", d)
				}
			}
		})
	}
	got := run(t, nil, "validate", "--json", newFixture(t, 1, "").dir)
	if got.code != 0 || schema.Validate(parseJSON(t, got.stdout)) != nil {
		t.Errorf("%+v", got)
	}
	if shown < 200 {
		t.Errorf("only %d diagnostics", shown)
	}
}

// correctConfig has every kind of name that can be mistyped. The test mistypes the names between ‹ and ›, one at a
// time.
const correctConfig = `‹muster› {
  ‹stack›            = "tests"
  ‹required_version› = ">= 0.1"
  ‹roots›            = ["/more"]
  ‹take_over›        = ["old"]
  ‹home›             = "/home"
}
‹zookeeper› {
  ‹servers›         = var.‹ensemble›
  ‹session_timeout› = "10s"
  ‹acl›             = ["auth::cdrwa"]
  ‹tls› {
    ‹ca_file›   = "ca.pem"
    ‹cert_file› = "me.pem"
    ‹key_file›  = "me.key"
  }
}
‹variable› "ensemble" {
  ‹type›        = list(‹string›)
  ‹default›     = ["127.0.0.1:1"]
  ‹description› = "host:port"
  ‹validation› {
    ‹condition›     = ‹length›(var.ensemble) > 0
    ‹error_message› = "Name a server."
  }
}
‹locals› {
  regions = { eu = 1 }
  size    = ‹max›(1, 2)
}
‹defaults› {
  ‹root› = "/jobs"
  ‹timeouts› {
    ‹join› = "2m"
  }
}
‹job› "ingest" {
  ‹for_each›    = local.‹regions›
  ‹name›        = "ingest-${each.‹key›}"
  ‹root›        = "/jobs"
  ‹workers›     = each.‹value›
  ‹roll_format› = "‹protobuf›"
  ‹timeouts› {
    ‹session› = "30s"
    ‹barrier› = "1m"
    ‹stale›   = "30s"
  }
  ‹lifecycle› {
    ‹on_complete› = "‹remove›"
    ‹on_running›  = "‹fail›"
    ‹protect›     = false
  }
  ‹labels› = { size = "${local.‹size›}" }
  ‹precondition› {
    ‹condition›     = true
    ‹error_message› = "No."
  }
}
‹drift› {
  ‹ignore› {
    ‹address› = "job.‹ingest›[\"eu\"]"
    ‹fields›  = ["‹labels›"]
    ‹until›   = "2999-01-31"
    ‹reason›  = "OPS-1412"
  }
}
`

// typosOf returns names at an edit distance of 1 or 2 from name.
func typosOf(name string) []string {
	middle := len(name) / 2
	typos := []string{
		name + "x",                                // one too many
		name[:middle] + name[middle+1:],           // one too few
		name[:middle] + "q" + name[middle+1:],     // another
		"x" + name[:middle] + "q" + name[middle:], // two too many
		name[1:2] + name[0:1] + name[2:],          // two exchanged
	}
	if len(name) > 4 { // two letters are too few for a suggestion
		typos = append(typos, name[1:len(name)-1])
	}
	return typos
}

// TestEveryTypoGetsASuggestion mistypes every block, argument, variable, local, function, label, type and
// keyword.
func TestEveryTypoGetsASuggestion(t *testing.T) {
	marks := regexp.MustCompile(`‹\w+›`).FindAllStringIndex(correctConfig, -1)
	plain := strings.NewReplacer("‹", "", "›", "")
	f := fixture{dir: t.TempDir()}
	check := func(text string) outcome {
		dir, err := os.MkdirTemp(f.dir, "")
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "jobs.hcl"), []byte(text), 0o644)
		}
		if err != nil {
			return outcome{code: -1, stderr: err.Error()}
		}
		cmd := f.command("", "validate", dir)
		cmd.Env = append(cmd.Env, "MUSTER_ZK_AUTH=digest:a:b")
		return result(cmd)
	}
	expect(t, check(plain.Replace(correctConfig)), 0, "Valid: stack tests, 1 job.")
	var g errgroup.Group
	g.SetLimit(4)
	typos := 0
	for _, m := range marks {
		name := plain.Replace(correctConfig[m[0]:m[1]])
		for _, typo := range typosOf(name) {
			if strings.Contains(correctConfig, "‹"+typo+"›") || typo == name {
				continue // another name, and no typo
			}
			typos++
			g.Go(func() error {
				got := check(plain.Replace(correctConfig[:m[0]] + typo + correctConfig[m[1]:]))
				if got.code != 1 || !strings.Contains(got.stderr, "did you mean ") {
					t.Errorf("%s for %s: code %d\n%s", typo, name, got.code, got.stderr)
				}
				return nil
			})
		}
	}
	_ = g.Wait()
	if typos < 300 {
		t.Errorf("only %d typos", typos)
	}
}
