package worker

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// A member watches two znodes, its own live znode and its gate. It writes its live znode: with its id after the first join,
// and anew if somebody deleted it by hand. Each write is guarded, so a member that was replaced cannot come back by it.
// If the process dies, the live znode goes with its session.

// ErrFenced means that this process is no longer a member: another one took its identity over, or the generation has ended.
// Stop the command; nothing that this member does can be written any more.
var ErrFenced = errors.New("fenced")

// ErrSessionLost means that the session under a member has ended. Rejoin under another one.
var ErrSessionLost = zkconn.ErrSessionLost

// fence recognises in the refusal of a transaction that the membership has ended.
func (m *Member) fence(err error) error {
	var refused *zkconn.Error
	if !errors.As(err, &refused) || !errors.Is(err, zkconn.ErrNoNode) && !errors.Is(err, zkconn.ErrBadVersion) {
		return err
	}
	switch refused.Path {
	case m.gate():
		err = m.generationEnded()
	case m.by():
		err = m.replaced()
	default:
		return err
	}
	m.end(err)
	return err
}

func (m *Member) generationEnded() error {
	return fmt.Errorf("%w: the generation that worker %d (%s) joined has ended", ErrFenced, m.ID, m.Identity)
}

func (m *Member) replaced() error {
	return fmt.Errorf("%w: another process is worker %d (%s) now", ErrFenced, m.ID, m.Identity)
}

// calm is how long members wait with what nobody waits for, for each worker of the job, and again how long they take to begin with
// it one after the other. Thousands who join at once have joined by then.
const calm, longestCalm = 500 * time.Microsecond, 5 * time.Second

// start watches until the membership ends, or until Leave, Complete or Rejoin, which wait for it.
func (m *Member) start() *Member {
	m.watching.Go(func() {
		if !m.calmed() {
			return
		}
		m.tellID()
		m.watching.Go(func() { m.follow(m.gate(), m.keepOpen) })
		m.follow(m.live(), m.keepLive)
	})
	if m.ID == m.Job.Workers-1 || !m.untold { // nobody else can find that all have joined
		m.rolled = make(chan struct{})
		m.watching.Go(func() {
			defer close(m.rolled)
			_ = m.writeRoll(m.watch) // for those who read it; a later joiner makes up for an error
		})
	}
	return m
}

// calmed waits for this worker's turn, at random. It is false if the membership ended first.
func (m *Member) calmed() bool {
	all := min(calm*time.Duration(m.Job.Workers), longestCalm)
	turn := time.NewTimer(all + rand.N(all))
	defer turn.Stop()
	select {
	case <-turn.C:
		return true
	case <-m.watch.Done():
		return false
	}
}

// halt ends what start began.
func (m *Member) halt() {
	m.stop()
	m.watching.Wait()
}

// tellID puts the id into a live znode that was created before there was one. It is for who lists the live; nothing depends
// on it.
func (m *Member) tellID() {
	if !m.untold {
		return
	}
	body, err := znode.EncodeWorker(m.info)
	for err == nil || errors.Is(err, zkconn.ErrUnknown) {
		if _, err = m.write(m.watch, zkconn.SetOp(m.live(), body, 0)); err == nil {
			return
		}
	}
}

// follow looks at a znode now and after each of its events. An error of look ends the membership, but for a write that must be
// made again.
func (m *Member) follow(path string, look func(zkconn.Stat, bool) error) {
	for {
		stat, exists, event, err := m.session.ExistsW(m.watch, path)
		if err == nil {
			err = look(stat, exists)
		}
		if m.watch.Err() != nil {
			return
		}
		switch {
		case errors.Is(err, zkconn.ErrUnknown):
			continue
		case err != nil:
			m.end(err)
			return
		}
		select {
		case <-event:
		case <-m.watch.Done():
			return
		}
	}
}

// keepOpen ends the membership with the generation.
func (m *Member) keepOpen(_ zkconn.Stat, open bool) error {
	if !open {
		return m.generationEnded()
	}
	return nil
}

// keepLive makes the live znode again if it is gone.
func (m *Member) keepLive(stat zkconn.Stat, exists bool) error {
	if exists {
		return m.ownLive(stat)
	}
	body, err := znode.EncodeWorker(m.info)
	if err != nil {
		return err
	}
	_, err = m.write(m.watch, zkconn.CreateOp(m.live(), body, zkconn.Ephemeral, m.acl))
	switch {
	case errors.Is(err, zkconn.ErrNodeExists):
		return nil // that is an event
	case errors.Is(err, zkconn.ErrNoNode) && !errors.Is(err, ErrFenced): // the job znode itself is gone, though the gate is not
		return m.generationEnded()
	}
	return err
}

// ownLive is for a live znode that may be another session's: then the claim has moved, or somebody made it by hand.
func (m *Member) ownLive(stat zkconn.Stat) error {
	if stat.EphemeralOwner == m.session.ID() {
		return nil
	}
	_, err := m.write(m.watch)
	return err
}
