package groups

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/dev/zkmodel"
	"muster/member"
	"muster/resource"
	"muster/resource/group"
	"muster/sim"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// seats is a world of three processes, of which two have one identity: one is live at a time, and has one seat. One of
// them leaves by itself, and the third is ready only after a while.
func seats(w *sim.World) {
	s := newShop(w, leader("d"))
	here := map[string]bool{} // those that were given the duty, or were members for a while
	for i, id := range []string{"a", "twin", "b"} {
		c := config(id, fmt.Sprintf("%d.0", i+1), "d")
		if id == "twin" {
			c.Identity = "a"
		}
		c.NotReady = id == "b"
		w.Process(id, 1, func(p *sim.Process) error {
			return s.member(p, c, func(ctx context.Context, m *member.Member) error {
				if err := m.Ready(ctx); err != nil {
					return err
				}
				h, err := m.Take(ctx, "d")
				if err != nil {
					return err
				}
				p.Saw(func() { here[id] = true })
				return h.Release(m.Context())
			})
		})
	}
	s.operator(func(p *sim.Process, c *zkconn.Session) error {
		return await(p, func() bool { return len(here) == 3 })
	})
	w.OnTxn(s.seatsFit)
}

// seatsFit: each seat has a live member of its own, and each live member a seat.
func (s *shop) seatsFit(t *zkmodel.Txn) error {
	if t.Err != zkmodel.OK {
		return nil
	}
	server := s.World.Server()
	live := server.Children(resource.Join(root, name))
	if len(live) != len(s.seats) {
		return fmt.Errorf("%d are live, and there are %d seats", len(live), len(s.seats))
	}
	for path, at := range s.seats {
		_, stat, there := server.Get(znode.Live(root, name, at.seat.Identity))
		if !there || stat.EphemeralOwner != at.session {
			return fmt.Errorf("the member of %s is not live", path)
		}
	}
	return nil
}

// anew is a world in which the group is deleted when nobody is live, and made anew, while members join and leave and
// operators ask.
func anew(w *sim.World) {
	s := newShop(w, leader("d"), cron("c", "@every 1m"))
	led := false
	for _, id := range []string{"a", "b"} {
		w.Process(id, 1, func(p *sim.Process) error {
			for over := false; !over; {
				err := s.member(p, config(id, "1.0", "d"), leads("d", func(ctx context.Context, h *member.Hold) error {
					p.Saw(func() { led = led || s.record.Generation == "g2" })
					<-ctx.Done()
					return nil
				}))
				if err != nil {
					return err
				}
				p.Saw(func() { over = led })
			}
			return nil
		})
	}
	w.Process("asker", 0, s.asks)
	w.Process("other", 0, s.asks)
	s.operator(func(p *sim.Process, c *zkconn.Session) error {
		if err := s.remake(p, c); err != nil {
			return err
		}
		return await(p, func() bool { return led })
	})
}

// remake deletes the group and makes it anew, as soon as nobody is live. After the first attempt it asks the members to
// stop.
func (s *shop) remake(p *sim.Process, c *zkconn.Session) error {
	at, record := resource.Join(root, name), znode.Record(group.KindName, root, name)
	for attempt := 0; ; attempt++ {
		done := false
		if p.Saw(func() { done = s.record.Generation == "g2" }); done {
			return nil
		}
		_, body := s.declared("g2", resource.StateOpen)
		create := func(path string, body []byte) zkconn.Op {
			return zkconn.CreateOp(path, body, zkconn.Persistent, everybody)
		}
		_, err := c.Multi(p.Context(), zkconn.DeleteOp(at, -1), zkconn.DeleteOp(record, -1),
			zkconn.DeleteOp(znode.Gate(root, "g1"), -1), create(at, nil), create(record, body),
			create(znode.Run(root, "g2"), body), create(znode.Gate(root, "g2"), nil))
		switch {
		case err == nil:
			return nil
		case errors.Is(err, zkconn.ErrNoNode): // what its last life sent came late
			continue
		case !errors.Is(err, zkconn.ErrNotEmpty):
			return err
		case attempt == 0:
			if err := s.write(p.Context(), c, resource.StateTerminating); err != nil {
				return err
			}
		}
		<-time.After(time.Second)
	}
}

// asks sends requests for runs and to the assigner, and does not wait for what comes of them.
func (s *shop) asks(p *sim.Process) error {
	c, err := p.Dial(timeout)
	if err != nil {
		return err
	}
	defer c.Close()
	for i := range 4 {
		if i%2 == 1 {
			_, err = member.AskRun(p.Context(), c, root, name, "c", "ann@deploy-1")
		} else {
			_, err = member.SendAsk(p.Context(), c, root, name, znode.Ask{Do: znode.AskHandover, Duty: "d", By: "ann"})
		}
		switch {
		case err == nil, errors.Is(err, member.ErrNotOpen), errors.Is(err, member.ErrNoGroup):
		case errors.Is(err, member.ErrNoDuty), errors.Is(err, member.ErrNoCron):
		default:
			return err
		}
	}
	return nil
}
