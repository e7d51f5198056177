package stacks_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"muster/apply/history"
	"muster/dev/zkmodel"
	"muster/exitcode"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// manyEntries: so many applies were before that the next ones delete the oldest entries, two of them at once, since
// somebody deletes places in the queue for the lock by hand.
func manyEntries(w *world) {
	w.noLock = true
	w.given(declares(aJob("a", 1)))
	w.Setup(func(ctx context.Context, s *zkconn.Session) error {
		body, err := znode.EncodeEntry(znode.Entry{Op: "o", Entry: history.Entry{By: "s@here", Started: time.Now()}})
		if err != nil {
			return err
		}
		some := slices.Repeat([]zkconn.Op{
			zkconn.CreateOp(znode.NewEntry(home, "s"), body, zkconn.PersistentSequential, anyone()),
		}, 40)
		for range history.Kept / 40 { // with that of given there is one too many
			if _, err := s.Multi(ctx, some...); err != nil {
				return err
			}
		}
		return nil
	})
	c := declares(aJob("a", 1, label("1")))
	w.hand("hand", unlockOften)
	w.apply("one", 1, c)
	w.apply("two", 1, declares(aJob("a", 1, label("2")), aJob("b", 1)))
	w.last(c)
	w.AtEnd(func() error {
		entries := w.now.below(znode.History(home, "s"))
		if entries[0] != "h-0000000000" {
			w.seen.add("pruned")
		}
		if len(entries) > history.Kept {
			return fmt.Errorf("%d entries", len(entries))
		}
		return nil
	})
}

// history: an apply makes one entry, which nobody else writes, and deletes only what is old.
func (c *checker) history(before tree, t *zkmodel.Txn, who *actor) error {
	for _, o := range t.Ops {
		dir := path.Dir(o.Path)
		if who.config == nil || dir != znode.History(home, who.config.stack) {
			continue
		}
		switch o.Type {
		case zkmodel.OpCreate:
			if who.entry != "" {
				return fmt.Errorf("%s is its second entry, after %s", o.Path, who.entry)
			}
			who.entry = o.Path
		case zkmodel.OpSetData:
			if who.entry != o.Path || before[o.Path].stat.Version != 0 {
				return fmt.Errorf("%s was written again, and its own is %q", o.Path, who.entry)
			}
		case zkmodel.OpDelete:
			newer := 0
			for _, name := range before.below(dir) {
				if strings.Compare(name, path.Base(o.Path)) > 0 {
					newer++
				}
			}
			if newer < history.Kept {
				return fmt.Errorf("%s was deleted, and %d are newer", o.Path, newer)
			}
		}
	}
	return nil
}

// recorded: an apply that has ended has an entry that says what became of it, and none if it changed nothing.
func (c *checker) recorded(who *actor, r result) error {
	switch {
	case len(r.outcomes) == 0 && who.entry != "":
		return fmt.Errorf("%s is of an apply that changed nothing", who.entry)
	case len(r.outcomes) == 0, r.exit() == exitcode.Unreachable:
		return nil
	case r.unrecorded != nil:
		return fmt.Errorf("it could not write its entry: %w", r.unrecorded)
	case who.entry == "":
		return errors.New("it has no entry")
	}
	e, err := znode.DecodeEntry(c.now[who.entry].data)
	if err != nil {
		return err
	}
	results := map[string]int{}
	for _, o := range r.outcomes {
		results[string(o.Result)]++
	}
	if e.Finished.IsZero() || e.Plan != r.plan.ID || !maps.Equal(e.Results, results) {
		return fmt.Errorf("%s says %+v, and it ended with %v", who.entry, e, results)
	}
	return nil
}

// historyScenes are those of the history of a stack.
func historyScenes() map[string]scene {
	return map[string]scene{
		"many-entries": {declare: manyEntries, must: []string{"pruned", "exit 0"}},
	}
}
