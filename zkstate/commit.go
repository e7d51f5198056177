package zkstate

import (
	"context"
	"errors"
	"fmt"

	"muster/plan"
	"muster/resource"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// attempts bounds how often a transaction that certainly did not happen is sent again. Every one carries its
// preconditions, so sending it again cannot do anything twice.
const attempts = 4

// Commit makes r true in one transaction if r.Old still holds. It answers nil, plan.ErrAlreadyDone, plan.ErrMoved or
// plan.ErrUnknown, each wrapped with what happened; any other error means that nothing was written.
func (s *Store) Commit(ctx context.Context, r plan.Row) error {
	var err error
	for sent := 0; sent < attempts; {
		var again bool
		if again, err = s.commitOnce(ctx, r); !again {
			break
		}
		if !errors.Is(err, errIndexMoved) { // then somebody else has got on, and that is no reason to give up
			sent++
		}
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", r.Kind().Name, r.Path, err)
	}
	return nil
}

// transaction is one commit, ready to be sent.
type transaction struct {
	ops  []zkconn.Op
	done func(ctx context.Context) (bool, error) // reads whether it was committed
}

// commitOnce checks, sends once, and finds out. Again means: certainly not committed, and worth another try.
func (s *Store) commitOnce(ctx context.Context, r plan.Row) (again bool, err error) {
	if r.Action() != plan.Create { // the creates of a create are its precondition
		now, err := s.check(ctx, r)
		if err != nil {
			return false, err
		}
		r.Old = now // with everything that the Record says, which a saved plan does not hold
	}
	t, err := s.transaction(ctx, r)
	if err != nil {
		return false, s.translate(ctx, err)
	}
	_, err = s.session.Multi(ctx, t.ops...)
	switch {
	case err == nil:
		return false, nil
	case errors.Is(err, zkconn.ErrUnknown):
		return s.resolve(ctx, t, err)
	case s.indexMoved(err):
		return true, fmt.Errorf("%w: %w", errIndexMoved, err)
	case preconditionFailed(err):
		s.forgetFolders() // one of them may be what is missing
		return s.explain(ctx, r, err)
	}
	return false, s.translate(ctx, err)
}

// preconditionFailed reports whether a transaction was refused because something is not as it was read.
func preconditionFailed(err error) bool {
	return errors.Is(err, zkconn.ErrNodeExists) || errors.Is(err, zkconn.ErrNoNode) ||
		errors.Is(err, zkconn.ErrBadVersion) || errors.Is(err, zkconn.ErrNotEmpty)
}

// resolve learns what became of a transaction whose reply was lost.
func (s *Store) resolve(ctx context.Context, t transaction, lost error) (again bool, err error) {
	if err := s.session.Settled(ctx); err != nil {
		return false, fmt.Errorf("%w: %w", plan.ErrUnknown, lost)
	}
	done, err := t.done(ctx)
	switch {
	case err != nil:
		return false, fmt.Errorf("%w: %w", plan.ErrUnknown, err)
	case done:
		return false, nil
	}
	return true, fmt.Errorf("nothing was written: %w", lost)
}

// explain turns a refused transaction into what moved. Facts that read as before although ZooKeeper refused were read
// between two changes of somebody else: look again.
func (s *Store) explain(ctx context.Context, r plan.Row, refused error) (again bool, err error) {
	err = s.Check(ctx, r)
	if err == nil {
		return true, fmt.Errorf("%w: %w", plan.ErrMoved, refused)
	}
	return false, err
}

// translate separates what was never sent because ctx ended from an error of the world.
func (s *Store) translate(ctx context.Context, err error) error {
	if errors.Is(err, zkconn.ErrNotSent) && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// change looks at a thing and sends the transaction that decide makes of it, if any; again if somebody else was faster.
func (s *Store) change(ctx context.Context, path string, decide func(*resource.Observed) (*transaction, error)) error {
	var err error
	for range attempts {
		o, lookErr := s.Look(ctx, path)
		if lookErr != nil {
			return lookErr
		}
		t, decideErr := decide(o)
		if t == nil || decideErr != nil {
			return decideErr
		}
		again := true
		_, err = s.session.Multi(ctx, t.ops...)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, zkconn.ErrUnknown):
			again, err = s.resolve(ctx, *t, err)
		case preconditionFailed(err):
			err = fmt.Errorf("%w: %w", plan.ErrMoved, err)
		default:
			return s.translate(ctx, err)
		}
		if !again {
			return err
		}
	}
	return err
}

// sweep removes what is left of generation g of the thing at path, if its gate is gone. What it cannot remove, the next apply
// collects.
func (s *Store) sweep(ctx context.Context, path, g string) {
	root, _ := split(path)
	if open, err := s.exists(znode.Gate(root, g))(ctx); err == nil && !open {
		_ = s.removeTree(ctx, znode.Run(root, g))
	}
}

func (r *Reader) exists(path string) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		_, ok, err := r.session.Exists(ctx, path)
		return ok, err
	}
}
