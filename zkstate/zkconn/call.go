package zkconn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"
)

// errAbandoned means that the caller's context or the session ended before the library answered the request.
var errAbandoned = errors.New("caller left")

// acquire waits for a free slot and for a connection. After nil the caller may call the library, and must call release.
func (s *Session) acquire(ctx context.Context) error {
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
		s.release()
		return s.hosts.unreachable(context.Cause(ctx))
	}
	if s.ctx.Err() != nil {
		s.release()
		return context.Cause(s.ctx)
	}
	return nil
}

func (s *Session) release() { <-s.slots }

// run calls the library, which takes no context, and stops waiting when ctx or the session ends. The request keeps its
// slot until the library returns; done is closed then.
func run[T any](ctx context.Context, s *Session, f func(*zk.Conn) (T, error)) (v T, done <-chan struct{}, err error) {
	ch := make(chan struct{})
	var result struct {
		v   T
		err error
	}
	go func() {
		defer s.release()
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
		return v, ch, errAbandoned
	}
}

// read runs f until it is answered. It may repeat a read.
func read[T any](ctx context.Context, s *Session, op, path string, f func(*zk.Conn) (T, error)) (v T, err error) {
	if requestHeader+4+len(path)+1 > s.cfg.maxRequest() {
		return v, &Error{op, path, ErrTooLarge}
	}
	for {
		if err := s.acquire(ctx); err != nil {
			return v, &Error{op, path, err}
		}
		got, _, err := run(ctx, s, f)
		if err == nil {
			return got, nil
		}
		if s.ctx.Err() != nil {
			return v, &Error{op, path, context.Cause(s.ctx)}
		}
		if errors.Is(err, errAbandoned) {
			return v, &Error{op, path, context.Cause(ctx)}
		}
		switch outcome, why := outcomeOf(err); outcome {
		case interrupted:
		case notSent:
			pause(ctx)
		case sessionGone:
			s.end(why)
			return v, &Error{op, path, why}
		default:
			return v, &Error{op, path, why}
		}
	}
}

// pause waits a moment before a request is repeated, since the server may be overloaded.
func pause(ctx context.Context) {
	t := time.NewTimer(shortestPause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// write runs f. It repeats f only if the server has certainly not executed it. size is the size of the encoded request,
// in bytes.
func write[T any](
	ctx context.Context, s *Session, op, path string, size int, f func(*zk.Conn) (T, error),
) (v T, err error) {
	if most := s.cfg.maxRequest(); size > most {
		return v, &Error{op, path, fmt.Errorf("%w: %d bytes in one request, at most %d", ErrTooLarge, size, most)}
	}
	for {
		if err := s.acquire(ctx); err != nil {
			if !errors.Is(err, ErrSessionLost) {
				err = fmt.Errorf("%w: %w", ErrNotSent, err)
			}
			return v, &Error{op, path, err}
		}
		got, done, err := run(ctx, s, f)
		if err == nil {
			return got, nil
		}
		if errors.Is(err, errAbandoned) {
			s.abandoned.add(done)
			cause := context.Cause(ctx)
			if s.ctx.Err() != nil {
				cause = errors.New("the session ended")
			}
			return v, &Error{op, path, fmt.Errorf("%w: %w", ErrUnknown, cause)}
		}
		outcome, why := outcomeOf(err)
		switch outcome {
		case notSent:
			pause(ctx)
			continue
		case interrupted, unclear:
			why = fmt.Errorf("%w: %v", ErrUnknown, why)
		case sessionGone:
			s.end(why)
		}
		return got, &Error{op, path, why}
	}
}

// Settled is called after an ErrUnknown. After nil, no write of this session that was sent before can still be
// executed, and the server knows of all that were: a read now shows whether the unknown write happened. ErrSessionLost
// means that the session is gone: read with a new one, and wait for the timeout of this one if the write must no longer
// be possible.
func (s *Session) Settled(ctx context.Context) error {
	for _, done := range s.abandoned.list() {
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

// Once repeats a write until its outcome is known. After an ErrUnknown it asks happened, which reads whether the write
// has happened, and sends it again if not. A nil happened means that the write may happen twice. If the outcome cannot
// be known, the error is also that of the write.
func (s *Session) Once(ctx context.Context, send func() error, happened func() (bool, error)) error {
	for {
		err := send()
		if !errors.Is(err, ErrUnknown) {
			return err
		}
		if settle := s.Settled(ctx); settle != nil {
			return fmt.Errorf("%w: %w", settle, err)
		}
		if happened == nil {
			continue
		}
		if done, err := happened(); done || err != nil {
			return err
		}
	}
}

// authenticate adds a credential. The library sends it again on every new connection.
func (s *Session) authenticate(ctx context.Context, a Auth) error {
	_, err := read(ctx, s, "auth", a.Scheme, func(c *zk.Conn) (struct{}, error) {
		return struct{}{}, c.AddAuth(a.Scheme, a.Data)
	})
	return err
}
