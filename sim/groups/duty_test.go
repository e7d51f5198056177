package groups

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/member"
	"muster/resource"
	"muster/sim"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// leadByHand is the same, and somebody deletes what holds it together.
func leadByHand(w *sim.World) {
	s := newLead(w)
	s.byHand("d")
}

// leading is what the members of this world have seen.
type leading struct {
	*shop
	newest int64 // epoch
	leads  map[string]int
	wrong  error
}

// newLead is a world in which two members lead a duty by turns, as an operator asks, and one of them resigns. Each
// holder has an epoch of its own, larger than those before.
func newLead(w *sim.World) *leading {
	l := &leading{shop: newShop(w, leader("d")), leads: map[string]int{}}
	for i, id := range []string{"a", "b"} {
		c := config(id, fmt.Sprintf("%d.0", i+1), "d")
		w.Process(id, 1, func(p *sim.Process) error {
			return l.member(p, c, func(ctx context.Context, m *member.Member) error {
				go l.watch(p, m)
				return m.Lead(ctx, "d", func(ctx context.Context, h *member.Hold) error { return l.lead(ctx, p, h) })
			})
		})
	}
	w.Service("follower", 0, l.follow)
	l.operator(func(p *sim.Process, c *zkconn.Session) error {
		if p.Life() > 0 { // the last life may have paused it
			if err := ask(p, c, znode.Ask{Do: znode.AskResume, Duty: "d"}); err != nil {
				return err
			}
		}
		before := 0
		for _, do := range []znode.AskKind{znode.AskHandover, znode.AskPause, znode.AskResume} {
			wanted := func() bool {
				before = l.leads["a"] + l.leads["b"]
				return (len(l.held) == 0) == (do == znode.AskResume)
			}
			if err := await(p, wanted); err != nil {
				return err
			}
			if err := ask(p, c, znode.Ask{Do: do, Duty: "d"}); err != nil {
				return err
			}
		}
		return await(p, func() bool { return l.leads["a"]+l.leads["b"] > before })
	})
	w.Check(func() error { return l.wrong })
	return l
}

// lead checks that it holds the duty, until told to stop and twice more after that. The second time b resigns.
func (l *leading) lead(ctx context.Context, p *sim.Process, h *member.Hold) error {
	resign := false
	p.Saw(func() {
		if l.takes[h.Epoch] != "d" {
			l.wrong = fmt.Errorf("%s: epoch %d is that of no take", p, h.Epoch)
		}
	})
	for more := 2; more > 0; {
		if err := h.Check(h.Context()); err != nil {
			return err
		}
		p.Saw(func() {
			if l.newest != h.Epoch {
				l.leads[p.Name()]++
				resign = p.Name() == "b" && l.leads["b"] == 1
			}
			l.newest = max(l.newest, h.Epoch)
		})
		if resign {
			return errors.New("it fails the first time")
		}
		select {
		case <-ctx.Done():
			more--
		case <-time.After(time.Minute):
		}
	}
	return nil
}

// watch sees one end of each hold that began, and no other.
func (l *leading) watch(p *sim.Process, m *member.Member) {
	held := int64(0)
	for e := range m.Events(context.Background()) {
		was := held
		switch e.Kind {
		case member.EventTaken:
			held = e.Epoch
			was = 0
		case member.EventReleased, member.EventResigned, member.EventLost:
			held = 0
			was -= e.Epoch
		default:
			continue
		}
		if was != 0 {
			p.Saw(func() { l.wrong = fmt.Errorf("%s: the event %s of epoch %d does not follow", p, e.Kind, e.Epoch) })
		}
	}
}

// follow sees holders with epochs that rise.
func (l *leading) follow(p *sim.Process) error {
	c, err := p.Dial(timeout)
	if err != nil {
		return err
	}
	defer c.Close()
	last := int64(0)
	for leader, err := range member.Follow(p.Context(), c, root, name, "d") {
		if err != nil {
			return err
		}
		p.Saw(func() {
			if e := leader.Epoch; e != 0 && (e < last || l.takes[e] != "d") {
				l.wrong = fmt.Errorf("%s: it sees epoch %d after %d", p, e, last)
			}
		})
		last = max(last, leader.Epoch)
	}
	return nil
}

// leadEvicted is the same, and somebody deletes its holders.
func leadEvicted(w *sim.World) {
	s := newLead(w)
	s.evictor("d")
}

// leadDamaged is the same, and somebody writes to the seats of its holders: then others cannot read them, and the
// assigner is the next one.
func leadDamaged(w *sim.World) {
	s := newLead(w)
	s.intruder("d", func(ctx context.Context, c *zkconn.Session, seat string) error {
		_, err := c.Set(ctx, seat, nil, -1)
		return err
	})
}

// leadSilent is the same, and a member counts as silent long before its session ends: the other one takes the office of
// one that is only slow, which then goes on.
func leadSilent(w *sim.World) {
	s := newLead(w)
	s.group.Timeouts.Session = resource.Duration(time.Second)
}

// leadNeglected is the same, and a third member is given the duty and never takes it. It also decides nothing when its
// seat is the first one.
func leadNeglected(w *sim.World) {
	s := newLead(w)
	s.group.Timeouts.Session = resource.Duration(time.Second)
	w.Process("foreign", 0, func(p *sim.Process) error {
		c, err := p.Dial(timeout)
		if err != nil {
			return err
		}
		defer c.Close()
		over := false
		err = await(p, func() bool { over = s.over; return over || len(s.seats) > 0 }) // then the folders are there
		if err != nil || over {
			return err
		}
		const live, seat = `{"nonce":"n","version":"9.0","can":["d"],"ready":true}`,
			`{"identity":"foreign","nonce":"n","assign":1}`
		_, err = c.Multi(p.Context(), zkconn.CheckOp(znode.Gate(root, "g1"), -1),
			zkconn.CreateOp(znode.Live(root, name, p.Name()), []byte(live), zkconn.Ephemeral, everybody),
			zkconn.CreateOp(znode.NewSeat(root, "g1"), []byte(seat), zkconn.EphemeralSequential, everybody))
		if err != nil && !errors.Is(err, zkconn.ErrNodeExists) {
			return err
		}
		return await(p, func() bool { return s.over })
	})
}
