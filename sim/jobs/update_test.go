package jobs_test

import (
	"errors"
	"fmt"
	"time"

	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/sim"
	"muster/worker"
	"muster/zkstate/zkconn"
)

// updateWorld has a worker that completes, which is the end of the run, and two people who update the job meanwhile.
// Each counts its update in a timeout. They also want the job to be retained, unless it is reset.
func updateWorld(atEnd job.OnComplete) func(*sim.World) {
	return func(w *sim.World) {
		k := newJobs(w, 1, func(j *job.Job) { j.Lifecycle.OnComplete = atEnd })
		w.Process("p-a", 1, func(p *sim.Process) error {
			m, err := k.join(p, worker.Config{Identity: "a"})
			if err == nil {
				err = m.complete()
			}
			return endsWell(err)
		})
		for _, name := range []string{"ann", "bob"} {
			w.Process(name, 0, func(p *sim.Process) error {
				return k.withSession(p, func(s *zkconn.Session) error {
					for range 2 {
						if err := k.update(p, s); err != nil {
							return err
						}
					}
					return nil
				})
			})
		}
	}
}

// update counts one more update. It does nothing if something else happens to the job at the same time.
func (k *jobs) update(p *sim.Process, s *zkconn.Session) error {
	store, err := k.store(s)
	if err != nil {
		return err
	}
	old, err := store.Find(p.Context(), k.book.job.Path())
	if err != nil || old == nil || old.Record == nil {
		return err
	}
	j := job.Of(old.Record)
	if j.Timeouts.Join += resource.Duration(time.Second); j.Lifecycle.OnComplete == job.Remove {
		j.Lifecycle.OnComplete = job.Retain
	}
	err = store.Commit(p.Context(), plan.Row{Path: j.Path(), Old: old, New: j, Reason: plan.MutableDiffers})
	if errors.Is(err, plan.ErrMoved) || errors.Is(err, plan.ErrAlreadyDone) || errors.Is(err, plan.ErrUnknown) {
		return nil
	}
	return err
}

// applyUpdate checks that no update is lost, and that the last worker does what the job says.
func (b *book) applyUpdate(s step, old, now *resource.Record) error {
	if old == nil {
		return nil
	}
	if now == nil {
		if what := job.Of(old).Lifecycle.OnComplete; s.who != nil && what != job.Remove {
			return fmt.Errorf("it deletes the job, which says %s", what)
		}
		return nil
	}
	updates := time.Duration(job.Of(now).Timeouts.Join - job.Of(old).Timeouts.Join)
	if s.who != nil && updates != 0 || updates < 0 || updates > time.Second {
		return fmt.Errorf("an update is lost: the join timeout changes by %s", updates)
	}
	return nil
}
