package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/plan"
	"muster/resource"
	"muster/sim"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/zkconn"
)

// terminateWorld has two workers, and somebody who terminates their job and applies it again. A worker that is asked to
// stop leaves; one that is not completes after a while. Whoever is fenced ends.
func terminateWorld(w *sim.World) {
	k := newJobs(w, 2)
	for _, identity := range []string{"a", "b"} {
		w.Process("p-"+identity, 1, func(p *sim.Process) error { return endsWell(k.untilStopped(p, identity)) })
	}
	k.ann()
	w.AtEnd(func() error {
		if k.book.record != nil && k.book.record.State != resource.StateOpen {
			return fmt.Errorf("the request to stop stands")
		}
		return nil
	})
}

// ann terminates the job, and applies it again.
func (k *jobs) ann() {
	k.Process("ann", 1, sim.InSession(sessionTimeout, func(p *sim.Process, s *zkconn.Session) error {
		store, err := k.store(s)
		if err == nil {
			err = store.Terminate(p.Context(), k.book.job.Path(), time.Minute, nil)
		}
		if err != nil && !errors.Is(err, plan.ErrAlreadyDone) {
			return sim.Unless(err, plan.ErrMoved, zkstate.ErrStillLive, zkstate.ErrNotTerminable)
		}
		return sim.Unless(k.create(p.Context(), s), plan.ErrAlreadyDone, plan.ErrMoved)
	}))
}

// untilStopped is a worker whose command takes half a minute, or until it is asked to stop.
func (k *jobs) untilStopped(p *sim.Process, identity string) error {
	m, err := k.join(p, worker.Config{Identity: identity})
	if err != nil {
		return err
	}
	ended := time.Now().Add(30 * time.Second)
	err = m.do(func() error {
		ctx, cancel := context.WithDeadline(p.Context(), ended)
		defer cancel()
		return m.StopRequested(ctx)
	})
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return m.complete()
	case err != nil:
		return err
	}
	p.Saw(func() { err = k.book.sawRequest(m.life) })
	if err != nil {
		return err
	}
	return m.leave()
}

// sawRequest checks that somebody has asked the workers of this generation to stop.
func (b *book) sawRequest(who *life) error {
	if !b.run(who.g).terminated {
		return fmt.Errorf("%s stops, and nobody has asked it to", who.name)
	}
	return nil
}
