package jobs_test

import (
	"context"
	"errors"
	"time"

	"muster/sim"
	"muster/worker"
)

// backWorld has a worker that arrives at a late round, leaves, comes back, and begins with an early one. Its first
// arrival counts: so the other worker can release the late round, and raise the floor, at any moment of the second.
// The other one passes the early round too, unless that is round 0.
func backWorld(retry bool, early int) func(*sim.World) {
	return func(w *sim.World) {
		k := newJobs(w, 2)
		w.Process("p-a", 1, func(p *sim.Process) error {
			m, err := k.join(p, worker.Config{Identity: "a"})
			if err == nil {
				err = m.do(func() error { return m.arrive("x", late, retry) })
			}
			if err == nil {
				err = m.leave()
			}
			if err == nil {
				m, err = k.join(p, worker.Config{Identity: "a"})
			}
			for _, round := range []int{early, late} {
				if err == nil {
					err = m.pass("x", &round, false, retry)
				}
			}
			return endsWell(err)
		})
		w.Process("p-b", 1, func(p *sim.Process) error {
			m, err := k.join(p, worker.Config{Identity: "b"})
			if err == nil && early > 0 {
				err = m.pass("x", &early, false, retry)
			}
			if err == nil {
				late := late
				err = m.pass("x", &late, false, retry)
			}
			return endsWell(err)
		})
	}
}

// late is a round that raises the floor beyond the early ones.
const late = 5

// arrive waits at a durable round for a moment.
func (m *member) arrive(name string, round int, retry bool) error {
	ctx, cancel := context.WithTimeout(m.p.Context(), time.Second)
	defer cancel()
	err := m.Barrier(ctx, worker.Barrier{Name: name, Round: &round, Retry: retry, Timeout: barrierTimeout})
	if errors.Is(err, context.DeadlineExceeded) && m.Context().Err() == nil || errors.As(err, new(*worker.AbortedError)) {
		return nil
	}
	return err
}
