package page

import (
	"context"
	"errors"
	"slices"

	"muster/apply/history"
	"muster/resource"
	"muster/zkstate"
	"muster/zkstate/zkconn"
)

// index keeps current which stacks there are, where they have something, and who applied them.
type index struct {
	keeper *keeper
	mirror *zkstate.Mirror
	look   *zkstate.Look

	roots   []string
	stacks  []Stack
	history []history.Found
	last    map[string]history.Found // by stack, also of stacks that are not shown
	problem string                   // why not all stacks are known
}

// changed is closed when the index has to be read again.
func (x *index) changed() <-chan struct{} { return x.look.Changed() }

func (x *index) close() {
	if x.look != nil {
		x.look.Close()
	}
}

// update reads the index if it has changed.
func (x *index) update(ctx context.Context) error {
	if x.look != nil && !isClosed(x.look.Changed()) {
		return nil
	}
	look := x.mirror.Look()
	err := x.read(ctx, zkstate.NewReader(look, x.keeper.cfg.Home, x.keeper.cfg.Kinds...))
	x.close()
	x.look = look
	return err
}

// read reads the index. What is damaged or may not be read is a problem, and no error.
func (x *index) read(ctx context.Context, r *zkstate.Reader) error {
	cfg := x.keeper.cfg
	x.stacks, x.history, x.last, x.problem = nil, nil, map[string]history.Found{}, ""
	names, err := r.Stacks(ctx)
	if err := x.note(ctx, err); err != nil {
		return err
	}
	if len(cfg.Stacks) > 0 {
		shown := func(name string) bool { return slices.Contains(cfg.Stacks, name) }
		for _, name := range names {
			if !shown(name) { // it may have something beside what is shown
				if err := x.lastOf(ctx, r, name); err != nil {
					return err
				}
			}
		}
		names = slices.DeleteFunc(names, func(name string) bool { return !shown(name) })
	}
	x.roots = slices.Concat(cfg.Roots, cfg.Also)
	for _, name := range names {
		if err := x.stack(ctx, r, name, max(1, maxHistory/len(names))); err != nil {
			return err
		}
	}
	if len(cfg.Roots) == 0 && len(cfg.Stacks) == 0 {
		x.roots = append(x.roots, resource.DefaultRoot)
	}
	slices.Sort(x.roots)
	x.roots = slices.Compact(x.roots)
	history.NewestFirst(x.history)
	return nil
}

// stack reads one stack, and the newest n entries of its history. If roots are named, a stack that has nothing in any
// of them is not shown.
func (x *index) stack(ctx context.Context, r *zkstate.Reader, name string, n int) error {
	cfg := x.keeper.cfg
	roots, err := r.Roots(ctx, name)
	if err := x.note(ctx, err); err != nil {
		return err
	}
	if len(cfg.Roots) > 0 {
		if !slices.ContainsFunc(roots, func(root string) bool { return slices.Contains(cfg.Roots, root) }) {
			return x.lastOf(ctx, r, name)
		}
	} else {
		x.roots = append(x.roots, roots...)
	}
	found, err := r.History(ctx, name, min(n, history.Kept))
	if err := x.note(ctx, err); err != nil {
		return err
	}
	s := Stack{Name: name, Roots: roots}
	if len(found) > 0 {
		s.Last, x.last[name] = &found[0], found[0]
	}
	x.history = append(x.history, found...)
	x.stacks = append(x.stacks, s)
	return nil
}

// lastOf reads the last apply of a stack that is not shown.
func (x *index) lastOf(ctx context.Context, r *zkstate.Reader, name string) error {
	found, err := r.History(ctx, name, 1)
	for _, f := range found {
		x.last[name] = f
	}
	return x.note(ctx, err)
}

// note notes why something could not be read. It returns the error of a session that has ended.
func (x *index) note(ctx context.Context, err error) error {
	switch {
	case err == nil:
	case errors.Is(err, zkconn.ErrSessionLost), errors.Is(err, zkconn.ErrUnreachable), ctx.Err() != nil:
		return err
	case x.problem == "":
		x.problem = err.Error()
	}
	return nil
}
