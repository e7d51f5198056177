package zkstate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"muster/resource"
	"muster/zkstate/election"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Reconcile reads what the reconcilers of a stack keep. there is false if the stack has never had one.
func (r *Reader) Reconcile(ctx context.Context, stack string) (now znode.Reconcile, there bool, err error) {
	now, _, there, err = r.reconcile(ctx, stack)
	return now, there, err
}

func (r *Reader) reconcile(ctx context.Context, stack string) (
	now znode.Reconcile, version int32, there bool, err error,
) {
	at := znode.ReconcileState(r.home, stack)
	body, stat, there, err := zkconn.IfThere(r.source.Get(ctx, at))
	if err != nil || !there {
		return now, 0, there, err
	}
	if now, err = znode.Decode[znode.Reconcile](body); err != nil {
		err = fmt.Errorf("%s: %w; set it to {}, which forgets who has paused what", at, err)
	}
	return now, stat.Version, true, err
}

// Held says what the reconcilers of a stack leave as it is, for people, one line each. It is none if the stack has
// never had one.
func (r *Reader) Held(ctx context.Context, stack string, now time.Time) (lines []string, err error) {
	kept, there, err := r.Reconcile(ctx, stack)
	if err != nil || !there {
		return nil, err
	}
	found, err := r.History(ctx, stack, znode.MaxApplies)
	for _, line := range kept.Lines(found, now) {
		lines = append(lines, "muster reconcile leaves "+line)
	}
	return lines, err
}

// Acting says which reconciler of a stack acts; ok is false if none does.
func (r *Reader) Acting(ctx context.Context, stack string) (who znode.Mark, ok bool, err error) {
	return r.first(ctx, reconcilers(r.home, stack))
}

func reconcilers(home, stack string) election.Queue {
	return election.Queue{Dir: znode.ReconcileDir(home, stack), Prefix: znode.SeatPrefix}
}

// TakeSeat makes this session one of the stack's reconcilers. The first one acts: see election.Place.
func (s *Store) TakeSeat(ctx context.Context) (*election.Place, error) {
	m := s.mark(znode.Mark{Since: time.Now()})
	m.What = "reconcile"
	body, err := znode.Encode(m)
	if err != nil {
		return nil, err
	}
	queue := reconcilers(s.home, s.cfg.Stack)
	if err := s.makeFolder(ctx, queue.Dir); err != nil {
		return nil, err
	}
	return queue.Join(ctx, s.session, body, s.acl)
}

// EditReconcile changes what the reconcilers of the Store's stack keep by edit, again if somebody else has changed it
// meanwhile. edit reports whether it has changed anything. It returns what is there now.
func (s *Store) EditReconcile(ctx context.Context, edit func(*znode.Reconcile) bool) (now znode.Reconcile, err error) {
	at := znode.ReconcileState(s.home, s.cfg.Stack)
	for {
		now, version, there, err := s.reconcile(ctx, s.cfg.Stack)
		if err != nil || !edit(&now) {
			return now, err
		}
		now.Op = NewID()
		now.Forget(time.Now())
		body, err := znode.Encode(now)
		if err != nil {
			return now, err
		}
		if !there {
			if err = s.makeFolder(ctx, znode.ReconcileDir(s.home, s.cfg.Stack)); err == nil {
				err = s.createOnce(ctx, at, body)
			}
		} else {
			err = s.session.Once(ctx, func() error {
				_, err := s.session.Set(ctx, at, body, version)
				return err
			}, func() (bool, error) {
				found, _, there, err := zkconn.IfThere(s.session.Get(ctx, at))
				return there && bytes.Equal(found, body), err
			})
		}
		if !errors.Is(err, zkconn.ErrNodeExists) && !errors.Is(err, zkconn.ErrBadVersion) &&
			!errors.Is(err, zkconn.ErrNoNode) {
			return now, err
		}
	}
}

// holdTerminated holds the resource at path, if the stack has had a reconciler: it would make it again. The function
// that it returns says whether the termination has succeeded; else the hold ends.
func (s *Store) holdTerminated(
	ctx context.Context, path string, rec *resource.Record, limit time.Duration,
) (done func(terminated bool) error, err error) {
	_, there, err := s.Reconcile(ctx, s.cfg.Stack)
	if err != nil || !there {
		return func(bool) error { return nil }, err
	}
	hold := znode.Hold{
		Why: znode.Terminating, By: s.cfg.By, Since: time.Now(), Until: time.Now().Add(limit + 2*undoLimit),
		Generation: rec.Generation,
	}
	var before *znode.Hold
	set := func(ctx context.Context, to *znode.Hold) error {
		_, err := s.EditReconcile(ctx, func(r *znode.Reconcile) bool {
			if h, ok := r.Held[path]; ok && before == nil && h.Why != znode.Terminating {
				before = &h
			}
			if to == nil {
				delete(r.Held, path)
				return true
			}
			if r.Held == nil {
				r.Held = map[string]znode.Hold{}
			}
			r.Held[path] = *to
			if len(r.Held) > znode.MaxHolds { // a reconciler that is there no more has ended none
				delete(r.Held, path)
				r.All = &znode.Hold{
					Why: znode.Paused, By: s.cfg.By, Since: time.Now(),
					Because: "so much is held that no more can be: muster resume each, and then without a name",
				}
			}
			return true
		})
		return err
	}
	return func(terminated bool) error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoLimit)
		defer cancel()
		o, err := s.Look(ctx, path)
		switch kept := o != nil && o.Record != nil && o.Record.Generation == rec.Generation; {
		case err != nil:
			return err // the hold ends by itself
		case !terminated, kept && o.Record.State == resource.StateOpen: // by now somebody has applied it
			return set(ctx, before)
		case kept:
			hold.Version = o.RecordVersion
		}
		hold.Why, hold.Until = znode.Terminated, time.Time{}
		return set(ctx, &hold)
	}, set(ctx, &hold)
}
