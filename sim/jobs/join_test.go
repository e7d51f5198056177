package jobs_test

import (
	"errors"
	"fmt"
	"time"

	"muster/resource"
	"muster/resource/job"
	"muster/sim"
	"muster/worker"
)

// ends reports whether an error of Join, or of a membership, is one with which a process may end.
func ends(err error) bool {
	for _, e := range []error{
		worker.ErrFull, worker.ErrDone, worker.ErrHeld, worker.ErrNotOpen, worker.ErrCompleted, worker.ErrFenced,
		worker.ErrNoJob, worker.ErrDamaged,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// endsWell is nil for an error with which a process may end.
func endsWell(err error) error {
	if ends(err) {
		return nil
	}
	return err
}

// joinWorld has a place less than identities, and two processes of one identity: who joins, who withdraws, and who
// takes over is up to the schedule. A first life leaves, later ones complete.
func joinWorld(w *sim.World) { newJobs(w, 2).joins() }

// joinHandWorld is that world with somebody who deletes parts of the job.
func joinHandWorld(w *sim.World) {
	k := newJobs(w, 2)
	k.joins()
	k.hand()
}

func (k *jobs) joins() {
	for _, c := range []struct {
		name, identity string
		takeover       worker.Takeover
	}{
		{"a1", "a", worker.TakeoverWait}, {"a2", "a", worker.TakeoverFail}, {"b", "b", worker.TakeoverWait},
		{"c", "c", worker.TakeoverWait},
	} {
		k.Process("p-"+c.name, 1, func(p *sim.Process) error {
			takeover := c.takeover
			if p.Life() > 0 { // a life before may still hold what nobody else would take back
				takeover = worker.TakeoverWait
			}
			m, err := k.join(p, worker.Config{Identity: c.identity, Takeover: takeover})
			if err != nil {
				return endsWell(err)
			}
			if p.Life() == 0 {
				return endsWell(m.leave())
			}
			return endsWell(m.complete())
		})
	}
	k.AtEnd(k.book.noneTooMany)
}

// lateWorld has one place for three identities, which join at the same time. Those that come too late withdraw, also
// if they have died before.
func lateWorld(w *sim.World) {
	k := newJobs(w, 1)
	for _, identity := range []string{"a", "b", "c"} {
		w.Process("p-"+identity, 2, func(p *sim.Process) error {
			m, err := k.join(p, worker.Config{Identity: identity})
			if err == nil {
				k.sleep(p, time.Minute)
				err = m.leave()
			}
			return endsWell(err)
		})
	}
	k.hand()
	w.AtEnd(k.book.noneTooMany)
}

// twinsWorld has processes that are the same worker by turns, take another session, and leave soon or complete. So one
// that has lost its session finds that another was there meanwhile, and has left again.
func twinsWorld(w *sim.World) {
	k := newJobs(w, 2)
	for _, name := range []string{"a1", "a2", "a3"} {
		w.Process("p-"+name, 1, func(p *sim.Process) error {
			for _, end := range []func(*member) error{(*member).leave, (*member).complete} {
				m, err := k.join(p, worker.Config{Identity: "a"})
				if err == nil {
					err = m.rejoin()
				}
				if err == nil {
					err = end(m)
				}
				if err = endsWell(err); err != nil {
					return err
				}
			}
			return nil
		})
	}
	w.Process("p-b", 0, func(p *sim.Process) error { // the job is not stale while b is live
		m, err := k.join(p, worker.Config{Identity: "b"})
		if err == nil {
			k.sleep(p, time.Minute)
			err = m.complete()
		}
		return endsWell(err)
	})
	k.hand()
}

// noneTooMany checks that everybody who came too late has withdrawn.
func (b *book) noneTooMany() error {
	if b.record == nil {
		return nil
	}
	for id, identity := range b.run(b.record.Generation).ids {
		if id >= b.job.Workers {
			return fmt.Errorf("%s still has id %d of %d", identity, id, b.job.Workers)
		}
	}
	return nil
}

// runWorld has two runs of the same two workers. A generation belongs to the run whose worker is the first. All
// complete, and what is left is a job that is ready.
func runWorld(w *sim.World) {
	k := newJobs(w, 2, func(j *job.Job) { j.Timeouts.Join = resource.Duration(20 * time.Minute) })
	completed := map[string]int{}
	for _, run := range []string{"r1", "r2"} {
		for _, identity := range []string{"a", "b"} {
			w.Process("p-"+identity+"-"+run, 2, func(p *sim.Process) error {
				err := k.completeRun(p, worker.Config{Identity: identity, Run: run})
				if err == nil {
					p.Saw(func() { completed[run]++ })
				}
				return err
			})
		}
	}
	w.AtEnd(func() error {
		if completed["r1"] != 2 || completed["r2"] != 2 {
			return fmt.Errorf("not all have completed: %v", completed)
		}
		return k.book.isReady(2)
	})
}

// completeRun is a worker that a platform starts again until it has completed. One that completed and got no answer is
// told that it is fenced if it comes back after another run: only the last run is remembered.
func (k *jobs) completeRun(p *sim.Process, c worker.Config) error {
	m, err := k.join(p, c)
	if err == nil {
		err = m.complete()
	}
	late := false
	if errors.Is(err, worker.ErrFenced) {
		p.Saw(func() {
			last := job.LastRun(k.book.record)
			late = k.book.run(m.life.g).completed[m.Identity] && last != nil && last.Generation != m.life.g
		})
	}
	if errors.Is(err, worker.ErrCompleted) || errors.Is(err, worker.ErrDone) || late {
		return nil
	}
	return err
}

// isReady checks that so many runs have completed, and that the job is ready for the next: the last worker has reset
// it, or had to leave that to whoever comes next.
func (b *book) isReady(runs int) error {
	complete := map[string]bool{}
	for _, r := range b.runs {
		complete[r.name] = complete[r.name] || len(r.completed) == b.job.Workers
	}
	completed := 0
	for name, all := range complete {
		if all {
			completed++
		} else if name != "" {
			return fmt.Errorf("not all of run %s have completed", name)
		}
	}
	if completed != runs || b.record == nil {
		return fmt.Errorf("%d runs have completed, %d were expected", completed, runs)
	}
	r := b.run(b.record.Generation)
	if len(r.completed) > 0 { // not reset yet, or one came back after another run: only the last is remembered
		runs--
	} else if len(r.ids) > 0 {
		return fmt.Errorf("%d have joined the job that was reset", len(r.ids))
	}
	last := job.LastRun(b.record)
	switch {
	case !r.open || len(b.live) > 0 || b.record.State != resource.StateOpen:
		return fmt.Errorf("the job is not ready: gate %t, %d live", r.open, len(b.live))
	case runs > 0 && (last == nil || len(b.run(last.Generation).completed) != b.job.Workers):
		return fmt.Errorf("the last run is %v", last)
	}
	return nil
}
