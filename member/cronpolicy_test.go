package member_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"muster/group"
	"muster/group/schedule"
	"muster/member"
	"muster/member/ticks"
	"muster/resource"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// setCursor sets the cursor by hand, as if the last tick with a fate had been then.
func (f *fixture) setCursor(at time.Time, d group.Duty) {
	f.t.Helper()
	sched, err := schedule.Parse(d.Schedule, d.Timezone)
	if err != nil {
		f.t.Fatal(err)
	}
	body, err := znode.Encode(znode.TickCursor{Tick: at.UTC().Truncate(time.Second), Digest: sched.Digest()})
	if err != nil {
		f.t.Fatal(err)
	}
	duty, path := znode.Duty(f.group.Root, f.generation(), job), znode.Cursor(f.group.Root, f.generation(), job)
	_, err = f.s.Create(f.t.Context(), duty, nil, zkconn.Persistent, zkconn.World(zkconn.PermAll))
	if err == nil || errors.Is(err, zkconn.ErrNodeExists) {
		_, err = f.s.Create(f.t.Context(), path, body, zkconn.Persistent, zkconn.World(zkconn.PermAll))
	}
	if errors.Is(err, zkconn.ErrNodeExists) {
		_, err = f.s.Set(f.t.Context(), path, body, -1)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// TestMissedTicks: of what fell due while nobody held the duty, the latest runs, or none, or all.
func TestMissedTicks(t *testing.T) {
	t.Parallel()
	for missed, policy := range map[group.Missed]struct{ runs, ranges int }{
		group.MissedLatest: {1, 1}, group.MissedSkip: {0, 1}, group.MissedAll: {6, 0},
	} {
		t.Run(string(missed), func(t *testing.T) {
			t.Parallel()
			f := newCronFixture(t, func(d *group.Duty) {
				d.Schedule, d.Missed, d.StartDeadline = "@yearly", missed, resource.Duration(time.Millisecond)
			})
			m := f.join("a", "1.0", job)
			newYear := time.Date(time.Now().UTC().Year(), 1, 1, 0, 0, 0, 0, time.UTC)
			f.setCursor(newYear.AddDate(-6, 0, 0), f.group.Duties[0])
			w := f.startCron(m)
			for i := range policy.runs {
				c := w.next()
				if want := newYear.AddDate(i+1-policy.runs, 0, 0); !c.Tick.Equal(want) {
					t.Errorf("run %d is %s, want %s", i, c.Tick, want)
				}
				c.end <- ok
			}
			if policy.ranges > 0 {
				r := f.record("range of missed ticks", func(r member.RunRecord) bool { return r.State == znode.TickMissed })
				if want := 6 - policy.runs; r.Count != want || !r.First.Equal(newYear.AddDate(-5, 0, 0)) {
					t.Errorf("missed %+v, want %d", r, want)
				}
			}
			f.record("cursor at the last tick", func(member.RunRecord) bool { return f.cursor().Tick.Equal(newYear) })
			f.record("end of the last run", func(r member.RunRecord) bool {
				return r.Tick.Equal(newYear) && (r.State == znode.TickDone || r.State == znode.TickMissed)
			})
			if got := f.runsOf(); len(got) != policy.runs+policy.ranges {
				t.Errorf("records: %s", f.records())
			}
		})
	}
}

// TestOverlappedTicks: of what falls due while a run goes on, all is skipped, or one waits.
func TestOverlappedTicks(t *testing.T) {
	t.Parallel()
	for _, overlap := range []group.Overlap{group.OverlapSkip, group.OverlapWait} {
		t.Run(string(overlap), func(t *testing.T) {
			t.Parallel()
			f := newCronFixture(t, func(d *group.Duty) { d.Overlap = overlap })
			w := f.startCron(f.join("a", "1.0", job))
			first := w.next()
			for time.Now().Before(first.Tick.Add(3 * time.Second)) {
				poll()
			}
			if len(w.runs) > 0 {
				t.Error("two runs go on at once")
			}
			first.end <- ok
			second := w.next()
			skipped := f.record("range of skipped ticks", func(r member.RunRecord) bool { return r.State == znode.TickSkipped })
			waited := second.Tick.Equal(first.Tick.Add(time.Second))
			if waited != (overlap == group.OverlapWait) {
				t.Errorf("after %s runs %s; records: %s", first.Tick, second.Tick, f.records())
			}
			if !waited && !skipped.First.Equal(first.Tick.Add(time.Second)) ||
				waited && !skipped.First.Equal(second.Tick.Add(time.Second)) {
				t.Errorf("skipped %+v after %s and %s", skipped, first.Tick, second.Tick)
			}
			second.end <- ok
		})
	}
}

// TestLostRun: the session of a holder ends in the middle of a run. The next holder repeats it, or ends it.
func TestLostRun(t *testing.T) {
	t.Parallel()
	for _, lost := range []group.Lost{group.LostRerun, group.LostSkip} {
		t.Run(string(lost), func(t *testing.T) {
			t.Parallel()
			f := newCronFixture(t, func(d *group.Duty) { d.Schedule, d.Lost = "@every 5s", lost })
			a, b := f.join("a", "1.0", job), f.join("b", "1.0", job)
			wa := f.startCron(a)
			first := wa.next()
			wb := f.startCron(b)
			if err := a.Leave(); err != nil {
				t.Fatal(err)
			}
			if cause := ended(t, first.ctx); errors.Is(cause, member.ErrLeaving) {
				t.Errorf("the run ended with %v", cause)
			}
			if err := wa.stop(); err == nil {
				t.Error("RunTicks returned nil")
			}
			second := wb.next()
			again := second.Tick.Equal(first.Tick)
			if again != (lost == group.LostRerun) || again && second.Attempt != 2 || second.Epoch <= first.Epoch {
				t.Errorf("%+v runs after %+v", second.Run, first.Run)
			}
			second.end <- ok
			want := map[bool]znode.TickState{true: znode.TickDone, false: znode.TickLost}[again]
			r := f.record("end of the first run", func(r member.RunRecord) bool { return r.Tick.Equal(first.Tick) && r.Final() })
			if r.State != want || again && r.By != "b" || !again && (r.By != "a" || r.Because == "") {
				t.Errorf("the first run is recorded as %+v, want %s", r, want)
			}
		})
	}
}

// TestRetriesAreContinued: a run that failed waits, and the next holder goes on with it, until no retry is left.
func TestRetriesAreContinued(t *testing.T) {
	t.Parallel()
	f := newCronFixture(t, func(d *group.Duty) { d.Schedule, d.Retries = "@every 1h", 1 })
	a, b := f.join("a", "1.0", job), f.join("b", "1.0", job)
	f.setCursor(time.Now().Add(-time.Hour), f.group.Duties[0])
	wa := f.startCron(a)
	first := wa.next()
	first.end <- failed
	r := f.record("run that waits", func(r member.RunRecord) bool { return r.State == znode.TickWaiting })
	if r.Attempt != 1 || r.Exit == nil || *r.Exit != 3 || r.Tail != "no disk\n" || r.Since.IsZero() {
		t.Errorf("record %+v", r)
	}
	if err := wa.stop(); !errors.Is(err, member.ErrLeaving) {
		t.Errorf("RunTicks ended with %v", err)
	}
	if err := a.Leave(); err != nil {
		t.Fatal(err)
	}
	wb := f.startCron(b)
	second := wb.next()
	if !second.Tick.Equal(first.Tick) || second.Attempt != 2 {
		t.Errorf("%+v after %+v", second.Run, first.Run)
	}
	if pause := time.Since(r.Ended); pause < time.Second {
		t.Errorf("it began again after %s", pause)
	}
	second.end <- failed
	r = f.record("end", func(r member.RunRecord) bool { return r.Final() })
	if r.State != znode.TickFailed || r.Attempt != 2 {
		t.Errorf("record %+v", r)
	}
}

// TestTimeout: the run is told to stop, and has failed whatever it says.
func TestTimeout(t *testing.T) {
	t.Parallel()
	f := newCronFixture(t, func(d *group.Duty) { d.Timeout, d.Retries = resource.Duration(100*time.Millisecond), 0 })
	w := f.startCron(f.join("a", "1.0", job))
	c := w.next()
	if cause := ended(t, c.ctx); !errors.Is(cause, member.ErrTimeout) {
		t.Errorf("the run ended with %v", cause)
	}
	r := f.record("failed run", func(r member.RunRecord) bool { return r.Tick.Equal(c.Tick) && r.Final() })
	if r.State != znode.TickFailed || r.Because != member.ErrTimeout.Error() || r.Tail != "told to stop\n" {
		t.Errorf("record %+v", r)
	}
}

// TestLeavingInterruptsTheRun: its end is written, the duty is given back, and the next holder repeats the run.
func TestLeavingInterruptsTheRun(t *testing.T) {
	t.Parallel()
	f := newCronFixture(t, func(d *group.Duty) { d.Retries = 0 })
	a := f.join("a", "1.0", job)
	wa := f.startCron(a)
	c := wa.next()
	if err := wa.stop(); !errors.Is(err, member.ErrLeaving) {
		t.Errorf("RunTicks ended with %v", err)
	}
	if cause := context.Cause(c.ctx); !errors.Is(cause, member.ErrLeaving) {
		t.Errorf("the run ended with %v", cause)
	}
	r := f.record("run that was interrupted", func(r member.RunRecord) bool { return r.Tick.Equal(c.Tick) })
	if r.State != znode.TickWaiting || r.Exit == nil || *r.Exit != 143 || r.Because != member.ErrLeaving.Error() {
		t.Errorf("record %+v", r)
	}
	held := znode.Held(f.group.Root, f.generation(), job)
	if _, there, err := f.s.Exists(t.Context(), held); err != nil || there {
		t.Errorf("%s: %v, %v", held, there, err)
	}
	b := f.join("b", "1.0", job)
	if err := a.Leave(); err != nil {
		t.Fatal(err)
	}
	if next := f.startCron(b).next(); !next.Tick.Equal(c.Tick) || next.Attempt != 2 {
		t.Errorf("%+v after %+v", next.Run, c.Run)
	}
}

// TestHandOverWaitsForTheRun: the old holder finishes its run, says what fell due meanwhile, and starts no other.
func TestHandOverWaitsForTheRun(t *testing.T) {
	t.Parallel()
	f := newCronFixture(t, func(d *group.Duty) { d.Prefer = group.Newest })
	wa := f.startCron(f.join("a", "1.0", job))
	c := wa.next()
	wb := f.startCron(f.join("b", "2.0", job))
	select {
	case <-c.Hold.HandOver():
	case <-time.After(2 * time.Minute):
		t.Fatal("no hand-over")
	}
	for time.Now().Before(c.Tick.Add(3 * time.Second)) {
		poll()
	}
	if len(wb.runs) > 0 || c.ctx.Err() != nil {
		t.Errorf("%d runs of the next holder; the run of the old one: %v", len(wb.runs), c.ctx.Err())
	}
	c.end <- ok
	next := wb.next()
	skipped := f.record("skipped ticks", func(r member.RunRecord) bool { return r.State == znode.TickSkipped })
	if !skipped.First.Equal(c.Tick.Add(time.Second)) || !next.Tick.After(skipped.Last) || len(wa.runs) > 0 {
		t.Errorf("after %s was skipped %+v, and then came %s", c.Tick, skipped, next.Tick)
	}
	next.end <- ok
}

// TestCommandThatCannotBeRun: the member resigns, and another one has the next attempt.
func TestCommandThatCannotBeRun(t *testing.T) {
	t.Parallel()
	f := newCronFixture(t, func(d *group.Duty) { d.Schedule = "@every 1h" })
	a := f.join("a", "1.0", job)
	f.setCursor(time.Now().Add(-time.Hour), f.group.Duties[0])
	wa := f.startCron(a)
	c := wa.next()
	wb := f.startCron(f.join("b", "1.0", job))
	c.end <- member.Ended{Result: ticks.ResultOf(127), Exit: 127, Because: "report.sh: not found"}
	next := wb.next()
	if !next.Tick.Equal(c.Tick) || next.Attempt != 2 || next.Epoch <= c.Epoch {
		t.Errorf("%+v after %+v", next.Run, c.Run)
	}
	next.end <- ok
	f.record("end", func(r member.RunRecord) bool { return r.State == znode.TickDone })
}
