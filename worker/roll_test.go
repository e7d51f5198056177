package worker_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestRollHasEverybody by id, and waits until all have joined.
func TestRollHasEverybody(t *testing.T) {
	t.Parallel()
	j, _ := newJob(t, 3)
	first := join(t, j, "w0")
	hasty, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := first.Roll(hasty); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("before the others: %v", err)
	}
	join(t, j, "w1")
	join(t, j, "w2")
	roll, err := first.Roll(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	joined, err := first.Joined(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(joined, roll); d != "" {
		t.Errorf("roll (-joined +roll):\n%s", d)
	}
}
