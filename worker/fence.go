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

// A member watches two znodes: its own live znode and its gate. It writes its live znode twice: it adds its id after
// the first join, and it makes the znode again if somebody has deleted it by hand. Each write is guarded, so a member
// that was replaced cannot come back. If the process dies, the live znode goes with its session.

// ErrFenced means that this process is no longer a member: another one took its identity over, or the generation has
// ended. Stop the command. This member cannot write anything any more.
var ErrFenced = errors.New("fenced")

// ErrSessionLost means that the session of a member has ended. Rejoin in another one.
var ErrSessionLost = zkconn.ErrSessionLost

// fence ends the membership if the refusal of a transaction shows that it has ended. It returns ErrFenced then, and
// ErrDamaged if somebody deleted the gate or the claim by hand.
func (m *Member) fence(ctx context.Context, err error) error {
	var refused *zkconn.Error
	if !errors.As(err, &refused) || refused.Path != m.gate() && refused.Path != m.by() {
		return err
	}
	switch {
	case errors.Is(err, zkconn.ErrNoNode):
		err = m.gone(ctx, m.session, refused.Path)
	case !errors.Is(err, zkconn.ErrBadVersion):
		return err
	case refused.Path == m.by():
		err = m.replaced()
	default:
		err = m.generationEnded()
	}
	if errors.Is(err, ErrFenced) {
		m.end(err)
	}
	return err
}

func (m *Member) generationEnded() error {
	return fmt.Errorf("%w: the generation that worker %d (%s) joined has ended", ErrFenced, m.ID, m.Identity)
}

func (m *Member) replaced() error {
	return fmt.Errorf("%w: another process is worker %d (%s) now", ErrFenced, m.ID, m.Identity)
}

// startDelay, for each worker of the job, is how long a member waits before it writes its id and sets its watches: no
// other worker waits for these, and thousands that join at once have joined by then. The members then begin at random
// within the same time again.
const startDelay, maxStartDelay = 500 * time.Microsecond, 5 * time.Second

// start watches in the background until the membership ends, or until Leave, Complete or Rejoin stops it.
func (m *Member) start() *Member {
	m.watchers.Go(func() {
		if !m.awaitTurn() {
			return
		}
		m.watchers.Go(func() { m.follow(m.gate(), m.checkGate) })
		m.writeID()
		m.follow(m.live(), m.checkLive)
	})
	if m.ID == m.Job.Workers-1 || !m.noID { // the last worker, or one that is back: see roll.go
		m.rollTried = make(chan struct{})
		m.watchers.Go(func() {
			defer close(m.rollTried)
			_ = m.writeRoll(m.watchCtx) // after an error a later joiner writes it
		})
	}
	return m
}

// awaitTurn waits for the delay at the start. It is false if the membership ended first.
func (m *Member) awaitTurn() bool {
	delay := min(startDelay*time.Duration(m.Job.Workers), maxStartDelay)
	turn := time.NewTimer(delay + rand.N(delay))
	defer turn.Stop()
	select {
	case <-turn.C:
		return true
	case <-m.watchCtx.Done():
		return false
	}
}

// stop ends what start began.
func (m *Member) stop() {
	m.stopWatch()
	m.watchers.Wait()
}

// writeID adds the id to a live znode that was created before the id was known. It helps those that list the live
// workers; nothing depends on it.
func (m *Member) writeID() {
	if !m.noID || m.lockPublishing(m.watchCtx) != nil {
		return
	}
	defer m.unlockPublishing()
	info, _ := m.advertisedInfo()
	body, err := znode.EncodeWorker(info)
	for err == nil || errors.Is(err, zkconn.ErrUnknown) {
		if _, err = m.write(m.watchCtx, zkconn.SetOp(m.live(), body, anyVersion)); err == nil {
			return
		}
	}
}

// follow checks a znode now and after each of its events. An error of check ends the membership, unless it is a write
// whose outcome is unknown: then follow checks again; or ErrDamaged: then it checks again when the part is back.
func (m *Member) follow(path string, check func(zkconn.Stat, bool) error) {
	for {
		stat, exists, event, err := m.session.ExistsW(m.watchCtx, path)
		if err == nil {
			err = check(stat, exists)
		}
		if m.watchCtx.Err() != nil {
			return
		}
		switch {
		case errors.Is(err, zkconn.ErrUnknown):
			continue
		case errors.Is(err, ErrDamaged):
			if err = awaitPart(m.watchCtx, m.session, err); err == nil {
				continue
			}
			return // the session's end, or ours
		case err != nil:
			m.end(err)
			return
		}
		select {
		case <-event:
		case <-m.watchCtx.Done():
			return
		}
	}
}

// checkGate ends the membership with the generation.
func (m *Member) checkGate(_ zkconn.Stat, open bool) error {
	if !open {
		return m.gone(m.watchCtx, m.session, m.gate())
	}
	return nil
}

// checkLive makes the live znode again if it is gone.
func (m *Member) checkLive(stat zkconn.Stat, exists bool) error {
	if exists {
		return m.checkOwner(stat)
	}
	info, _ := m.advertisedInfo()
	body, err := znode.EncodeWorker(info)
	if err != nil {
		return err
	}
	_, err = m.write(m.watchCtx, zkconn.CreateOp(m.live(), body, zkconn.Ephemeral, m.acl))
	switch {
	case errors.Is(err, zkconn.ErrNodeExists):
		return nil // somebody made it: follow checks again
	case errors.Is(err, zkconn.ErrNoNode): // the job znode is gone, and the gate is not
		return m.gone(m.watchCtx, m.session, m.Job.Path())
	}
	return err
}

// checkOwner ends the membership if another process owns the live znode: then the claim has changed. If the claim is
// as it was, somebody made the live znode by hand.
func (m *Member) checkOwner(stat zkconn.Stat) error {
	if stat.EphemeralOwner == m.session.ID() {
		return nil
	}
	_, err := m.write(m.watchCtx)
	return err
}
