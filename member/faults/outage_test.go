package faults

import (
	"fmt"
	"testing"
	"time"

	"muster/dev/zkserver"
	"muster/resource"
	"muster/resource/group"
	"muster/sim/soak"
)

// TestDutiesComeBackSoonAfterAnOutage: all servers are away until the commands have ended, or longer than the session
// timeout. The servers keep the old sessions for that time again when they are back, so the members close them. The
// command ignores SIGTERM: only after it was killed may anything begin.
func TestDutiesComeBackSoonAfterAnOutage(t *testing.T) {
	const timeout = 8 * time.Second
	for name, longer := range map[string]time.Duration{
		"half_a_session": timeout * 11 / 20, "until_they_are_killed": timeout * 3 / 4, "a_session": timeout * 5 / 4,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, zkserver.Options{}, func(g *group.Group) {
				g.Settle, g.Timeouts.Session = resource.Duration(time.Millisecond), resource.Duration(timeout)
				g.Timeouts.Drain = resource.Duration(time.Second)
				g.Add(group.NewDuty(group.Leader, "coordinator"))
			})
			w.stubborn = true
			w.add("a", "1.0", false, false)
			first := w.started(t, "a")
			w.add("b", "1.0", false, false)
			soak.Await(t, 3*time.Minute, "b to join", w.allLive)
			server := w.ensemble.Server(0)
			if err := server.Kill(); err != nil {
				t.Fatal(err)
			}
			soak.Pause(t.Context(), longer)
			if err := server.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			back := time.Now()
			soak.Await(t, 3*time.Minute, "the next leader", func() string {
				if runs := w.runs(t); len(runs) != 2 {
					return fmt.Sprintf("%+v", runs)
				}
				return ""
			})
			took := time.Since(back)
			t.Logf("the duty came back after %.2f session timeouts", took.Seconds()/timeout.Seconds())
			if took > timeout*3/4 {
				t.Errorf("the duty came back %s after the servers, with a session timeout of %s", took, timeout)
			}
			if second := w.runs(t)[1]; second.epoch <= first.epoch {
				t.Errorf("epoch %d after %d", second.epoch, first.epoch)
			}
			soak.Await(t, 3*time.Minute, "both to be members", w.allLive)
			for _, p := range checkRuns("coordinator", w.runs(t)) {
				t.Error(p)
			}
		})
	}
}

// allLive says how many members are live, if not all are, for await.
func (w *world) allLive() string {
	if o := w.look(); o == nil || o.Live != len(w.members) {
		return fmt.Sprintf("%+v", o)
	}
	return ""
}

// TestTheOldSessionIsNotClosedBeforeItsCommandsHaveEnded: the servers are back when the command was asked to end, and
// it ignores that. Closing the old session lets the next one begin, so it stays until the command was killed.
func TestTheOldSessionIsNotClosedBeforeItsCommandsHaveEnded(t *testing.T) {
	const timeout = 8 * time.Second
	w := newWorld(t, zkserver.Options{}, func(g *group.Group) {
		g.Settle, g.Timeouts.Session = resource.Duration(time.Millisecond), resource.Duration(timeout)
		g.Add(group.NewDuty(group.Leader, "coordinator"))
	})
	w.stubborn = true
	a := w.add("a", "1.0", false, true)
	w.started(t, "a")
	w.add("b", "1.0", false, false)
	soak.Await(t, 3*time.Minute, "b to join", w.allLive)
	if err := a.cutOff(); err != nil {
		t.Fatal(err)
	}
	soak.Pause(t.Context(), timeout*52/100)
	if err := a.reachable(); err != nil {
		t.Fatal(err)
	}
	soak.Await(t, 3*time.Minute, "the next leader", func() string {
		if runs := w.runs(t); len(runs) != 2 {
			return fmt.Sprintf("%+v", runs)
		}
		return ""
	})
	soak.Await(t, 3*time.Minute, "both to be members", w.allLive)
}
