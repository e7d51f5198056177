package queues_test

import (
	"errors"
	"fmt"
	"time"

	"muster/plan"
	"muster/resource"
	"muster/resource/queue"
	"muster/sim"
	"muster/tasks"
	"muster/tasks/store/storemodel"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// declareWorld: somebody asks the processes of a queue to stop, and opens it again; or deletes it, and makes it anew.
func declareWorld(w *sim.World) {
	k := newShop(w)
	k.crew()
	for i, id := range []string{"b1", "b2"} {
		w.Process(fmt.Sprint("s", i), 1, func(p *sim.Process) error {
			wait(p.Context(), time.Duration(i)*4*time.Second)
			return k.submitAndForget(p, id)
		})
	}
	k.apply("admin", 6, time.Second, func(p *sim.Process, store *zkstate.Store, round int) error {
		return k.applyOnce(p, store, round%2 == 0)
	})
}

// apply adds a process that does something to the declaration, several times with a pause in between. Then it sees to
// it that the queue is there and open, until the others have ended.
func (k *shop) apply(
	name string, rounds int, pause time.Duration, once func(p *sim.Process, store *zkstate.Store, round int) error,
) {
	round := 0
	k.w.Service(name, 1, func(p *sim.Process) error {
		for p.Context().Err() == nil {
			s, err := p.Dial(sessionTimeout)
			if err != nil {
				return err
			}
			store, err := k.admin(s, access(p))
			switch {
			case err != nil:
			case round < rounds:
				err = once(p, store, round)
			default:
				err = k.open(p, store)
			}
			s.Close()
			if err != nil {
				return err
			}
			p.Saw(func() { round++ })
			if wait(p.Context(), pause); round > rounds {
				wait(p.Context(), 10*time.Second)
			}
		}
		return p.Context().Err()
	})
}

// open creates the queue if it is gone, and opens it if it was asked to stop.
func (k *shop) open(p *sim.Process, store *zkstate.Store) error {
	o, err := store.Find(p.Context(), k.queue.Path())
	row := plan.Row{Path: k.queue.Path(), Old: o, New: k.queue, Reason: plan.TerminatedKept}
	switch {
	case err != nil:
		return err
	case o == nil:
		row.Reason = plan.NotThere
	case o.Record == nil || o.Record.State != resource.StateTerminating:
		return nil
	}
	return moved(store.Commit(p.Context(), row))
}

// applyOnce deletes the queue if nobody is live, or asks the processes to stop and then deletes or opens it. A queue
// with batches is not deleted. In the end it is there, and open.
func (k *shop) applyOnce(p *sim.Process, store *zkstate.Store, anew bool) error {
	ctx, at := p.Context(), k.queue.Path()
	o, err := store.Find(ctx, at)
	if err == nil && o != nil && o.Live > 0 {
		err = store.Terminate(ctx, at, 20*time.Second, nil)
	}
	if err := moved(err); err != nil {
		return err
	}
	if o, err = store.Find(ctx, at); err != nil {
		return err
	}
	if o != nil && o.Live == 0 && anew {
		err := store.Commit(ctx, plan.Row{Path: at, Old: o, Reason: plan.Undeclared})
		if err := moved(err); err != nil {
			return err
		}
		if o, err = store.Find(ctx, at); err != nil {
			return err
		}
	}
	row := plan.Row{Path: at, Old: o, New: k.queue, Reason: plan.NotThere}
	if o != nil {
		row.Reason = plan.TerminatedKept
	}
	if o == nil || o.Record != nil && o.Record.State == resource.StateTerminating {
		if err := moved(store.Commit(ctx, row)); err != nil {
			return err
		}
	}
	_, err = store.Collect(ctx, []string{root})
	return moved(err)
}

// moved forgets that somebody was faster, or that processes do not leave.
func moved(err error) error {
	return sim.Unless(err, plan.ErrMoved, plan.ErrAlreadyDone, plan.ErrUnknown, zkstate.ErrStillLive, zkstate.ErrOutside)
}

// submitAndForget submits a batch, and waits until it has ended. How it has is forgotten with its generation.
func (k *shop) submitAndForget(p *sim.Process, id string) error {
	s, err := p.Dial(sessionTimeout)
	if err != nil {
		return err
	}
	defer s.Close()
	out, err := k.submit(p, s, tasks.SubmitConfig{ID: id}, k.payloads(id, 1))
	if err != nil || out.Ended != nil {
		return err
	}
	for ended := false; !ended && p.Context().Err() == nil; {
		wait(p.Context(), time.Second)
		p.Saw(func() { ended = k.book.batches[out.Manifest.Life].ended > 0 })
	}
	return p.Context().Err()
}

// goneWorld: a queue without executors is deleted and made anew, or replaced, while batches are submitted, changed and
// cancelled. What is left of it is removed at once.
func goneWorld(w *sim.World) {
	k := newShop(w)
	for i, id := range []string{"b1", "b2"} {
		k.submitAndCancel(fmt.Sprint("s", i), id)
	}
	k.change("o1", "b1")
	k.apply("admin", 5, 300*time.Millisecond, func(p *sim.Process, store *zkstate.Store, round int) error {
		err := k.replace(p, store, round%2 == 0)
		if err == nil {
			_, err = store.Collect(p.Context(), []string{root})
		}
		return moved(err)
	})
	w.AtEnd(k.nothingIsLeft)
}

// anewWorld: a queue without batches is deleted and made anew while processes join and submit. Its record then has the
// same version as before, and what is left of it is still there.
func anewWorld(w *sim.World) {
	k := newShop(w)
	for _, name := range []string{"e1", "e2"} {
		rounds := 0
		w.Process(name, 1, func(p *sim.Process) error {
			for rounds < 3 {
				q, err := k.join(p, queue.Executor)
				if err != nil {
					return err
				}
				_ = k.leave(p, q, nil)
				p.Saw(func() { rounds++ })
			}
			return nil
		})
	}
	k.submitAndCancel("s1", "b1")
	k.apply("admin", 4, 100*time.Millisecond, func(p *sim.Process, store *zkstate.Store, _ int) error {
		return k.replace(p, store, true)
	})
}

// submitAndCancel adds a process that submits a batch, and cancels it. Nobody executes it.
func (k *shop) submitAndCancel(name, id string) {
	k.w.Process(name, 1, sim.InSession(sessionTimeout, func(p *sim.Process, s *zkconn.Session) error {
		_, err := k.submit(p, s, tasks.SubmitConfig{ID: id}, k.payloads(id, 1))
		if err != nil && !errors.Is(err, tasks.ErrCancelled) {
			return err
		}
		o, err := k.operator(p, s)
		if err != nil {
			wait(p.Context(), time.Second) // until the queue is there
			return again(err)
		}
		defer o.Close()
		return withoutBatch(o.Cancel(p.Context(), id))
	}))
}

// change adds an operator who looks a few times for a batch, gives it a weight, pauses it, and cancels it.
func (k *shop) change(name, id string) {
	tries := 0
	k.w.Process(name, 1, k.operate(func(p *sim.Process, _ *zkconn.Session, o *tasks.Operator) error {
		_, err := o.Manifest(p.Context(), id)
		if errors.Is(err, tasks.ErrNoBatch) && tries < 10 {
			p.Saw(func() { tries++ })
			wait(p.Context(), 100*time.Millisecond)
			return tasks.ErrRemoved // look again, also for another generation
		}
		if err == nil {
			err = o.SetWeight(p.Context(), id, 7)
		}
		if err == nil {
			_, err = o.Pause(p.Context(), id)
		}
		if err == nil || errors.Is(err, tasks.ErrSubmitting) {
			err = o.Cancel(p.Context(), id)
		}
		return withoutBatch(err)
	}))
}

// withoutBatch forgets that a batch is gone, or was changed by others.
func withoutBatch(err error) error {
	return sim.Unless(err, tasks.ErrNoBatch, tasks.ErrLost, tasks.ErrCancelled)
}

// replace deletes a queue that nobody is in, and creates it; or gives it a new generation with another Redis.
func (k *shop) replace(p *sim.Process, store *zkstate.Store, anew bool) error {
	o, err := store.Find(p.Context(), k.queue.Path())
	if err != nil || o != nil && o.Live > 0 {
		return err
	}
	switch {
	case o != nil && anew:
		err = store.Commit(p.Context(), plan.Row{Path: k.queue.Path(), Old: o, Reason: plan.Undeclared})
		if err != nil {
			return moved(err)
		}
		fallthrough
	case o == nil:
		return moved(store.Commit(p.Context(), plan.Row{Path: k.queue.Path(), New: k.queue, Reason: plan.NotThere}))
	}
	next := k.queue
	next.Redis = fmt.Sprintf("redis://192.0.2.%d:6379/0", 3+p.Life()+int(o.RecordVersion))
	return moved(store.Commit(p.Context(), plan.Row{Path: k.queue.Path(), Old: o, New: next, Reason: plan.ReadyDiffers}))
}

// nothingIsLeft demands that the Redis has no batch of a generation of which ZooKeeper has nothing.
func (k *shop) nothingIsLeft() (err error) {
	for _, one := range k.book.batches {
		if _, _, there := k.w.Server().Get(znode.Run(root, one.g)); there {
			continue
		}
		k.redis.Look(one.g, func(q *storemodel.Queue) {
			if len(q.Batches) > 0 {
				err = fmt.Errorf("redis has batch %s of a generation that is gone", one.id)
			}
		})
	}
	return err
}
