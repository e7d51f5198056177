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
		w.cron.Leaving, w.state.Cursor = false, w.cron.Resume(w.state.Cursor, clock(w.t, rest))
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

// A scenario is a list of events, and what is decided at each. Times are of one day in UTC. Policy and state are words,
// and so is a decision: see show.
type scenario struct {
	why, schedule, policy, state string
	events                       [][2]string
}

func scenarios() []scenario {
	return []scenario{
		{
			"the first holder begins with what falls due from then on", "*/15 * * * *", "latest", "",
			[][2]string{
				{"taken 12:01", "cursor 12:01; again 12:15"},
				{"look 12:15:00.2", "running 12:15#1 new; cursor 12:15; again 12:30"},
				{"success 12:16", "done 12:15#1; again 12:30"},
				{"look 12:29:59", "again 12:30"},
				{"look 12:30", "running 12:30#1 new; cursor 12:30; again 12:45"},
			},
		},
		{
			"a tick that falls due while the last run goes on is skipped", "0 * * * *", "latest", "cursor 11:00",
			[][2]string{
				{"look 12:00", "running 12:00#1 new; cursor 12:00; again 13:00"},
				{"look 13:00", "skipped 13:00; cursor 13:00; again 14:00"},
				{"success 13:30", "done 12:00#1; again 14:00"},
				{"look 14:00", "running 14:00#1 new; cursor 14:00; again 15:00"},
			},
		},
		{
			"or it waits, but only one does", "0 * * * *", "latest wait", "cursor 11:00",
			[][2]string{
				{"look 12:00", "running 12:00#1 new; cursor 12:00; again 13:00"},
				{"look 13:00", "waiting 13:00#0 new; cursor 13:00; again 14:00"},
				{"look 14:00", "skipped 14:00; cursor 14:00; again 15:00"},
				{"success 14:30", "done 12:00#1; running 13:00#1; again 15:00"},
				{"look 15:00", "waiting 15:00#0 new; cursor 15:00; again 16:00"},
			},
		},
		{
			"a tick of the second in which a run ends was overlapped", "0 * * * *", "latest",
			"cursor 11:00; 11:00#1 running 11:00",
			[][2]string{{"success 12:00", "done 11:00#1; skipped 12:00; cursor 12:00; again 13:00"}},
		},
		{
			"nobody is woken each second to skip a tick, and each has its fate", "@every 1s", "latest", "cursor 11:59:59",
			[][2]string{
				{"look 12:00", "running 12:00#1 new; cursor 12:00; again 12:01"},
				{"look 12:01", "skipped 12:00:01..12:01 x60; cursor 12:01; again 12:02"},
				{"success 12:01:30.5", "done 12:00#1; skipped 12:01:01..12:01:30 x30; cursor 12:01:30; again 12:01:31"},
				{"look 12:01:31", "running 12:01:31#1 new; cursor 12:01:31; again 12:02:31"},
			},
		},
		{
			"one that may wait is not late", "@every 1s", "latest wait", "cursor 11:59:59",
			[][2]string{
				{"look 12:00", "running 12:00#1 new; cursor 12:00; again 12:00:01"},
				{"look 12:00:01", "waiting 12:00:01#0 new; cursor 12:00:01; again 12:01:01"},
			},
		},
		{
			"of what fell due while nobody held the duty, the latest runs", "0 * * * *", "latest", "cursor 7:00",
			[][2]string{{"taken 12:30", "running 12:00#1 new; missed 8:00..11:00 x4; cursor 12:00; again 13:00"}},
		},
		{
			"or none, if the latest is late too", "0 * * * *", "skip", "cursor 7:00",
			[][2]string{{"taken 12:01:01", "missed 8:00..12:00 x5; cursor 12:00; again 13:00"}},
		},
		{
			"but what is not late runs", "0 * * * *", "skip", "cursor 7:00",
			[][2]string{{"taken 12:01", "running 12:00#1 new; missed 8:00..11:00 x4; cursor 12:00; again 13:00"}},
		},
		{
			"of several that are not late the newest runs", "@every 10s", "skip", "cursor 12:00",
			[][2]string{{
				"taken 12:00:35", "running 12:00:30#1 new; missed 12:00:10..12:00:20 x2; cursor 12:00:30; again 12:01:35",
			}},
		},
		{
			"a holder that comes late is judged as if nobody had held the duty", "0 * * * *", "skip", "cursor 11:00",
			[][2]string{{"look 12:30", "missed 12:00; cursor 12:00; again 13:00"}},
		},
		{
			"or all run, one after another; what falls due meanwhile is overlapped", "0 * * * *", "all", "cursor 9:00",
			[][2]string{
				{"taken 12:30", "running 10:00#1 new; waiting 11:00#0 new; waiting 12:00#0 new; cursor 12:00; again 13:00"},
				{"success 12:40", "done 10:00#1; running 11:00#1; again 13:00"},
				{"look 13:00", "skipped 13:00; cursor 13:00; again 14:00"},
				{"success 13:10", "done 11:00#1; running 12:00#1; again 14:00"},
				{"success 13:20", "done 12:00#1; again 14:00"},
			},
		},
		{
			"a failed run begins again, after a pause that doubles", "0 * * * *", "latest retries=2", "cursor 11:00",
			[][2]string{
				{"look 12:00", "running 12:00#1 new; cursor 12:00; again 13:00"},
				{"failure 12:10", "waiting 12:00#1; again 12:10:01"},
				{"look 12:10:01", "running 12:00#2; again 13:00"},
				{"failure 12:20", "waiting 12:00#2; again 12:20:02"},
				{"look 12:20:02", "running 12:00#3; again 13:00"},
				{"failure 12:30", "failed 12:00#3; again 13:00"},
			},
		},
		{
			"between two attempts a run goes on", "@every 1s", "latest retries=9", "cursor 12:00; 12:00#4 running 12:00",
			[][2]string{
				{"failure 12:00:01", "waiting 12:00#4; skipped 12:00:01; cursor 12:00:01; again 12:00:09"},
				{"look 12:00:09", "running 12:00#5; skipped 12:00:02..12:00:09 x8; cursor 12:00:09; again 12:01:09"},
			},
		},
		{
			"a command that cannot be run: another member tries, if a retry is left",
			"0 * * * *", "latest retries=1", "cursor 12:00; 12:00#1 running 12:00",
			[][2]string{
				{"cannot-run 12:10", "waiting 12:00#1; resign; release"},
				{"taken 12:11", "running 12:00#2; again 13:00"},
				{"cannot-run 12:12", "failed 12:00#2; resign; release"},
			},
		},
		{
			"a command that was not started has made no attempt", "0 * * * *", "latest", "cursor 11:00",
			[][2]string{
				{"look 12:00", "running 12:00#1 new; cursor 12:00; again 13:00"},
				{"not-started 12:00:01", "waiting 12:00#0; resign; release"},
				{"taken 12:02", "running 12:00#1; again 13:00"},
			},
		},
		{
			"a lost run begins again even if no retry is left", "0 * * * *", "latest rerun",
			"cursor 12:00; 12:00#1 running 12:00",
			[][2]string{
				{"taken 12:20", "running 12:00#2; again 13:00"},
				{"taken 12:21", "running 12:00#3; again 13:00"},
				{"failure 12:30", "failed 12:00#3; again 13:00"},
			},
		},
		{
			"the pause between lost attempts grows too", "0 * * * *", "latest rerun",
			"cursor 12:00; 12:00#7 running 12:20",
			[][2]string{
				{"taken 12:20:20", "waiting 12:00#7; again 12:21:04"}, {"look 12:21:04", "running 12:00#8; again 13:00"},
			},
		},
		{
			"or it is over", "0 * * * *", "latest", "cursor 12:00; 12:00#1 running 12:00",
			[][2]string{{"taken 12:20", "lost 12:00#1; again 13:00"}},
		},
		{
			"what waits is not lost: the next holder goes on with it",
			"0 * * * *", "latest wait retries=1", "cursor 13:00; 12:00#1 waiting 13:10; 13:00#0 waiting",
			[][2]string{
				{"taken 13:20", "running 12:00#2; again 14:00"},
				{"success 13:30", "done 12:00#2; running 13:00#1; again 14:00"},
			},
		},
		{
			"a lost run comes before what was missed", "0 * * * *", "latest rerun", "cursor 9:00; 9:00#1 running 9:00",
			[][2]string{
				{"taken 12:00:10", "running 9:00#2; waiting 12:00#0 new; missed 10:00..11:00 x2; cursor 12:00; again 13:00"},
				{"success 12:05", "done 9:00#2; running 12:00#1; again 13:00"},
			},
		},
		{
			"who leaves finishes its run, says what is overlapped, and starts no other",
			"0 * * * *", "latest wait", "cursor 12:00; 12:00#1 running 12:00",
			[][2]string{
				{"leave", ""}, {"look 12:50", "again 13:00"},
				{"look 13:00", "waiting 13:00#0 new; cursor 13:00; again 14:00"},
				{"success 13:10", "done 12:00#1; release"},
				{"stay", ""}, {"taken 13:11", "running 13:00#1; again 14:00"},
			},
		},
		{
			"who leaves and runs nothing lets the next one choose", "0 * * * *", "latest retries=1",
			"cursor 11:00; 11:00#1 waiting 12:00",
			[][2]string{{"leave", ""}, {"look 12:00:01", "release"}},
		},
		{
			"a holder that ends its own run has lost it", "0 * * * *", "latest rerun", "cursor 12:00; 12:00#1 running 12:00",
			[][2]string{
				{"interrupted 12:01", "waiting 12:00#1; release"}, {"taken 12:01:10", "running 12:00#2; again 13:00"},
			},
		},
		{
			"at most once", "0 * * * *", "latest", "cursor 12:00; 12:00#1 running 12:00",
			[][2]string{{"interrupted 12:01", "lost 12:00#1; release"}},
		},
		{
			"what falls due in a pause, in which nobody holds the duty, is forgotten",
			"0 * * * *", "latest wait retries=1", "cursor 12:00; 12:00#1 running 12:00",
			[][2]string{
				{"leave", ""}, {"look 13:00", "waiting 13:00#0 new; cursor 13:00; again 14:00"},
				{"failure 13:10", "waiting 12:00#1; release"}, {"resume 15:30", ""},
				{"taken 15:30", "running 12:00#2; again 16:00"},
			},
		},
		{
			"an operator asks for a run", "0 * * * *", "latest", "cursor 12:00; 12:00#1 running 12:00",
			[][2]string{
				{"asked 7 12:10", "waiting now/7#0 new; again 13:00"}, {"asked 7 12:10", "again 13:00"},
				{"success 12:20", "done 12:00#1; running now/7#1; again 13:00"},
				{"success 12:30", "done now/7#1; again 13:00"}, {"asked 8 12:40", "running now/8#1 new; again 13:00"},
			},
		},
		{
			"an edit begins anew, whatever was due", "0 * * * *", "all", "cursor 7:00",
			[][2]string{{"edit */30 * * * *", ""}, {"look 12:10:30", "cursor 12:10:30; again 12:30"}},
		},
		{
			"the cursor does not go back, whatever the clock says", "0 * * * *", "latest", "cursor 12:00",
			[][2]string{
				{"taken 11:30", "again 13:00"}, {"edit */30 * * * *", ""}, {"look 11:40", "cursor 12:00; again 12:30"},
				{"resume 11:50", ""}, {"look 12:29", "again 12:30"},
			},
		},
		{
			"a failure in the future is that of a wrong clock", "0 * * * *", "latest retries=2",
			"cursor 12:00; 12:00#2 waiting 15:00",
			[][2]string{{"taken 12:10", "running 12:00#3; again 13:00"}},
		},
	}
}
