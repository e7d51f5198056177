package groups

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"muster/member"
	"muster/sim"
	"muster/zkstate/zkconn"
)

// saving is what was saved in a world of shared state.
type saving struct {
	*shop
	puts  int
	ended int // holds in which all was saved
	wrong error
}

// newSaving is a world in which two holders of a duty, one after the other, save values and remove them, and somebody
// reads.
func newSaving(w *sim.World) *saving {
	v := &saving{shop: newShop(w, leader("d"))}
	for _, id := range []string{"a", "b"} {
		w.Process(id, 1, func(p *sim.Process) error {
			return v.member(p, config(id, "1.0", "d"), leads("d", func(ctx context.Context, h *member.Hold) error {
				if err := v.save(ctx, p, h); err != nil {
					return err
				}
				p.Saw(func() { v.ended++ })
				<-ctx.Done()
				return h.Put(h.Context(), "last", []byte(p.Name())) // it goes on for a moment
			}))
		})
	}
	w.Service("reader", 0, v.read)
	v.operator(func(p *sim.Process, c *zkconn.Session) error {
		if err := await(p, func() bool { return v.ended > 0 }); err != nil {
			return err
		}
		before := 0
		p.Saw(func() { before = v.ended })
		return handOver(p, c, "d", func() bool { return v.ended > before })
	})
	w.Check(func() error { return v.wrong })
	return v
}

// save saves values under two keys, and removes one.
func (v *saving) save(ctx context.Context, p *sim.Process, h *member.Hold) error {
	for _, put := range []struct {
		key  string
		size int
	}{{"k", 2}, {"k", 3}, {"other", 5}} {
		n := byte(0)
		p.Saw(func() { v.puts++; n = byte(v.puts) })
		if err := h.Put(ctx, put.key, bytes.Repeat([]byte{n}, put.size)); err != nil {
			return err
		}
	}
	err := h.Remove(ctx, "k")
	if errors.Is(err, member.ErrNoKey) {
		p.Saw(func() { v.wrong = fmt.Errorf("%s: what it has saved is not there", p) })
	}
	return err
}

// read reads a key again and again: each time all of one value.
func (v *saving) read(p *sim.Process) error {
	c, err := v.dial(p)
	if err != nil {
		return err
	}
	defer c.Close()
	for p.Context().Err() == nil {
		value, err := member.ReadState(p.Context(), c, root, "g1", "d", "k")
		switch {
		case errors.Is(err, member.ErrStateDamaged) || err == nil && len(bytes.Trim(value, string(value[:1]))) > 0:
			p.Saw(func() { v.wrong = fmt.Errorf("%s: it reads a part of a value: %d bytes, %v", p, len(value), err) })
		case err != nil && !errors.Is(err, member.ErrNoKey):
			return err
		}
		select {
		case <-time.After(5 * time.Second):
		case <-p.Context().Done():
		}
	}
	return nil
}

// stateByHand is the same, and somebody deletes what holds it together.
func stateByHand(w *sim.World) {
	v := newSaving(w)
	v.byHand("d")
}

// stateEvicted is the same, and somebody deletes its holders.
func stateEvicted(w *sim.World) {
	v := newSaving(w)
	v.evictor("d")
}
