package jobs_test

import (
	"context"
	"fmt"
	"time"

	"muster/resource"
	"muster/resource/job"
	"muster/sim"
	"muster/worker"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// handWorld is a barrier world, in which somebody deletes parts of the job. So a worker can lose its identity to
// another process, or its generation, while it has a session.
func handWorld(live bool) func(*sim.World) {
	return func(w *sim.World) {
		k := newJobs(w, 2)
		for _, name := range []string{"a1", "a2", "b"} {
			w.Process("p-"+name, 1, func(p *sim.Process) error {
				m, err := k.join(p, worker.Config{Identity: name[:1]})
				for round := 0; round < barrierRounds && err == nil; round++ {
					err = m.pass("x", &round, live, true)
				}
				if err == nil {
					err = m.complete()
				}
				return endsWell(err)
			})
		}
		k.hand()
	}
}

// endedWorld has workers that do all sorts of things, somebody who deletes their live znodes by hand, and somebody who
// then terminates the job and applies it again. So a generation ends under a worker that has a session.
func endedWorld(w *sim.World) {
	k := newJobs(w, 2)
	for _, name := range []string{"a", "b"} {
		w.Process("p-"+name, 1, func(p *sim.Process) error {
			m, err := k.join(p, worker.Config{Identity: name})
			for round := 0; round < 2 && err == nil; round++ {
				for _, do := range []func() error{
					func() error { return m.publish("key", p.String()) },
					func() error { return m.Advertise(p.Context(), "192.0.2.7", address(name).Port+1000) },
					func() error { return m.pass(fmt.Sprint("x", round), new(int), round == 0, false) },
				} {
					if err == nil {
						err = m.do(do)
					}
				}
			}
			if err == nil {
				err = m.complete()
			}
			return endsWell(err)
		})
	}
	k.hand()
	k.ann()
}

// toldWorld has processes of one worker that only wait. One that is fenced is told so.
func toldWorld(w *sim.World) {
	k := newJobs(w, 2)
	for _, name := range []string{"a1", "a2", "b"} {
		w.Process("p-"+name, 1, func(p *sim.Process) error {
			m, err := k.join(p, worker.Config{Identity: name[:1]})
			if err == nil {
				err = m.do(func() error { return k.await(p, m) })
			}
			return endsWell(err)
		})
	}
	k.hand()
}

// await returns why the membership ends, or nil after a while if it is still one.
func (k *jobs) await(p *sim.Process, m *member) error {
	select {
	case <-m.Context().Done():
		return context.Cause(m.Context())
	case <-p.Context().Done():
		return context.Cause(p.Context())
	case <-time.After(2 * time.Minute):
	}
	var err error
	p.Saw(func() {
		if r := k.book.run(m.Generation); r.open && r.holders[m.Identity] != m.life {
			err = fmt.Errorf("%s is fenced, and nobody tells it", m.life.name)
		}
	})
	return err
}

// hand deletes live znodes and the gate by hand, again and again, and puts the gate back: while it is gone nobody can
// end the generation, or write anything. Apply puts it back if hand does not.
func (k *jobs) hand() {
	k.Process("hand", 0, sim.InSession(time.Hour, func(p *sim.Process, s *zkconn.Session) error {
		for range 5 {
			gate, _ := k.gate(p)
			if gate == "" {
				return nil
			}
			for _, path := range []string{k.live("a"), k.live("b"), gate} {
				if err := sim.Unless(s.Delete(p.Context(), path, -1), zkconn.ErrNoNode); err != nil {
					return err
				}
			}
			for range 3 { // the others may do something meanwhile
				if err := s.Sync(p.Context(), gate); err != nil {
					return err
				}
			}
			if err := k.repair(p, s); err != nil {
				return err
			}
		}
		return nil
	}))
	k.Service("apply", 0, sim.InSession(time.Hour, func(p *sim.Process, s *zkconn.Session) error {
		for p.Context().Err() == nil {
			if err := k.repair(p, s); err != nil {
				return err
			}
			k.sleep(p, 4*time.Second)
		}
		return nil
	}))
}

func (k *jobs) sleep(p *sim.Process, d time.Duration) {
	select {
	case <-time.After(d):
	case <-p.Context().Done():
	}
}

// repair puts the gate back if it is gone, while the Record names its generation.
func (k *jobs) repair(p *sim.Process, s *zkconn.Session) error {
	if gate, open := k.gate(p); open || gate == "" {
		return nil
	}
	path := znode.Record(job.KindName, k.book.job.Root, k.book.job.Name)
	body, stat, err := s.Get(p.Context(), path)
	if err == nil {
		var rec resource.Record
		if rec, err = znode.DecodeRecordAt(job.Kind(), k.book.job.Path(), body); err != nil {
			return err
		}
		_, err = s.Multi(p.Context(), zkconn.CheckOp(path, stat.Version), zkconn.CreateOp(
			znode.Gate(k.book.job.Root, rec.Generation), nil, zkconn.Persistent, zkconn.World(zkconn.PermAll)))
	}
	return sim.Unless(err, zkconn.ErrNodeExists, zkconn.ErrNoNode, zkconn.ErrBadVersion)
}

// gate is that of the current generation, and whether it exists; "" without a record.
func (k *jobs) gate(p *sim.Process) (path string, open bool) {
	p.Saw(func() {
		if b := k.book; b.record != nil {
			path, open = znode.Gate(b.job.Root, b.record.Generation), b.run(b.record.Generation).open
		}
	})
	return path, open
}

func (k *jobs) live(identity string) string {
	return znode.Live(k.book.job.Root, k.book.job.Name, identity)
}
