package ticks

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/resource/group/schedule"
)

func TestScenarios(t *testing.T) {
	for _, c := range scenarios() {
		t.Run(strings.NewReplacer(" ", "_", ";", "", ",", "").Replace(c.why), func(t *testing.T) {
			w := world{t: t, cron: Cron{Schedule: mustParse(t, c.schedule), Policy: readPolicy(t, c.policy)}}
			w.read(c.state)
			for _, e := range c.events {
				if d := cmp.Diff(e[1], w.event(e[0])); d != "" {
					t.Errorf("%s (-want +got):\n%s", e[0], d)
				}
			}
		})
	}
}

// world keeps the state from one event to the next.
type world struct {
	t     *testing.T
	cron  Cron
	state State
}

// event returns what is decided.
func (w *world) event(text string) string {
	w.t.Helper()
	name, rest, _ := strings.Cut(text, " ")
	results := map[string]Result{
		"success": Succeeded, "failure": Unsuccessful, "cannot-run": CannotRun, "not-started": NotStarted,
		"interrupted": Interrupted,
	}
	var d Decision
	result, ended := results[name]
	switch {
	case ended:
		d = w.cron.Ended(w.state, result, clock(w.t, rest))
	case name == "leave", name == "stay":
		w.cron.Leaving = name == "leave"
		return ""
	case name == "edit":
		w.cron.Schedule = mustParse(w.t, rest)
		return ""
	case name == "resume":
		w.cron.Leaving, w.state = false, w.cron.Resume(w.state, clock(w.t, rest))
		return ""
	case name == "taken":
		d = w.cron.Taken(w.state, clock(w.t, rest))
	case name == "look":
		d = w.cron.Look(w.state, clock(w.t, rest))
	case name == "asked":
		number, when, _ := strings.Cut(rest, " ")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			w.t.Fatal(err)
		}
		d = w.cron.Asked(w.state, n, clock(w.t, when))
	default:
		w.t.Fatalf("unknown event %q", text)
	}
	said := w.show(d)
	w.state = d.State
	return said
}

// show writes a decision: records, ranges, the cursor if it moves, and when to look again.
func (w *world) show(d Decision) string {
	var said []string
	say := func(ok bool, format string, args ...any) {
		if ok {
			said = append(said, fmt.Sprintf(format, args...))
		}
	}
	var started []Run
	for _, r := range d.Records {
		say(true, "%s %s#%d%s", r.Outcome, name(r.Run), r.Run.Attempt, map[bool]string{true: " new"}[r.New])
		if r.Outcome == Running {
			started = append(started, r.Run)
		}
	}
	if len(started) > 1 || (len(started) == 1) != (d.Start != nil) || d.Start != nil && *d.Start != started[0] {
		w.t.Errorf("start is %v, recorded is %v", d.Start, started)
	}
	for _, part := range []struct {
		word  string
		Range Range
	}{{"missed", d.Missed}, {"skipped", d.Skipped}} {
		r := part.Range
		say(r.Count == 1, "%s %s", part.word, short(r.First))
		say(r.Count > 1, "%s %s..%s x%d%s", part.word, short(r.First), short(r.Last), r.Count,
			map[bool]string{true: "+"}[r.More])
	}
	say(d.State.Cursor != w.state.Cursor, "cursor %s", short(d.State.Cursor.Tick))
	say(d.Resign, "resign")
	say(d.Release, "release")
	if writes := len(said) > 0; writes != d.Write {
		w.t.Errorf("%q: write is %v", said, d.Write)
	}
	say(!d.Again.IsZero(), "again %s", short(d.Again))
	return strings.Join(said, "; ")
}

// read reads a state such as "cursor 12:00; 12:00#1 running 12:00; 13:00#0 waiting".
func (w *world) read(text string) {
	w.t.Helper()
	for _, part := range strings.Split(text, "; ") {
		words := strings.Fields(part)
		switch {
		case len(words) == 0:
		case words[0] == "cursor":
			w.state.Cursor = Cursor{Tick: clock(w.t, words[1]), Digest: w.cron.Schedule.Digest()}
		default:
			tick, attempt, _ := strings.Cut(words[0], "#")
			r := Run{Tick: clock(w.t, tick), Running: words[1] == "running"}
			if _, err := fmt.Sscan(attempt, &r.Attempt); err != nil {
				w.t.Fatal(err)
			}
			if len(words) > 2 {
				r.Since = clock(w.t, words[2])
			}
			w.state.Runs = append(w.state.Runs, r)
		}
	}
}

func readPolicy(t *testing.T, text string) Policy {
	t.Helper()
	p := Policy{StartDeadline: time.Minute}
	for _, word := range strings.Fields(text) {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "skip":
		case "latest":
			p.Missed = 1
		case "all":
			p.Missed = MaxWaiting
		case "wait":
			p.Wait = true
		case "rerun":
			p.Rerun = true
		case "retries":
			if _, err := fmt.Sscan(value, &p.Retries); err != nil {
				t.Fatal(err)
			}
		default:
			t.Fatalf("unknown policy %q", word)
		}
	}
	return p
}

func mustParse(t *testing.T, text string) schedule.Schedule {
	t.Helper()
	s, err := schedule.Parse(text, "")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// clock reads a time of the day.
func clock(t *testing.T, text string) time.Time {
	t.Helper()
	for _, layout := range []string{"15:04", "15:04:05"} {
		if at, err := time.Parse(layout, text); err == nil {
			return at.AddDate(2026, 10, 21)
		}
	}
	t.Fatalf("%q is not a time", text)
	return time.Time{}
}

// short writes a time of the day, without seconds if there are none.
func short(at time.Time) string {
	return strings.TrimSuffix(strings.TrimPrefix(at.Format("15:04:05"), "0"), ":00")
}

func name(r Run) string {
	if r.Asked != 0 {
		return fmt.Sprintf("now/%d", r.Asked)
	}
	return short(r.Tick)
}

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
