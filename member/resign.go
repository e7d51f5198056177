package member

import (
	"context"
	"errors"
	"fmt"

	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// A member that gives up a duty which the assigner gave it tells the assigner so. It writes
//
//	run/<g>/resigned/r-<10>   persistent   sequential
//
// in the transaction that deletes held, or alone if there is none. Both check the seat, so that the assigner has not
// decided since; after it has, the member takes the duty again if its seat still names it.

// resignOps are the operations that tell the assigner; none if r is nil.
func (h *Hold) resignOps(r *znode.Resignation) ([]zkconn.Op, error) {
	if r == nil {
		return nil, nil
	}
	r.Duty = h.Duty
	return h.m.resignOps(*r, h.m.resign(h.Duty))
}

// resignOps are the operations that tell the assigner, unless it has written the seat since this version.
func (m *Member) resignOps(r znode.Resignation, version int32) ([]zkconn.Op, error) {
	r.Seat, r.Identity = m.seatName(), m.Identity
	body, err := znode.Encode(r)
	return []zkconn.Op{
		zkconn.CheckOp(m.seat, version),
		zkconn.CreateOp(znode.NewResigned(m.root, m.Generation), body, zkconn.PersistentSequential, m.acl),
	}, err
}

// tellAssigner tells the assigner of a resignation that was not written because held was gone. refused is the error of
// that. If the reply was lost to one that was written, the assigner hears of it twice, or has written the seat.
func (h *Hold) tellAssigner(ctx context.Context, r *znode.Resignation, refused error) error {
	if r == nil || refused == nil || h.m.ctx.Err() != nil {
		return nil
	}
	if err := h.m.tell(ctx, *r, h.m.resignedAt(h.Duty)); err != nil {
		return fmt.Errorf("give back %s: %w", h.Duty, err)
	}
	return nil
}

// decline tells the assigner that this member cannot take a duty which the assigner gave it, and why.
func (m *Member) decline(ctx context.Context, duty string, why error) error {
	return m.tell(ctx, znode.Resignation{Duty: duty, Blame: true, Because: why.Error()}, m.resign(duty))
}

// tell tells the assigner, unless it has written the seat since this version. When the membership ends there is nothing
// to tell any more.
func (m *Member) tell(ctx context.Context, r znode.Resignation, version int32) error {
	ops, err := m.resignOps(r, version)
	if err == nil {
		err = m.session.Once(ctx, func() error {
			_, err := m.session.Multi(ctx, append([]zkconn.Op{zkconn.CheckOp(m.gate(), -1)}, ops...)...)
			return err
		}, nil) // telling it twice does no harm
	}
	if err = m.removed(err); refusedAt(err, m.seat, zkconn.ErrBadVersion) || errors.Is(err, ErrRemoved) {
		return nil
	}
	return err
}
