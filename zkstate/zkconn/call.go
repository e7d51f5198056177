package zkconn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
)

// errLeft means the caller's context ended while the library held the request.
var errLeft = errors.New("caller left")

// enter waits for a place in flight and for a connection. Only who gets nil may call the library, and must leave.
func (s *Session) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	select {
	case s.slots <- struct{}{}:
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-s.gate.opened():
	case <-s.ctx.Done():
	case <-ctx.Done():
		s.leave()
		return s.hosts.unreachable(context.Cause(ctx))
	}
	if s.ctx.Err() != nil {
		s.leave()
		return context.Cause(s.ctx)
	}
	return nil
}

func (s *Session) leave() { <-s.slots }

// run calls the library, which takes no context, and stops waiting when ctx or the session ends. The request keeps its
// place in flight until the library is done with it; done is closed then.
func run[T any](ctx context.Context, s *Session, f func(*zk.Conn) (T, error)) (v T, done <-chan struct{}, err error) {
	ch := make(chan struct{})
	var result struct {
		v   T
		err error
	}
	go func() {
		defer s.leave()
		defer close(ch)
		result.v, result.err = f(s.zk)
	}()
	select {
	case <-ch:
		return result.v, ch, result.err
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
	select {
	case <-ch:
		return result.v, ch, result.err
	default:
		return v, ch, errLeft
	}
}

// read runs f until it is answered: a read may be repeated.
func read[T any](ctx context.Context, s *Session, op, path string, f func(*zk.Conn) (T, error)) (v T, err error) {
	if requestHeader+4+len(path)+1 > s.cfg.maxRequest() {
		return v, &Error{op, path, ErrTooLarge}
	}
	for {
		if err := s.enter(ctx); err != nil {
			return v, &Error{op, path, err}
		}
		got, _, err := run(ctx, s, f)
		if err == nil {
			return got, nil
		}
		if s.ctx.Err() != nil {
			return v, &Error{op, path, context.Cause(s.ctx)}
		}
		if errors.Is(err, errLeft) {
			return v, &Error{op, path, context.Cause(ctx)}
		}
		switch fate, why := fateOf(err); fate {
		case cutOff:
		case notSent:
			pause(ctx)
		case sessGone:
			s.end(why)
			return v, &Error{op, path, why}
		default:
			return v, &Error{op, path, why}
		}
	}
}

// pause keeps a read from asking an overloaded server without a break.
func pause(ctx context.Context) {
	t := time.NewTimer(shortestPause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// write runs f, and again only while it is certain that the server has not executed it. size is that of the encoded
// request.
func write[T any](ctx context.Context, s *Session, op, path string, size int, f func(*zk.Conn) (T, error)) (v T, err error) {
	if size > s.cfg.maxRequest() {
		return v, &Error{op, path, fmt.Errorf("%w: %d bytes in one request, at most %d", ErrTooLarge, size, s.cfg.maxRequest())}
	}
	for {
		if err := s.enter(ctx); err != nil {
			if !errors.Is(err, ErrSessionLost) {
				err = fmt.Errorf("%w: %w", ErrNotSent, err)
			}
			return v, &Error{op, path, err}
		}
		got, done, err := run(ctx, s, f)
		if err == nil {
			return got, nil
		}
		if errors.Is(err, errLeft) {
			s.strays.add(done)
			cause := context.Cause(ctx)
			if s.ctx.Err() != nil {
				cause = errors.New("the session ended")
			}
			return v, &Error{op, path, fmt.Errorf("%w: %w", ErrUnknown, cause)}
		}
		fate, why := fateOf(err)
		switch fate {
		case notSent:
			pause(ctx)
			continue
		case cutOff, unclear:
			why = fmt.Errorf("%w: %v", ErrUnknown, why)
		case sessGone:
			s.end(why)
		}
		return got, &Error{op, path, why}
	}
}

// Settled is for after an ErrUnknown. It returns nil when nothing that this session has sent can happen any more and
// this server knows of all that did: what is read from now on is the truth about the unknown write. ErrSessionLost
// means that the session is gone: read with a new one, after the timeout of this one if it matters.
func (s *Session) Settled(ctx context.Context) error {
	for _, done := range s.strays.list() {
		select {
		case <-done:
		case <-s.ctx.Done():
			return &Error{"sync", "/", context.Cause(s.ctx)}
		case <-ctx.Done():
			return &Error{"sync", "/", context.Cause(ctx)}
		}
	}
	return s.Sync(ctx, "/")
}

// authenticate adds a credential, which the library then repeats on every connection.
func (s *Session) authenticate(ctx context.Context, a Auth) error {
	_, err := read(ctx, s, "auth", a.Scheme, func(c *zk.Conn) (struct{}, error) {
		return struct{}{}, c.AddAuth(a.Scheme, a.Data)
	})
	return err
}
