package stacks_test

import (
	"context"
	"errors"
	"strings"
	"time"

	"muster/resource"
	"muster/resource/queue"
	"muster/sim"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// queueScenes are those of queues, their executors, and who submits.
func queueScenes() map[string]scene {
	return map[string]scene{
		"queue-replace": {
			declare: queueReplace,
			must:    []string{"submitted", "immutable_differs_ready applied", "immutable_differs_ready refused"},
		},
		"queue-delete": {declare: queueGoes, must: []string{"submitted", "undeclared applied", "undeclared refused"}},
		"queue-repair": {declare: damage{"batch", resource.PartGate}.repairQueue, must: []string{"damaged applied"}},
	}
}

// aQueue is a queue with this Redis.
func aQueue(name, redis string) queue.Queue {
	q := queue.Default()
	q.Root, q.Name, q.Address, q.Redis = root, name, "queue."+name, "redis://"+redis
	q.Timeouts.Session = resource.Duration(session)
	q.Timeouts.Stale = resource.Duration(grace)
	return q
}

// queueReplace: a queue moves to another Redis while somebody submits a batch, and an executor comes.
func queueReplace(w *world) {
	w.given(declares(aQueue("q", "one:1")))
	c := declares(aQueue("q", "two:2"))
	w.apply("apply", 1, c)
	w.executor("x", "q", 1)
	w.submitter("y", "q")
	w.last(c)
}

// queueGoes: a queue is deleted while somebody submits a batch, and an executor comes.
func queueGoes(w *world) {
	w.given(declares(aQueue("q", "one:1")))
	c := declares()
	w.apply("apply", 1, c)
	w.executor("x", "q", 1)
	w.submitter("y", "q")
	w.last(c)
}

// repairQueue: a part of a queue is put back while somebody submits, and another stack changes the queue.
func (d damage) repairQueue(w *world) {
	longer := aQueue("q", "one:1")
	longer.Attempts++
	s := config{stack: "s", takeOver: []string{"t"}, declared: []resource.Declaration{aQueue("q", "one:1")}}
	t := config{stack: "t", takeOver: []string{"s"}, declared: []resource.Declaration{longer}}
	w.given(s)
	w.executor("x", "q", 1)
	d.deletes(w, "hand", root+"/q")
	w.apply("apply", 1, s)
	w.apply("else", 1, t)
	w.last(s)
}

// executor declares a process that joins a queue as an executor, and leaves. It writes what package tasks writes.
func (w *world) executor(name, of string, lives int) {
	w.inQueue(name, of, lives, func(p *sim.Process, s *zkconn.Session, q inQueue) error {
		live, err := znode.Encode(znode.QueueProcess{Nonce: name, Role: queue.Executor})
		if err != nil {
			return err
		}
		seat, err := znode.Encode(znode.QueueSeat{Identity: name, Nonce: name, Role: queue.Executor})
		if err != nil {
			return err
		}
		err = q.write(p.Context(), s,
			zkconn.CreateOp(q.path+"/"+name, live, zkconn.Ephemeral, anyone()),
			zkconn.CreateOp(znode.NewSeat(root, q.g), seat, zkconn.EphemeralSequential, anyone()))
		if err == nil {
			w.seen.add("joined")
			err = rest(p, hours)
		}
		return err
	})
}

// submitter declares a process that submits a batch, and ends it.
func (w *world) submitter(name, of string) {
	w.inQueue(name, of, 0, func(p *sim.Process, s *zkconn.Session, q inQueue) error {
		body, err := znode.Encode(znode.BatchManifest{
			Tasks: 1, Weight: 1, SHA256: strings.Repeat("0", 64), By: "me@here", Since: time.Now(),
			State: znode.BatchSubmitting, Results: queue.ResultsDiscard,
		})
		if err != nil {
			return err
		}
		batch := znode.Batch(root, q.g, "b")
		_, there, err := s.Exists(p.Context(), batch) // of an earlier life
		if err == nil && !there {
			if err = q.write(p.Context(), s, zkconn.CreateOp(batch, body, zkconn.Persistent, anyone())); err == nil {
				w.seen.add("submitted")
				err = rest(p, hours)
			}
		}
		if err == nil {
			_, err = s.Multi(p.Context(), zkconn.CheckOp(znode.Gate(root, q.g), 0), zkconn.DeleteOp(batch, 0))
		}
		return err
	})
}

// inQueue is a queue as a process has read it.
type inQueue struct {
	path, g string
	version int32 // of its Record
}

// inQueue declares a process that reads the Record of a queue and does something there. It is content if the queue is
// gone.
func (w *world) inQueue(
	name, of string, lives int, do func(p *sim.Process, s *zkconn.Session, q inQueue) error,
) {
	w.session(name, lives, shift{}, actor{}, func(p *sim.Process, s *zkconn.Session) error {
		r := zkstate.NewReader(s, home, zkstate.Queue())
		o, err := r.Look(p.Context(), root+"/"+of)
		if err != nil || o == nil || o.Record == nil {
			return err
		}
		err = do(p, s, inQueue{root + "/" + of, o.Record.Generation, o.RecordVersion})
		return sim.Unless(err, zkconn.ErrNoNode, zkconn.ErrBadVersion, zkconn.ErrNodeExists)
	})
}

// write is one transaction of a member: with the folders of the generation, if they are missing.
func (q inQueue) write(ctx context.Context, s *zkconn.Session, ops ...zkconn.Op) error {
	guards := []zkconn.Op{
		zkconn.CheckOp(znode.Gate(root, q.g), 0),
		zkconn.CheckOp(znode.Record(queue.KindName, root, q.path[len(root)+1:]), q.version),
	}
	_, err := s.Multi(ctx, append(guards, ops...)...)
	if !errors.Is(err, zkconn.ErrNoNode) {
		return err
	}
	for _, name := range znode.QueueFolders() {
		folder := resource.Join(znode.Run(root, q.g), name)
		guards = append(guards, zkconn.CreateOp(folder, nil, zkconn.Persistent, anyone()))
	}
	_, err = s.Multi(ctx, append(guards, ops...)...)
	return err
}
