package faults

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/dev/zkserver"
	"muster/resource"
	"muster/resource/group"
	"muster/sim/soak"
)

// TestClockWrongByAnHour: a member whose clock is an hour wrong runs nothing, says so, and the other one does all. When
// its clock is right and it was started again, it has its share. No tick is lost, and none runs twice.
func TestClockWrongByAnHour(t *testing.T) {
	for name, by := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, zkserver.Options{}, func(g *group.Group) {
				g.Settle = resource.Duration(time.Millisecond)
				for i := range 6 {
					d := group.NewDuty(group.Cron, fmt.Sprint("cron-", i))
					d.Schedule, d.Missed, d.Keep = "@every 2s", group.MissedAll, 100
					g.Add(d)
				}
			})
			a := w.add("a", "1.0", true, false)
			soak.Await(t, 3*time.Minute, "a to have all", w.allHeld)
			w.add("b", "1.0", false, false)
			books := newBooks(w)
			soak.Await(t, 3*time.Minute, "a and b to share", func() string { return shares(w, books, 3, 3) })
			if err := a.shift(by); err != nil {
				t.Fatal(err)
			}
			soak.Await(t, 3*time.Minute, "b to have all", func() string { return shares(w, books, 0, 6) })
			wrong := time.Now().UTC()
			// The assigner tries a with each cron once, so it may be later that a has failed with this one.
			soak.Await(t, 3*time.Minute, "explain to speak of the clock", func() string {
				explain := exec.Command(filepath.Join(bin, "muster"), "explain", w.group.Path()+"/cron-0")
				explain.Env = w.environ(w.members["b"])
				out, err := explain.CombinedOutput()
				if err != nil || !strings.Contains(string(out), "clock") {
					return fmt.Sprintf("%v\n%s", err, out)
				}
				return ""
			})
			soak.Await(t, 3*time.Minute, "two more ticks", func() string { return past(t, books, wrong.Add(4*time.Second)) })
			for _, err := range []error{a.shift(0), a.leave(time.Minute), a.start()} { // else its failures stay
				if err != nil {
					t.Fatal(err)
				}
			}
			soak.Await(t, 3*time.Minute, "a to have its share", func() string { return shares(w, books, 3, 3) })
			for _, p := range w.members {
				if err := p.leave(time.Minute); err != nil {
					t.Error(err)
				}
			}
			checkAll(t, books)
		})
	}
}

// shares says how a and b share the duties, unless it is so.
func shares(w *world, books *books, a, b int) string {
	_ = books.read(w.t.Context()) // it is read again
	n := map[string]int{}
	for _, d := range w.group.Duties {
		if h, ok := w.holder(d.Name); ok {
			n[h.Identity]++
		}
	}
	if n["a"] == a && n["b"] == b {
		return ""
	}
	return fmt.Sprint(n)
}

// past says which cron has not got past a time.
func past(t *testing.T, books *books, until time.Time) string {
	if err := books.read(t.Context()); err != nil {
		return err.Error()
	}
	for name, l := range books.all {
		if l.cursor.Before(until) {
			return fmt.Sprintf("%s is at %s", name, l.cursor)
		}
	}
	return ""
}

// checkAll checks the runs and the ticks of all crons, after the members have ended.
func checkAll(t *testing.T, books *books) {
	t.Helper()
	if err := books.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	lines, err := readRuns(books.w.dir)
	if err != nil {
		t.Fatal(err)
	}
	byDuty, problems := runsOf(lines)
	for name, l := range books.all {
		problems = append(problems, checkRuns(name, byDuty[name])...)
		problems = append(problems, l.check(byDuty[name])...)
	}
	for _, p := range problems {
		t.Error(p)
	}
	t.Logf("ticks: %s%d problems", books.totals(), len(problems))
}
