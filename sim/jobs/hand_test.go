package jobs_test

import (
	"errors"
	"fmt"
	"time"

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
			w.Process(name, 1, func(p *sim.Process) error {
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
		w.Process(name, 1, func(p *sim.Process) error {
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

// hand deletes live znodes and the gate by hand. Apply puts the gate back: while it is gone nobody can end the
// generation, or write anything.
func (k *jobs) hand() {
	k.Process("hand", 0, func(p *sim.Process) error {
		s, err := p.Dial(time.Hour)
		if err != nil {
			return err
		}
		defer s.Close()
		gate, _ := k.gate(p)
		for _, path := range []string{k.live("a"), gate, k.live("b"), k.live("a")} {
			if path == "" {
				continue
			}
			if err := s.Delete(p.Context(), path, -1); err != nil && !errors.Is(err, zkconn.ErrNoNode) {
				return err
			}
		}
		return nil
	})
	k.Service("apply", 0, func(p *sim.Process) error {
		s, err := p.Dial(time.Hour)
		if err != nil {
			return err
		}
		defer s.Close()
		for {
			if gate, open := k.gate(p); !open && gate != "" {
				_, err := s.Create(p.Context(), gate, nil, zkconn.Persistent, zkconn.World(zkconn.PermAll))
				if err != nil && !errors.Is(err, zkconn.ErrNodeExists) {
					return err
				}
			}
			select {
			case <-time.After(damageTime):
			case <-p.Context().Done():
				return nil
			}
		}
	})
}

// damageTime is how long the gate is gone at most.
const damageTime = 3 * time.Second

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
