package wrap

import (
	"context"
	"slices"
	"sync"
	"time"

	"muster/text"
	"muster/worker"
	"muster/zkstate/znode"
)

// A worker that waits for others says for whom: 10 s after it began, and then ever more rarely.
const firstNotice, rarestNotice = 10 * time.Second, 10 * time.Minute

// maxAsked is for how many workers the others are named. In a larger job thousands would read long lists at the same
// time.
const maxAsked = 1000

// maxNamed is how many workers one notice names.
const maxNamed = 20

// whileWaiting calls notice at those times, until the function that it returns is called. The attributes that notice
// returns are logged; nil: nothing is.
func (ms *membership) whileWaiting(
	ctx context.Context, what string, notice func(context.Context, *worker.Member) []any,
) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var notices sync.WaitGroup
	notices.Go(func() {
		begun := time.Now()
		for pause := firstNotice; ; pause = min(2*pause, rarestNotice) {
			timer := time.NewTimer(pause)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return
			}
			m, isMember, _ := ms.state()
			if !isMember || !ms.sessions.connected() {
				continue // which was said
			}
			attrs := []any{"job", m.Job.Path(), "id", m.ID, "since", since(begun)}
			if m.Job.Workers <= maxAsked {
				more := notice(ctx, m)
				if more == nil {
					continue
				}
				attrs = append(attrs, more...)
			}
			ms.c.Log.Info("waiting for "+what, attrs...)
		}
	})
	return func() { cancel(); notices.Wait() }
}

// joinNotice says who has not joined.
func joinNotice(ctx context.Context, m *worker.Member) []any {
	absent, err := m.Absent(ctx)
	if err != nil {
		return nil
	}
	attrs := []any{"joined", absent.Joined, "workers", absent.Workers}
	if len(absent.Missing) > 0 {
		attrs = append(attrs, "missing", text.List(absent.Missing, maxNamed))
	}
	if len(absent.NotLive) > 0 {
		attrs = append(attrs, "not_live", text.List(absent.NotLive, maxNamed))
	}
	return attrs
}

// barrierNotice says who has not arrived at the round that this worker waits at.
func barrierNotice(name string) func(context.Context, *worker.Member) []any {
	return func(ctx context.Context, m *worker.Member) []any {
		rounds, err := m.Rounds(ctx)
		if err != nil {
			return nil
		}
		for _, r := range rounds {
			if r.Name == name && slices.Contains(r.Arrived, m.ID) {
				return []any{
					"round", r.Round, "arrived", len(r.Arrived), "workers", r.Workers,
					"missing", text.List(r.Missing, maxNamed),
				}
			}
		}
		return nil
	}
}

// barrierTitle is what a notice calls a barrier.
func barrierTitle(name string) string {
	if name == znode.StartBarrier {
		return "the start barrier"
	}
	return "barrier " + name
}

// valueNotice says who has not published a key.
func valueNotice(key string, ids []int) func(context.Context, *worker.Member) []any {
	return func(ctx context.Context, m *worker.Member) []any {
		missing, err := m.Unpublished(ctx, key, ids)
		if err != nil || len(missing) == 0 {
			return nil
		}
		return []any{"missing", text.List(missing, maxNamed)}
	}
}
