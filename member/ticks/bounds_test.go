package ticks

import (
	"testing"
	"time"
)

// TestLongPause: a century of seconds is decided at once. To list its 4,000,000,000 ticks would take minutes.
func TestLongPause(t *testing.T) {
	for policy, runs := range map[string]int{"skip": 1, "latest": 1, "all": MaxWaiting} {
		c := Cron{Schedule: mustParse(t, "@every 1s"), Policy: readPolicy(t, policy)}
		s := State{Cursor: Cursor{Tick: time.Date(1900, 1, 1, 0, 0, 0, 0, time.UTC), Digest: c.Schedule.Digest()}}
		now := clock(t, "12:00")
		d := c.Taken(s, now)
		if len(d.State.Runs) != runs || d.Missed.Count != maxCount || !d.Missed.More {
			t.Errorf("%s: %d runs, missed %+v", policy, len(d.State.Runs), d.Missed)
		}
		last := now.Add(-time.Duration(runs) * time.Second)
		if !d.Missed.First.Equal(s.Cursor.Tick.Add(time.Second)) || !d.Missed.Last.Equal(last) {
			t.Errorf("%s: missed %+v, want until %s", policy, d.Missed, last)
		}
		s.Runs = []Run{{Tick: s.Cursor.Tick, Attempt: 1, Running: true, Since: s.Cursor.Tick}}
		if d := c.Look(s, now); d.Skipped.Count != maxCount || !d.Skipped.More || !d.State.Cursor.Tick.Equal(now) {
			t.Errorf("%s: while a run goes on: skipped %+v, cursor %+v", policy, d.Skipped, d.State.Cursor)
		}
	}
}

// TestManyWait: what waits is bounded, also if each holder dies before it has run anything.
func TestManyWait(t *testing.T) {
	c := Cron{Schedule: mustParse(t, "* * * * *"), Policy: readPolicy(t, "all rerun")}
	s := State{Cursor: Cursor{Tick: clock(t, "0:00"), Digest: c.Schedule.Digest()}}
	for hour := range 20 {
		s = c.Taken(s, clock(t, "1:00").Add(time.Duration(hour)*time.Hour)).State
	}
	if len(s.Runs) != MaxWaiting {
		t.Errorf("%d runs", len(s.Runs))
	}
}

func TestResultOf(t *testing.T) {
	for exit, want := range map[int]Result{
		0: Succeeded, 1: Unsuccessful, 125: Unsuccessful, 126: CannotRun, 127: CannotRun, 128: Unsuccessful,
	} {
		if got := ResultOf(exit); got != want {
			t.Errorf("exit %d is %v, want %v", exit, got, want)
		}
	}
}

func TestOffset(t *testing.T) {
	at := clock(t, "12:00")
	for _, c := range []struct {
		why            string
		before, after  time.Duration // of one's own clock, after the Mtime
		wrong, unclear bool
	}{
		{"the same clock", -time.Millisecond, 2 * time.Millisecond, false, false},
		{"20 s ahead", 20 * time.Second, 21 * time.Second, false, false},
		{"20 s behind", -21 * time.Second, -20 * time.Second, false, false},
		{"30 s, and the millisecond that is cut off", 30*time.Second + time.Millisecond, 31 * time.Second, false, true},
		{"more than 30 s ahead", 30*time.Second + 2*time.Millisecond, 31 * time.Second, true, false},
		{"more than 30 s behind", -31 * time.Second, -30*time.Second - 1, true, false},
		{"just 30 s behind, for all that is known", -31 * time.Second, -30 * time.Second, false, true},
		{"a slow write says nothing", -25 * time.Second, 35 * time.Second, false, true},
		{"a slow write, and minutes ahead", 5 * time.Minute, 6 * time.Minute, true, false},
		{"the clock was set back during the write", time.Minute, -time.Second, false, true},
	} {
		o := OffsetOf(at.Add(c.before), at, at.Add(c.after))
		if o.Wrong() != c.wrong || o.Unclear() != c.unclear {
			t.Errorf("%s: %+v is wrong %v, unclear %v", c.why, o, o.Wrong(), o.Unclear())
		}
	}
}
