package jobs_test

import (
	"errors"
	"time"

	"muster/sim"
	"muster/worker"
	"muster/zkstate/zkconn"
)

// takenWorld has two processes of one worker, a1 and a2, that take it from each other: each deletes the live znode by
// hand, joins, and passes rounds. So one is fenced while it has a session, whatever request it has on its way. n is how
// many workers the job has. The second, if there is one, comes to the barrier only if meets.
func takenWorld(n int, meets, live, retry bool) func(*sim.World) {
	return func(w *sim.World) {
		k := newJobs(w, n)
		names, rounds := []string{"a1", "a2"}, barrierRounds
		switch {
		case n == 1: // takes no time
			rounds += 2
		case meets:
			names = append(names, "b")
		default: // waits, and is told of an abort
			rounds = 2
		}
		for _, name := range names {
			w.Process("p-"+name, 1, func(p *sim.Process) error {
				for range 2 {
					m, err := k.take(p, name[:1])
					for round := 0; round < rounds && err == nil; round++ {
						err = m.pass("x", &round, live, retry)
					}
					if err == nil {
						err = m.leave()
					}
					if err = endsWell(err); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
}

// take joins as an identity, whoever has it.
func (k *jobs) take(p *sim.Process, identity string) (*member, error) {
	for {
		err := k.withSession(p, func(s *zkconn.Session) error {
			err := s.Delete(p.Context(), k.live(identity), -1)
			if errors.Is(err, zkconn.ErrNoNode) {
				return nil
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		m, err := k.join(p, worker.Config{Identity: identity, Takeover: worker.TakeoverFail})
		if !errors.Is(err, worker.ErrHeld) {
			return m, err
		}
		k.sleep(p, time.Second)
	}
}
