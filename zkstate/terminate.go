package zkstate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/plan"
	"muster/resource"
	"muster/text"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// The errors of Terminate, besides those of package plan. Except for ErrStillLive, nothing was changed.
var (
	// ErrProtected means that it is declared with protect. Apply it without protect, then terminate it.
	ErrProtected = errors.New("it is protected")
	// ErrOtherStack means that it belongs to another stack, which the error names. Make sure that you mean it, and
	// terminate it as that stack.
	ErrOtherStack = errors.New("it belongs to another stack")
	// ErrNotTerminable means that nobody can be asked to stop: the znode has no Record, or cannot be read.
	ErrNotTerminable = errors.New("nobody there can be asked to stop")
	// ErrStillLive means that some members did not leave in time; the error names them. It is open again, and the
	// others have left. Find out why these stay, and terminate again.
	ErrStillLive = errors.New("still live")
)

// undoLimit is how long Terminate tries to withdraw its request after its context has ended.
const undoLimit = 10 * time.Second

// Terminate asks the members of the resource at path to stop, and waits until none is live. Then it deletes it, but for
// one that is kept in place: that stays, with what its members have saved, and nobody can join before the next apply.
// Terminate never deletes under live members: when the timeout or ctx ends, it withdraws the request. Unless waiting is
// nil, it is called with the live members, again whenever they change. Without live members nothing is waited for.
//
// plan.ErrAlreadyDone means that nothing is there, plan.ErrUnknown that the connection was lost: read it again.
func (s *Store) Terminate(ctx context.Context, path string, timeout time.Duration, waiting func(live []string)) error {
	o, err := s.Find(ctx, path)
	if err == nil {
		err = s.checkTerminable(o)
	}
	if err == nil {
		err = s.terminateHeld(ctx, path, o.Record, timeout, waiting)
	}
	if err != nil {
		return fmt.Errorf("terminate %s: %w", path, err)
	}
	return nil
}

// terminateHeld terminates while no reconciler may put the resource back.
func (s *Store) terminateHeld(
	ctx context.Context, path string, rec *resource.Record, timeout time.Duration, waiting func([]string),
) error {
	done, err := s.holdTerminated(ctx, path, rec, timeout)
	if err != nil {
		return err
	}
	g, stays := rec.Generation, rec.Declaration.Policy().InPlace
	if err = s.terminate(ctx, path, g, stays, timeout, waiting); err == nil && !stays {
		s.removeGeneration(ctx, rec.Declaration.Kind(), path, g)
	}
	return errors.Join(err, done(err == nil))
}

func (s *Store) checkTerminable(o *resource.Observed) error {
	switch {
	case o == nil:
		return fmt.Errorf("%w: nothing is there", plan.ErrAlreadyDone)
	case o.Problem != "":
		return fmt.Errorf("%w: %s", ErrNotTerminable, o.Problem)
	case o.Repairable(), slices.ContainsFunc(o.Lost, resource.Part.CanBePutBack):
		return fmt.Errorf("%w: a part of it was deleted or changed by hand; apply puts it back, or explain says why not",
			ErrNotTerminable)
	case o.Record == nil:
		return fmt.Errorf("%w: classic workers take no requests", ErrNotTerminable)
	case o.Record.Stack != s.cfg.Stack:
		return fmt.Errorf("%w: %s", ErrOtherStack, o.Record.Stack)
	case o.Record.Declaration.Policy().Protect:
		return ErrProtected
	}
	return nil
}

// terminate asks the members to stop, waits until none is live, and deletes the resource, unless it stays: then the
// request stays too.
func (s *Store) terminate(
	ctx context.Context, path, g string, stays bool, timeout time.Duration, waiting func([]string),
) error {
	waitCtx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("waited %s", timeout))
	defer cancel()
	var err error
	if !stays {
		err = s.deleteIdle(ctx, path, g)
	}
	requested := stays || errors.Is(err, ErrStillLive)
	for again := requested; again; again = errors.Is(err, ErrStillLive) {
		if err = s.request(ctx, path, g, resource.StateTerminating); err == nil {
			err = s.awaitIdle(waitCtx, path, waiting)
		}
		if err == nil && !stays {
			err = s.deleteIdle(ctx, path, g)
		}
	}
	if err != nil && requested {
		err = s.undoRequest(ctx, path, g, err)
	}
	return err
}

// deleteIdle deletes the resource if no member is live, or returns ErrStillLive.
func (s *Store) deleteIdle(ctx context.Context, path, g string) error {
	return s.change(ctx, path, func(o *resource.Observed) (transaction, error) {
		switch {
		case o == nil || o.Record == nil || o.Record.Generation != g:
			return transaction{}, nil // the generation has ended: its last worker or somebody else did it
		case o.Live > 0:
			return transaction{}, ErrStillLive
		}
		if err := s.checkTerminable(o); err != nil {
			return transaction{}, err
		}
		return s.delete(o), nil
	})
}

func (s *Store) request(ctx context.Context, path, g string, state resource.State) error {
	return s.change(ctx, path, func(o *resource.Observed) (transaction, error) {
		if o == nil || o.Record == nil || o.Record.Generation != g || o.Record.State == state {
			return transaction{}, nil
		}
		if err := s.checkTerminable(o); err != nil && state == resource.StateTerminating {
			return transaction{}, err
		}
		rec := *o.Record
		rec.State, rec.Op = state, NewID()
		set, err := SetRecordOps(rec, o.RecordVersion)
		return transaction{
			ops: append([]zkconn.Op{zkconn.CheckOp(znode.Gate(rec.Declaration.ID().Root, g), -1)}, set...),
			done: func(ctx context.Context) (bool, error) {
				now, err := s.Look(ctx, path)
				return now != nil && now.Record != nil && now.Record.Op == rec.Op, err
			},
		}, err
	})
}

func (s *Store) awaitIdle(ctx context.Context, path string, waiting func([]string)) error {
	for {
		live, _, event, err := s.session.ChildrenW(ctx, path)
		if errors.Is(err, zkconn.ErrNoNode) || err == nil && len(live) == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		if waiting != nil {
			waiting(live)
		}
		select {
		case <-event:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// undoRequest opens the resource again after a termination failed with cause. Its error is ErrStillLive with the names
// of the live members, unless all have left.
func (s *Store) undoRequest(ctx context.Context, path, g string, cause error) error {
	left, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
	defer cancel()
	if err := s.request(left, path, g, resource.StateOpen); err != nil {
		return fmt.Errorf("%w: the request to stop may stand: %w: %w", plan.ErrUnknown, cause, err)
	}
	live, _, err := s.session.Children(left, path)
	if err != nil || len(live) == 0 {
		return fmt.Errorf("%w: it is open again, and its members have left: terminate it again: %w",
			plan.ErrMoved, cause)
	}
	return fmt.Errorf("%w: %s: %w", ErrStillLive, text.List(live, 5), cause)
}
