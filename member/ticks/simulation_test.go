package ticks

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"muster/resource/group/schedule"
)

// TestEveryTickHasOneFate simulates holders of random duties: their clocks differ and are set, they hang, leave,
// resign and die at any moment, and months go by without any.
func TestEveryTickHasOneFate(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Log("seed", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	total := map[string]int{}
	for range 150 {
		s := newSimulation(t, r)
		for range 12 {
			s.holder(60)
		}
		s.drain()
		for what, n := range s.seen {
			total[what] += n
		}
		if t.Failed() {
			t.Fatalf("%+v", s.cron.Policy)
		}
	}
	for _, what := range []string{"done", "failed", "lost", "missed", "skipped", "edit", "resume", "counted"} {
		if total[what] < 20 {
			t.Errorf("it came to %q only %d times", what, total[what])
		}
	}
}

// simulation is a duty, and what became of its runs.
type simulation struct {
	t       *testing.T
	r       *rand.Rand
	cron    Cron
	state   State
	now     time.Time // true time
	ends    time.Time // when the command ends that runs; zero: none
	written func()    // notes how a command ended, once that is written
	history map[Run]*history
	seen    map[string]int
}

// history is what was decided about one run. Its key has only the identity of the run.
type history struct {
	attempts, started, failures, unstarted int
	over                                   Outcome
}

func newSimulation(t *testing.T, r *rand.Rand) *simulation {
	s := &simulation{t: t, r: r, history: map[Run]*history{}, seen: map[string]int{}}
	s.now = time.Date(2026, 3, 28, 0, 0, 0, 0, time.UTC)
	s.cron.Schedule = s.schedule()
	s.cron.Policy = Policy{
		StartDeadline: time.Duration(r.IntN(100)) * time.Second, Missed: []int{0, 1, MaxWaiting}[r.IntN(3)],
		Wait: r.IntN(2) == 0, Rerun: r.IntN(2) == 0, Retries: r.IntN(3),
	}
	return s
}

func (s *simulation) schedule() schedule.Schedule {
	texts := []string{"@every 1s", "@every 7s", "* * * * *", "*/5 1-5 * * *", "0 * * * *", "30 2 * * *", "0 0 29 2 *"}
	parsed, err := schedule.Parse(texts[s.r.IntN(len(texts))], "Europe/Berlin")
	if err != nil {
		s.t.Fatal(err)
	}
	return parsed
}

// chance is true so often in 100.
func (s *simulation) chance(percent int) bool { return s.r.IntN(100) < percent }

// upTo is a random time.
func (s *simulation) upTo(d time.Duration) time.Duration { return time.Duration(s.r.Int64N(int64(d))) }

// holder takes the duty some time after the last one, and decides at most so often.
func (s *simulation) holder(most int) {
	s.ends, s.written, s.cron.Leaving = time.Time{}, nil, false
	s.now = s.now.Add(s.upTo(time.Minute))
	if s.chance(10) {
		s.now = s.now.Add(s.upTo(90 * 24 * time.Hour))
	}
	offset := s.upTo(time.Minute) - 30*time.Second
	if s.chance(10) { // a pause ends
		s.state.Cursor = s.cron.Resume(s.state.Cursor, s.now.Add(offset))
		s.seen["resume"]++
	}
	d := s.cron.Taken(s.state, s.now.Add(offset))
	for ; most > 0; most-- {
		if s.chance(3) || !s.commit(d, s.now.Add(offset)) {
			return // it died, before or after the write
		}
		next := d.Again.Add(-offset)
		ended := !s.ends.IsZero() && (d.Again.IsZero() || s.ends.Before(next))
		if ended {
			next = s.ends
		} else if d.Again.IsZero() {
			next = s.now.Add(time.Hour) // nothing happens by itself
		}
		s.now = later(s.now, next)
		if s.chance(10) {
			s.now = s.now.Add(s.upTo(5 * time.Minute)) // it hung
		}
		if s.chance(2) {
			offset = s.upTo(time.Hour) - 30*time.Minute // somebody set its clock
		}
		s.order(offset)
		own := s.now.Add(offset)
		switch {
		case ended:
			d = s.end(own)
		case s.chance(2):
			d = s.cron.Asked(s.state, int64(s.r.IntN(50))+1, own)
			s.allow(d)
		default:
			d = s.cron.Look(s.state, own)
		}
	}
}

// allow forgets that an operator asked before with the same number.
func (s *simulation) allow(d Decision) {
	for _, r := range d.Records {
		if h := s.history[identity(r.Run)]; r.New && r.Run.Asked != 0 && h != nil && h.over != "" {
			delete(s.history, identity(r.Run))
		}
	}
}

// order may have the holder leave, or may edit the schedule.
func (s *simulation) order(offset time.Duration) {
	switch {
	case !s.cron.Leaving && s.chance(2):
		s.cron.Leaving = true
	case s.chance(1):
		s.cron.Schedule = s.schedule()
		s.seen["edit"]++
	}
}

// end ends the command that runs.
func (s *simulation) end(own time.Time) Decision {
	s.ends = time.Time{}
	i := slices.IndexFunc(s.state.Runs, func(r Run) bool { return r.Running })
	if i < 0 {
		s.t.Fatal("a command runs that is not recorded")
	}
	ends := []Result{Succeeded, Succeeded, Succeeded, Unsuccessful, Unsuccessful, CannotRun, NotStarted, Interrupted}
	end := ends[s.r.IntN(len(ends))]
	s.written = func() {
		h := s.history[identity(s.state.Runs[i])]
		switch end {
		case Unsuccessful, CannotRun:
			h.failures++
		case NotStarted:
			h.unstarted++
			h.attempts--
		}
	}
	return s.cron.Ended(s.state, end, own)
}

// commit writes a decision, if its holder does not die, and checks it. It returns false if the holder is gone.
func (s *simulation) commit(d Decision, own time.Time) bool {
	s.checkFates(d, own)
	if s.written != nil {
		s.written()
	}
	s.state, s.written = d.State, nil
	for _, r := range d.Records {
		s.checkRecord(r)
	}
	running, ticks := 0, 0
	for _, r := range s.state.Runs {
		if r.Running {
			running++
		}
		if r.Asked == 0 {
			ticks++
		}
	}
	if running > 1 || ticks > MaxWaiting {
		s.t.Errorf("%d ticks have runs, and %d go on", ticks, running)
	}
	if d.Start != nil {
		if !s.ends.IsZero() {
			s.t.Error("a command starts while another one runs")
		}
		s.ends = s.now.Add(s.upTo(10 * time.Minute))
	}
	return !d.Release && !s.chance(2)
}

// checkFates checks that the cursor passes no tick without a fate, and none twice.
func (s *simulation) checkFates(d Decision, own time.Time) {
	was, is, next := s.state.Cursor, d.State.Cursor, s.cron.Schedule.Next
	at := was.Tick
	if was.Digest != s.cron.Schedule.Digest() {
		at = later(at, own.Truncate(time.Second))
	}
	fates := []Range{d.Missed, d.Skipped}
	for _, r := range d.Records {
		if r.New && r.Run.Asked == 0 {
			fates = append(fates, Range{First: r.Run.Tick, Last: r.Run.Tick, Count: 1})
		}
	}
	slices.SortFunc(fates, func(a, b Range) int { return a.First.Compare(b.First) })
	for _, f := range fates {
		if f.Count == 0 {
			continue
		}
		first, _ := next(at)
		last, _ := next(f.Last.Add(-time.Second))
		if !first.Equal(f.First) || !last.Equal(f.Last) {
			s.t.Errorf("after %s comes %s, not %+v", at, first, f)
		}
		if n := s.cron.Schedule.Count(at, f.Last, maxCount+1); min(n, maxCount) != f.Count || f.More != (n > maxCount) {
			s.t.Errorf("%+v has %d ticks", f, n)
		}
		if f.More {
			s.seen["counted"]++
		}
		at = f.Last
	}
	if !is.Tick.Equal(at) || is.Tick.Before(was.Tick) || is.Digest != s.cron.Schedule.Digest() {
		s.t.Errorf("the cursor goes from %+v to %+v; the last tick with a fate is %s", was, is, at)
	}
	if due, ok := next(at); ok && !due.After(own) && !s.cron.Leaving && !d.Release {
		s.t.Errorf("%s is due at %s and has no fate", due, own)
	}
	s.seen["missed"] += d.Missed.Count
	s.seen["skipped"] += d.Skipped.Count
	if d.Missed.Count > 0 && d.Skipped.Count > 0 || d.Skipped.Count > 0 && len(s.state.Runs) == 0 {
		s.t.Errorf("missed %+v, skipped %+v, and before there were %d runs", d.Missed, d.Skipped, len(s.state.Runs))
	}
}

// checkRecord checks what follows what in one run.
func (s *simulation) checkRecord(r Record) {
	h := s.history[identity(r.Run)]
	if (h == nil) != r.New {
		s.t.Fatalf("%+v, and before there was %+v", r, h)
	}
	if r.New {
		h = &history{}
		s.history[identity(r.Run)] = h
	}
	if h.over != "" {
		s.t.Errorf("%+v, and before it was %s", r, h.over)
	}
	policy := s.cron.Policy
	switch r.Outcome {
	case Running:
		h.started++
		h.attempts++
		if h.attempts != r.Run.Attempt {
			s.t.Errorf("%+v is attempt %d", r, h.attempts)
		}
		if !policy.Rerun && h.started > 1+h.failures+h.unstarted {
			s.t.Errorf("%+v was started %d times, of which %d failed: more than at most once", r, h.started, h.failures)
		}
	case Done, Failed, Lost:
		h.over = r.Outcome
		s.seen[string(r.Outcome)]++
		if r.Outcome == Lost && policy.Rerun || h.failures > policy.Retries+1 {
			s.t.Errorf("%+v after %+v", r, h)
		}
	}
}

// drain has a last holder to whom nothing happens: each run that was claimed comes to its end.
func (s *simulation) drain() {
	s.ends, s.written, s.cron.Leaving = time.Time{}, nil, false
	claimed := s.state.Runs
	for run, h := range s.history {
		if h.over == "" && !slices.ContainsFunc(claimed, run.Is) {
			s.t.Errorf("%+v is forgotten: %+v", run, h)
		}
	}
	d := s.cron.Taken(s.state, s.now)
	for range 50 * MaxWaiting {
		s.commit(d, s.now)
		over := true
		for _, r := range claimed {
			over = over && s.history[identity(r)].over != ""
		}
		if over {
			return
		}
		if s.ends.IsZero() {
			s.now = later(s.now, d.Again)
			d = s.cron.Look(s.state, s.now)
			continue
		}
		s.ends = time.Time{}
		s.now = s.now.Add(time.Second)
		d = s.cron.Ended(s.state, Succeeded, s.now)
	}
	s.t.Errorf("of %+v some are not over", claimed)
}

// identity is a run without what changes.
func identity(r Run) Run { return Run{Tick: r.Tick, Asked: r.Asked} }

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
