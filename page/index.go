package page

import (
	"context"
	"errors"
	"slices"

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
	history []Apply
	problem string // why not all stacks are known
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
	if x.look != nil {
		select {
		case <-x.look.Changed():
		default:
			return nil
		}
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
	x.problem = ""
	listed, err := r.AllRoots(ctx)
	switch {
	case err == nil:
	case errors.Is(err, zkconn.ErrSessionLost), ctx.Err() != nil:
		return err
	default:
		x.problem = err.Error()
	}
	x.roots = slices.Clone(cfg.Roots)
	if len(cfg.Roots) == 0 {
		x.roots = append(listed, resource.DefaultRoot)
	}
	slices.Sort(x.roots)
	x.roots = slices.Compact(x.roots)
	return nil
}
