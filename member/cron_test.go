package member_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"muster/dev/fault"
	"muster/member"
	"muster/member/ticks"
	"muster/resource"
	"muster/resource/group"
	"muster/resource/group/schedule"
	"muster/sim/rig"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// job is the cron duty of these tests.
const job = "report"

// newCronFixture creates a group with one cron, that runs each second unless edit says otherwise.
func newCronFixture(t *testing.T, edit func(*group.Duty)) *fixture {
	t.Helper()
	f := newFixture(t)
	f.change(func(g *group.Group) {
		d := group.NewDuty(group.Cron, job)
		d.Schedule, d.Prefer = "@every 1s", group.Any
		if edit != nil {
			edit(&d)
		}
		g.Add(d)
	})
	return f
}

// editCron applies the group with another declaration of the cron.
func (f *fixture) editCron(edit func(*group.Duty)) {
	f.t.Helper()
	f.change(func(g *group.Group) {
		g.Duties = append([]group.Duty(nil), g.Duties...)
		edit(&g.Duties[0])
	})
}

// worker runs the cron of a member until the test ends, or stop.
type worker struct {
	f    *fixture
	m    *member.Member
	stop func() error // ends RunTicks with ErrLeaving, and returns what that returned
	runs chan call    // the runs that have begun
}

// call is a run under way. The function of the cron returns what is sent to end.
type call struct {
	member.Run
	ctx context.Context
	end chan member.Ended
}

// startCron runs the cron on m: each run waits for the test.
func (f *fixture) startCron(m *member.Member) *worker {
	f.t.Helper()
	w := &worker{f: f, m: m, runs: make(chan call, 1000)}
	w.stop = f.runTicks(m, func(ctx context.Context, r member.Run) member.Ended {
		c := call{r, ctx, make(chan member.Ended, 1)}
		w.runs <- c
		select {
		case e := <-c.end:
			return e
		case <-ctx.Done():
			return member.Ended{Result: ticks.Unsuccessful, Exit: 143, Tail: []byte("told to stop\n")}
		}
	})
	return w
}

// runTicks calls RunTicks in the background.
func (f *fixture) runTicks(m *member.Member, run func(context.Context, member.Run) member.Ended) (stop func() error) {
	ctx, cancel := context.WithCancelCause(context.Background())
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = m.RunTicks(ctx, job, run)
	}()
	stop = sync.OnceValue(func() error {
		cancel(member.ErrLeaving)
		<-done
		return err
	})
	f.t.Cleanup(func() { stop() })
	return stop
}

// next waits for the next run.
func (w *worker) next() call {
	w.f.t.Helper()
	return rig.Receive(w.f.t, w.runs, w.m.Identity+" to run something")
}

// ok is the end of a run that went well.
var ok = member.Ended{Result: ticks.Succeeded, Tail: []byte("done\n")}

// failed is the end of a run that failed.
var failed = member.Ended{Result: ticks.Unsuccessful, Exit: 3, Tail: []byte("no disk\n")}

// runsOf reads what is recorded, the newest first.
func (f *fixture) runsOf() []member.RunRecord {
	f.t.Helper()
	runs, err := member.Runs(f.t.Context(), f.s, f.group.Root, f.generation(), job, 1000)
	f.must(err)
	return runs
}

// records shows what is recorded, for messages.
func (f *fixture) records() string {
	var text strings.Builder
	for _, r := range f.runsOf() {
		fmt.Fprintf(&text, "\n%s now/%d %s #%d by %s epoch %d x%d %s", r.Tick.Format("15:04:05"), r.Asked, r.State,
			r.Attempt, r.By, r.Epoch, r.Count, r.Because)
	}
	return text.String()
}

// record waits until the record of a run fits.
func (f *fixture) record(what string, fits func(member.RunRecord) bool) member.RunRecord {
	f.t.Helper()
	var found member.RunRecord
	f.until(what, func() bool {
		runs := f.runsOf()
		i := slices.IndexFunc(runs, fits)
		if i >= 0 {
			found = runs[i]
		}
		return i >= 0
	})
	return found
}

// results reads how the runs went.
func (f *fixture) results() znode.TickResults {
	f.t.Helper()
	body, _, err := f.s.Get(f.t.Context(), znode.Ticks(f.group.Root, f.generation(), job))
	f.must(err)
	r, err := znode.DecodeOrZero[znode.TickResults](body)
	f.must(err)
	return r
}

// cursor reads the cursor; zero if there is none.
func (f *fixture) cursor() znode.TickCursor {
	f.t.Helper()
	body, _, err := f.s.Get(f.t.Context(), znode.Cursor(f.group.Root, f.generation(), job))
	if errors.Is(err, zkconn.ErrNoNode) {
		return znode.TickCursor{}
	}
	f.must(err)
	c, err := znode.Decode[znode.TickCursor](body)
	f.must(err)
	return c
}

// TestTicksRunOneAfterAnother: each run has its record, with who ran it, when, and the end of its output.
func TestTicksRunOneAfterAnother(t *testing.T) {
	t.Parallel()
	f := newCronFixture(t, nil)
	w := f.startCron(f.join("a", "1.0", job))
	var last time.Time
	for range 3 {
		c := w.next()
		if !c.Tick.After(last) || c.Attempt != 1 || c.Duty != job || c.Epoch != c.Hold.Epoch {
			t.Errorf("run %+v after %s", c.Run, last)
		}
		last = c.Tick
		c.end <- ok
		r := f.record("run that is done", func(r member.RunRecord) bool {
			return r.Tick.Equal(c.Tick) && r.State == znode.TickDone
		})
		if r.By != "a" || r.Epoch != c.Epoch || r.Exit == nil || *r.Exit != 0 || r.Tail != "done\n" || r.Attempt != 1 ||
			r.Started.Before(c.Tick) || r.Ended.Before(r.Started) {
			t.Errorf("record %+v", r)
		}
	}
	if got := f.cursor().Tick; got.Before(last) {
		t.Errorf("the cursor is %s, and %s has run", got, last)
	}
	if err := w.stop(); !errors.Is(err, member.ErrLeaving) {
		t.Errorf("RunTicks ended with %v", err)
	}
}

// testClock is a clock that can be set.
type testClock struct{ ahead atomic.Int64 }

func (c *testClock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

func (c *testClock) set(ahead time.Duration) { c.ahead.Store(int64(ahead)) }

// joinWith joins with a clock that is ahead by so much.
func (f *fixture) joinWith(identity string, ahead time.Duration) (*member.Member, *testClock) {
	f.t.Helper()
	clock := &testClock{}
	clock.set(ahead)
	c := f.config(identity, "1.0", job)
	c.Clock = clock.now
	return f.joinIn(dial(f.t), c), clock
}

// becauses are the reasons for which members resigned.
func (f *fixture) becauses() string {
	var all []string
	for _, failure := range f.memory().Failures[job] {
		all = append(all, failure.Because)
	}
	return strings.Join(all, "; ")
}

// TestWrongClockOfOneMember: it runs nothing and resigns, and another member has the duty.
func TestWrongClockOfOneMember(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{5 * time.Minute, -5 * time.Minute} {
		t.Run(ahead.String(), func(t *testing.T) {
			t.Parallel()
			f := newCronFixture(t, nil)
			a, _ := f.joinWith("a", ahead)
			b := f.join("b", "1.0", job)
			wa := f.startCron(a)
			f.until("a has resigned", func() bool { return strings.Contains(f.becauses(), "ZooKeeper's") })
			wb := f.startCron(b)
			c := wb.next()
			if off := time.Since(c.Tick).Abs(); off > 2*time.Minute {
				t.Errorf("%s runs now", c.Tick)
			}
			c.end <- ok
			want := map[bool]string{
				true: "its clock is 5m0s ahead of ZooKeeper's", false: "its clock is 5m0s behind ZooKeeper's",
			}
			if got := f.becauses(); !strings.Contains(got, want[ahead > 0]) {
				t.Errorf("a resigned because %q", got)
			}
			if len(wa.runs) > 0 {
				t.Error("a runs something")
			}
		})
	}
}

// TestWrongClockOfZooKeeper: nothing runs, and all members say why.
func TestWrongClockOfZooKeeper(t *testing.T) {
	t.Parallel()
	f := newCronFixture(t, nil)
	a, _ := f.joinWith("a", 5*time.Minute)
	b, _ := f.joinWith("b", 5*time.Minute)
	wa, wb := f.startCron(a), f.startCron(b)
	f.until("both have resigned", func() bool { return strings.Count(f.becauses(), "5m0s ahead of ZooKeeper's") == 2 })
	if len(wa.runs)+len(wb.runs) > 0 {
		t.Error("something runs")
	}
}

// TestClockThatIsSet: a holder notices that its clock was set, claims nothing by it, and resigns.
func TestClockThatIsSet(t *testing.T) {
	t.Parallel()
	f := newCronFixture(t, nil)
	a, clock := f.joinWith("a", 0)
	b := f.join("b", "1.0", job)
	wa := f.startCron(a)
	wa.next().end <- ok
	wb := f.startCron(b)
	clock.set(time.Hour)
	var c call
	deadline := time.After(2 * time.Minute)
	for c.ctx == nil {
		select {
		case c = <-wb.runs:
		case late := <-wa.runs:
			late.end <- ok
		case <-deadline:
			t.Fatalf("b runs nothing; the assigner's memory: %+v", f.memory())
		}
	}
	c.end <- ok
	for _, r := range f.runsOf() {
		if time.Until(r.Tick) > time.Minute {
			t.Errorf("%s has a record: %s", r.Tick, f.records())
		}
	}
	if got := f.becauses(); !strings.Contains(got, "1h0m0s ahead") {
		t.Errorf("a resigned because %q", got)
	}
}

// TestPastItsLimit: no server has answered a member for too long, and its session stands. It claims no tick and takes
// no duty any more, whatever answers then. The run that goes on is recorded as it ended.
func TestPastItsLimit(t *testing.T) {
	t.Parallel()
	f := newCronFixture(t, nil)
	p := newProxy(t)
	s := rig.Dial(t, 16*time.Second, p.Addr())
	c := f.config("a", "1.0", job)
	c.MaxSilence = s.Timeout() / 2
	m := f.joinIn(s, c)
	w := f.startCron(m)
	last := w.next()
	p.Hang(true)
	f.until("it to be silent for too long", func() bool { return s.Silence() >= c.MaxSilence })
	last.end <- ok
	p.Hang(false)
	r := f.record("end of the last run", func(r member.RunRecord) bool { return r.Tick.Equal(last.Tick) && r.Final() })
	if r.State != znode.TickDone || r.Exit == nil || *r.Exit != 0 {
		t.Errorf("recorded as %+v", r)
	}
	f.until("end of the hold", func() bool { return !f.isHeld() })
	if _, there, err := f.s.Exists(t.Context(), znode.Live(f.group.Root, f.group.Name, "a")); err != nil || !there {
		t.Error("the session has ended", err)
	}
	f.change(func(g *group.Group) { g.Labels = map[string]string{"edit": "1"} })
	f.until("new orders, with which it tries again", func() bool { return m.Group().Labels["edit"] != "" })
	if err := w.stop(); !errors.Is(err, member.ErrLeaving) {
		t.Error(err)
	}
	if len(w.runs) > 0 {
		t.Errorf("it has run %+v", (<-w.runs).Run)
	}
}

// TestARunThatEndedByItself is not lost, although the member leaves before it says so. One that was asked to end is,
// whatever it says, and has no exit code if nothing was started.
func TestARunThatEndedByItself(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ended member.Ended
		want  znode.TickState
	}{
		"by itself":   {member.Ended{Result: ticks.Succeeded, ByItself: true}, znode.TickDone},
		"asked":       {member.Ended{Result: ticks.Succeeded}, znode.TickLost},
		"not started": {member.Ended{Result: ticks.Interrupted, Exit: member.NoExit}, znode.TickLost},
	} {
		f := newCronFixture(t, func(d *group.Duty) { d.Lost = group.LostSkip })
		begun := make(chan member.Run, 1)
		stop := f.runTicks(f.join("a", "1.0", job), func(ctx context.Context, r member.Run) member.Ended {
			begun <- r
			<-ctx.Done()
			return c.ended
		})
		run := <-begun
		if err := stop(); !errors.Is(err, member.ErrLeaving) {
			t.Error(err)
		}
		r := f.record("end", func(r member.RunRecord) bool { return r.Tick.Equal(run.Tick) && r.Final() })
		if r.State != c.want || (r.Exit == nil) != (c.ended.Exit == member.NoExit) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// setCursor sets the cursor by hand, as if the last tick with a fate had been then.
func (f *fixture) setCursor(at time.Time, d group.Duty) {
	f.t.Helper()
	sched, err := schedule.Parse(d.Schedule, d.Timezone)
	f.must(err)
	body, err := znode.Encode(znode.TickCursor{Tick: at.UTC().Truncate(time.Second), Digest: sched.Digest()})
	f.must(err)
	duty, path := znode.Duty(f.group.Root, f.generation(), job), znode.Cursor(f.group.Root, f.generation(), job)
	_, err = f.s.Create(f.t.Context(), duty, nil, zkconn.Persistent, zkconn.World(zkconn.PermAll))
	if err == nil || errors.Is(err, zkconn.ErrNodeExists) {
		_, err = f.s.Create(f.t.Context(), path, body, zkconn.Persistent, zkconn.World(zkconn.PermAll))
	}
	if errors.Is(err, zkconn.ErrNodeExists) {
		_, err = f.s.Set(f.t.Context(), path, body, -1)
	}
	f.must(err)
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
			<-time.After(time.Until(first.Tick.Add(3 * time.Second)))
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
			f.must(a.Leave())
			rig.Receive(t, first.ctx.Done(), "the end of the run")
			if cause := context.Cause(first.ctx); errors.Is(cause, member.ErrLeaving) {
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
			if n := f.results(); n.Lost != map[bool]int{false: 1}[again] || n.InARow > n.Lost {
				t.Errorf("the results are %+v", n)
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
	f.must(a.Leave())
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
	f.ended(c.ctx, member.ErrTimeout)
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
	if f.isHeld() {
		t.Error("it is still held")
	}
	b := f.join("b", "1.0", job)
	f.must(a.Leave())
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
	rig.Receive(t, c.Hold.HandOver(), "the hand-over")
	<-time.After(time.Until(c.Tick.Add(3 * time.Second)))
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

// journal notes which attempts were really made, by any member.
type journal struct {
	mu   sync.Mutex
	made map[string][]string // by tick: attempt and epoch
	all  int
}

// run is a command that ends at once.
func (j *journal) run(_ context.Context, r member.Run) member.Ended {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.made == nil {
		j.made = map[string][]string{}
	}
	tick := r.Tick.Format(time.RFC3339)
	j.made[tick] = append(j.made[tick], fmt.Sprintf("%d@%d", r.Attempt, r.Epoch))
	j.all++
	return ok
}

func (j *journal) count() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.all
}

// of is what was made of one tick.
func (j *journal) of(tick time.Time) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.made[tick.Format(time.RFC3339)]
}

// account checks that each tick from the first record to the cursor has exactly one fate, and that the records say what
// was really done. It needs that nothing was forgotten, and that nobody holds the duty.
func (f *fixture) account(j *journal) {
	f.t.Helper()
	d := f.group.Duties[0]
	sched, err := schedule.Parse(d.Schedule, d.Timezone)
	f.must(err)
	fates, first := map[time.Time]int{}, f.cursor().Tick
	var sum znode.TickResults
	for _, r := range slices.Backward(f.runsOf()) {
		sum.Add(r.State, max(1, r.Count), r.Ended)
		from, made := r.Tick, j.of(r.Tick)
		switch {
		case r.Range():
			from = r.First
			if len(made) > 0 {
				f.t.Errorf("%s is %s, and ran: %v", r.Tick, r.State, made)
			}
		case r.State == znode.TickRunning:
			f.t.Errorf("%s is running, and nobody holds the duty", r.Tick)
		case r.State == znode.TickDone && d.Lost == group.LostRerun && len(made) == 0,
			r.State == znode.TickDone && d.Lost == group.LostSkip && len(made) != 1,
			r.State != znode.TickDone && d.Lost == group.LostSkip && len(made) > 1:
			f.t.Errorf("%s is %s, and ran: %v", r.Tick, r.State, made)
		}
		for at := from; !at.After(r.Tick); at, _ = sched.Next(at) {
			fates[at]++
		}
		if from.Before(first) {
			first = from
		}
	}
	if counted := f.results(); counted != sum {
		f.t.Errorf("the results are %+v, and the records say %+v", counted, sum)
	}
	for at := first; !at.After(f.cursor().Tick); at, _ = sched.Next(at) {
		if fates[at] != 1 && len(f.runsOf()) > 0 {
			f.t.Errorf("%s has %d fates", at, fates[at])
		}
	}
	if f.t.Failed() {
		f.t.Logf("cursor %s; records: %s", f.cursor().Tick, f.records())
	}
}

func isMulti(op int32, _ []byte) bool { return op == fault.OpMulti }

// joinThrough joins through a proxy.
func (f *fixture) joinThrough(p *fault.Proxy, identity string) *member.Member {
	f.t.Helper()
	return f.joinIn(dial(f.t, p.Addr()), f.config(identity, "1.0", job))
}

// TestFaultAtEveryWrite: each transaction of a holder is cut before it is sent, or after it was committed, with or
// without its reply. Each tick has one fate, and each attempt is made once.
func TestFaultAtEveryWrite(t *testing.T) {
	t.Parallel()
	f := newCronFixture(t, func(d *group.Duty) { d.Keep, d.Lost = 100, group.LostSkip })
	p := newProxy(t)
	m := f.joinThrough(p, "a")
	faults := []func(func(int32, []byte) bool) <-chan struct{}{p.BeforeSend, p.DropReply, p.AfterReply, p.DropReply}
	next := faults[1](isMulti)
	j := &journal{}
	stop := f.runTicks(m, j.run)
	last := f.cursor().Tick
	for i := 0; i < 24 || j.count() < 5; i++ {
		rig.Receive(t, next, fmt.Sprint("write ", i))
		next = faults[i%len(faults)](isMulti)
		if now := f.cursor().Tick; now.Before(last) {
			t.Errorf("the cursor went from %s to %s", last, now)
		} else {
			last = now
		}
	}
	if err := stop(); !errors.Is(err, member.ErrLeaving) {
		t.Errorf("RunTicks ended with %v", err)
	}
	f.account(j)
	for _, r := range f.runsOf() {
		if r.State == znode.TickDone && r.Attempt != 1 || r.State == znode.TickLost {
			t.Errorf("%s: %s after %d attempts: its holder was never lost", r.Tick, r.State, r.Attempt)
		}
	}
}

// TestLostReplyOfTheFirstClaim: the first decision of a holder starts a run, and its reply is lost. The run is made
// once, and is not taken for one of an earlier holder.
func TestLostReplyOfTheFirstClaim(t *testing.T) {
	t.Parallel()
	f := newCronFixture(t, func(d *group.Duty) { d.Schedule, d.Lost = "@yearly", group.LostSkip })
	p := newProxy(t)
	m := f.joinThrough(p, "a")
	f.setCursor(time.Now().AddDate(-1, 0, 0), f.group.Duties[0])
	dropped := p.DropReply(func(op int32, body []byte) bool {
		return isMulti(op, nil) && bytes.Contains(body, []byte(`"state":"running"`))
	})
	j := &journal{}
	f.runTicks(m, j.run)
	<-dropped
	r := f.record("end", func(r member.RunRecord) bool { return r.Final() && !r.Range() })
	if made := j.of(r.Tick); r.State != znode.TickDone || r.Attempt != 1 || len(made) != 1 {
		t.Errorf("%s is %s after attempt %d, and ran: %v", r.Tick, r.State, r.Attempt, made)
	}
}

// TestLostReplyOfTheLastWrite: a holder gives the duty back in the transaction that ends a run. Its reply is lost, and
// the run has an event nevertheless.
func TestLostReplyOfTheLastWrite(t *testing.T) {
	t.Parallel()
	f := newCronFixture(t, func(d *group.Duty) { d.Schedule = "@yearly" })
	p := newProxy(t)
	m := f.joinThrough(p, "a")
	events := make(chan member.EventKind, 1000)
	all := m.Events(t.Context())
	go func() {
		for e := range all {
			events <- e.Kind
		}
	}()
	await := func(want member.EventKind) {
		t.Helper()
		for rig.Receive(t, events, string(want)) != want {
		}
	}
	f.setCursor(time.Now().AddDate(-1, 0, 0), f.group.Duties[0])
	run := f.startCron(m).next()
	f.send(znode.Ask{Do: znode.AskPause, Duty: job})
	await(member.EventHandOver)
	dropped := p.DropReply(func(op int32, body []byte) bool {
		return isMulti(op, nil) && bytes.Contains(body, []byte(`"state":"done"`))
	})
	run.end <- ok
	rig.Receive(t, dropped, "the last write")
	await(member.EventRunEnded)
}
