package worker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// A command that chooses its port at run time says it afterwards. One guarded transaction sets the address in
//
//	run/<g>/id/n-<id>   where peers look it up
//	<job>/<identity>    the live znode; made again if somebody has deleted it by hand
//
// If the process dies before the commit nothing has changed. If it dies after it, the address stays until the next life
// of the identity joins with its own. A session that is lost takes the live znode along: the rejoin writes both again.
// The roll, if it has been written, keeps the address that it has.

// Address is where peers reach this worker, as it was advertised last.
func (m *Member) Address() string {
	m.infoMu.Lock()
	defer m.infoMu.Unlock()
	return m.info.Address()
}

// advertisedInfo is what the worker's znodes say, and whether that has changed since the join.
func (m *Member) advertisedInfo() (info znode.Worker, changed bool) {
	m.infoMu.Lock()
	defer m.infoMu.Unlock()
	return m.info, m.infoChanged
}

// Advertise tells peers another address of this worker: a host name or IP, and a port. It may be repeated. While a part
// of the job is missing that somebody deleted it waits. After zkconn.ErrUnknown it is not known which of the two
// addresses peers see: call it again.
func (m *Member) Advertise(ctx context.Context, host string, port int) error {
	if err := m.lockPublishing(ctx); err != nil {
		return err
	}
	defer m.unlockPublishing()
	before, changed := m.advertisedInfo()
	next := before
	next.IP, next.Port = host, port
	body, err := znode.EncodeWorker(next)
	if err != nil {
		return err
	}
	m.setInfo(next, true) // first: a live znode that is made again meanwhile has the new address
	err = m.untilWritten(ctx, func() error { return m.writeAddress(ctx, body) })
	if err != nil && !errors.Is(err, zkconn.ErrUnknown) && !errors.Is(err, ErrSessionLost) {
		m.setInfo(before, changed)
	}
	if err != nil {
		return fmt.Errorf("advertise %s: %w", next.Address(), err)
	}
	return nil
}

func (m *Member) setInfo(info znode.Worker, changed bool) {
	m.infoMu.Lock()
	defer m.infoMu.Unlock()
	m.info, m.infoChanged = info, changed
}

// writeAddress is errAgain if the live znode came or went meanwhile.
func (m *Member) writeAddress(ctx context.Context, body []byte) error {
	live, exists, err := m.session.Exists(ctx, m.live())
	if err != nil {
		return err
	}
	ops := []zkconn.Op{zkconn.SetOp(znode.ID(m.Job.Root, m.Generation, m.ID), body, anyVersion)} // the claim guards it
	switch {
	case !exists:
		ops = append(ops, zkconn.CreateOp(m.live(), body, zkconn.Ephemeral, m.acl))
	case live.EphemeralOwner == m.session.ID():
		ops = append(ops, zkconn.SetOp(m.live(), body, anyVersion))
	}
	_, err = m.write(ctx, ops...)
	var refused *zkconn.Error
	if errors.As(err, &refused) && refused.Path == m.live() && refused.Op != "create" ||
		errors.Is(err, zkconn.ErrNodeExists) {
		return fmt.Errorf("%w: %w", errAgain, err)
	}
	return err
}

// untilWritten calls write, which performs a guarded transaction, again after a lost reply and after errAgain: it must
// bear to be repeated. While a part of the job is missing it waits for it.
func (m *Member) untilWritten(ctx context.Context, write func() error) error {
	for attempts := 0; ; {
		err := write()
		var refused *zkconn.Error
		switch {
		case err == nil:
			return nil
		case errors.Is(err, zkconn.ErrUnknown):
			if settle := m.session.Settled(ctx); settle != nil {
				return fmt.Errorf("%w: %w", settle, err)
			}
		case errors.Is(err, errAgain) && attempts < maxAttempts:
			attempts++
			pauseAtRandom(ctx, min(time.Duration(attempts)*writePause, maxWritePause))
		case errors.Is(err, zkconn.ErrNoNode) && errors.As(err, &refused):
			err = m.gone(ctx, m.session, missingPart(refused))
			fallthrough
		case errors.Is(err, ErrDamaged):
			if err = awaitPart(ctx, m.session, err); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// writePause, for each attempt so far, is how long a member waits at most before it tries a transaction again that
// others were in the way of.
const writePause, maxWritePause = 5 * time.Millisecond, 500 * time.Millisecond

func pauseAtRandom(ctx context.Context, most time.Duration) {
	pause := time.NewTimer(rand.N(most))
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done(): // the next attempt says so
	}
}
