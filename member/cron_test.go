package member_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/group"
	"muster/member"
	"muster/member/ticks"
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
	select {
	case c := <-w.runs:
		return c
	case <-time.After(2 * time.Minute):
		w.f.t.Fatalf("%s runs nothing; records: %s", w.m.Identity, w.f.records())
		return call{}
	}
}

// ok is the end of a run that went well.
var ok = member.Ended{Result: ticks.Succeeded, Tail: []byte("done\n")}

// failed is the end of a run that failed.
var failed = member.Ended{Result: ticks.Unsuccessful, Exit: 3, Tail: []byte("no disk\n")}

// runsOf reads what is recorded, the newest first.
func (f *fixture) runsOf() []member.RunRecord {
	f.t.Helper()
	runs, err := member.Runs(f.t.Context(), f.s, f.group.Root, f.generation(), job, 1000)
	if err != nil {
		f.t.Fatal(err)
	}
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
	end := time.Now().Add(2 * time.Minute)
	for time.Now().Before(end) {
		for _, r := range f.runsOf() {
			if fits(r) {
				return r
			}
		}
		poll()
	}
	f.t.Fatalf("there is no %s: %s", what, f.records())
	return member.RunRecord{}
}

// poll waits a moment before a condition is looked at again.
func poll() { <-time.After(20 * time.Millisecond) }

// cursor reads the cursor; zero if there is none.
func (f *fixture) cursor() znode.TickCursor {
	f.t.Helper()
	body, _, err := f.s.Get(f.t.Context(), znode.Cursor(f.group.Root, f.generation(), job))
	if errors.Is(err, zkconn.ErrNoNode) {
		return znode.TickCursor{}
	}
	if err != nil {
		f.t.Fatal(err)
	}
	c, err := znode.Decode[znode.TickCursor](body)
	if err != nil {
		f.t.Fatal(err)
	}
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
