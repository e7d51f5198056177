package member

import (
	"context"
	"errors"
	"fmt"
)

// The causes with which the context of a function that does a duty ends, besides those of the hold.
var (
	// ErrHandOver means that the assigner gave the duty to another member, or that it is paused, no longer declared, or to
	// be stopped. Finish within the group's drain timeout, and return: the next holder waits for that.
	ErrHandOver = errors.New("the duty was given to another member")
	// ErrLeaving means that this process is about to leave. Give it as the cause when you end the context of Lead
	// before you Leave: a duty that is held then goes with the session, without another message to the assigner.
	ErrLeaving = errors.New("this process leaves the group")
)

// Lead does a duty whenever the assigner gives it to this member: it takes the duty and calls f.
//
// The context of f ends when f must stop. Its cause is ErrHandOver, the cause of ctx, or the reason why the duty was
// lost: ErrNotHeld, or the reason why the membership has ended. Until the duty is lost, h can still write after that: h
// has a context of its own. Lead waits for f to return, and then gives the duty back. If f returned before it was asked
// to, Lead resigns: nil is without blame, and any other error is with blame and is the reason that people read.
//
// Lead returns the cause when ctx or the membership ends. It also returns an error if the duty cannot be given back,
// which ends only with the membership then.
func (m *Member) Lead(ctx context.Context, duty string, f func(ctx context.Context, h *Hold) error) error {
	for {
		h, err := m.Take(ctx, duty)
		if err != nil {
			return err
		}
		cause, failed := h.run(ctx, f)
		switch {
		case m.ctx.Err() != nil:
			return context.Cause(m.ctx)
		case h.ctx.Err() != nil: // deleted by hand: the assigner still wants this member to have it
		case cause == nil && failed == nil:
			err = h.Resign(m.ctx, false, "it ended by itself")
		case cause == nil:
			err = h.Resign(m.ctx, true, failed.Error())
		case errors.Is(cause, ErrHandOver):
			err = h.Release(m.ctx)
		case errors.Is(cause, ErrLeaving):
			return cause
		default: // this process does other things, so others should have the duty
			err = h.Resign(m.ctx, false, fmt.Sprintf("it was stopped: %v", cause))
		}
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
	}
}

// run calls f until it returns. cause is why f was asked to stop; nil if it was not.
func (h *Hold) run(ctx context.Context, f func(ctx context.Context, h *Hold) error) (cause, failed error) {
	fctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(h.ctx, func() { end(context.Cause(h.ctx)) })()
	returned := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-h.handOver:
			end(ErrHandOver)
		case <-returned:
		}
	}()
	failed = f(fctx, h)
	cause = context.Cause(fctx)
	close(returned)
	<-watched
	return cause, failed
}
