package wrap

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/worker"
)

// oversight is what a test can tell of an ending.
type oversight struct {
	code         int
	asked        string
	killed, rest bool
	lost         bool
}

// oversee runs a child. Each step is a signal, "stop" for the end of the context, or "lose" for that of the membership; it is
// sent when the child has said that it is ready, and the next one when it has said that it got the one before.
func oversee(t *testing.T, behaviour string, grace time.Duration, steps string) oversight {
	t.Helper()
	w := prepare(t, behaviour)
	c, err := start(w.launch)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	signals, lost := make(chan os.Signal), make(chan error, 1)
	finished := make(chan ending)
	go func() {
		o := overseer{command: c, grace: grace, lost: lost}
		if strings.HasPrefix(steps, "echo ") {
			o.echo = long
		}
		finished <- o.run(ctx, signals)
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
			signals <- named(t, step)
		}
	}
	e := <-finished
	got := oversight{code: e.code(), killed: e.killed, rest: e.rest, lost: errors.Is(e.why, worker.ErrSessionLost)}
	if e.asked != 0 {
		got.asked = signalName(e.asked)
	}
	return got
}

func named(t *testing.T, name string) syscall.Signal {
	t.Helper()
	for _, sig := range append(Signals(), syscall.SIGKILL) {
		if s := sig.(syscall.Signal); signalName(s) == "SIG"+name || s.String() == name {
			return s
		}
	}
	t.Fatalf("signal %s is not known", name)
	return 0
}

const long, short = time.Minute, 500 * time.Millisecond

func TestSignalsAndHowTheCommandEnds(t *testing.T) {
	for name, c := range map[string]struct {
		behaviour string
		grace     time.Duration
		steps     string
		want      oversight
	}{
		"exits_0":                       {"exits:0", long, "", oversight{}},
		"exits_1":                       {"exits:1", long, "", oversight{code: 1}},
		"exits_137":                     {"exits:137", long, "", oversight{code: 137}},
		"is_killed_by_others":           {"killed", long, "", oversight{code: 137}},
		"obeys_term":                    {"obeys:0", long, "TERM", oversight{asked: "SIGTERM"}},
		"obeys_term_with_a_code":        {"obeys:9", long, "TERM", oversight{code: 9, asked: "SIGTERM"}},
		"obeys_int":                     {"obeys:9", long, "INT", oversight{code: 9, asked: "SIGINT"}},
		"obeys_quit":                    {"obeys:9", long, "QUIT", oversight{code: 9, asked: "SIGQUIT"}},
		"obeys_the_end_of_the_context":  {"obeys:9", long, "stop", oversight{code: 9, asked: "SIGTERM"}},
		"is_told_everything":            {"obeys:9", long, "HUP USR1 USR2 WINCH CONT TERM", oversight{code: 9, asked: "SIGTERM"}},
		"ignores_term":                  {"ignores", short, "TERM", oversight{code: 137, asked: "SIGTERM", killed: true}},
		"ignores_int":                   {"ignores", short, "INT", oversight{code: 137, asked: "SIGINT", killed: true}},
		"ignores_the_end_of_a_context":  {"ignores", short, "stop", oversight{code: 137, asked: "SIGTERM", killed: true}},
		"ignores_two_terms":             {"ignores", long, "TERM TERM", oversight{code: 137, asked: "SIGTERM", killed: true}},
		"is_told_twice_at_once":         {"ends:0", long, "echo TERM TERM USR1", oversight{asked: "SIGTERM"}},
		"ignores_term_and_int":          {"ignores", long, "TERM INT", oversight{code: 137, asked: "SIGTERM", killed: true}},
		"is_stopped_and_then_told_once": {"obeys:9", long, "USR1 stop", oversight{code: 9, asked: "SIGTERM"}},
		"stop_and_term_is_asked_once":   {"ignores", short, "stop TERM", oversight{code: 137, asked: "SIGTERM", killed: true}},
		"stop_and_two_terms":            {"ignores", long, "stop TERM TERM", oversight{code: 137, asked: "SIGTERM", killed: true}},
		"signals_do_not_kill_by_grace":  {"obeys:9", short, "HUP USR1 USR2 TERM", oversight{code: 9, asked: "SIGTERM"}},
		"loses_its_membership":          {"obeys:9", long, "lose", oversight{code: 137, killed: true, lost: true}},
		"loses_it_while_it_ends":        {"ignores", long, "TERM lose", oversight{code: 137, asked: "SIGTERM", killed: true, lost: true}},
		"loses_it_after_the_context":    {"ignores", long, "stop lose", oversight{code: 137, asked: "SIGTERM", killed: true, lost: true}},
		"loses_it_with_one_that_stays":  {"leaves:ignores obeys:9", long, "lose", oversight{code: 137, killed: true, lost: true}},
		"exits_leaving_an_obedient":     {"leaves:obeys exits:0", long, "", oversight{}},
		"exits_leaving_one_that_stays":  {"leaves:ignores exits:3", short, "", oversight{code: 3, rest: true}},
		"is_told_leaving_one_that_goes": {"leaves:obeys:0 obeys:4", long, "TERM", oversight{code: 4, asked: "SIGTERM"}},
		"is_told_leaving_one_that_stays": {"leaves:ignores obeys:4", short, "TERM",
			oversight{code: 4, asked: "SIGTERM", rest: true}},
		"is_killed_with_one_that_stays": {"leaves:ignores ignores", long, "TERM TERM",
			oversight{code: 137, asked: "SIGTERM", killed: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := oversee(t, c.behaviour, c.grace, c.steps)
			if d := cmp.Diff(c.want, got, cmp.AllowUnexported(oversight{})); d != "" {
				t.Errorf("ending (-want +got):\n%s", d)
			}
		})
	}
}

// TestNothingOfTheGroupIsLeft: a command that daemonises is not followed out of its group, but nothing stays in it.
func TestNothingOfTheGroupIsLeft(t *testing.T) {
	w := prepare(t, "leaves:ignores exits:0")
	c, err := start(w.launch)
	if err != nil {
		t.Fatal(err)
	}
	o := overseer{command: c, grace: short}
	e := o.run(t.Context(), nil)
	pid, err := strconv.Atoi(w.says("left"))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH || e.code() != 0 || !e.rest {
		t.Errorf("signal 0 to what was left behind: %v; ending %+v", err, e)
	}
}

// TestWhatEndsTheRestOfTheGroupAtOnce: a second thought of who asked, or the loss of the membership.
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
	w := prepare(t, "leaves:ignores exits:0")
	c, err := start(w.launch)
	if err != nil {
		t.Fatal(err)
	}
	signals, lost := make(chan os.Signal), make(chan error, 1)
	finished := make(chan ending)
	go func() {
		o := overseer{command: c, grace: long, lost: lost}
		finished <- o.run(t.Context(), signals)
	}()
	w.says("left")
	w.says("got SIGTERM") // from who sweeps the group
	end(signals, lost)
	if e := <-finished; e.code() != 0 || e.killed || e.asked != 0 || !e.rest || e.why != nil {
		t.Errorf("ending %+v: the command ended by itself", e)
	}
}
