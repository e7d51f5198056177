package tasks

import (
	"context"
	"errors"
	"math/rand/v2"
	"path"
	"slices"
	"time"

	"muster/zkstate/election"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// The keeper is the process with the smallest seat. It looks after the queue: it shuts the seats of processes that are
// gone (keepseat.go), and finishes what others began and did not end (keepbatch.go, keepold.go).
//
// It reads Redis first, then syncs and reads ZooKeeper, and acts on what Redis has and ZooKeeper has no more. Names in
// Redis contain the transaction that created the znode, which never comes again. So what it decides stays right,
// however late it acts: a keeper that was frozen does no harm, nor do two at once. Every write of a manifest has the
// version read.

// keepLimits are the times of the keeper. Tests change them.
type keepLimits struct {
	period    time.Duration // it looks at everything, at least
	settle    time.Duration // between deaths at the same time; 0: no seat waits for others
	abandoned time.Duration // nobody has evicted a seat: any process does
	finish    time.Duration // a submit that has opened its batch, and not said so in ZooKeeper
	giveUp    time.Duration // a submit that is not going on
	attend    time.Duration // a completed batch whose submitter does not come
	ended     time.Duration // what is known of batches that have ended
	page      int           // of what is deleted at once
	ahead     time.Duration // added to ZooKeeper's time
}

func defaultKeepLimits() keepLimits {
	return keepLimits{
		period: 10 * time.Second, abandoned: 30 * time.Second, finish: time.Minute, giveUp: time.Hour,
		attend: 24 * time.Hour, ended: 168 * time.Hour, page: 500,
	}
}

// keeper is what a process knows that looks after the queue, or after its seats only. One goroutine uses it.
type keeper struct {
	p      *Process
	limits keepLimits

	seats   map[string]string // their names in Redis, by those of the znodes
	events  <-chan struct{}   // of the folder of the seats
	evictAt time.Time         // when the seats that are gone may be evicted; zero: none is gone
	looked  time.Time         // when everything was looked at last
	silent  time.Time         // since when Redis does not answer; zero: it does
	health  znode.Health      // as it was found now
}

// keep looks after the queue when it is this process's turn, until the membership ends.
func (p *Process) keep() {
	k := &keeper{p: p, limits: p.limits, seats: map[string]string{}}
	for p.ctx.Err() == nil {
		before, err := k.seatBefore(p.ctx)
		switch {
		case err != nil:
		case before == "":
			err = k.serve(p.ctx)
		default:
			err = k.stand(p.ctx, before)
		}
		if err != nil && p.ctx.Err() == nil { // a part of the queue was deleted by hand, or an answer was lost
			p.log.Warn("looking after the queue", "error", err)
			k.pause(p.ctx, damageCheck, nil)
		}
	}
}

// seatBefore is the seat before the own one; "" if that is the smallest.
func (k *keeper) seatBefore(ctx context.Context) (string, error) {
	dir := znode.Seats(k.p.config.Root, k.p.Generation)
	names, _, err := k.p.session.Children(ctx, dir)
	if err != nil {
		return "", err
	}
	queue := election.Queue{Dir: dir, Prefix: "s-"}.InOrder(names)
	at := slices.Index(queue, path.Base(k.p.seat))
	if at < 0 {
		return "", ErrRemoved // the watch of the seat tells too
	}
	if at == 0 {
		return "", nil
	}
	return queue[at-1], nil
}

// stand waits until a seat is gone. Meanwhile it looks whether the keeper does its work.
func (k *keeper) stand(ctx context.Context, seat string) error {
	_, there, gone, err := k.p.session.ExistsW(ctx, znode.SeatAt(k.p.config.Root, k.p.Generation, seat))
	if err != nil || !there {
		return err
	}
	for !k.pause(ctx, k.limits.abandoned+rand.N(k.limits.abandoned), gone) && ctx.Err() == nil {
		if err := k.lookAbandoned(ctx); err != nil && ctx.Err() == nil {
			k.p.log.Debug("look for seats that nobody evicts", "error", err)
		}
	}
	return nil
}

// serve is the keeper's work until the membership ends, or until something fails that is not Redis.
func (k *keeper) serve(ctx context.Context) error {
	k.looked = time.Time{}
	for failures := 0; ctx.Err() == nil; {
		wait := k.limits.period
		err := k.pass(ctx)
		events := k.events
		var zk *zkconn.Error
		switch {
		case err == nil:
			failures = 0
		case errors.As(err, &zk):
			return err
		default:
			wait, events = backoff(failures), nil // seats that have changed are looked at when Redis answers
			failures++
		}
		if !k.evictAt.IsZero() {
			wait = min(wait, max(time.Until(k.evictAt), time.Millisecond))
		}
		k.pause(ctx, wait, events)
	}
	return nil
}

// pass looks at the seats, and in every period at everything.
func (k *keeper) pass(ctx context.Context) error {
	err := k.evictGone(ctx)
	if err == nil && time.Since(k.looked) >= k.limits.period {
		now := time.Now()
		if err = k.repair(ctx); err == nil {
			k.looked = now
		}
	}
	return errors.Join(err, k.report(ctx, err))
}

// pause waits, at most until an event. It reports whether there was one.
func (k *keeper) pause(ctx context.Context, d time.Duration, event <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-event:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// now is ZooKeeper's time, or earlier: time may stand still while a machine is frozen.
func (k *keeper) now() time.Time {
	return k.p.joined.Add(time.Since(k.p.joinedHere) + k.limits.ahead)
}
