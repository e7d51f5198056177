// Package groups has worlds of a group's members: seats, duties, runs and shared state. It has no code of its own.
package groups

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/member"
	"muster/resource"
	"muster/resource/group"
	"muster/sim"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

const (
	root = "/apps"
	name = "shop"
	// timeout is that of every session. Members ask five times in each, so a long one costs fewer messages.
	timeout = 30 * time.Second
)

// shop is the group of one schedule.
type shop struct {
	*sim.World
	group group.Group // as the operator declares it
	over  bool        // the operator has done all and asks the members to stop
	*book
}

// newShop declares a group with these duties, which settles at once.
func newShop(w *sim.World, duties ...group.Duty) *shop {
	s := &shop{World: w, group: group.Default()}
	s.group.Root, s.group.Name, s.group.Settle = root, name, resource.Duration(time.Millisecond)
	s.group.Timeouts.Join = resource.Duration(10 * time.Minute)
	for _, d := range duties {
		s.group.Add(d)
	}
	s.book = newBook(w)
	w.Setup(func(ctx context.Context, c *zkconn.Session) error {
		acl, record := s.declared("g1", resource.StateOpen)
		run := znode.Run(root, "g1")
		create := func(path string, body []byte) zkconn.Op { return zkconn.CreateOp(path, body, zkconn.Persistent, acl) }
		_, err := c.Multi(ctx,
			create(root, nil), create(resource.Join(root, name), nil), create(resource.Join(root, resource.Reserved), nil),
			create(znode.RecordDir(group.KindName, root), nil), create(znode.RunDir(root), nil),
			create(znode.Record(group.KindName, root, name), record),
			create(run, record), create(znode.Gate(root, "g1"), nil))
		return err
	})
	return s
}

// everybody is an ACL that allows everything.
var everybody = []zkconn.ACL{{Scheme: "world", ID: "anyone", Perms: 31}}

// declared is the Record of the group as it is declared now.
func (s *shop) declared(g string, state resource.State) (acl []zkconn.ACL, body []byte) {
	r := resource.Record{
		Stack: "sim", Home: "/.muster", Generation: g, State: state, By: "ann@deploy-1", Op: "op",
		Applied: "2026-11-20T21:00:00Z",
	}
	if err := r.Declare(s.group); err != nil {
		panic(err) // a group always encodes
	}
	body, err := znode.EncodeRecord(r)
	if err != nil {
		panic(err) // and so does its Record
	}
	return everybody, body
}

func leader(name string) group.Duty { return group.NewDuty(group.Leader, name) }

func cron(name, schedule string) group.Duty {
	d := group.NewDuty(group.Cron, name)
	d.Schedule, d.Prefer = schedule, group.Any
	return d
}

func config(identity, version string, can ...string) member.Config {
	return member.Config{Root: root, Group: name, Identity: identity, Version: version, Can: can}
}

// member runs a member until the members are asked to stop: work, with a context that ends with the membership and when
// the member is to stop. Its error ends the life.
func (s *shop) member(
	p *sim.Process, c member.Config, work func(ctx context.Context, m *member.Member) error,
) error {
	conn, err := p.Dial(timeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	m, err := member.Join(p.Context(), conn, c)
	if errors.Is(err, member.ErrNotOpen) {
		return nil // asked to stop
	}
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(m.Context())
	stopped := make(chan error, 1)
	go func() {
		err := m.StopRequested(ctx)
		stop(member.ErrLeaving)
		stopped <- err
	}()
	worked := work(ctx, m)
	stop(member.ErrLeaving)
	asked := <-stopped
	left := m.Leave()
	cause := context.Cause(m.Context())
	switch {
	case asked == nil, worked == nil && errors.Is(asked, member.ErrLeaving):
		return nil // whoever could not say goodbye is gone all the same
	case errors.Is(cause, member.ErrRemoved):
		return fmt.Errorf("%w: %w", cause, context.Canceled) // by hand: join again
	case worked != nil && !errors.Is(worked, member.ErrLeaving):
		return worked
	case left != nil:
		return fmt.Errorf("%w: %w", left, zkconn.ErrSessionLost)
	}
	return asked
}

// leads leads a duty until told to stop.
func leads(duty string, f func(ctx context.Context, h *member.Hold) error) func(context.Context, *member.Member) error {
	return func(ctx context.Context, m *member.Member) error { return m.Lead(ctx, duty, f) }
}

// write writes what is declared, as apply and terminate do.
func (s *shop) write(ctx context.Context, c *zkconn.Session, state resource.State) error {
	g := s.book.record.Generation
	_, body := s.declared(g, state)
	_, err := c.Multi(ctx, zkconn.SetOp(znode.Record(group.KindName, root, name), body, -1),
		zkconn.SetOp(znode.Run(root, g), body, -1))
	return err
}

// operator is a process that does what it has to do, and then asks all to stop. If it dies it begins anew.
func (s *shop) operator(do func(p *sim.Process, c *zkconn.Session) error) {
	s.Process("operator", 1, sim.InSession(timeout, func(p *sim.Process, c *zkconn.Session) error {
		did := false // by the last life
		if p.Saw(func() { did = s.over }); !did {
			if err := do(p, c); err != nil {
				return err
			}
			p.Saw(func() { s.over = true })
		}
		return s.write(p.Context(), c, resource.StateTerminating)
	}))
}

// await waits until ready says so under the world's lock. It looks each second of virtual time.
func await(p *sim.Process, ready func() bool) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		is := false
		if p.Saw(func() { is = ready() }); is {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.Context().Done():
			return context.Cause(p.Context())
		}
	}
}

// ask sends a request to the assigner, and waits until it has decided.
func ask(p *sim.Process, c *zkconn.Session, a znode.Ask) error {
	a.By = "ann@deploy-1"
	return whileShut(func() error {
		path, err := member.SendAsk(p.Context(), c, root, name, a)
		if err != nil {
			return err
		}
		return member.AwaitAnswer(p.Context(), c, path)
	})
}

// whileShut tries again while somebody has deleted the gate by hand.
func whileShut(try func() error) error {
	for {
		if err := try(); !errors.Is(err, member.ErrNotOpen) {
			return err
		}
		<-time.After(time.Second)
	}
}

// handOver asks for a hand-over again and again until ready says so: it has no effect while no other member is live.
func handOver(p *sim.Process, c *zkconn.Session, duty string, ready func() bool) error {
	for {
		if err := ask(p, c, znode.Ask{Do: znode.AskHandover, Duty: duty}); err != nil {
			return err
		}
		again := time.Now().Add(5 * time.Minute)
		late := false
		if err := await(p, func() bool { late = time.Now().After(again); return ready() || late }); err != nil || !late {
			return err
		}
	}
}

// byHand adds two who delete by hand, now and then, what holds the group together: the gate, which comes back, and what
// exists while the duty is held.
func (s *shop) byHand(duty string) {
	s.vandal("vandal", removes(znode.Gate(root, "g1")), putBackGate)
	s.vandal("thief", removes(znode.Held(root, "g1", duty)))
}

// intruder adds one who does something by hand to the member that holds a duty, whose seat it gets: as soon as somebody
// holds it, and then later and later.
func (s *shop) intruder(duty string, do func(ctx context.Context, c *zkconn.Session, seat string) error) {
	round := 0
	s.Service("intruder", 0, sim.InSession(timeout, func(p *sim.Process, c *zkconn.Session) error {
		for ; round < 6; round++ {
			holder, err := awaitHolder(p.Context(), c, duty)
			for n := 0; n < 5*round && err == nil; n++ {
				_, _, err = c.Exists(p.Context(), root)
			}
			seat := ""
			if p.Saw(func() { seat = s.joined[holder] }); err == nil {
				err = do(p.Context(), c, seat)
			}
			if err != nil && !errors.Is(err, zkconn.ErrNoNode) {
				return err
			}
		}
		return nil
	}))
}

// awaitHolder waits until somebody holds a duty, and returns the session.
func awaitHolder(ctx context.Context, c *zkconn.Session, duty string) (int64, error) {
	for {
		is, there, changed, err := c.ExistsW(ctx, znode.Held(root, "g1", duty))
		if err != nil || there {
			return is.EphemeralOwner, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// evictor adds one who deletes the seat of the holder together with held, so that another member gets the duty.
func (s *shop) evictor(duty string) {
	s.intruder(duty, func(ctx context.Context, c *zkconn.Session, seat string) error {
		_, err := c.Multi(ctx, zkconn.DeleteOp(znode.Held(root, "g1", duty), -1), zkconn.DeleteOp(seat, -1))
		return err
	})
}

// vandal is a process that does these things again and again, with some requests between them that do nothing. It
// begins anew when the members have written something since, until the operator has what it wanted.
func (s *shop) vandal(name string, all ...func(ctx context.Context, c *zkconn.Session) error) {
	left, before := 10, -1
	s.Process(name, 0, sim.InSession(timeout, func(p *sim.Process, c *zkconn.Session) error {
		for ; left > 0; left-- {
			over := false
			err := await(p, func() bool { over = s.over; return over || s.commits > before })
			if err != nil || over {
				return err
			}
			p.Saw(func() { before = s.commits })
			for _, one := range all {
				for range 3 {
					if _, _, err := c.Exists(p.Context(), root); err != nil {
						return err
					}
				}
				if err := one(p.Context(), c); err != nil && !errors.Is(err, zkconn.ErrNoNode) {
					return err
				}
			}
		}
		return nil
	}))
}

// removes deletes a znode.
func removes(path string) func(context.Context, *zkconn.Session) error {
	return func(ctx context.Context, c *zkconn.Session) error { return c.Delete(ctx, path, -1) }
}

func putBackGate(ctx context.Context, c *zkconn.Session) error {
	_, err := c.Create(ctx, znode.Gate(root, "g1"), nil, zkconn.Persistent, everybody)
	return sim.Unless(err, zkconn.ErrNodeExists)
}

// worlds are all worlds of this package.
func worlds() []sim.Named {
	faults := sim.Faults{Crashes: 2, Cuts: 2, Expiries: 1, LostReplies: 2, Pauses: 1}
	silences := sim.Faults{Crashes: 1, Cuts: 1, Expiries: 1, LostReplies: 1, Pauses: 6}
	all := []sim.Named{
		{Name: "lead", Options: sim.Options{Faults: faults}, World: func(w *sim.World) { newLead(w) }},
		{Name: "lead-by-hand", World: func(w *sim.World) { newLead(w).byHand("d") }},
		{Name: "lead-silent", Options: sim.Options{Faults: silences}, World: leadSilent},
		{Name: "lead-neglected", Options: sim.Options{Faults: faults}, World: leadNeglected},
		{Name: "declared-silent", Options: sim.Options{Faults: silences}, World: declaredSilent},
		{Name: "seats", Options: sim.Options{Faults: faults}, World: seats},
		{Name: "anew", Options: sim.Options{Faults: faults}, World: anew},
		{Name: "state", Options: sim.Options{Faults: faults}, World: func(w *sim.World) { newSaving(w) }},
		{Name: "state-by-hand", World: func(w *sim.World) { newSaving(w).byHand("d") }},
		{Name: "operation", Options: sim.Options{Faults: faults}, World: func(w *sim.World) { newOperating(w) }},
		{Name: "operation-by-hand", World: func(w *sim.World) { newOperating(w).byHand("d") }},
		{Name: "cron", Options: sim.Options{Faults: faults}, World: cronAgain},
		{Name: "cron-once", Options: sim.Options{Faults: faults}, World: cronOnce},
		{Name: "wrong-clock", Options: sim.Options{Faults: faults}, World: wrongClock},
		{Name: "cron-by-hand", World: func(w *sim.World) { newRunning(w, func(*group.Duty) {}).byHand("c") }},
		{Name: "lead-evicted", World: func(w *sim.World) { newLead(w).evictor("d") }},
		{Name: "lead-damaged", World: leadDamaged},
		{Name: "state-evicted", World: func(w *sim.World) { newSaving(w).evictor("d") }},
		{Name: "operation-evicted", World: func(w *sim.World) { newOperating(w).evictor("d") }},
		{Name: "cron-evicted", World: cronEvicted},
		{Name: "pause", World: pausing(0)},
		{Name: "pause-ahead", World: pausing(20 * time.Second)},
		{Name: "declared", Options: sim.Options{Faults: faults}, World: declared},
		{Name: "asked", Options: sim.Options{Faults: faults}, World: asked},
	}
	for i := range all {
		o := &all[i].Options
		o.Seeds, o.End, o.Path, o.Kind = 30, 30*time.Minute, general, kind
	}
	return all
}

var (
	generation = regexp.MustCompile(`/run/g[12]`)
	duty       = regexp.MustCompile(`/duty/[cd]\b`)
	key        = regexp.MustCompile(`/(state|op)/[a-z]+`)
	recorded   = regexp.MustCompile(`(create|set|delete) [^ ]*/(cursor|tick/[0-9TZ]+|now/n-<seq>)(@v)?`)
)

// general replaces some names in a path.
func general(path string) string {
	path = duty.ReplaceAllString(generation.ReplaceAllString(path, "/run/<g>"), "/duty/<d>")
	return key.ReplaceAllString(path, "/$1/<name>")
}

// kind names what has operations in many combinations: the transactions of the assigner, which all have the same
// checks, and what the holder of a cron writes.
func kind(ops string) string {
	const below = "/apps/.muster/run/<g>/"
	holder := strings.Contains(ops, "/held@v")
	switch {
	case strings.Contains(ops, "set "+below+"assigner"), strings.Contains(ops, "delete "+below+"duty/") && !holder:
		return "the assigner writes"
	case holder:
		all := strings.Split(recorded.ReplaceAllString(ops, "record what a cron does"), ", ")
		return strings.Join(slices.Compact(all), ", ")
	}
	return ops
}

// TestWorlds explores schedules of each world.
func TestWorlds(t *testing.T) { sim.Test(t, worlds()...) }

// TestMutants holds the table of guards against the worlds.
func TestMutants(t *testing.T) { sim.Mutants(t, "testdata/guards.txt", worlds()...) }

func BenchmarkWorlds(b *testing.B) { sim.Bench(b, worlds()...) }
