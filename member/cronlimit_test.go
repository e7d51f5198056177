package member_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"muster/group"
	"muster/member"
	"muster/member/ticks"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// TestPastItsLimit: no server has answered a member for too long, and its session stands. It claims no tick and takes
// no duty any more, whatever answers then. The run that goes on is recorded as it ended.
func TestPastItsLimit(t *testing.T) {
	t.Parallel()
	f := newCronFixture(t, nil)
	p := newProxy(t)
	s, err := zkconn.Dial(t.Context(), zkconn.Config{Servers: []string{p.Addr()}, Timeout: 16 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	c := f.config("a", "1.0", job)
	c.MaxSilence = s.Timeout() / 2
	m, err := member.Join(t.Context(), s, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Leave() })
	w := f.startCron(m)
	last := w.next()
	p.Hang(true)
	for s.Silence() < c.MaxSilence {
		poll()
	}
	last.end <- ok
	p.Hang(false)
	r := f.record("end of the last run", func(r member.RunRecord) bool { return r.Tick.Equal(last.Tick) && r.Final() })
	if r.State != znode.TickDone || r.Exit == nil || *r.Exit != 0 {
		t.Errorf("recorded as %+v", r)
	}
	f.record("end of the hold", func(member.RunRecord) bool {
		_, held, err := f.s.Exists(t.Context(), znode.Held(f.group.Root, f.generation(), job))
		if err != nil {
			t.Fatal(err)
		}
		return !held
	})
	if _, there, err := f.s.Exists(t.Context(), znode.Live(f.group.Root, f.group.Name, "a")); err != nil || !there {
		t.Error("the session has ended", err)
	}
	f.change(func(g *group.Group) { g.Labels = map[string]string{"edit": "1"} })
	for m.Group().Labels["edit"] == "" { // with new orders it tries again
		poll()
	}
	if err := w.stop(); !errors.Is(err, member.ErrLeaving) {
		t.Error(err)
	}
	if len(w.runs) > 0 {
		t.Errorf("it has run %+v", (<-w.runs).Run)
	}
}

// TestARunThatEndedByItself is not lost, although the member leaves before it says so. One that was asked to end is,
// whatever it says.
func TestARunThatEndedByItself(t *testing.T) {
	t.Parallel()
	for byItself, want := range map[bool]znode.TickState{true: znode.TickDone, false: znode.TickLost} {
		f := newCronFixture(t, func(d *group.Duty) { d.Lost = group.LostSkip })
		begun := make(chan member.Run, 1)
		stop := f.runTicks(f.join("a", "1.0", job), func(ctx context.Context, r member.Run) member.Ended {
			begun <- r
			<-ctx.Done()
			return member.Ended{Result: ticks.Succeeded, ByItself: byItself}
		})
		run := <-begun
		if err := stop(); !errors.Is(err, member.ErrLeaving) {
			t.Error(err)
		}
		r := f.record("end", func(r member.RunRecord) bool { return r.Tick.Equal(run.Tick) && r.Final() })
		if r.State != want {
			t.Errorf("by itself %t: %+v", byItself, r)
		}
	}
}
