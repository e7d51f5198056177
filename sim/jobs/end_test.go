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
	"muster/zkstate/znode"
)

// terminateWorld has two workers, and somebody who terminates their job and applies it again. A worker that is asked to
// stop leaves; one that is not completes after a while. Whoever is fenced ends.
func terminateWorld(w *sim.World) {
	k := newJobs(w, 2)
	for _, identity := range []string{"a", "b"} {
		w.Process(identity, 1, func(p *sim.Process) error { return endsWell(k.untilStopped(p, identity)) })
	}
	w.Process("ann", 1, func(p *sim.Process) error {
		s, err := p.Dial(sessionTimeout)
		if err != nil {
			return err
		}
		defer s.Close()
		store, err := k.store(s)
		if err == nil {
			err = store.Terminate(p.Context(), k.book.job.Path(), time.Minute, nil)
		}
		switch {
		case errors.Is(err, plan.ErrMoved), errors.Is(err, zkstate.ErrStillLive), errors.Is(err, zkstate.ErrNotTerminable):
			return nil
		case err != nil && !errors.Is(err, plan.ErrAlreadyDone):
			return err
		}
		if err = k.create(p.Context(), s); errors.Is(err, plan.ErrAlreadyDone) || errors.Is(err, plan.ErrMoved) {
			return nil
		}
		return err
	})
	w.AtEnd(func() error {
		if k.book.record != nil && k.book.record.State != resource.StateOpen {
			return fmt.Errorf("the request to stop stands")
		}
		return nil
	})
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

// handWorld is a barrier world, live or not, in which somebody deletes a live znode and the gate by hand, and puts the
// gate back. Nobody writes anything while it is gone.
func handWorld(live bool) func(*sim.World) {
	return func(w *sim.World) {
		k := newJobs(w, 2)
		for _, identity := range []string{"a", "b"} {
			w.Process(identity, 1, func(p *sim.Process) error {
				m, err := k.join(p, worker.Config{Identity: identity})
				if err != nil {
					return endsWell(err)
				}
				for round := range barrierRounds {
					if err := m.pass("x", &round, live, true); err != nil {
						return endsWell(err)
					}
				}
				return endsWell(m.complete())
			})
		}
		w.Process("hand", 0, func(p *sim.Process) error { return k.spoil(p) })
	}
}

// spoil deletes the live znode of a, and the gate for a while.
func (k *jobs) spoil(p *sim.Process) error {
	s, err := p.Dial(time.Hour)
	if err != nil {
		return err
	}
	defer s.Close()
	ctx, j := p.Context(), k.book.job
	_ = s.Delete(ctx, znode.Live(j.Root, j.Name, "a"), -1)
	var g string
	p.Saw(func() {
		if k.book.record != nil {
			g = k.book.record.Generation
		}
	})
	if g == "" {
		return nil
	}
	if p.Life() == 0 {
		_ = s.Delete(ctx, znode.Gate(j.Root, g), -1)
	}
	_, err = s.Create(ctx, znode.Gate(j.Root, g), nil, zkconn.Persistent, zkconn.World(zkconn.PermAll))
	if errors.Is(err, zkconn.ErrNodeExists) || errors.Is(err, zkconn.ErrNoNode) {
		return nil
	}
	return err
}
