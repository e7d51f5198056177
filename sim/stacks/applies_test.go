package stacks_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/exitcode"
	"muster/resource"
	"muster/sim"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// stackScenes are those of several applies, of saved plans, and of the index of a stack.
func stackScenes() map[string]scene {
	return map[string]scene{
		"two-applies": {
			declare: twoApplies, must: []string{"joined", "immutable_differs_ready applied", "missing applied"},
		},
		"no-lock": {
			declare: twoAppliesUnlocked,
			must:    []string{"joined", "immutable_differs_ready refused", "missing refused"},
		},
		"saved-plan": {declare: savedPlan, must: []string{"exit 5", "saved plan applied", "joined"}},
		"prune": {
			declare: prune, end: 2 * month, must: []string{"saved plan applied"},
			faults: sim.Faults{Crashes: 2}, // after any other, a mark may be left to the next apply
		},
		"delete-owners": {declare: deleteOwners, must: []string{"undeclared applied", "mutable_differs applied"}},
		"two-stacks": {
			declare: twoStacks, must: []string{"joined", "mutable_differs applied", "mutable_differs refused"},
		},
	}
}

// twoApplies of one stack at once: only the one that holds the lock writes.
func twoApplies(w *world) {
	w.given(declares(aJob("a", 1), aJob("d", 1)))
	c := declares(aJob("a", 2), aJob("b", 1, label("1")), aJob("c", 1))
	w.apply("one", 1, c)
	w.apply("two", 1, declares(aJob("a", 3), aJob("b", 1, label("2"))))
	w.worker(shift{name: "w", job: "a", lives: 1, works: hours})
	w.last(c)
}

// twoAppliesUnlocked: somebody deletes places in the queue for the lock by hand. Each change is still safe.
func twoAppliesUnlocked(w *world) {
	w.noLock = true
	w.hand("hand", unlockOften)
	twoApplies(w)
}

// unlockOften deletes places in the queue for the lock of stack s.
func unlockOften(p *sim.Process, s *zkconn.Session) error {
	dir := znode.Lock(home, "s")
	for range 8 {
		places, _, err := s.Children(p.Context(), dir)
		if err != nil && !errors.Is(err, zkconn.ErrNoNode) {
			return err
		}
		for _, place := range places {
			if err := remove(p.Context(), s, dir+"/"+place); err != nil {
				return err
			}
		}
		if err := rest(p, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// savedPlan: a saved plan is applied twice, one apply after the other or both at once, while somebody joins and
// another apply changes what the plan says.
func savedPlan(w *world) {
	w.given(declares(aJob("a", 1), aJob("b", 1)))
	c := declares(aJob("a", 2), aJob("b", 1, label("new")), aJob("c", 1))
	file := w.saved(c)
	w.applyFile("one", 1, c, file)
	w.applyFile("two", 1, c, file)
	w.apply("other", 1, declares(aJob("a", 1), aJob("b", 1, label("other"))))
	w.worker(shift{name: "w", job: "a", lives: 1, works: hours})
	w.last(c)
}

// month is when a saved plan is certainly too old.
const month = 31 * 24 * time.Hour

// prune: the mark of a saved plan goes when the plan is too old to be applied.
func prune(w *world) {
	w.given(declares(aJob("b", 1)))
	c := declares(aJob("b", 1, label("new")), aJob("c", 1))
	file := w.saved(c)
	w.applyFile("one", 1, c, file)
	w.applyFile("two", 1, c, file)
	w.later = month
	w.last(c)
	w.AtEnd(func() error {
		if marks := w.now.below(znode.AppliedDir(home)); len(marks) > 0 {
			return fmt.Errorf("after a month there is the mark of an applied plan: %q", marks)
		}
		return nil
	})
}

// saved makes a plan file before everything else. The file is in what it returns.
func (w *world) saved(c config) *[]byte {
	file := new([]byte)
	w.Setup(func(ctx context.Context, s *zkconn.Session) (err error) {
		*file, err = c.save(ctx, s)
		return err
	})
	return file
}

// applyFile declares a process that is "muster apply FILE".
func (w *world) applyFile(name string, lives int, c config, file *[]byte) {
	w.process(name, lives, func(p *sim.Process) error {
		who := &actor{config: &c, saved: true}
		s, err := w.dial(p, who)
		if err != nil {
			return err
		}
		defer s.Close()
		r := c.applyFile(p.Context(), s, *file, w.planned(p, who))
		if r.exit() == exitcode.Done {
			w.seen.add("saved plan applied")
		}
		return w.ended(p, who, r)
	})
}

// twoStacks declare one job, and each may take it from the other.
func twoStacks(w *world) {
	w.given(declares(aJob("a", 1)))
	s := config{stack: "s", takeOver: []string{"t"}, declared: []resource.Declaration{aJob("a", 1, label("s"))}}
	t := config{stack: "t", takeOver: []string{"s"}, declared: []resource.Declaration{aJob("a", 1, label("t"))}}
	w.apply("apply", 1, s)
	w.apply("other", 1, t)
	w.worker(shift{name: "w", job: "a", lives: 1, works: hours})
	w.last(s)
}

// deleteOwners: a stack deletes a job, which another one takes from it meanwhile.
func deleteOwners(w *world) {
	w.given(declares(aJob("a", 1)))
	s := declares()
	t := config{stack: "t", takeOver: []string{"s"}, declared: []resource.Declaration{aJob("a", 1, label("t"))}}
	w.apply("apply", 1, s)
	w.apply("other", 1, t)
	w.last(t)
}
