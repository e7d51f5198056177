package zkconn

import (
	"context"
	"errors"
	"time"
)

// Follow calls read with a znode, now and after each of its changes, until read returns an error. there is false while
// the znode does not exist. It returns the error of read, or why ctx or the session has ended.
func (s *Session) Follow(
	ctx context.Context, path string, read func(body []byte, stat Stat, there bool) error,
) error {
	for {
		body, stat, changed, err := s.GetW(ctx, path)
		if errors.Is(err, ErrNoNode) {
			// A watch for a znode that is never created again would stay for ever, so none is set before read has
			// agreed to wait.
			if err = read(nil, Stat{}, false); err == nil {
				var created bool
				if _, created, changed, err = s.ExistsW(ctx, path); err == nil && created {
					continue
				}
			}
		} else if err == nil {
			err = read(body, stat, true)
		}
		if err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// probes is how many times in a session timeout Probe asks. The library asks three times in a session timeout, so a
// server that hangs would end a healthy session's duties before another one could be asked. Asking more often makes the
// take-over after a crash later, because the session expires a timeout after the last request.
const probes = 5

// leaveAfter is how many tenths of a session timeout a server may take to answer before it is left for another. With
// the time between two probes that is four tenths, before those who depend on Answered stop at five.
const leaveAfter = 2

// Probe keeps Answered recent until ctx or the session ends: it asks the leader about path, again and again.
func (s *Session) Probe(ctx context.Context, path string) {
	s.LeaveAfter(s.Timeout() * leaveAfter / 10)
	tick := time.NewTicker(max(s.Timeout()/probes, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		case <-s.Context().Done():
			return
		}
		_ = s.Sync(ctx, path) // it fails only when the session or ctx ends
	}
}
