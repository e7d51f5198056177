package groups

import (
	"cmp"
	"context"
	"slices"
	"time"

	"muster/member"
	"muster/member/ticks"
	"muster/resource"
	"muster/resource/group"
	"muster/sim"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// declared is a world in which a leader and a cron are taken out of the group and declared again, so that the assigner
// deletes what they have left, while two operators ask for what the group has just then.
func declared(w *sim.World) { newDeclared(w) }

// declaredSilent is the same, and a member counts as silent long before its session ends.
func declaredSilent(w *sim.World) {
	newDeclared(w).group.Timeouts.Session = resource.Duration(time.Second)
}

func newDeclared(w *sim.World) *shop {
	s := newShop(w, leader("d"), cron("c", "@every 1m"))
	saved, ran := 0, 0
	for _, id := range []string{"a", "b"} {
		w.Process(id, 1, func(p *sim.Process) error {
			return s.member(p, config(id, "1.0", "c", "d"), func(ctx context.Context, m *member.Member) error {
				leads, runs := make(chan error, 1), make(chan error, 1)
				go func() {
					leads <- m.Lead(ctx, "d", func(ctx context.Context, h *member.Hold) error {
						if err := h.Put(h.Context(), "k", []byte(p.Name())); err != nil {
							return err
						}
						p.Saw(func() { saved++ })
						<-ctx.Done()
						return nil
					})
				}()
				go func() {
					runs <- m.RunTicks(ctx, "c", func(context.Context, member.Run) member.Ended {
						p.Saw(func() { ran++ })
						return member.Ended{Result: ticks.Succeeded}
					})
				}()
				return cmp.Or(<-leads, <-runs)
			})
		})
	}
	w.Process("asker", 0, s.asks)
	w.Process("other", 0, s.asks)
	s.operator(func(p *sim.Process, c *zkconn.Session) error {
		all, none := slices.Clone(s.group.Duties), []group.Duty(nil)
		if len(all) == 0 { // the last life had taken them out
			all = []group.Duty{cron("c", "@every 1m"), leader("d")}
		}
		if err := s.toggle(p, c, none, all); err != nil {
			return err
		}
		for round := range 2 {
			before := 0
			p.Saw(func() { before = saved })
			for _, duties := range [][]group.Duty{none, all} {
				s.group.Duties = duties
				if err := s.write(p.Context(), c, resource.StateOpen); err != nil {
					return err
				}
				if err := await(p, func() bool { return duties != nil || round > 0 || len(s.held) == 0 }); err != nil {
					return err
				}
			}
			if err := askRun(p, c, "c"); err != nil {
				return err
			}
			if err := await(p, func() bool { return saved > before || round > 0 }); err != nil {
				return err
			}
		}
		return await(p, func() bool { return ran > 0 && s.requestsOver() == len(s.requests()) })
	})
	return s
}

// toggle takes duties out of the group and declares them again, twice.
func (s *shop) toggle(p *sim.Process, c *zkconn.Session, duties ...[]group.Duty) error {
	for range 2 {
		for _, s.group.Duties = range duties {
			if err := s.write(p.Context(), c, resource.StateOpen); err != nil {
				return err
			}
		}
	}
	return nil
}

// asked is a world without members: two ask for what the group declares, while that changes and the gate is deleted by
// hand.
func asked(w *sim.World) {
	s := newShop(w, leader("d"), cron("c", "@every 1m"))
	w.Process("asker", 1, s.asks)
	w.Process("other", 1, s.asks)
	s.vandal("vandal", removes(znode.Gate(root, "g1")), putBackGate)
	w.Process("editor", 0, func(p *sim.Process) error {
		c, err := p.Dial(timeout)
		if err != nil {
			return err
		}
		defer c.Close()
		err = s.toggle(p, c, nil, []group.Duty{cron("c", "@every 1m"), leader("d")})
		p.Saw(func() { s.over = err == nil })
		return err
	})
}
