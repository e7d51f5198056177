package command

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/sim/needs"
	"muster/sim/rig"
	"muster/worker"
)

func TestCommandsThatCannotRun(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, c := range map[string]struct {
		command string
		code    int
	}{
		"not_in_path":       {"no-such-command-anywhere", 127},
		"no_such_file":      {filepath.Join(dir, "missing"), 127},
		"no_interpreter":    {write("orphan", "#!/no/such/interpreter\n", 0o755), 127},
		"not_executable":    {write("plain", "#!/bin/sh\n", 0o644), 126},
		"a_directory":       {dir, 126},
		"not_a_program":     {write("noise", "\x7fNOT", 0o755), 126},
		"file_in_the_way":   {filepath.Join(dir, "plain", "x"), 126},
		"empty_script_name": {"", 127},
	} {
		t.Run(name, func(t *testing.T) {
			path, err := LookUp(c.command)
			if err == nil {
				_, err = Start(Launch{Path: path, Argv: []string{c.command}})
			}
			if err == nil {
				t.Fatal("it runs")
			}
			if code := StartCode(err); code != c.code {
				t.Errorf("code %d for %v, want %d", code, err, c.code)
			}
		})
	}
}

// initVariable makes this test binary process 1 of a pid namespace that wraps a shell.
const initVariable = "WRAP_TEST_INIT"

// zombies is a shell script whose children leave their own children behind. Process 1 gets those, and the shell
// waits until it has reaped them all: none is left whose state is Z. Its own exit status must still arrive.
const zombies = `
for i in 1 2 3 4 5 6 7 8 9; do (sh -c 'exit 3' &) ; done
while grep -ls '^State:[[:space:]]*Z' /proc/[0-9]*/status >/dev/null; do :; done
echo reaped $PPID
exit 5`

// asInit is what process 1 does; its exit code is the command's.
func asInit(script string) {
	path, err := LookUp("sh")
	if err != nil {
		panic(err)
	}
	files := []*os.File{nil, os.Stdout, os.Stderr}
	c, err := Start(Launch{path, []string{"sh", "-c", script}, os.Environ(), "", files, false})
	if err != nil {
		panic(err)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, Signals()...)
	s := Supervisor{Command: c, Grace: short}
	os.Exit(s.Run(context.Background(), signals).Code())
}

func TestProcessOneReapsOrphansAndKeepsTheStatus(t *testing.T) {
	out, err := inNamespace(t, zombies).Output()
	if code := exitOf(t, err); code != 5 || string(out) != "reaped 1\n" {
		t.Errorf("code %d, want 5; output %q", code, out)
	}
}

// TestProcessOneIsTold: nothing happens to a process 1 that handles no signal. This one does, and passes it on.
func TestProcessOneIsTold(t *testing.T) {
	cmd := inNamespace(t, `trap 'exit 6' TERM; echo ready; while :; do sleep 0.02; done`)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	signalChildOf(t, cmd.Process.Pid, syscall.SIGTERM) // unshare itself only waits
	if code := exitOf(t, cmd.Wait()); code != 6 {
		t.Errorf("code %d, want 6", code)
	}
}

// inNamespace is this test binary as process 1 that runs script.
func inNamespace(t *testing.T, script string) *exec.Cmd {
	t.Helper()
	unshare := needs.Unshare(t, []string{"--pid", "--fork", "--mount-proc", "--kill-child"}, "true")
	cmd := exec.CommandContext(t.Context(), unshare[0], append(unshare[1:], os.Args[0])...)
	cmd.Env = append(os.Environ(), initVariable+"="+script)
	cmd.Stderr = os.Stderr
	return cmd
}

// exitOf is the code behind an error of Wait.
func exitOf(t *testing.T, err error) int {
	t.Helper()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0
}

// signalChildOf signals the only child of a process.
func signalChildOf(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	out, err := exec.Command(needs.Program(t, "pgrep", "procps"), "-P", strconv.Itoa(pid)).Output()
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err == nil {
		err = syscall.Kill(child, sig)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// outcome is an End as the tests below state it.
type outcome struct {
	code   int
	asked  string
	killed bool
	rest   bool // was killed
	lost   bool
}

// supervise runs a child. Each step is a signal, "stop" for the end of the context, or "lose" for that of the
// membership; it is sent when the child has said that it is ready, and the next one when it has said that it got the
// one before.
func supervise(t *testing.T, behaviour string, grace time.Duration, steps string) outcome {
	t.Helper()
	w := newTestCommand(t, behaviour)
	c, err := Start(w.launch)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	signals, lost := make(chan os.Signal), make(chan error, 1)
	finished := make(chan End)
	go func() {
		s := Supervisor{Command: c, Grace: grace, Lost: lost}
		if strings.HasPrefix(steps, "echo ") {
			s.Echo = long
		}
		finished <- s.Run(ctx, signals)
	}()
	if steps != "" {
		w.says("ready")
	}
	for i, step := range strings.Fields(strings.TrimPrefix(steps, "echo ")) {
		if i > 0 && !(step == "TERM" && strings.HasPrefix(steps, "echo ")) {
			w.says("got")
		}
		switch step {
		case "lose":
			lost <- worker.ErrSessionLost
			fallthrough
		case "stop":
			stop()
		default:
			signals <- signalNamed(t, step)
		}
	}
	e := <-finished
	got := outcome{
		code: e.Code(), killed: e.Killed, rest: e.restKilled, lost: errors.Is(e.Cause, worker.ErrSessionLost),
	}
	if e.Asked != 0 {
		got.asked = SignalName(e.Asked)
	}
	return got
}

func exited(code int, asked string) outcome { return outcome{code: code, asked: asked} }

func killedAfter(asked string) outcome { return outcome{code: 137, asked: asked, killed: true} }

func killedOnLoss(asked string) outcome {
	return outcome{code: 137, asked: asked, killed: true, lost: true}
}

func TestSignalsAndHowTheCommandEnds(t *testing.T) {
	for name, c := range map[string]struct {
		behaviour string
		grace     time.Duration
		steps     string
		want      outcome
	}{
		"exits_0":                       {"exits:0", long, "", outcome{}},
		"exits_1":                       {"exits:1", long, "", outcome{code: 1}},
		"exits_137":                     {"exits:137", long, "", outcome{code: 137}},
		"is_killed_by_others":           {"killed", long, "", outcome{code: 137}},
		"obeys_term":                    {"obeys:0", long, "TERM", outcome{asked: "SIGTERM"}},
		"obeys_term_with_a_code":        {"obeys:9", long, "TERM", exited(9, "SIGTERM")},
		"obeys_int":                     {"obeys:9", long, "INT", exited(9, "SIGINT")},
		"obeys_quit":                    {"obeys:9", long, "QUIT", exited(9, "SIGQUIT")},
		"obeys_the_end_of_the_context":  {"obeys:9", long, "stop", exited(9, "SIGTERM")},
		"is_told_everything":            {"obeys:9", long, "HUP USR1 USR2 WINCH CONT TERM", exited(9, "SIGTERM")},
		"ignores_term":                  {"ignores", short, "TERM", killedAfter("SIGTERM")},
		"ignores_int":                   {"ignores", short, "INT", killedAfter("SIGINT")},
		"ignores_the_end_of_a_context":  {"ignores", short, "stop", killedAfter("SIGTERM")},
		"ignores_two_terms":             {"ignores", long, "TERM TERM", killedAfter("SIGTERM")},
		"is_told_twice_at_once":         {"ends:0", long, "echo TERM TERM USR1", outcome{asked: "SIGTERM"}},
		"ignores_term_and_int":          {"ignores", long, "TERM INT", killedAfter("SIGTERM")},
		"is_stopped_and_then_told_once": {"obeys:9", long, "USR1 stop", exited(9, "SIGTERM")},
		"stop_and_term_is_asked_once":   {"ignores", short, "stop TERM", killedAfter("SIGTERM")},
		"stop_and_two_terms":            {"ignores", long, "stop TERM TERM", killedAfter("SIGTERM")},
		"signals_do_not_kill_by_grace":  {"obeys:9", short, "HUP USR1 USR2 TERM", exited(9, "SIGTERM")},
		"loses_its_membership":          {"obeys:9", long, "lose", killedOnLoss("")},
		"loses_it_while_it_ends":        {"ignores", long, "TERM lose", killedOnLoss("SIGTERM")},
		"loses_it_after_the_context":    {"ignores", long, "stop lose", killedOnLoss("SIGTERM")},
		"loses_it_with_one_that_stays":  {"leaves:ignores obeys:9", long, "lose", killedOnLoss("")},
		"exits_leaving_an_obedient":     {"leaves:obeys exits:0", long, "", outcome{}},
		"exits_leaving_one_that_stays":  {"leaves:ignores exits:3", short, "", outcome{code: 3, rest: true}},
		"is_told_leaving_one_that_goes": {"leaves:obeys:0 obeys:4", long, "TERM", outcome{code: 4, asked: "SIGTERM"}},
		"is_told_leaving_one_that_stays": {"leaves:ignores obeys:4", short, "TERM",
			outcome{code: 4, asked: "SIGTERM", rest: true}},
		"is_killed_with_one_that_stays": {"leaves:ignores ignores", long, "TERM TERM",
			killedAfter("SIGTERM")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := supervise(t, c.behaviour, c.grace, c.steps)
			if d := cmp.Diff(c.want, got, cmp.AllowUnexported(outcome{})); d != "" {
				t.Errorf("ending (-want +got):\n%s", d)
			}
		})
	}
}

// TestNothingOfTheGroupIsLeft: a command that daemonises is not followed out of its group, but nothing stays in it.
func TestNothingOfTheGroupIsLeft(t *testing.T) {
	w := newTestCommand(t, "leaves:ignores exits:0")
	c, err := Start(w.launch)
	if err != nil {
		t.Fatal(err)
	}
	s := Supervisor{Command: c, Grace: short}
	e := s.Run(t.Context(), nil)
	pid, err := strconv.Atoi(w.says("left"))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH || e.Code() != 0 || !e.restKilled {
		t.Errorf("signal 0 to what was left behind: %v; ending %+v", err, e)
	}
}

// TestWhatEndsTheRestOfTheGroupAtOnce: another signal, or the loss of the membership.
func TestWhatEndsTheRestOfTheGroupAtOnce(t *testing.T) {
	for name, end := range map[string]func(chan<- os.Signal, chan<- error){
		"a_signal": func(signals chan<- os.Signal, _ chan<- error) { signals <- syscall.SIGTERM },
		"a_loss":   func(_ chan<- os.Signal, lost chan<- error) { lost <- worker.ErrSessionLost },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			endsTheRest(t, end)
		})
	}
}

func endsTheRest(t *testing.T, end func(chan<- os.Signal, chan<- error)) {
	t.Helper()
	w := newTestCommand(t, "leaves:ignores exits:0")
	c, err := Start(w.launch)
	if err != nil {
		t.Fatal(err)
	}
	signals, lost := make(chan os.Signal), make(chan error, 1)
	finished := make(chan End)
	go func() {
		s := Supervisor{Command: c, Grace: long, Lost: lost}
		finished <- s.Run(t.Context(), signals)
	}()
	w.says("left")
	w.says("got SIGTERM") // from endRest
	end(signals, lost)
	if e := <-finished; e.Code() != 0 || e.Killed || e.Asked != 0 || !e.restKilled || e.Cause != nil {
		t.Errorf("ending %+v: the command ended by itself", e)
	}
}

// TestBlockedStreamDoesNotHoldUpTheEndOfARun: nobody reads what this process writes.
func TestBlockedStreamDoesNotHoldUpTheEndOfARun(t *testing.T) {
	t.Parallel()
	unread, blocked, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unread.Close() }) // ends what is blocked
	t.Cleanup(func() { blocked.Close() })
	o, err := OpenOutput(nil, blocked, blocked)
	if err != nil {
		t.Fatal(err)
	}
	_ = o.Files[1].SetWriteDeadline(time.Now().Add(time.Second))
	if n, err := o.Files[1].Write(make([]byte, 1<<20)); err == nil {
		t.Fatalf("nothing is blocked after %d bytes", n)
	}
	closed := make(chan *Tail, 1)
	go func() { closed <- o.Close() }()
	if n := len(rig.Receive(t, closed, "the end of close").Last(TailSize)); n != TailSize {
		t.Errorf("%d bytes of the output are kept", n)
	}
}
