package zkstate

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/apply/history"
	"muster/resource"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// History reads the newest n entries of a stack's history, the newest first; all that are kept if n is 0.
func (r *Reader) History(ctx context.Context, stack string, n int) ([]history.Found, error) {
	if resource.CheckName("stack", stack) != nil {
		return nil, nil // somebody wrote it into a record by hand
	}
	dir := znode.History(r.home, stack)
	if err := r.source.Sync(ctx, dir); err != nil {
		return nil, err
	}
	names, err := r.entries(ctx, stack)
	if err != nil {
		return nil, fmt.Errorf("the history of stack %s: %w", stack, err)
	}
	if n <= 0 {
		n = history.Kept
	}
	found, err := ForEach(ctx, names[:min(n, len(names))],
		func(ctx context.Context, name string) (*history.Found, error) { return r.entry(ctx, dir, name) })
	if err != nil {
		return nil, err
	}
	return r.whichRun(ctx, stack, slices.DeleteFunc(found, func(f *history.Found) bool { return f == nil }))
}

// whichRun tells the applies that go on from those that were killed. An apply sets its entry before it gives the lock
// back, so an entry that still is not finished after somebody else, or nobody, was seen with the lock never will be.
func (r *Reader) whichRun(ctx context.Context, stack string, found []*history.Found) ([]history.Found, error) {
	var holder znode.Mark
	var held bool
	if slices.ContainsFunc(found, func(f *history.Found) bool { return f.State == history.Unfinished }) {
		var err error
		if holder, held, err = r.Holder(ctx, stack); err != nil {
			return nil, err
		}
	}
	all := []history.Found{}
	for i, f := range found {
		plan := holder.Plan
		if held && plan == "" && i == 0 { // who it is cannot be read
			plan = f.Plan
		}
		if f.State == history.Unfinished && f.Plan != "" && f.Plan == plan {
			f.State = history.Running
		} else if f.State == history.Unfinished {
			again, err := r.entry(ctx, znode.History(r.home, stack), f.Name)
			if err != nil {
				return nil, err
			}
			f = cmp.Or(again, f)
		}
		f.Stack = stack
		all = append(all, *f)
	}
	return all, nil
}

// entries lists the names of the entries of a stack, the newest first.
func (r *Reader) entries(ctx context.Context, stack string) ([]string, error) {
	names, err := r.children(ctx, znode.History(r.home, stack))
	names = slices.DeleteFunc(names, func(name string) bool {
		_, err := znode.EntryNumber(name)
		return err != nil // somebody else's
	})
	slices.Reverse(names) // they come sorted, and all numbers have ten digits
	return names, err
}

// entry reads one entry; nil if it is gone.
func (r *Reader) entry(ctx context.Context, dir, name string) (*history.Found, error) {
	f := history.Found{Name: name, State: history.Damaged}
	f.Number, _ = znode.EntryNumber(name) // entries has checked it
	body, stat, err := r.source.Get(ctx, dir+"/"+name)
	switch {
	case errors.Is(err, zkconn.ErrNoNode):
		return nil, nil
	case errors.Is(err, zkconn.ErrNoAuth):
		f.Problem = "no permission to read it"
		return &f, nil
	case err != nil:
		return nil, err
	}
	e, err := znode.Decode[znode.Entry](body)
	if err != nil {
		f.Problem, f.Started = err.Error(), stat.Ctime.UTC()
		return &f, nil
	}
	f.Entry, f.State = e.Entry, history.Unfinished
	switch {
	case !e.Finished.IsZero():
		f.State = history.Finished
	case !e.Settled.IsZero():
		f.State = history.Settled
	}
	return &f, nil
}

// BeginEntry writes the entry of an apply that is about to change something, and deletes the oldest entries beyond
// history.Kept. It sets in e who applies, and returns the path of the entry. The caller holds the apply lock, but
// nothing depends on that.
func (s *Store) BeginEntry(ctx context.Context, e *history.Entry) (path string, err error) {
	*e = e.Begin(s.cfg.By, s.cfg.Version, s.cfg.Who, time.Now())
	body, err := znode.Encode(znode.Entry{Op: NewID(), Entry: *e})
	if err != nil {
		return "", err
	}
	// The folder is below the index of the stack, so that has to exist.
	if err := s.rewriteIndex(ctx, func(*znode.Index) bool { return false }); err != nil {
		return "", err
	}
	if err := s.makeFolder(ctx, znode.History(s.home, s.cfg.Stack)); err != nil {
		return "", err
	}
	if path, err = s.createEntry(ctx, body); err != nil {
		return "", err
	}
	// The oldest entries are the oldest also if others write or prune at the same time.
	names, err := s.entries(ctx, s.cfg.Stack)
	if err != nil || len(names) <= history.Kept {
		return path, err
	}
	dir := znode.History(s.home, s.cfg.Stack)
	return path, s.prune(ctx, dir, names[history.Kept:], func(zkconn.Stat) bool { return true })
}

// EntryPath is the path of an entry in the history of the Store's stack.
func (s *Store) EntryPath(name string) string { return znode.History(s.home, s.cfg.Stack) + "/" + name }

// createEntry creates an entry with a body that nobody else writes. After a lost reply the body shows whether it was
// created.
func (s *Store) createEntry(ctx context.Context, body []byte) (string, error) {
	var path string
	err := s.session.Once(ctx, func() (err error) {
		path, err = s.session.Create(ctx, znode.NewEntry(s.home, s.cfg.Stack), body, zkconn.PersistentSequential, s.acl)
		return err
	}, func() (bool, error) {
		names, err := s.entries(ctx, s.cfg.Stack)
		for _, name := range names { // the newest first: it is the first one, unless somebody took the lock away
			path = s.EntryPath(name)
			found, _, err := s.session.Get(ctx, path)
			switch {
			case bytes.Equal(found, body):
				return true, nil
			case err != nil && !errors.Is(err, zkconn.ErrNoNode) && !errors.Is(err, zkconn.ErrNoAuth):
				return false, err
			}
		}
		return false, err
	})
	return path, err
}

// EndEntry sets what became of the apply whose entry BeginEntry created at path.
func (s *Store) EndEntry(ctx context.Context, path string, e history.Entry) error {
	e.Finished = time.Now().UTC().Truncate(time.Second)
	if e.Finished.Before(e.Started) { // the clock was set back
		e.Finished = e.Started
	}
	return s.rewriteEntry(ctx, path, e, -1) // nobody else does, but Settle if the lock was deleted by hand
}

// Settle notes in the last entry that nothing is left to do, if its apply was killed or cut off. What left lists is
// still to be changed.
func (s *Store) Settle(ctx context.Context, left []string) error {
	last, err := s.History(ctx, s.cfg.Stack, 1)
	if err != nil || len(last) == 0 || last[0].State != history.Unfinished {
		return err
	}
	if len(left) > 0 && (last[0].More > 0 || slices.ContainsFunc(last[0].Changes, func(c history.Change) bool {
		return slices.Contains(left, c.Path)
	})) {
		return nil
	}
	last[0].Settled = time.Now().UTC().Truncate(time.Second)
	return s.rewriteEntry(ctx, s.EntryPath(last[0].Name), last[0].Entry, 0)
}

func (s *Store) rewriteEntry(ctx context.Context, path string, e history.Entry, version int32) error {
	body, err := znode.Encode(znode.Entry{Op: NewID(), Entry: e})
	if err != nil {
		return err
	}
	return s.session.Once(ctx, func() error {
		_, err := s.session.Set(ctx, path, body, version)
		return err
	}, s.holds(ctx, path, body))
}
