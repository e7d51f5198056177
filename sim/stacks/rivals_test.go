package stacks_test

import (
	"context"
	"errors"

	"muster/resource"
	"muster/resource/job"
	"muster/sim"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// rivalScenes are those of one apply and somebody who acts between its second look and its transaction.
func rivalScenes() map[string]scene {
	all := map[string]scene{
		"owners-replace": {
			declare: ownersReplace, must: []string{"immutable_differs_ready applied", "immutable_differs_ready refused"},
		},
		"rewritten-copy": {declare: copyRewritten, must: []string{"damaged applied", "damaged already done"}},
		"stale-run":      {declare: staleRunReplaced, must: []string{"completed", "stale applied", "stale refused"}},
		"stale-pair":     {declare: stalePairReplaced, must: []string{"completed", "stale applied", "stale refused"}},
		"stale-run-goes": {
			declare: staleRunDeleted, must: []string{"completed", "undeclared applied", "undeclared refused"},
		},
		"stale-pair-goes": {
			declare: stalePairDeleted, must: []string{"completed", "undeclared applied", "undeclared refused"},
		},
	}
	for name, d := range map[string]damage{
		"record": {resource.PartRecord}, "gate": {resource.PartGate}, "znode": {resource.PartObject},
		"folder": {"assigner"},
	} {
		all["removed-"+name] = scene{declare: d.removed, must: []string{"damaged applied", "damaged refused"}}
	}
	return all
}

// removed: a part of a group is put back while a person removes the rest of it, as "muster status" says.
func (d damage) removed(w *world) {
	c := declares(aGroup("g", "main"))
	w.given(c)
	var rest []string
	w.Setup(func(ctx context.Context, s *zkconn.Session) error {
		w.actors[s.ID()] = &actor{byHand: true}
		o, err := zkstate.NewReader(s, home, kinds()...).Look(ctx, root+"/g")
		if err != nil {
			return err
		}
		rest = damage{resource.PartGate, resource.PartRecord, resource.PartObject}.paths(o.Record)
		for _, name := range znode.GroupFolders() { // as if somebody had joined
			folder := resource.Join(znode.Run(root, o.Record.Generation), name)
			if _, err := s.Create(ctx, folder, nil, zkconn.Persistent, anyone()); err != nil {
				return err
			}
		}
		return remove(ctx, s, d.paths(o.Record)...)
	})
	begin := shift{after: w.sends("apply")}
	w.hand("hand", func(p *sim.Process, s *zkconn.Session) error {
		if err := begin.wait(p); err != nil {
			return err
		}
		return remove(p.Context(), s, rest...)
	})
	w.apply("apply", 1, c)
	w.last(c)
}

// copyRewritten: a copy of a record is put right while somebody writes record and copy anew, by hand.
func copyRewritten(w *world) {
	c := declares(aJob("a", 1))
	w.given(c)
	w.garbled = true
	var rec resource.Record
	w.Setup(func(ctx context.Context, s *zkconn.Session) error {
		w.actors[s.ID()] = &actor{byHand: true}
		o, err := zkstate.NewReader(s, home, kinds()...).Look(ctx, root+"/a")
		if err != nil {
			return err
		}
		rec = *o.Record
		_, err = s.Set(ctx, znode.Run(root, rec.Generation), []byte("{"), -1)
		return err
	})
	begin := shift{after: w.sends("apply")}
	w.hand("hand", func(p *sim.Process, s *zkconn.Session) error {
		err := begin.wait(p)
		if err == nil {
			err = rec.Declare(aJob("a", 1, label("by hand")))
		}
		if err != nil {
			return err
		}
		ops, err := zkstate.SetRecordOps(rec, -1)
		if err == nil {
			_, err = s.Multi(p.Context(), ops...)
		}
		return err
	})
	w.apply("apply", 1, c)
	w.last(c)
}

// ownersReplace: a job is replaced while another stack takes it.
func ownersReplace(w *world) {
	w.given(declares(aJob("a", 1)))
	s := declares(aJob("a", 2))
	t := config{stack: "t", takeOver: []string{"s"}, declared: []resource.Declaration{aJob("a", 1, label("t"))}}
	w.apply("apply", 1, s)
	w.apply("other", 1, t)
	w.last(t)
}

// staleRunReplaced: a job that its only worker had joined and left is replaced while it comes back and completes.
func staleRunReplaced(w *world) { staleCompletes(w, aJob("a", 1, retained), true, "w") }

// staleRunDeleted: it is deleted.
func staleRunDeleted(w *world) { staleCompletes(w, aJob("a", 1, retained), false, "w") }

// stalePairReplaced: a job that one of its two workers had joined and left is replaced while both come and complete.
func stalePairReplaced(w *world) { staleCompletes(w, aJob("a", 2, retained), true, "w", "x") }

// stalePairDeleted: it is deleted.
func stalePairDeleted(w *world) { staleCompletes(w, aJob("a", 2, retained), false, "w", "x") }

func retained(j *job.Job) { j.Lifecycle.OnComplete = job.Retain }

// staleCompletes is a job that worker w had joined and left. Apply replaces or deletes it while these workers come, one
// after the other, and complete.
func staleCompletes(w *world, j job.Job, replace bool, workers ...string) {
	w.given(declares(j))
	w.Setup(func(ctx context.Context, s *zkconn.Session) error {
		m, err := joinJob(ctx, s, j.Name, "w")
		if err == nil && j.Workers == 1 {
			_, err = m.Roll(ctx) // which is written then
		}
		if err == nil {
			err = m.Leave(ctx, worker.End{})
		}
		return err
	})
	c := declares()
	if replace {
		c = declares(j)
	}
	begin := shift{after: w.sends("apply")}
	w.session("workers", 0, begin, actor{}, func(p *sim.Process, s *zkconn.Session) error {
		for _, name := range workers {
			ctx, cancel := context.WithTimeout(p.Context(), patience)
			m, err := joinJob(ctx, s, j.Name, name)
			if err == nil {
				err = m.Complete(ctx, 0)
			}
			if cancel(); err != nil && !errors.Is(err, worker.ErrDone) {
				return w.notJoined(err)
			}
		}
		w.seen.add("completed")
		return nil
	})
	w.apply("apply", 1, c)
	w.last(c)
}
