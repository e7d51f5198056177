package apply

import (
	"context"
	"errors"
	"testing"
	"time"

	"muster/plan"
)

// losingStore loses the lock before the first change.
type losingStore struct {
	Store
	lose context.CancelCauseFunc
}

var errRemoved = errors.New("removed by hand")

// Lock gives the lock.
func (s *losingStore) Lock(ctx context.Context, _ string, _ time.Duration, _ func(string)) (
	context.Context, func() error, error,
) {
	held, lose := context.WithCancelCause(ctx)
	s.lose = lose
	return held, func() error { return nil }, nil
}

// CreateEnsembleID finds that the lock is lost.
func (s *losingStore) CreateEnsembleID(ctx context.Context) (string, error) {
	s.lose(errRemoved)
	return "", context.Cause(ctx)
}

// TestLockLostBeforeTheFirstChange: the error says so, and why, and there are no outcomes.
func TestLockLostBeforeTheFirstChange(t *testing.T) {
	outcomes, err := Run(t.Context(), &losingStore{}, plan.Plan{Rows: []plan.Row{create("a")}}, Options{})
	if !errors.Is(err, ErrLockLost) || !errors.Is(err, errRemoved) || outcomes != nil {
		t.Errorf("outcomes %v, error %v", outcomes, err)
	}
}

// collectingStore collects until its context ends.
type collectingStore struct {
	memoryStore
	collecting chan struct{}
	err        error
	pruned     bool
}

func (s *collectingStore) PruneApplied(context.Context, time.Duration, time.Time) error {
	s.pruned = true
	return nil
}

func (s *collectingStore) Collect(ctx context.Context, _ []string, _ ...string) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	close(s.collecting)
	<-ctx.Done()
	return 0, context.Cause(ctx)
}

func (s *collectingStore) Lock(ctx context.Context, _ string, _ time.Duration, _ func(string)) (
	held context.Context, release func() error, err error,
) {
	return context.WithoutCancel(ctx), func() error { return nil }, nil // a session outlives a signal
}

// TestASignalEndsTheCollection: nothing has to be finished there, and the lock is not kept.
func TestASignalEndsTheCollection(t *testing.T) {
	s := &collectingStore{
		memoryStore: memoryStore{commit: func(context.Context, plan.Row) error { return nil }},
		collecting:  make(chan struct{}),
	}
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	signal := errors.New("stopped by a signal")
	go func() {
		<-s.collecting
		stop(signal)
	}()
	var failed error
	outcomes, err := Run(ctx, s, plan.Plan{Rows: []plan.Row{create("a")}}, Options{
		CleanupFailed: func(err error) { failed = err },
	})
	if err != nil || len(outcomes) != 1 || outcomes[0].Result != Applied || !errors.Is(failed, signal) {
		t.Errorf("outcomes %v, %v; cleanup: %v", outcomes, err, failed)
	}
}

// TestWhatNobodyOwnsKeepsNothingElse: folders that are left as they are do not keep the marks of old plans.
func TestWhatNobodyOwnsKeepsNothingElse(t *testing.T) {
	for _, c := range []struct {
		err  error
		want bool
	}{{plan.ErrLeft, true}, {errors.New("no permission"), false}} {
		s := &collectingStore{err: c.err}
		a := applying{to: s, opts: Options{CleanupFailed: func(error) {}}}
		if a.tidy(t.Context()); s.pruned != c.want {
			t.Errorf("after %v: %v", c.err, s.pruned)
		}
	}
}
