package groups

import (
	"context"
	"fmt"
	"time"

	"muster/member"
	"muster/member/ticks"
	"muster/resource/group"
	"muster/sim"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// running is what the holders of a cron have run.
type running struct {
	*shop
	runs  int
	ahead time.Duration // the clock of b
}

// newRunning is a world in which two members run the ticks of a cron, and what an operator asks for, while he moves the
// duty, pauses it and resumes it.
func newRunning(w *sim.World, policy func(*group.Duty)) *running {
	d := cron("c", "@every 1m")
	d.Keep = 2
	policy(&d)
	r := &running{shop: newShop(w, d)}
	for _, id := range []string{"a", "b"} {
		c := config(id, "1.0", "c")
		if id == "b" {
			c.Clock = func() time.Time { return time.Now().Add(r.ahead) }
		}
		w.Process(id, 1, func(p *sim.Process) error {
			return r.member(p, c, func(ctx context.Context, m *member.Member) error {
				return m.RunTicks(ctx, "c", func(ctx context.Context, a member.Run) member.Ended { return r.run(ctx, p, a) })
			})
		})
	}
	r.operator(func(p *sim.Process, c *zkconn.Session) error {
		if p.Life() > 0 { // the last life may have paused it
			if err := ask(p, c, znode.Ask{Do: znode.AskResume, Duty: "c"}); err != nil {
				return err
			}
		}
		if err := await(p, func() bool { return r.runs > 0 }); err != nil {
			return err
		}
		if err := askRun(p, c, "c"); err != nil {
			return err
		}
		wanted := 0
		p.Saw(func() { wanted = len(r.requests()) })
		for _, do := range []znode.AskKind{znode.AskHandover, znode.AskPause, znode.AskResume} {
			if err := ask(p, c, znode.Ask{Do: do, Duty: "c"}); err != nil {
				return err
			}
		}
		before := 0
		p.Saw(func() { before = r.runs })
		return await(p, func() bool { return r.runs > before+1 && r.requestsOver() >= wanted })
	})
	return r
}

// run takes a while, now and then longer than to the next tick. The second one fails, and the fourth cannot be run. Its
// attempt is recorded before it begins.
func (r *running) run(ctx context.Context, p *sim.Process, a member.Run) member.Ended {
	at, n, recorded := znode.Tick(root, "g1", a.Duty, a.Tick), 0, false
	if a.Asked != 0 {
		at = znode.Now(root, "g1", a.Duty, a.Asked)
	}
	p.Saw(func() {
		r.runs++
		n, recorded = r.runs, r.book.book(placeOf(at)).began[attempt(at, a.Attempt)]
	})
	if !recorded {
		p.Fail(fmt.Errorf("attempt %d of %s begins, and is not recorded", a.Attempt, at))
	}
	takes := 10 * time.Second
	if n%3 == 1 {
		takes = 130 * time.Second
	}
	select {
	case <-time.After(takes):
	case <-ctx.Done():
	}
	switch n {
	case 2:
		return member.Ended{Result: ticks.Unsuccessful, Exit: 1}
	case 4:
		return member.Ended{Result: ticks.CannotRun, Exit: 127}
	}
	return member.Ended{Result: ticks.Succeeded}
}

// requests are the paths of the runs that were ever asked for.
func (s *shop) requests() (paths []string) {
	for _, d := range s.duties {
		for path := range d.claimed {
			if placeOf(path).is("duty", "*", "now", "*") {
				paths = append(paths, path)
			}
		}
	}
	return paths
}

// requestsOver is how many of these are over.
func (s *shop) requestsOver() (n int) {
	for _, path := range s.requests() {
		if s.duties[placeOf(path).duty()].over[path] {
			n++
		}
	}
	return n
}

// askRun asks for a run. While somebody has deleted the gate by hand it tries again.
func askRun(p *sim.Process, c *zkconn.Session, duty string) error {
	return whileShut(func() error {
		_, err := member.AskRun(p.Context(), c, root, name, duty, "ann@deploy-1")
		return err
	})
}

func cronAgain(w *sim.World) { newRunning(w, func(*group.Duty) {}) }

// cronOnce is the same for a cron whose runs are not repeated when they are lost, and whose ticks wait.
func cronOnce(w *sim.World) {
	newRunning(w, func(d *group.Duty) {
		d.Lost, d.Overlap, d.Missed = group.LostSkip, group.OverlapWait, group.MissedAll
	})
}

// wrongClock is the same, and one member has a clock that is wrong: the other one does all.
func wrongClock(w *sim.World) { newRunning(w, func(*group.Duty) {}).ahead = 2 * time.Minute }

// pausing is a world in which a cron is paused and resumed again and again, just when its run ends and ticks have
// fallen due: at once, so that its holder may not notice, or with the pause before. What fell due until then is
// forgotten.
// The clock of the holder is ahead of ZooKeeper's.
func pausing(ahead time.Duration) func(w *sim.World) {
	return func(w *sim.World) {
		s := newShop(w, cron("c", "@every 10s"))
		const takes = 12 * time.Second
		runs, ends := 0, time.Time{}
		w.Process("keeper", 0, func(p *sim.Process) error {
			return s.member(p, config("keeper", "1.0"), func(ctx context.Context, m *member.Member) error {
				<-ctx.Done()
				return nil
			})
		})
		w.Process("holder", 0, func(p *sim.Process) error {
			c := config("holder", "1.0", "c")
			c.Clock = func() time.Time { return time.Now().Add(ahead) }
			return s.member(p, c, func(ctx context.Context, m *member.Member) error {
				return m.RunTicks(ctx, "c", func(context.Context, member.Run) member.Ended {
					p.Saw(func() { runs++; ends = time.Now().Add(takes) })
					<-time.After(takes)
					return member.Ended{Result: ticks.Succeeded}
				})
			})
		})
		s.operator(func(p *sim.Process, c *zkconn.Session) error {
			for round := range 4 {
				before, end := 0, time.Time{}
				p.Saw(func() { before = runs })
				if err := await(p, func() bool { end = ends; return runs > before }); err != nil {
					return err
				}
				for i, do := range []znode.AskKind{znode.AskPause, znode.AskResume} {
					if i == round%2 {
						<-time.After(time.Until(end))
					}
					if err := ask(p, c, znode.Ask{Do: do, Duty: "c"}); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
}

// cronEvicted is a world in which runs that were asked for follow each other at once, and somebody deletes their
// holders.
func cronEvicted(w *sim.World) {
	s := newShop(w, cron("c", "@every 1m"))
	for _, id := range []string{"a", "b"} {
		w.Process(id, 0, func(p *sim.Process) error {
			return s.member(p, config(id, "1.0", "c"), func(ctx context.Context, m *member.Member) error {
				return m.RunTicks(ctx, "c", func(context.Context, member.Run) member.Ended {
					return member.Ended{Result: ticks.Succeeded}
				})
			})
		})
	}
	s.operator(func(p *sim.Process, c *zkconn.Session) error {
		for range 2 {
			if err := askRun(p, c, "c"); err != nil {
				return err
			}
		}
		return await(p, func() bool { return s.requestsOver() == len(s.requests()) })
	})
	s.evictor("c")
}
