package queues_test

import (
	"fmt"
	"time"

	"muster/sim"
	"muster/tasks"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// workWorld: two executors and a watcher, and a batch that two submitters submit with one id.
func workWorld(w *sim.World) {
	k := newShop(w)
	w.Service("e1", 1, k.executor)
	w.Service("e2", 1, k.executor)
	w.Service("w1", 1, k.watcher)
	for _, submitter := range []string{"s1", "s2"} {
		w.Process(submitter, 1, func(p *sim.Process) error { return k.submitAndWait(p, "b1", 3, 1) })
	}
	w.AtEnd(func() error {
		if all := k.book.lives("b1"); len(all) != 1 || len(all[0].collected) == 0 {
			return fmt.Errorf("b1 had %d lives, or nobody has collected it", len(all))
		}
		return nil
	})
}

// lossWorld: the Redis forgets what came last when it is started again. Who submits looks again and again.
func lossWorld(w *sim.World) {
	k := newShop(w)
	k.loses = true
	k.crew()
	for i, id := range []string{"b1", "b2"} {
		w.Process(fmt.Sprint("s", i), 1, k.operate(func(p *sim.Process, s *zkconn.Session, o *tasks.Operator) error {
			for p.Context().Err() == nil {
				out, err := k.submit(p, s, tasks.SubmitConfig{ID: id}, k.payloads(id, 3, 1))
				switch {
				case err != nil:
					return err
				case out.Ended == nil:
					wait(p.Context(), 20*time.Second)
					continue
				}
				if out.Ended.How != znode.EndCollected {
					return fmt.Errorf("%s has ended as %s", id, out.Ended.How)
				}
				return nil
			}
			return p.Context().Err()
		}))
	}
	w.AtEnd(func() error {
		for _, id := range []string{"b1", "b2"} {
			if all := k.book.lives(id); len(all) != 1 || len(all[0].collected) == 0 {
				return fmt.Errorf("%s had %d lives, or nobody has collected it", id, len(all))
			}
		}
		return nil
	})
}

// submitAndWait submits a batch of n tasks, and waits until it was collected.
func (k *shop) submitAndWait(p *sim.Process, id string, n int, bad ...int) error {
	s, err := p.Dial(sessionTimeout)
	if err != nil {
		return err
	}
	defer s.Close()
	if _, err := k.submit(p, s, tasks.SubmitConfig{ID: id}, k.payloads(id, n, bad...)); err != nil {
		return err
	}
	o, err := k.operator(p, s)
	if err != nil {
		return err
	}
	defer o.Close()
	end, err := k.awaitEnd(p, o, id)
	if err == nil && (end.How != znode.EndCollected || end.Done != int64(n-len(bad)) || end.Dead != int64(len(bad))) {
		err = fmt.Errorf("%s has ended as %s with %d done and %d dead", id, end.How, end.Done, end.Dead)
	}
	return err
}
