package stacks_test

import (
	"context"
	"fmt"
	"log/slog"
	"path"
	"time"

	"muster/dev/zkmodel"
	"muster/exitcode"
	"muster/plan"
	"muster/reconcile"
	"muster/resource"
	"muster/resource/job"
	"muster/sim"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// reconcileScenes are those of two reconcilers of the stack "s". One acts, and people win.
func reconcileScenes() map[string]scene {
	return map[string]scene{
		"reconcile-damage":    {declare: reconcileDamage, must: []string{"reconciled", "joined", "exit 0"}},
		"reconcile-terminate": {declare: reconcileTerminated, must: []string{"terminated", "exit 0"}},
		"reconcile-apply":     {declare: reconcileApplied, must: []string{"reconciled", "exit 0"}},
		"reconcile-all":       {declare: reconcileAll, must: []string{"reconciled", "joined", "exit 0"}},
	}
}

// reconciled is how long reconcilers work, in virtual time.
const reconciled = 20 * time.Second

// reconcilers declares two processes that are "muster reconcile" of a configuration.
func (w *world) reconcilers(c config, words ...reconcile.Word) {
	sessions := map[int64]bool{}
	for _, name := range []string{"r1", "r2"} {
		w.process(name, 2, func(p *sim.Process) error {
			ctx, cancel := context.WithTimeout(p.Context(), reconciled)
			defer cancel()
			err := reconcile.New(reconcile.Config{
				Stack: c.stack, Home: home, Kinds: kinds(),
				Rules: reconcile.Rules{Allow: words, MaxDelete: 10, MaxReplace: 10, RestartAfter: grace},
				Poll:  time.Second, Every: 8 * time.Second, Patience: time.Minute,
				Load: func() (*reconcile.Configuration, error) {
					return &reconcile.Configuration{Want: c.want(), Roots: []string{root}, Digest: "files"}, nil
				},
				Connect: func(context.Context) (*zkconn.Session, error) {
					s, err := w.dial(p, &actor{})
					if err == nil {
						p.Saw(func() { sessions[s.ID()] = true })
					}
					return s, err
				},
				Open: func(s *zkconn.Session) (*zkstate.Store, error) { return c.store(s) },
				Log:  slog.New(slog.DiscardHandler),
			}).Run(ctx)
			if err == nil {
				err = p.Context().Err() // a crash
			}
			return err
		})
	}
	before := tree{}
	w.OnTxn(func(t *zkmodel.Txn) error {
		was := before
		before = w.now
		if t.Err != 0 || !sessions[t.Session] {
			return nil
		}
		for _, o := range t.Ops {
			at := w.touches(was, o)
			if at == "" {
				continue
			}
			w.seen.add("reconciled")
			for _, dir := range []string{znode.Lock(home, c.stack), znode.ReconcileDir(home, c.stack)} {
				first := was.first(dir)
				if first == "" || was[first].stat.EphemeralOwner != t.Session {
					return fmt.Errorf("a reconciler changes %s, and %q is the first in %s", at, first, dir)
				}
			}
		}
		return nil
	})
}

// first is the first place of a queue.
func (t tree) first(dir string) string {
	for _, name := range t.below(dir) { // sorted: the numbers have ten digits
		if t[dir+"/"+name].stat.EphemeralOwner != 0 {
			return dir + "/" + name
		}
	}
	return ""
}

// undoes checks that no reconciler writes the record of a job while it is told not to.
func (w *world) undoes(name string, told *bool, allowed func(rec *resource.Record) bool) {
	w.OnTxn(func(t *zkmodel.Txn) error {
		for _, o := range t.Ops {
			_, at, ok := recordOf(o.Path)
			if !ok || path.Base(at) != name || !*told || t.Err != 0 ||
				o.Type != zkmodel.OpCreate && o.Type != zkmodel.OpSetData {
				continue
			}
			rec, err := znode.DecodeRecordAt(job.Kind(), at, o.Data)
			if who := w.actors[t.Session]; err == nil && who != nil && who.config == nil && !who.byHand && !allowed(&rec) {
				return fmt.Errorf("%s undoes what a person has done to %s", who.name, at)
			}
		}
		return nil
	})
}

// reconcileDamage: a missing job comes, a changed one goes back, and a deleted part is put back, beside workers.
func reconcileDamage(w *world) {
	w.given(declares(aJob("a", 1), aJob("gone", 1)))
	c := declares(aJob("a", 1, label("r")), aJob("b", 1))
	w.reconcilers(c, reconcile.Words()...)
	damage{resource.PartZnode}.deletes(w, "hand", root+"/a")
	w.worker(shift{name: "w", job: "a", lives: 1, works: hours})
	w.last(c)
}

// reconcileTerminated: two people terminate a job each. They stay away.
func reconcileTerminated(w *world) {
	c := declares(aJob("a", 1), aJob("b", 1))
	w.given(c)
	w.reconcilers(c, reconcile.DefaultAllow()...)
	for _, name := range []string{"a", "b"} {
		w.undoes(name, w.terminates(c, name), func(*resource.Record) bool { return false })
	}
	w.last(c)
}

// terminates declares a person who terminates a job once a reconciler has acted. It returns whether that was so.
func (w *world) terminates(c config, name string) *bool {
	done, acted := new(bool), w.written(znode.ReconcileState(home, c.stack))
	w.process("terminate-"+name, 1, func(p *sim.Process) error {
		if acted, err := w.awaitReconciler(p, acted); err != nil || !acted {
			return err
		}
		s, err := w.dial(p, &actor{byHand: true})
		if err != nil {
			return err
		}
		defer s.Close()
		store, err := c.store(s)
		if err == nil {
			err = store.Terminate(p.Context(), root+"/"+name, patience, nil)
		}
		if err == nil {
			w.seen.add("terminated")
			p.Saw(func() { *done = true })
		}
		return sim.Unless(err, plan.ErrMoved, plan.ErrAlreadyDone, plan.ErrUnknown, zkstate.ErrNotTerminable)
	})
	return done
}

// awaitReconciler waits until a reconciler has acted; false: none does.
func (w *world) awaitReconciler(p *sim.Process, acted <-chan struct{}) (bool, error) {
	select {
	case <-acted:
		return true, rest(p, 2*time.Second)
	case <-time.After(2 * reconciled):
		return false, nil
	case <-p.Context().Done():
		return false, context.Cause(p.Context())
	}
}

// reconcileApplied: a person applies other files. What that has made stays.
func reconcileApplied(w *world) {
	w.given(declares(aJob("a", 1)))
	c := declares(aJob("a", 1, label("r")), aJob("b", 1))
	w.reconcilers(c, reconcile.DefaultAllow()...)
	w.applied(c)
	w.last(c)
}

// applied declares a person who applies other files once a reconciler has acted.
func (w *world) applied(c config) {
	other := declares(aJob("a", 1, label("p")), aJob("b", 1))
	other.by = "ann"
	done, acted := new(bool), w.written(znode.ReconcileState(home, c.stack))
	w.process("person", 1, func(p *sim.Process) error {
		if acted, err := w.awaitReconciler(p, acted); err != nil || !acted {
			return err
		}
		r, err := w.applyOnce(p, other)
		changed := len(r.outcomes) > 0 && r.exit() == exitcode.Done
		if err == nil && changed {
			p.Saw(func() { *done = true })
		}
		return err
	})
	w.undoes("a", done, func(rec *resource.Record) bool { return job.Of(rec).Labels["label"] != "r" })
}

// reconcileAll: all of that at once.
func reconcileAll(w *world) {
	w.given(declares(aJob("a", 1), aJob("gone", 1)))
	c := declares(aJob("a", 1, label("r")), aJob("b", 1))
	w.reconcilers(c, reconcile.Words()...)
	damage{resource.PartGate}.deletes(w, "hand", root+"/b")
	w.applied(c)
	w.worker(shift{name: "w", job: "b", lives: 1, works: hours})
	w.last(c)
}
