package faults

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"muster/dev/zkserver"
	"muster/resource"
	"muster/resource/group"
	"muster/sim/soak"
)

// TestCutOffLeaderEndsBeforeTheNextBegins: the leader of the old systems went on while its connection was suspended,
// beside its successor, and it never was a member again once its session had expired. Here its command is asked to end
// before the successor can begin, whatever it does about that it is killed in time, and the process comes back.
func TestCutOffLeaderEndsBeforeTheNextBegins(t *testing.T) {
	for name, c := range map[string]struct {
		stop, heal func(p *process) error
		stubborn   bool // its commands ignore SIGTERM
	}{
		"cut_off":             {(*process).cutOff, (*process).reachable, false},
		"frozen":              {(*process).freeze, (*process).thaw, false},
		"frozen_and_stubborn": {(*process).freeze, (*process).thaw, true},
		"held_back":           {(*process).holdBack, (*process).letGo, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, zkserver.Options{}, func(g *group.Group) {
				g.Settle, g.Timeouts.Session = resource.Duration(time.Millisecond), resource.Duration(sessionTimeout)
				g.Timeouts.Drain = resource.Duration(time.Second)
				g.Add(group.NewDuty(group.Leader, "coordinator"))
			})
			w.stubborn = c.stubborn
			a := w.add("a", "1.0", false, true)
			first := w.started(t, "a")
			b := w.add("b", "1.0", false, true)
			soak.Await(t, 3*time.Minute, "b to join", func() string {
				if o := w.look(); o == nil || o.Live != 2 {
					return "it is not live"
				}
				return ""
			})
			if err := c.stop(a); err != nil {
				t.Fatal(err)
			}
			if commands := w.commandsOf("a"); len(commands) != 1 {
				t.Fatalf("the commands of a are %v", commands)
			}
			second := w.started(t, "b")
			runs := w.runs(t)
			last := runs[0]
			if stopped := last.what == "stopped" && last.end < second.at; stopped == c.stubborn {
				t.Errorf("the command of a began at %s and ended (%q) at %s; that of b began at %s", first.at, last.what,
					last.end, second.at)
			}
			if second.epoch <= first.epoch {
				t.Errorf("epoch %d after %d", second.epoch, first.epoch)
			}
			if err := c.heal(a); err != nil {
				t.Fatal(err)
			}
			soak.Await(t, 3*time.Minute, "a to be a member again", func() string {
				if o := w.look(); o == nil || o.Live != 2 {
					return "it is not live"
				}
				return ""
			})
			if err := b.run.OS.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			soak.Await(t, 3*time.Minute, "a to lead again", func() string {
				if runs := w.runs(t); len(runs) != 3 || runs[2].who != "a" {
					return fmt.Sprintf("%+v", runs)
				}
				return ""
			})
			for _, p := range checkRuns("coordinator", w.runs(t)) {
				t.Error(p)
			}
		})
	}
}

// runs are those of the coordinator. A problem fails the test.
func (w *world) runs(t *testing.T) []run {
	t.Helper()
	lines, err := readRuns(w.dir)
	if err != nil {
		t.Fatal(err)
	}
	byDuty, problems := runsOf(lines)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return byDuty["coordinator"]
}

// started waits for the first run of a member.
func (w *world) started(t *testing.T, who string) (r run) {
	t.Helper()
	soak.Await(t, 3*time.Minute, who+" to lead", func() string {
		runs := w.runs(t)
		i := slices.IndexFunc(runs, func(r run) bool { return r.who == who })
		if i < 0 {
			return fmt.Sprintf("%+v", runs)
		}
		r = runs[i]
		return ""
	})
	return r
}
