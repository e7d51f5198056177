package queues_test

import (
	"fmt"
	"time"

	"muster/sim"
	"muster/tasks"
)

// unattendedWorld: who submits a batch may crash for good, or stop in the middle for long. Nobody serves the queue in
// that hour. Then a watcher comes, which ends the batch if nobody goes on with it, and somebody goes on with it.
func unattendedWorld(w *sim.World) {
	k := newShop(w)
	w.Process("s1", -1, func(p *sim.Process) error { return k.submitLate(p, 0) })
	w.Process("s2", 0, func(p *sim.Process) error { return k.submitLate(p, time.Hour) })
	w.Service("w1", 1, func(p *sim.Process) error {
		wait(p.Context(), time.Hour-10*time.Second)
		if p.Context().Err() != nil {
			return p.Context().Err()
		}
		return k.watcher(p)
	})
	w.AtEnd(func() error {
		for _, one := range k.book.batches {
			if !one.submitted && one.ended == 0 {
				return fmt.Errorf("%s is there, and nobody was told", one.id)
			}
		}
		return nil
	})
}

// submitLate submits b1 after a while.
func (k *shop) submitLate(p *sim.Process, after time.Duration) error {
	if wait(p.Context(), after); p.Context().Err() != nil {
		return p.Context().Err()
	}
	s, err := p.Dial(sessionTimeout)
	if err != nil {
		return err
	}
	defer s.Close()
	_, err = k.submit(p, s, tasks.SubmitConfig{ID: "b1"}, k.payloads("b1", 2))
	return err
}
