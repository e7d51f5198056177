package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"muster/apply"
	"muster/apply/history"
	"muster/plan"
	"muster/resource"
	"muster/text"
	"muster/zkstate"
	"muster/zkstate/znode"
)

// reading is the apply.Reader of a pass: it reads only what has changed.
type reading struct {
	*zkstate.Reader // through a Look
	tracker         *zkstate.Tracker
	more            *zkstate.Reader // for what is read once
}

func (r *reading) ReadFor(
	ctx context.Context, roots, _ []string, _ func(string, *resource.Observed) bool,
) (plan.State, error) {
	state, err := r.tracker.Read(ctx, roots)
	state.Found = maps.Clone(state.Found) // Compare adds to it
	return state, err
}

func (r *reading) FillSaved(ctx context.Context, row plan.Row) error {
	return r.more.FillSaved(ctx, row)
}

// FillMembers does nothing: a reconciler asks nobody.
func (r *reading) FillMembers(context.Context, string, *resource.Observed) error { return nil }

// pass compares, and makes the changes that are allowed now if this one acts. It returns when to look again though
// nothing has changed; zero: not.
func (d *seated) pass(ctx context.Context, files *settled, from *reading) (again time.Time, err error) {
	r := d.r
	if files == nil {
		return time.Time{}, nil
	}
	p, err := apply.Compare(ctx, from, files.Want, files.Roots)
	if err != nil {
		return time.Time{}, err
	}
	// What people said is read after what is there: they say it before they change anything.
	kept, _, err := from.Reconcile(ctx, r.cfg.Stack)
	if err != nil {
		return time.Time{}, err
	}
	now := time.Now()
	if n := d.session.Connections(); n != d.connections { // members may have come and gone meanwhile
		d.connections = n
		clear(d.memory.idle)
	}
	d.memory.note(p, now)
	r.set(func(s *Status) {
		s.Differs = kept.Config != "" && kept.Config != files.Digest
		s.Paused = kept.All.Is(now)
	})
	if d.acts.IsZero() {
		return time.Time{}, nil
	}
	found, err := from.History(ctx, r.cfg.Stack, znode.MaxApplies)
	if err != nil {
		return time.Time{}, err
	}
	if kept.Config != files.Digest {
		due := d.acts.Add(r.cfg.Patience)
		if kept.Config != "" && kept.Config != r.took && files.at.Before(d.acts) && now.Before(due) {
			return due, nil
		}
		if kept, err = d.keep(ctx, func(k *znode.Reconcile) {
			k.Config, k.Seen, k.Shut, k.Changed = files.Digest, nextEntry(found), nil, nil
		}); err != nil {
			return time.Time{}, err
		}
		r.took = files.Digest
	}
	if by, applied := kept.Applied(found); applied && by.Config == kept.Config { // who has applied has looked
		if kept, err = d.keep(ctx, func(k *znode.Reconcile) { k.Seen, k.Shut = nextEntry(found), nil }); err != nil {
			return time.Time{}, err
		}
	}
	if ended := terminatedEnds(p, &kept); len(ended) > 0 {
		if kept, err = d.keep(ctx, func(k *znode.Reconcile) {
			for _, at := range ended {
				delete(k.Held, at)
			}
		}); err != nil {
			return time.Time{}, err
		}
	}
	kept.Forget(now)
	superseded := ""
	if by, left := kept.LeftAs(found); left {
		superseded = fmt.Sprintf("left as %s has applied it at %s, until the files change",
			by.Actor, by.Started.UTC().Format(time.DateTime))
	}
	c := r.cfg.choose(p, &kept, d.memory, superseded, files.Judge, now)
	if len(c.shut) > 0 {
		if kept, err = d.keep(ctx, func(k *znode.Reconcile) { shut(k, c.shut, d.store.By(), now) }); err != nil {
			return time.Time{}, err
		}
	}
	r.tellWaiting(p, c)
	if len(c.do) > 0 || d.tidy {
		d.store.SetCommit(files.Commit)
		as := &recorder{Store: d.store, stack: r.cfg.Stack, config: files.Digest, op: kept.Op, next: nextEntry(found)}
		switch err := d.apply(ctx, p, c.do, as); {
		case errors.Is(err, errOvertaken), errors.Is(err, zkstate.ErrLocked): // which is no failure
			r.cfg.Log.Info("a pass gives way", "reason", err)
			return time.Now().Add(passEvery), nil
		case err != nil:
			return time.Time{}, err
		}
		d.tidy = false
		for _, t := range d.memory.tries {
			c.wake(t.next)
		}
	}
	r.set(func(s *Status) { s.LastSuccess, s.Shut = time.Now(), len(kept.Shut)+len(c.shut) > 0 })
	return c.again, nil
}

// nextEntry is the number after that of the newest entry.
func nextEntry(found []history.Found) int {
	if len(found) == 0 {
		return 0
	}
	return found[0].Number + 1
}

func shut(k *znode.Reconcile, words map[Word]int, by string, now time.Time) {
	if k.Shut == nil {
		k.Shut = map[string]znode.Hold{}
	}
	for word, n := range words {
		k.Shut[string(word)] = znode.Hold{
			Why: znode.TooMany, By: by, Since: now, Because: text.Count(n, "change") + " within an hour",
		}
	}
}

// apply makes changes. What a guard counts is counted first: who dies meanwhile has counted too much, never too little.
func (d *seated) apply(ctx context.Context, p plan.Plan, rows []plan.Row, as *recorder) error {
	now := time.Now().UTC().Truncate(time.Second)
	count := func(rows []plan.Row) (deleted, replaced int) {
		for _, row := range rows {
			switch guardOf(row, wordOf(row)) {
			case Delete:
				deleted++
			case Replace:
				replaced++
			}
		}
		return deleted, replaced
	}
	deleted, replaced := count(rows)
	if deleted+replaced > 0 {
		counted, err := d.keep(ctx, func(k *znode.Reconcile) {
			k.Deleted = append(k.Deleted, slices.Repeat([]time.Time{now}, deleted)...)
			k.Replaced = append(k.Replaced, slices.Repeat([]time.Time{now}, replaced)...)
			if deleted > 0 {
				delete(k.Meant, string(Delete))
			}
			if replaced > 0 {
				delete(k.Meant, string(Replace))
			}
		})
		if err != nil {
			return err
		}
		as.op = counted.Op
	}
	only := p
	only.ID, only.Partial = zkstate.NewID(), true
	only.Rows = slices.DeleteFunc(slices.Clone(p.Rows), func(r plan.Row) bool {
		return r.Action().Changes() && !slices.ContainsFunc(rows, func(one plan.Row) bool { return one.Path == r.Path })
	})
	if d.r.cfg.Applying != nil {
		d.r.cfg.Applying(p)
	}
	outcomes, err := apply.Run(ctx, as, only, apply.Options{
		CommitOptions: apply.CommitOptions{NoWait: true, Each: d.r.tellOutcome}, // a row that is due was seen for its grace
		Config:        as.config, NoTidy: !d.tidy, LockTimeout: lockTimeout,
		CleanupFailed: func(err error) { d.r.cfg.Log.Info("some garbage is left for later", "reason", err) },
		Unrecorded:    func(err error) { d.r.cfg.Log.Warn("the history does not say what was done", "reason", err) },
	})
	var done, spared []plan.Row
	for _, o := range outcomes {
		changed := o.Result == apply.Applied || o.Result == apply.Unknown
		d.memory.ended(o.Row.Path, !changed && o.Result != apply.AlreadyDone, time.Now())
		if changed {
			done = append(done, o.Row)
		}
		if o.Result != apply.Unknown {
			spared = append(spared, o.Row)
		}
	}
	if outcomes == nil {
		spared = rows
	}
	spared = slices.DeleteFunc(spared, func(r plan.Row) bool {
		return slices.ContainsFunc(done, func(one plan.Row) bool { return one.Path == r.Path })
	})
	deleted, replaced = count(spared)
	if len(done)+deleted+replaced > 0 {
		_, keepErr := d.keep(context.WithoutCancel(ctx), func(k *znode.Reconcile) {
			k.Deleted, k.Replaced = without(k.Deleted, now, deleted), without(k.Replaced, now, replaced)
			d.changed(k, done, now)
		})
		err = errors.Join(err, keepErr)
	}
	return err
}

// without takes n of the times that are equal to one out.
func without(times []time.Time, one time.Time, n int) []time.Time {
	return slices.DeleteFunc(times, func(t time.Time) bool {
		if n > 0 && t.Equal(one) {
			n--
			return true
		}
		return false
	})
}

// changed notes what was changed, and holds what was changed too often.
func (d *seated) changed(k *znode.Reconcile, done []plan.Row, now time.Time) {
	k.Forget(now)
	for _, row := range done {
		if k.Changed == nil {
			k.Changed = map[string][]time.Time{}
		}
		k.Changed[row.Path] = append(k.Changed[row.Path], now)
		if len(k.Changed[row.Path]) < contestedAfter {
			continue
		}
		if k.Held == nil {
			k.Held = map[string]znode.Hold{}
		}
		if _, held := k.Held[row.Path]; !held && len(k.Held) < znode.MaxHolds {
			k.Held[row.Path] = znode.Hold{Why: znode.Contested, By: d.store.By(), Since: now}
			delete(k.Changed, row.Path) // who resumes it begins anew
		}
	}
}

// recorder keeps one entry of the history for each configuration that reconcilers apply, until somebody else applies.
type recorder struct {
	*zkstate.Store
	stack, config string
	op            string // of what is kept, as the pass has read it
	next          int    // the number after that of the newest entry then

	before *history.Entry // it is set again
}

// errOvertaken means that a person said or did something while the pass waited for the lock. Look again.
var errOvertaken = errors.New("somebody was faster")

// Lock takes the lock, unless somebody has said something since, or applied.
func (r *recorder) Lock(ctx context.Context, id string, timeout time.Duration, waiting func(string)) (
	held context.Context, release func() error, err error,
) {
	if held, release, err = r.Store.Lock(ctx, id, timeout, waiting); err != nil {
		return nil, nil, err
	}
	kept, _, err := r.Reconcile(ctx, r.stack)
	var found []history.Found
	if err == nil {
		found, err = r.History(ctx, r.stack, 1)
	}
	if err == nil && (kept.Op != r.op || nextEntry(found) != r.next) {
		err = errOvertaken
	}
	if err != nil {
		return nil, nil, errors.Join(err, release())
	}
	return held, release, nil
}

// BeginEntry returns the entry of passes before, if nothing came after it; else it writes one.
func (r *recorder) BeginEntry(ctx context.Context, e *history.Entry) (string, error) {
	last, err := r.History(ctx, r.stack, 1)
	if err == nil && len(last) == 1 && last[0].Passes > 0 && last[0].Config == r.config &&
		last[0].State == history.Finished {
		r.before = &last[0].Entry
		return r.EntryPath(last[0].Name), nil
	}
	e.Passes = 1
	return r.Store.BeginEntry(ctx, e)
}

// EndEntry adds this pass to the entry. One whose rows were all refused adds nothing.
func (r *recorder) EndEntry(ctx context.Context, path string, e history.Entry) error {
	if r.before == nil {
		return r.Store.EndEntry(ctx, path, e)
	}
	if e.Results[string(apply.Applied)]+e.Results[string(apply.Unknown)] == 0 {
		return nil
	}
	all := *r.before
	all.Passes++
	all.Plan, all.Changes, all.More = e.Plan, e.Changes, e.More
	all.Planned, all.Done, all.Results = sum(all.Planned, e.Planned), sum(all.Done, e.Done), sum(all.Results, e.Results)
	return r.Store.EndEntry(ctx, path, all)
}

func sum(a, b map[string]int) map[string]int {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]int{}
	}
	for word, n := range b {
		all[word] += n
	}
	return all
}
