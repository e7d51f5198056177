package member_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster/member"
)

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
	m, err := member.Join(f.t.Context(), dial(f.t), c)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { m.Leave() })
	return m, clock
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
