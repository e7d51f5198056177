package tasks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/tasks/store"
)

// Call makes one call of this seat: f gets the next seq. Only one is under way at a time. After an error that leaves
// the outcome unknown, and after store.ErrSeq and store.ErrNoSeat, every Call fails with ErrRecover until Recover.
func (p *Process) Call(ctx context.Context, f func(ctx context.Context, seq int64) error) error {
	if err := p.lock(ctx); err != nil {
		return err
	}
	defer p.unlock()
	if p.unknown != nil {
		return fmt.Errorf("%w: %w", ErrRecover, p.unknown)
	}
	err := f(ctx, p.seq+1)
	switch {
	case err == nil:
		p.seq++
		p.answered()
	case !refused(err), errors.Is(err, store.ErrSeq), errors.Is(err, store.ErrNoSeat):
		p.unknown = err
	}
	return err
}

// lock waits until no call of the seat is under way.
func (p *Process) lock(ctx context.Context) error {
	select {
	case <-p.calls:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	}
	if p.ctx.Err() != nil {
		p.unlock()
		return context.Cause(p.ctx)
	}
	return nil
}

func (p *Process) unlock() { p.calls <- struct{}{} }

// hello lets the seat in, whose znode stands. The caller is the only one who calls.
func (p *Process) hello(ctx context.Context) error {
	seq, err := p.store.Hello(ctx, p.Seat, storeRole(p.config.Role), max(p.config.Parallel, 1))
	if err == nil {
		p.seq = max(p.seq, seq)
	}
	return err
}

// Recover makes sure of what the seat holds, after an unknown outcome, store.ErrSeq or store.ErrNoSeat. It says which
// of keep is still in hand, at most store.MaxItems; the rest goes back, uncharged. A call that was sent before does
// nothing after that. It waits until Redis answers. ErrRemoved or ErrSessionLost: the seat is gone, and so is the
// membership.
func (p *Process) Recover(ctx context.Context, keep []store.Held) (kept []store.Held, err error) {
	if err := p.lock(ctx); err != nil {
		return nil, err
	}
	defer p.unlock()
	p.seq++ // that of the call whose outcome is unknown
	for {
		kept, more, err := p.store.Sync(ctx, p.Seat, p.seq+1, keep)
		switch {
		case err == nil:
			p.seq++
			if !more {
				if !errors.Is(p.unknown, store.ErrReply) { // or else the next call may get no better answer
					p.answered()
				}
				p.unknown = nil
				return kept, nil
			}
			continue
		case errors.Is(err, store.ErrSeq), errors.Is(err, store.ErrNoSeat):
			err = p.helloAgain(ctx)
		case refused(err):
			return nil, err
		}
		if err == nil {
			continue
		}
		if ctx.Err() != nil || hopeless(err) {
			return nil, err
		}
		if err := p.Pause(ctx, err); err != nil {
			return nil, err
		}
	}
}

// helloAgain lets the seat in again if its znode stands.
func (p *Process) helloAgain(ctx context.Context) error {
	if err := p.standing(ctx); err != nil {
		return err
	}
	return p.hello(ctx)
}

// Pause waits a while after an error of Redis, longer each time. It logs the first one. The error is why ctx or the
// membership has ended.
func (p *Process) Pause(ctx context.Context, err error) error {
	p.mu.Lock()
	failures := p.away
	p.away++
	p.mu.Unlock()
	if failures == 0 {
		p.log.Warn("waiting for redis", "error", err)
	}
	timer := time.NewTimer(backoff(failures))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	}
}

// answered notes that Redis answers.
func (p *Process) answered() {
	p.mu.Lock()
	failures := p.away
	p.away = 0
	p.mu.Unlock()
	if failures > 0 {
		p.log.Info("redis answers again")
	}
}
