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
