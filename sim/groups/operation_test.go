package groups

import (
	"context"
	"errors"
	"fmt"

	"muster/member"
	"muster/sim"
	"muster/zkstate/zkconn"
)

// operating is what was done in a world of operations.
type operating struct {
	*shop
	done   map[string]bool // steps of which Finish has said that they are recorded, by id and name
	closed int
	wrong  error
}

// newOperating is a world in which holders of a duty, one after the other, run an operation in steps, and close it.
func newOperating(w *sim.World) *operating {
	o := &operating{shop: newShop(w, leader("d")), done: map[string]bool{}}
	for _, id := range []string{"a", "b"} {
		w.Process(id, 1, func(p *sim.Process) error {
			return o.member(p, config(id, "1.0", "d"), leads("d", func(ctx context.Context, h *member.Hold) error {
				if err := o.operate(h.Context(), p, h); err != nil {
					return err
				}
				<-ctx.Done()
				return nil
			}))
		})
	}
	o.operator(func(p *sim.Process, c *zkconn.Session) error {
		if err := await(p, func() bool { return len(o.done) > 0 }); err != nil {
			return err
		}
		return handOver(p, c, "d", func() bool { return o.closed > 0 })
	})
	w.Check(func() error { return o.wrong })
	return o
}

// operate runs the operation, or what is left of it. The first time it gives up before the last step, and after it has
// closed one it aborts another.
func (o *operating) operate(ctx context.Context, p *sim.Process, h *member.Hold) error {
	op, err := h.Open(ctx, "checkpoint", "script", false)
	if err != nil {
		return err
	}
	for i, name := range []string{"copy", "sum", "move"} {
		if i == 2 && !op.Resumed {
			op.Leave()
			return errors.New("it fails the first time")
		}
		if err := o.step(ctx, p, op, name); err != nil {
			return err
		}
	}
	if err := op.Close(ctx); err != nil {
		return err
	}
	p.Saw(func() { o.closed++ })
	if op, err = h.Open(ctx, "other", "script", true); err != nil {
		return err
	}
	op.Leave()
	return h.Abort(ctx, "other")
}

func (o *operating) step(ctx context.Context, p *sim.Process, op *member.Operation, name string) error {
	key := op.ID + " " + name
	before := false // a holder that others have followed since may hear late of what it began
	p.Saw(func() { before = o.done[key] })
	step, err := op.Step(ctx, name, nil)
	if err != nil {
		return err
	}
	p.Saw(func() {
		if before && (!step.Done || string(step.Output) != name) {
			o.wrong = fmt.Errorf("%s: %s was recorded, and is to be done again", p, name)
		}
	})
	if step.Done {
		return nil
	}
	if err := step.Finish(ctx, []byte(name)); err != nil {
		return err
	}
	p.Saw(func() { o.done[key] = true })
	return nil
}

// operationByHand is the same, and somebody deletes what holds it together.
func operationByHand(w *sim.World) {
	o := newOperating(w)
	o.byHand("d")
}

// operationEvicted is the same, and somebody deletes its holders.
func operationEvicted(w *sim.World) {
	o := newOperating(w)
	o.evictor("d")
}
