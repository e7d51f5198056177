package queues_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/dev/zkmodel"
	"muster/sim"
	"muster/tasks"
	"muster/tasks/store"
	"muster/zkstate/zkconn"
)

// clashWorld: three submit batches of one name, of which one has other tasks. The Redis has dead tasks of an earlier
// batch of the name until somebody drops them. Nobody executes anything.
func clashWorld(w *sim.World) {
	k := newShop(w)
	w.Setup(func(context.Context, *zkconn.Session) error { return k.leaveDead("b1") })
	there := map[string]int{} // how many were told so
	for i, content := range []string{"b1", "b1", "other"} {
		k.submitUnlessDead(fmt.Sprint("s", i), content, func() { there[content]++ })
	}
	w.Process("o1", 0, k.operate(func(p *sim.Process, _ *zkconn.Session, o *tasks.Operator) error {
		_, err := o.DropDead(p.Context(), "b1")
		return err
	}))
	w.AtEnd(func() error {
		if len(there) != 1 || len(k.book.current) != 1 {
			return fmt.Errorf("%v were submitted, and there are %d batches", there, len(k.book.current))
		}
		return nil
	})
}

// deadWorld: two submit a batch. When its manifest is made, the Redis gets dead tasks of an earlier batch of the name,
// of which ZooKeeper knows nothing. They are dropped again.
func deadWorld(w *sim.World) {
	k := newShop(w)
	for _, name := range []string{"s1", "s2"} {
		k.submitUnlessDead(name, "b1", func() {})
	}
	left := false
	w.OnTxn(func(*zkmodel.Txn) (err error) {
		if !left && k.book.current["b1"] != "" {
			left, err = true, k.leaveDead("b1")
		}
		return err
	})
	w.Process("o1", 0, k.operate(func(p *sim.Process, _ *zkconn.Session, o *tasks.Operator) error {
		for i, done := 0, false; !done && p.Context().Err() == nil; i++ {
			if p.Saw(func() { done = left }); !done && i > 30 {
				wait(p.Context(), time.Second)
			}
			if _, err := o.DropDead(p.Context(), "b1"); err != nil {
				return err
			}
		}
		return p.Context().Err()
	}))
	w.AtEnd(func() error {
		if len(k.book.current) != 1 {
			return fmt.Errorf("there are %d batches", len(k.book.current))
		}
		return nil
	})
}

// submitUnlessDead adds a process that submits b1 again and again while the Redis has dead tasks of that name, until it
// is there, or another one is.
func (k *shop) submitUnlessDead(name, content string, there func()) {
	k.w.Process(name, 1, func(p *sim.Process) error {
		s, err := p.Dial(sessionTimeout)
		if err != nil {
			return err
		}
		defer s.Close()
		for i := 0; p.Context().Err() == nil; i++ {
			_, err := k.submit(p, s, tasks.SubmitConfig{ID: "b1"}, k.payloads(content, 2))
			switch {
			case err == nil:
				p.Saw(there)
				return nil
			case errors.Is(err, tasks.ErrOtherBatch):
				return nil
			case !errors.Is(err, store.ErrDead):
				return err
			}
			if i > 10 {
				wait(p.Context(), time.Second)
			}
		}
		return p.Context().Err()
	})
}
