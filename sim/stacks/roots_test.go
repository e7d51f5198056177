package stacks_test

import (
	"context"
	"strings"

	"muster/plan"
	"muster/resource/job"
	"muster/sim"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// rootScenes are those of the index of a stack, and of classic jobs.
func rootScenes() map[string]scene {
	return map[string]scene{
		"roots":         {declare: roots, must: []string{"created", "undeclared applied"}},
		"roots-no-lock": {declare: rootsUnlocked, must: []string{"created", "undeclared applied"}},
		"classic": {
			declare: classicCounts, must: []string{"classic joined", "classic_leftover applied", "classic_leftover refused"},
		},
		"classic-roll": {
			declare: classicJoins, must: []string{"classic joined", "classic_leftover applied", "classic_leftover refused"},
		},
	}
}

func in(root string) func(*job.Job) { return func(j *job.Job) { j.Root = root } }

// roots: the last job in a root is deleted, while a worker creates a job in a root that is not listed yet.
func roots(w *world) {
	w.given(declares(aJob("a", 1), aJob("b", 1, in("/r2"))))
	c := declares(aJob("a", 1))
	w.apply("apply", 1, c)
	w.creator("w", aJob("c", 1, in("/r3")))
	w.last(c)
}

// rootsUnlocked: two applies declare jobs in other roots, and somebody deletes places in the queue for the lock.
func rootsUnlocked(w *world) {
	w.noLock = true
	w.hand("hand", unlockOften)
	w.apply("else", 1, declares(aJob("d", 1, in("/r4"))))
	roots(w)
}

// creator declares a process that is the start of "muster worker --file": it creates the job if it is not there,
// without the lock.
func (w *world) creator(name string, j job.Job) {
	locked := w.written(znode.Lock(home, "s"))
	c := declares(j)
	row := plan.Row{Path: j.Path(), New: j, Reason: plan.NotThere}
	who := actor{config: &c, plan: &plan.Plan{Rows: []plan.Row{row}}, noLock: true}
	w.storing(name, shift{after: locked}, who, c, func(ctx context.Context, store *zkstate.Store) error {
		o, err := store.Look(ctx, j.Path())
		if err != nil || o != nil {
			return err
		}
		if err = store.Commit(ctx, row); err == nil {
			w.seen.add("created")
		}
		return sim.Unless(err, plan.ErrMoved, plan.ErrAlreadyDone)
	})
}

// classicCounts: a classic job without live workers is replaced while a classic worker joins it: it takes an id from
// the counter, and then becomes live.
func classicCounts(w *world) { classic(w, true) }

// classicJoins: it has taken its id before.
func classicJoins(w *world) { classic(w, false) }

func classic(w *world, counts bool) {
	const counter = root + "/a-dai-for-worker-id"
	roll, err := znode.EncodeRoll(job.Text, []znode.Worker{{IP: "10.0.0.1", Port: 1}})
	w.Setup(func(ctx context.Context, s *zkconn.Session) error {
		w.actors[s.ID()] = &actor{byHand: true}
		for _, n := range []struct {
			path string
			body []byte
		}{{root, nil}, {root + "/a", roll}, {counter, []byte{0, 0, 0, 1}}, {root + "/a-lock", nil}} {
			if err != nil {
				return err
			}
			w.classic[n.path] = strings.Contains(n.path, "-")
			_, err = s.Create(ctx, n.path, n.body, zkconn.Persistent, anyone())
		}
		return err
	})
	c := declares(aJob("a", 1))
	begin := shift{after: w.sends("apply")}
	w.apply("apply", 1, c)
	w.hand("h", func(p *sim.Process, s *zkconn.Session) error {
		ctx := p.Context()
		if err := begin.wait(p); err != nil {
			return err
		}
		var err error
		if counts {
			_, err = s.Set(ctx, counter, []byte{0, 0, 0, 2}, 0)
		}
		if err == nil {
			_, err = s.Create(ctx, root+"/a/10.0.0.2:1", nil, zkconn.Ephemeral, anyone())
		}
		if err == nil {
			w.seen.add("classic joined")
			_, err = s.Set(ctx, root+"/a", append(roll, "\n10.0.0.2,1,2;null,null,null"...), 0)
		}
		if err == nil {
			err = remove(ctx, s, root+"/a/10.0.0.2:1")
		}
		return sim.Unless(err, zkconn.ErrNoNode, zkconn.ErrBadVersion, zkconn.ErrNodeExists)
	})
	w.last(c)
}
