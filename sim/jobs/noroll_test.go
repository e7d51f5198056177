package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"muster/resource"
	"muster/resource/job"
	"muster/sim"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// noRollWorld has a job whose roll is too large to be written, of which all workers have joined and are gone. Those
// that come back say so in the record, and take their identity from each other, while somebody asks the workers to stop
// there.
func noRollWorld(w *sim.World) {
	const large, size = 66, 15_000 // those that come back are small
	k := newJobs(w, large)
	w.Setup(func(ctx context.Context, s *zkconn.Session) error {
		root, g, acl := k.book.job.Root, k.book.record.Generation, zkconn.World(zkconn.PermAll)
		for _, dir := range []string{znode.IDs(root, g), znode.By(root, g), znode.End(root, g), znode.Barriers(root, g)} {
			if _, err := s.Create(ctx, dir, nil, zkconn.Persistent, acl); err != nil {
				return err
			}
		}
		body, err := znode.EncodeWorker(largeWorker(size))
		for id := 0; id < large && err == nil; id++ {
			identity := fmt.Sprint("x", id)
			if id == 0 {
				identity = "a"
			}
			claim := []byte(`{"nonce":"n","lives":1,"state":"left"}`)
			_, err = s.Multi(ctx, zkconn.CreateOp(znode.NewID(root, g), body, zkconn.PersistentSequential, acl),
				zkconn.CreateOp(znode.ByIdentity(root, g, identity), claim, zkconn.Persistent, acl))
			k.book.run(g).ids[id] = identity
		}
		return err
	})
	for _, name := range []string{"a1", "a2"} {
		w.Process("p-"+name, 0, func(p *sim.Process) error {
			m, err := k.take(p, "a")
			if err != nil {
				return endsWell(err)
			}
			return endsWell(m.leave())
		})
	}
	k.ann()
}

// largeWorker is a worker of about so many bytes.
func largeWorker(size int) znode.Worker {
	w := znode.Worker{ID: znode.NoID, IP: "192.0.2.8", Ports: map[string]int{}}
	for i := range size / 210 {
		w.Ports[fmt.Sprintf("%0200d", i)] = 1 + i
	}
	w.Node.Rack = strings.Repeat("r", 100)
	return w
}

// applyRequest checks that a worker takes no request to stop back, and makes none.
func (b *book) applyRequest(s step, old, now *resource.Record) error {
	if s.who != nil && !s.endsRun() && old != nil && old.State != now.State {
		return fmt.Errorf("it changes the record from %s to %s", old.State, now.State)
	}
	if old != nil && old.Generation == now.Generation && job.NoRoll(old) != "" && job.NoRoll(now) == "" {
		return errors.New("it forgets that there is no roll")
	}
	return nil
}
