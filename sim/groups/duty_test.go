package groups

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/dev/zkmodel"
	"muster/member"
	"muster/member/ticks"
	"muster/resource"
	"muster/resource/group"
	"muster/sim"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

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
	w.Service("follower", 0, sim.InSession(timeout, l.follow))
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
func (l *leading) follow(p *sim.Process, c *zkconn.Session) error {
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

// leadDamaged is newLead, and somebody writes to the seats of its holders: then others cannot read them, and the
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
	w.Process("foreign", 0, sim.InSession(timeout, func(p *sim.Process, c *zkconn.Session) error {
		over := false
		err := await(p, func() bool { over = s.over; return over || len(s.seats) > 0 }) // then the folders are there
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
	}))
}

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
	w.Process("asker", 0, sim.InSession(timeout, s.asks))
	w.Process("other", 0, sim.InSession(timeout, s.asks))
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
	w.Process("asker", 1, sim.InSession(timeout, s.asks))
	w.Process("other", 1, sim.InSession(timeout, s.asks))
	s.vandal("vandal", removes(znode.Gate(root, "g1")), putBackGate)
	w.Process("editor", 0, sim.InSession(timeout, func(p *sim.Process, c *zkconn.Session) error {
		err := s.toggle(p, c, nil, []group.Duty{cron("c", "@every 1m"), leader("d")})
		p.Saw(func() { s.over = err == nil })
		return err
	}))
}

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
	w.Process("asker", 0, sim.InSession(timeout, s.asks))
	w.Process("other", 0, sim.InSession(timeout, s.asks))
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
func (s *shop) asks(p *sim.Process, c *zkconn.Session) error {
	for i := range 4 {
		var err error
		if i%2 == 1 {
			_, err = member.AskRun(p.Context(), c, root, name, "c", "ann@deploy-1")
		} else {
			_, err = member.SendAsk(p.Context(), c, root, name, znode.Ask{Do: znode.AskHandover, Duty: "d", By: "ann"})
		}
		err = sim.Unless(err, member.ErrNotOpen, member.ErrNoGroup, member.ErrNoDuty, member.ErrNoCron)
		if err != nil {
			return err
		}
	}
	return nil
}

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
	w.Service("reader", 0, sim.InSession(timeout, v.read))
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
func (v *saving) read(p *sim.Process, c *zkconn.Session) error {
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
