package stacks_test

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"muster/member"
	"muster/plan"
	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/resource/queue"
	"muster/sim"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// groupScenes are those of groups and their members.
func groupScenes() map[string]scene {
	all := map[string]scene{
		"group-duty": {
			declare: dutyGoes, must: []string{"saved", "mutable_differs applied", "mutable_differs refused"},
		},
		"group-duty-again": {
			declare: dutyGoesAgain, must: []string{"saved", "mutable_differs applied", "mutable_differs refused"},
		},
		"group-opens": {
			declare: dutyOpens, must: []string{"opened", "mutable_differs applied", "mutable_differs refused"},
		},
		"group-delete": {declare: groupGoes, must: []string{"saved", "undeclared applied", "undeclared refused"}},
		"group-delete-again": {
			declare: groupGoesAgain, must: []string{"saved", "undeclared applied", "undeclared refused"},
		},
		"group-owners": {declare: groupOwners, must: []string{"mutable_differs applied", "mutable_differs refused"}},
	}
	for name, d := range map[string]damage{
		"record": {resource.PartRecord}, "gate": {resource.PartGate}, "assigner": {"assigner"},
		"znode": {resource.PartZnode},
	} {
		all["group-repair-"+name] = scene{declare: d.repairGroup, must: []string{"damaged applied"}}
	}
	return all
}

// aGroup is a group with these leaders.
func aGroup(name string, duties ...string) group.Group {
	g := group.Default()
	g.Root, g.Name, g.Address = root, name, "group."+name
	g.Settle = 1
	g.Timeouts.Session = resource.Duration(session)
	g.Timeouts.Stale = resource.Duration(grace)
	for _, d := range duties {
		g.Add(group.NewDuty(group.Leader, d))
	}
	return g
}

// dutyGoes: a duty is taken out while its holder saves something.
func dutyGoes(w *world) {
	w.changesHeld(aGroup("g", "main", "other"), declares(aGroup("g", "other")), nil, w.saves(2))
}

// changesHeld: an apply changes a group, while a member joins, and does something with its duty main. before was done
// with that before everything else; nil: nothing.
func (w *world) changesHeld(g group.Group, c config, before, do work) {
	w.given(declares(g))
	if before != nil {
		w.was("g", before)
	}
	w.apply("apply", 1, c)
	w.member("m", "g", 1, do)
	w.last(c)
}

// dutyGoesAgain: the same, and something was saved before.
func dutyGoesAgain(w *world) {
	w.changesHeld(aGroup("g", "main", "other"), declares(aGroup("g", "other")), w.saves(1), w.saves(2))
}

// dutyOpens: a duty is taken out while its holder opens an operation, as it has before.
func dutyOpens(w *world) {
	w.changesHeld(aGroup("g", "main", "other"), declares(aGroup("g", "other")), w.opens(true), w.opens(false))
}

// groupGoesAgain is groupGoes, and something was saved before.
func groupGoesAgain(w *world) {
	w.given(declares(aGroup("g", "main")))
	w.was("g", w.saves(1))
	c := declares()
	begin := shift{after: w.sends("apply")}
	w.apply("apply", 1, c)
	w.memberAfter(begin, "m", "g", 1, w.saves(1))
	w.last(c)
}

// groupGoes: a group is deleted while a member joins, saves something and leaves. What was saved goes only with a plan
// that shows it.
func groupGoes(w *world) { w.changesHeld(aGroup("g", "main"), declares(), nil, w.saves(1)) }

// groupOwners: two stacks take a group from each other, and a member joins.
func groupOwners(w *world) {
	w.given(declares(aGroup("g", "main", "other")))
	s := config{stack: "s", takeOver: []string{"t"}, declared: []resource.Declaration{aGroup("g", "main")}}
	t := config{stack: "t", takeOver: []string{"s"}, declared: []resource.Declaration{aGroup("g", "main", "third")}}
	w.apply("apply", 1, s)
	w.apply("else", 1, t)
	w.member("m", "g", 1, w.saves(1))
	w.last(s)
}

// repairGroup: a part of a group with a member is put back while another stack changes it.
func (d damage) repairGroup(w *world) {
	s := config{stack: "s", takeOver: []string{"t"}, declared: []resource.Declaration{aGroup("g", "main")}}
	t := config{stack: "t", takeOver: []string{"s"}, declared: []resource.Declaration{aGroup("g", "main", "third")}}
	w.given(s)
	w.was("g", nil)
	d.deletes(w, "hand", root+"/g")
	w.apply("apply", 1, s)
	w.apply("else", 1, t)
	w.last(s)
}

func joinGroup(ctx context.Context, s *zkconn.Session, name, identity string) (*member.Member, error) {
	return member.Join(ctx, s, member.Config{
		Root: root, Group: name, Identity: identity, Version: "1.0.0", Can: []string{"main"},
	})
}

// work is what the holder of the duty main does.
type work func(ctx context.Context, h *member.Hold) error

// was lets a member join before everything else, take its duty main and do this with it, and leave; nil: only join.
func (w *world) was(group string, do work) {
	w.Setup(func(ctx context.Context, s *zkconn.Session) error {
		m, err := joinGroup(ctx, s, group, "first")
		if err == nil && do != nil {
			err = w.holds(ctx, m, do)
		} else if err == nil {
			err = m.Leave()
		}
		return err
	})
}

// member declares a process that joins a group, takes its duty main, and does this with it before it leaves.
func (w *world) member(name, group string, lives int, do work) {
	w.memberAfter(shift{}, name, group, lives, do)
}

// memberAfter is member, which begins so.
func (w *world) memberAfter(begin shift, name, group string, lives int, do work) {
	w.session(name, lives, begin, actor{}, func(p *sim.Process, s *zkconn.Session) error {
		ctx, cancel := context.WithTimeout(p.Context(), patience)
		defer cancel()
		m, err := joinGroup(ctx, s, group, name)
		if err == nil {
			w.seen.add("joined")
			err = w.holds(ctx, m, do)
		}
		if p.Alive() {
			err = sim.Unless(err, member.ErrNoGroup, member.ErrNotOpen, member.ErrHeld, member.ErrNotHeld,
				context.DeadlineExceeded)
		}
		return err
	})
}

func (w *world) holds(ctx context.Context, m *member.Member, do work) error {
	h, err := m.Take(ctx, "main")
	if err == nil {
		err = do(ctx, h)
	}
	_ = m.Leave() // if no server answers, the member goes with its session
	return err
}

// saves saves so many values.
func (w *world) saves(values int) work {
	return func(ctx context.Context, h *member.Hold) error {
		for n := range values {
			if err := h.Put(ctx, fmt.Sprint("key", h.Epoch, "-", n), []byte("value")); err != nil {
				return err
			}
			w.seen.add("saved")
		}
		return nil
	}
}

// opens opens an operation.
func (w *world) opens(andCloses bool) work {
	return func(ctx context.Context, h *member.Hold) error {
		o, err := h.Open(ctx, fmt.Sprint("op", h.Epoch), "script", false)
		if err == nil {
			w.seen.add("opened")
			if andCloses {
				err = o.Close(ctx)
			}
		}
		return err
	}
}

// loses: the row deletes what members have saved and the operations that they have open, and only what the plan shows.
func (t tree) loses(r plan.Row, run string) error {
	keys, open := map[string]int{}, map[string]int{}
	for _, s := range r.Loss() {
		keys[s.Section], open[s.Section] = s.Keys, len(s.Open)
	}
	was := group.Of(r.Old.Record)
	stays, _ := r.New.(group.Group)
	for _, d := range was.Duties {
		if _, kept := stays.Duty(d.Name); kept {
			continue
		}
		if n := t.written(path.Join(run, "duty", d.Name, "state")); n != keys[d.Section()] {
			return fmt.Errorf("%d keys of %s are deleted, and the plan shows %d", n, d.Name, keys[d.Section()])
		}
		if n := t.written(path.Join(run, "duty", d.Name, "op")); n != open[d.Section()] {
			return fmt.Errorf("%d operations of %s are deleted, and the plan shows %d", n, d.Name, open[d.Section()])
		}
	}
	return nil
}

// written counts the children of dir that are not empty.
func (t tree) written(dir string) int {
	n := 0
	for _, name := range t.below(dir) {
		if len(t[dir+"/"+name].data) > 0 {
			n++
		}
	}
	return n
}

// jobScenes are those of one apply beside the workers of jobs.
func jobScenes() map[string]scene {
	return map[string]scene{
		"replace": {
			declare: replace,
			must:    []string{"joined", "immutable_differs_ready applied", "immutable_differs_ready refused"},
		},
		"replace-run": {
			declare: replaceRun, must: []string{"completed", "immutable_differs_ready applied", "completed applied"},
		},
		"delete": {
			declare: deleteOne, must: []string{"joined", "undeclared applied", "undeclared refused"},
		},
		"delete-run": {declare: deleteRun, must: []string{"joined", "undeclared applied", "undeclared refused"}},
		"stale":      {declare: stale, must: []string{"stale applied", "stale refused"}},
		"shared": {
			declare: shared, faults: sim.Faults{Crashes: 2, Cuts: 1, LostReplies: 2},
			must: []string{
				"joined", "missing applied", "undeclared applied", "undeclared refused", "mutable_differs applied",
			},
		},
	}
}

// replace: a job whose declaration has changed is replaced while somebody joins.
func replace(w *world) {
	w.changesWorked(aJob("a", 1), declares(aJob("a", 2)), shift{name: "w", job: "a", lives: 1, works: hours})
}

// changesWorked: an apply changes a job, while a worker joins.
func (w *world) changesWorked(j job.Job, c config, o shift) {
	w.given(declares(j))
	w.apply("apply", 1, c)
	w.worker(o)
	w.last(c)
}

// replaceRun: a job that is replaced while its only run begins and completes keeps the name of that run.
func replaceRun(w *world) {
	w.given(declares(aJob("a", 1, retained)))
	c := declares(aJob("a", 2, retained))
	w.apply("apply", 1, c)
	completed := false
	w.worker(shift{
		name: "w", job: "a", lives: 1, completes: true, after: w.written(znode.Lock(home, "s")),
		left: func(m *worker.Member) { completed = m.Job.Workers == 1 }, // else the other worker is missing
	})
	w.last(c)
	w.AtEnd(func() error {
		if !completed {
			return nil
		}
		w.seen.add("completed")
		r, err := w.now.record(znode.Record(job.KindName, root, "a"))
		if last := job.LastRun(&r.Record); err == nil && (last == nil || last.ID != "run") {
			return errors.New("a run has completed, and the job does not know it")
		}
		return err
	})
}

// deleteOne: a job that is no longer declared is deleted while somebody joins.
func deleteOne(w *world) {
	w.changesWorked(aJob("a", 2), declares(), shift{name: "w", job: "a", lives: 1, works: hours})
}

// deleteRun: a job that is no longer declared is deleted while its only run begins and ends.
func deleteRun(w *world) {
	locked := w.written(znode.Lock(home, "s"))
	w.changesWorked(aJob("a", 1), declares(), shift{name: "w", job: "a", lives: 1, after: locked})
}

// shared: changes of several jobs share transactions while somebody joins two of those, and apply crashes.
func shared(w *world) {
	w.given(declares(aJob("a", 1), aJob("b", 1), aJob("c", 1), aJob("d", 1), aJob("e", 1, label("old"))))
	c := declares(aJob("a", 2), aJob("b", 2), aJob("e", 1, label("new")), aJob("f", 1))
	w.apply("apply", 2, c)
	w.worker(shift{name: "w", job: "a", lives: 1, works: hours})
	w.worker(shift{name: "v", job: "c", lives: 1, works: hours})
	w.last(c)
}

// stale: a job whose worker has left is replaced while that worker comes back.
func stale(w *world) {
	c := declares(aJob("a", 2))
	w.given(c)
	gone := make(chan struct{})
	w.worker(shift{name: "w", job: "a", left: func(*worker.Member) { close(gone) }})
	w.worker(shift{name: "w", job: "a", works: hours, after: gone, pause: grace})
	w.applyAfter(gone, "apply", 1, c)
	w.last(c)
}

// declares is a configuration of the stack "s".
func declares(ds ...resource.Declaration) config { return config{stack: "s", declared: ds} }

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
func queueReplace(w *world) { w.changesServed(declares(aQueue("q", "two:2"))) }

// queueGoes: a queue is deleted while somebody submits a batch, and an executor comes.
func queueGoes(w *world) { w.changesServed(declares()) }

func (w *world) changesServed(c config) {
	w.given(declares(aQueue("q", "one:1")))
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
