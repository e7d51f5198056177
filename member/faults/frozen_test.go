package faults

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"muster/dev/zkserver"
	"muster/resource"
	"muster/resource/group"
	"muster/sim/rig"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// freeze is what a member was, and when it went on.
type freeze struct {
	who    string
	before int64         // what it held then has a smaller epoch
	thawed time.Duration // since this machine started
}

// TestSoakFrozenPastTheLimit: members are frozen for more than half of a session, and go on before it is over. They
// start nothing then in what they held before, and what had ended by itself meanwhile is recorded as it ended. With
// MUSTER_SOAK=1 there are ten times as many rounds.
func TestSoakFrozenPastTheLimit(t *testing.T) {
	const timeout, members, crons = 3 * time.Second, 4, 12
	rounds := 5
	if rig.Long() {
		rounds *= 10
	}
	w := newWorld(t, zkserver.Options{}, func(g *group.Group) {
		g.Settle, g.Timeouts.Session = resource.Duration(time.Millisecond), resource.Duration(timeout)
		g.Timeouts.Drain = resource.Duration(time.Second)
		for i := range crons {
			d := group.NewDuty(group.Cron, fmt.Sprint("cron-", i))
			d.Schedule, d.Lost, d.Retries, d.Keep = "@every 1s", group.LostSkip, 0, 100
			g.Add(d)
		}
	})
	w.longest = 700 * time.Millisecond
	for i := range members {
		w.add(fmt.Sprint("m", i), "1.0", false, false)
	}
	rig.Until(t, 3*time.Minute, "all to join", w.allLive)
	rig.Until(t, 3*time.Minute, "the first holders", w.allHeld)
	books := newBooks(w)
	if err := books.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	seed, s := rig.Seed(t), w.session()
	var all sync.WaitGroup
	var mu sync.Mutex
	var freezes []freeze
	for i := range members {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		p := w.members[fmt.Sprint("m", i)]
		all.Go(func() {
			for range rounds {
				f, err := w.freezeFor(s, p, rig.Between(random, timeout*55/100, timeout*75/100))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				freezes = append(freezes, f)
				mu.Unlock()
				zkconn.Pause(t.Context(), rig.Between(random, 0, time.Second))
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		all.Wait()
	}()
	for going := true; going; {
		select {
		case <-time.After(10 * time.Second): // before records are deleted
		case <-done:
			going = false
		}
		if err := books.read(t.Context()); err != nil {
			t.Error(err)
		}
	}
	rig.Until(t, 3*time.Minute, "holders of all", w.allHeld)
	rig.Until(t, 3*time.Minute, "a run of each", w.allRan)
	finish(t, books)
	checkFrozen(t, books, freezes)
}

// freezeFor freezes a member that holds something, and returns when it has joined again.
func (w *world) freezeFor(s *zkconn.Session, p *process, long time.Duration) (f freeze, err error) {
	ctx, live := w.t.Context(), znode.Live(w.group.Root, w.group.Name, p.identity)
	was, _, err := s.Exists(ctx, live)
	if err == nil {
		err = p.freeze()
	}
	if err != nil {
		return f, err
	}
	zkconn.Pause(ctx, long)
	now, err := s.Set(ctx, w.group.Root, nil, -1)
	var clock unix.Timespec
	err = errors.Join(err, unix.ClockGettime(unix.CLOCK_BOOTTIME, &clock), p.thaw())
	f = freeze{p.identity, now.Mzxid, time.Duration(clock.Nano())}
	for late := time.Now().Add(time.Minute); err == nil; zkconn.Pause(ctx, rig.PollEvery) {
		stat, there, e := s.Exists(ctx, live)
		switch {
		case e != nil:
			err = e
		case there && stat.EphemeralOwner != was.EphemeralOwner:
			return f, nil
		case time.Now().After(late):
			err = fmt.Errorf("%s was frozen past its limit, and has not joined again", p.identity)
		}
	}
	return f, err
}

// checkFrozen looks for what members did after their limit. A command that ends by itself in the moment in which it is
// asked to end may be either.
func checkFrozen(t *testing.T, books *books, freezes []freeze) {
	t.Helper()
	lines, err := readRuns(books.w.dir)
	if err != nil {
		t.Fatal(err)
	}
	late, lost := 0, 0
	for _, f := range freezes {
		for _, l := range lines {
			if l.what == "start" && l.who == f.who && l.at >= f.thawed && l.epoch < f.before {
				late++
				t.Logf("%s started %s for %s after it was frozen past its limit: %s after that", l.who, l.duty, l.tick,
					l.at-f.thawed)
			}
		}
	}
	for name, ledger := range books.all {
		for at, r := range ledger.records {
			asked := strings.Contains(r.Because, "after SIGTERM")
			if r.State == znode.TickLost && r.Exit != nil && *r.Exit == 0 && !asked {
				lost++
				t.Logf("%s at %s: %+v", name, at.Format(time.TimeOnly), r.TickRecord)
			}
		}
	}
	if late+lost > 0 {
		t.Errorf("after %d freezes: %d runs started past the limit, %d that exited with 0 are lost",
			len(freezes), late, lost)
	}
}

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
			rig.Until(t, 3*time.Minute, "a to have all", w.allHeld)
			w.add("b", "1.0", false, false)
			books := newBooks(w)
			rig.Until(t, 3*time.Minute, "a and b to share", func() string { return shares(w, books, 3, 3) })
			if err := a.shift(by); err != nil {
				t.Fatal(err)
			}
			rig.Until(t, 3*time.Minute, "b to have all", func() string { return shares(w, books, 0, 6) })
			wrong := time.Now().UTC()
			// The assigner tries a with each cron once, so it may be later that a has failed with this one.
			rig.Until(t, 3*time.Minute, "explain to speak of the clock", func() string {
				explain := exec.Command(filepath.Join(bin, "muster"), "explain", w.group.Path()+"/cron-0")
				explain.Env = w.environ(w.members["b"])
				out, err := explain.CombinedOutput()
				if err != nil || !strings.Contains(string(out), "clock") {
					return fmt.Sprintf("%v\n%s", err, out)
				}
				return ""
			})
			rig.Until(t, 3*time.Minute, "two more ticks", func() string { return past(t, books, wrong.Add(4*time.Second)) })
			for _, err := range []error{a.shift(0), a.leave(time.Minute), a.start()} { // else its failures stay
				if err != nil {
					t.Fatal(err)
				}
			}
			rig.Until(t, 3*time.Minute, "a to have its share", func() string { return shares(w, books, 3, 3) })
			finish(t, books)
		})
	}
}

// shares says how a and b share the duties, unless it is so.
func shares(w *world, books *books, a, b int) string {
	_ = books.read(w.t.Context()) // it is read again
	n := w.loads()
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

// allRan says which duty has not been run yet.
func (w *world) allRan() string {
	lines, err := readRuns(w.dir)
	if err != nil {
		return err.Error()
	}
	byDuty, _ := runsOf(lines)
	for _, d := range w.group.Duties {
		if len(byDuty[d.Name]) == 0 {
			return d.Name + " was never run"
		}
	}
	return ""
}

// finish stops all members, and checks the runs of all duties and the ticks of the crons. more checks are those of a
// cron.
func finish(t *testing.T, books *books, more ...func(l *ledger, runs []run) []string) {
	t.Helper()
	var all sync.WaitGroup
	for _, p := range books.w.members {
		all.Go(func() {
			if err := p.leave(time.Minute); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := books.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	lines, err := readRuns(books.w.dir)
	if err != nil {
		t.Fatal(err)
	}
	byDuty, problems := runsOf(lines)
	for _, d := range books.w.group.Duties {
		runs := byDuty[d.Name]
		if len(runs) == 0 {
			problems = append(problems, d.Name+" was never run")
			continue
		}
		problems = append(problems, checkRuns(d.Name, runs)...)
		if l := books.all[d.Name]; l != nil {
			problems = append(problems, l.check(runs)...)
			for _, check := range more {
				problems = append(problems, check(l, runs)...)
			}
		}
	}
	slices.Sort(problems)
	const most = 30
	for _, p := range problems[:min(len(problems), most)] {
		t.Error(p)
	}
	t.Logf("ticks: %s%d lines of runs, %d problems", books.totals(), len(lines), len(problems))
}

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
			rig.Until(t, 3*time.Minute, "b to join", w.allLive)
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
			rig.Until(t, 3*time.Minute, "a to be a member again", w.allLive)
			if err := b.run.OS.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			rig.Until(t, 3*time.Minute, "a to lead again", func() string {
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
	rig.Until(t, 3*time.Minute, who+" to lead", func() string {
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

// led waits until somebody has led so often.
func (w *world) led(t *testing.T, times int) {
	t.Helper()
	rig.Until(t, 3*time.Minute, "the next leader", func() string {
		if runs := w.runs(t); len(runs) != times {
			return fmt.Sprintf("%+v", runs)
		}
		return ""
	})
}

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
			rig.Until(t, 3*time.Minute, "b to join", w.allLive)
			server := w.ensemble.Server(0)
			if err := server.Kill(); err != nil {
				t.Fatal(err)
			}
			zkconn.Pause(t.Context(), longer)
			if err := server.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			back := time.Now()
			w.led(t, 2)
			took := time.Since(back)
			t.Logf("the duty came back after %.2f session timeouts", took.Seconds()/timeout.Seconds())
			if took > timeout*3/4 {
				t.Errorf("the duty came back %s after the servers, with a session timeout of %s", took, timeout)
			}
			if second := w.runs(t)[1]; second.epoch <= first.epoch {
				t.Errorf("epoch %d after %d", second.epoch, first.epoch)
			}
			rig.Until(t, 3*time.Minute, "both to be members", w.allLive)
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
	rig.Until(t, 3*time.Minute, "b to join", w.allLive)
	if err := a.cutOff(); err != nil {
		t.Fatal(err)
	}
	zkconn.Pause(t.Context(), timeout*52/100)
	if err := a.reachable(); err != nil {
		t.Fatal(err)
	}
	w.led(t, 2)
	rig.Until(t, 3*time.Minute, "both to be members", w.allLive)
}
