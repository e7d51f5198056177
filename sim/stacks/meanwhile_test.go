package stacks_test

import (
	"errors"
	"fmt"
	"path"

	"muster/dev/zkmodel"
	"muster/plan"
	"muster/resource/job"
	"muster/sim"
	"muster/zkstate/znode"
)

// What an apply must not do because of what somebody did since it looked.

// planned tells who applies which plan.
func (w *world) planned(p *sim.Process, who *actor) func(plan.Plan) {
	return func(pl plan.Plan) { p.Saw(func() { who.plan, who.seen = &pl, w.now }) }
}

// changed: a row that ends a generation of a job, and since the plan was shown, somebody has joined it for the first
// time, or its run has completed.
func (t tree) changed(seen tree, r plan.Row) error {
	if a := r.Action(); a != plan.Replace && a != plan.Delete || r.Old.Record == nil {
		return nil
	}
	run := znode.Run(path.Dir(r.Path), r.Old.Record.Generation)
	workers := job.Of(r.Old.Record).Workers // 0: it is no job
	completed := func(t tree) bool { return workers > 0 && len(t.below(run+"/end")) >= workers }
	switch {
	case t.has(run+"/id") && !seen.has(run+"/id"):
		return errors.New("somebody has joined since the plan")
	case completed(t) && !completed(seen):
		return errors.New("its run has completed since the plan")
	}
	return nil
}

// forgetsNoRun: the generation of a run that has completed ends only with a record that names the run, or without one.
func (c *checker) forgetsNoRun(before tree, t *zkmodel.Txn) error {
	for _, o := range t.Ops {
		run, rest, ok := generationOf(o.Path)
		if !ok || rest != "gate" || o.Type != zkmodel.OpDelete {
			continue
		}
		at := before.resourceOf(run)
		old, err := before.record(znode.Record(job.KindName, path.Dir(at), path.Base(at)))
		if at == "" || err != nil || len(before.below(run+"/end")) < job.Of(&old.Record).Workers || !c.now.has(old.at) {
			continue
		}
		now, err := c.now.record(old.at)
		if last := job.LastRun(&now.Record); err == nil && (last == nil || last.Generation != old.Generation) {
			return fmt.Errorf("a run of %s has completed, and its record does not know it", at)
		}
	}
	return nil
}

// deletesNothingNew: a transaction deletes nothing that was written after it was sent.
func (c *checker) deletesNothingNew(before tree, t *zkmodel.Txn, who *actor) error {
	for _, o := range t.Ops {
		if o.Type == zkmodel.OpDelete && t.Multi && who.sent > 0 && before[o.Path].stat.Mzxid > who.sent {
			return fmt.Errorf("%s was deleted, and it was written meanwhile", o.Path)
		}
	}
	return nil
}
