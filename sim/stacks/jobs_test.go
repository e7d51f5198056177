package stacks_test

import (
	"errors"

	"muster/resource"
	"muster/resource/job"
	"muster/sim"
	"muster/worker"
	"muster/zkstate/znode"
)

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
	w.given(declares(aJob("a", 1)))
	c := declares(aJob("a", 2))
	w.apply("apply", 1, c)
	w.worker(shift{name: "w", job: "a", lives: 1, works: hours})
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
	w.given(declares(aJob("a", 2)))
	c := declares()
	w.apply("apply", 1, c)
	w.worker(shift{name: "w", job: "a", lives: 1, works: hours})
	w.last(c)
}

// deleteRun: a job that is no longer declared is deleted while its only run begins and ends.
func deleteRun(w *world) {
	w.given(declares(aJob("a", 1)))
	c := declares()
	w.apply("apply", 1, c)
	w.worker(shift{name: "w", job: "a", lives: 1, after: w.written(znode.Lock(home, "s"))})
	w.last(c)
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
