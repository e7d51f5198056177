package queues_test

import (
	"fmt"
	"time"

	"muster/plan"
	"muster/resource"
	"muster/sim"
	"muster/tasks"
	"muster/zkstate"
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
