package ticks

import (
	"slices"
	"time"
)

// Taken decides for a member that has just taken the duty, and has started nothing yet: what goes on according to s is
// lost with the holder before.
func (c Cron) Taken(s State, now time.Time) Decision {
	w := c.work(s, now)
	for i := range w.runs {
		if w.runs[i].Running {
			w.lose(i)
		}
	}
	w.drop()
	w.choose()
	w.start()
	return w.decision()
}

// Look decides for the holder at the time of Decision.Again, and whenever it begins to leave or the declaration has
// changed.
func (c Cron) Look(s State, now time.Time) Decision {
	w := c.work(s, now)
	w.due()
	w.start()
	return w.decision()
}

// Asked decides after an operator asked for a run now; n is the number of the request. It runs next, however the
// policy is.
func (c Cron) Asked(s State, n int64, now time.Time) Decision {
	w := c.work(s, now)
	w.due()
	if asked := (Run{Asked: n}); !slices.ContainsFunc(w.runs, asked.Is) {
		w.runs = append(w.runs, asked)
	}
	w.start()
	return w.decision()
}

// Ended decides after the attempt that went on has ended.
func (c Cron) Ended(s State, end Result, now time.Time) Decision {
	w := c.work(s, now)
	w.due() // what fell due until now was overlapped
	if i := slices.IndexFunc(w.runs, func(r Run) bool { return r.Running }); i >= 0 {
		w.end(i, end)
	}
	w.drop()
	w.start()
	return w.decision()
}

// work is a decision that is being made.
type work struct {
	cron Cron
	was  State
	now  time.Time

	cursor          Cursor
	runs            []Run // sorted
	over            []Record
	missed, skipped Range
	resign          bool
}

func (c Cron) work(s State, now time.Time) *work {
	w := &work{cron: c, was: s, now: now.UTC().Round(0), cursor: s.Cursor, runs: sorted(s.Runs)}
	if s.Cursor.Digest != c.Schedule.Digest() {
		w.cursor = c.Resume(s.Cursor, now)
	}
	return w
}

func (w *work) running() bool {
	return slices.ContainsFunc(w.runs, func(r Run) bool { return r.Running })
}

// tickWaits reports whether a tick waits for its first attempt.
func (w *work) tickWaits() bool {
	return slices.ContainsFunc(w.runs, func(r Run) bool { return !r.begun() && r.Asked == 0 })
}

// due gives a fate to each tick that is due.
func (w *work) due() {
	if len(w.runs) == 0 {
		w.choose()
	} else if !w.cron.Leaving || w.running() {
		w.overlap()
	}
}

// overlap skips the ticks that are due, but for one that may wait.
func (w *work) overlap() {
	newest, ok := w.cron.Schedule.Last(w.cursor.Tick, w.now)
	if !ok {
		return
	}
	after := w.cursor.Tick
	if w.cron.Policy.Wait && !w.tickWaits() && len(w.runs) < MaxWaiting {
		after, _ = w.cron.Schedule.Next(after)
		w.runs = append(w.runs, Run{Tick: after})
	}
	w.skipped = w.between(after, newest)
	w.cursor.Tick = newest
}

// choose claims the newest of the ticks that are due, and misses the others.
func (w *work) choose() {
	// A member that leaves lets the next one choose.
	newest, ok := w.cron.Schedule.Last(w.cursor.Tick, w.now)
	if !ok || w.cron.Leaving {
		return
	}
	most := w.cron.Policy.Missed
	if most == 0 && w.now.Sub(newest) <= w.cron.Policy.StartDeadline {
		most = 1
	}
	most = min(most, MaxWaiting-len(w.runs))
	before := newest // what is not after it is missed
	for n := 0; n < most; n++ {
		tick, ok := w.cron.Schedule.Last(w.cursor.Tick, before)
		if !ok {
			break
		}
		w.runs = append(w.runs, Run{Tick: tick})
		before = tick.Add(-time.Second)
	}
	w.missed = w.between(w.cursor.Tick, before)
	w.cursor.Tick = newest
}

// between returns the ticks after one time and not after the other.
func (w *work) between(after, upTo time.Time) Range {
	last, ok := w.cron.Schedule.Last(after, upTo)
	if !ok {
		return Range{}
	}
	first, _ := w.cron.Schedule.Next(after)
	n := w.cron.Schedule.Count(after, last, maxCount+1)
	return Range{First: first, Last: last, Count: min(n, maxCount), More: n > maxCount}
}

// end says what follows the end of an attempt.
func (w *work) end(i int, end Result) {
	r := &w.runs[i]
	switch end {
	case Succeeded:
		w.finish(i, Done)
	case Unsuccessful, CannotRun:
		if r.Attempt > w.cron.Policy.Retries {
			w.finish(i, Failed)
			break
		}
		r.Running, r.Since = false, w.now
	case NotStarted:
		r.Running, r.Attempt, r.Since = false, r.Attempt-1, w.now
		if r.Attempt == 0 {
			r.Since = time.Time{}
		}
	case Interrupted:
		w.lose(i)
	}
	w.resign = end == CannotRun || end == NotStarted
	if w.resign || end == Interrupted {
		w.cron.Leaving = true
	}
}

// lose ends an attempt of which nobody knows how far it came.
func (w *work) lose(i int) {
	if w.cron.Policy.Rerun {
		// Since stays the time when it began: a run that ends its holders each time pauses longer and longer.
		w.runs[i].Running = false
		return
	}
	w.finish(i, Lost)
}

// finish notes the end of a run. Drop takes it away.
func (w *work) finish(i int, as Outcome) {
	w.runs[i].Running = false
	w.over = append(w.over, Record{Run: w.runs[i], Outcome: as})
}

func (w *work) drop() {
	w.runs = slices.DeleteFunc(w.runs, func(r Run) bool {
		return slices.ContainsFunc(w.over, func(o Record) bool { return o.Run.Is(r) })
	})
}

// next returns the place of the run that is to be started next, and when; -1 if there is none, or one goes on.
func (w *work) next() (int, time.Time) {
	w.runs = sorted(w.runs)
	if w.cron.Leaving || w.running() || len(w.runs) == 0 {
		return -1, time.Time{}
	}
	i, r := 0, w.runs[0]
	// A time in the future is that of a wrong clock.
	if r.Attempt == 0 || r.Since.After(w.now) {
		return i, w.now
	}
	return i, r.Since.Add(Delay(r.Attempt))
}

// start begins the next run, if it is time.
func (w *work) start() {
	i, when := w.next()
	if i < 0 || when.After(w.now) {
		return
	}
	r := &w.runs[i]
	r.Running, r.Attempt, r.Since = true, r.Attempt+1, w.now
	w.runs = sorted(w.runs)
}

// decision compares what was with what is to be.
func (w *work) decision() Decision {
	d := Decision{
		State: State{Cursor: w.cursor, Runs: w.runs}, Records: w.over, Missed: w.missed, Skipped: w.skipped,
		Resign: w.resign, Again: w.again(), Release: w.cron.Leaving && !w.running(),
	}
	for _, r := range w.runs {
		i := slices.IndexFunc(w.was.Runs, r.Is)
		if i >= 0 && w.was.Runs[i] == r {
			continue
		}
		outcome := Waiting
		if r.Running {
			outcome, d.Start = Running, &r
		}
		d.Records = append(d.Records, Record{Run: r, Outcome: outcome, New: i < 0})
	}
	d.Write = len(d.Records) > 0 || w.cursor != w.was.Cursor || d.Release
	return d
}

func (w *work) again() time.Time {
	var again time.Time
	if i, when := w.next(); i >= 0 {
		again = when
	}
	if w.cron.Leaving && !w.running() {
		return again
	}
	tick, ok := w.cron.Schedule.Next(w.cursor.Tick)
	if !ok {
		return again
	}
	if len(w.runs) > 0 && !(w.cron.Policy.Wait && !w.tickWaits()) && tick.Before(w.now.Add(quiet)) {
		tick = w.now.Add(quiet)
	}
	if again.IsZero() || tick.Before(again) {
		again = tick
	}
	return again
}
