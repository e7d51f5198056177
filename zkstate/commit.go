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

// maxAttempts is how often a transaction is sent. It is sent again only if it certainly did not happen. Every
// transaction has its preconditions, so nothing can be done twice.
const maxAttempts = 4

// Commit commits r in one transaction if r.Old still holds. It returns nil, plan.ErrAlreadyDone, plan.ErrMoved or
// plan.ErrUnknown, each wrapped with what happened. After any other error nothing was written.
func (s *Store) Commit(ctx context.Context, r plan.Row) error {
	var err error
	for again, sent := true, 0; again && sent < maxAttempts; sent++ {
		again, err = s.commitOnce(ctx, r)
	}
	return rowError(r, err)
}

// rowError is err with the row to which it belongs; nil if err is.
func rowError(r plan.Row, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", r.Kind().Name, r.Path, err)
}

// transaction is one commit, ready to be sent.
type transaction struct {
	ops  []zkconn.Op
	done func(ctx context.Context) (bool, error) // reports whether it was committed
}

// commitOnce checks the row, sends its transaction once, and learns the outcome. again means that it was certainly not
// committed and can be tried again.
func (s *Store) commitOnce(ctx context.Context, r plan.Row) (again bool, err error) {
	var guards []zkconn.Op
	if r.Action() != plan.Create { // for a create, its create operations are the precondition
		var now *resource.Observed
		if now, guards, err = s.check(ctx, r); err != nil {
			return false, err
		}
		r.Old = now // with the whole Record, which a saved plan does not hold
	}
	t, err := s.transaction(ctx, r)
	if err != nil {
		return false, s.translate(ctx, err)
	}
	_, err = s.session.Multi(ctx, append(guards, t.ops...)...)
	switch {
	case err == nil:
		return false, nil
	case errors.Is(err, zkconn.ErrUnknown):
		return s.resolve(ctx, t, err)
	case preconditionFailed(err):
		s.forgetFolders() // a folder may be missing
		return s.explain(ctx, r, err)
	}
	return false, s.translate(ctx, err)
}

// preconditionFailed reports whether a transaction was refused because something has changed since it was read.
func preconditionFailed(err error) bool {
	return errors.Is(err, zkconn.ErrNodeExists) || errors.Is(err, zkconn.ErrNoNode) ||
		errors.Is(err, zkconn.ErrBadVersion) || errors.Is(err, zkconn.ErrNotEmpty)
}

// resolve learns the outcome of a transaction whose reply was lost.
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

// explain returns what has changed after a transaction was refused. If the facts are now as before, they were changed
// twice: try again.
func (s *Store) explain(ctx context.Context, r plan.Row, refused error) (again bool, err error) {
	err = s.Check(ctx, r)
	if err == nil {
		return true, fmt.Errorf("%w: %w", plan.ErrMoved, refused)
	}
	return false, err
}

// translate returns the error of ctx if a write was not sent because ctx ended; otherwise err.
func (s *Store) translate(ctx context.Context, err error) error {
	if errors.Is(err, zkconn.ErrNotSent) && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// change reads a resource and sends the transaction that decide returns for it, if any. It does so again if somebody
// else changed the resource meanwhile.
func (s *Store) change(ctx context.Context, path string, decide func(*resource.Observed) (*transaction, error)) error {
	var err error
	for range maxAttempts {
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

// removeGeneration removes what is left of generation g of the resource at path, if it has ended and is that of this
// resource, as its copy of the Record says. It ignores errors: the next apply removes the rest.
//
// Unlike Collect it does not ask the other Records of the root whether they name g, since each run of each job ends so.
// None of them could be right.
func (s *Store) removeGeneration(ctx context.Context, kind resource.Kind, path, g string) {
	root, _ := split(path)
	c, err := s.readRunCopy(ctx, root, g)
	if err != nil || c == nil || c.record == nil || c.kind.Name != kind.Name || c.record.Declaration.ID().Path() != path {
		return
	}
	if ended, err := s.ended(ctx, kind, path, g); err == nil && ended {
		_ = s.removeTree(ctx, znode.Run(root, g))
	}
}

// ended reports whether generation g of the resource at path has ended: it has no gate, and no Record names it. If only
// the gate is missing, somebody deleted it by hand, and the generation goes on.
func (s *Store) ended(ctx context.Context, kind resource.Kind, path, g string) (bool, error) {
	root, name := split(path)
	open, err := s.exists(znode.Gate(root, g))(ctx)
	if err != nil || open {
		return false, err
	}
	body, _, err := s.session.Get(ctx, znode.Record(kind.Name, root, name))
	if errors.Is(err, zkconn.ErrNoNode) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	rec, err := znode.DecodeRecordAt(kind, path, body)
	return err == nil && rec.Generation != g, err
}

// exists returns a function that reports whether the znode at path exists.
func (r *Reader) exists(path string) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		_, ok, err := r.source.Exists(ctx, path)
		return ok, err
	}
}
