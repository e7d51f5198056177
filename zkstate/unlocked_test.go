package zkstate_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"muster/zkstate"
)

func TestWaitUnlocked(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	reader := zkstate.NewFollower(f.dial(), f.root+"/home", zkstate.Job())
	unlocked := func() int64 {
		t.Helper()
		n, err := reader.WaitUnlocked(t.Context(), "tests", nil)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := unlocked()
	if unlocked() != before {
		t.Error("two calls without an apply between them return different numbers")
	}
	_, release, err := f.storeOf(f.session, "ann@build1").Lock(t.Context(), "p", 10*time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}

	short, end := context.WithCancelCause(t.Context())
	_, err = reader.WaitUnlocked(short, "tests", func(string) { end(context.DeadlineExceeded) })
	if !errors.Is(err, zkstate.ErrLocked) || !strings.Contains(err.Error(), "ann@build1") {
		t.Errorf("error = %v", err)
	}
	if n, err := reader.WaitUnlocked(t.Context(), "another", nil); err != nil || n != 0 {
		t.Errorf("another stack: %d, %v", n, err)
	}

	var held []string
	_, err = reader.WaitUnlocked(t.Context(), "tests", func(holder string) {
		held = append(held, holder)
		if err := release(); err != nil {
			t.Error(err)
		}
	})
	if err != nil || len(held) != 1 || !strings.HasPrefix(held[0], "ann@build1 holds it") {
		t.Errorf("waited for %q, %v", held, err)
	}
	after := unlocked()
	if after == before || unlocked() != after {
		t.Errorf("%d before the apply, %d after it", before, after)
	}
}

func TestWaitUnlockedEndsWithItsContext(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, release, err := f.storeOf(f.session, "ann@build1").Lock(t.Context(), "p", 10*time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	reader := zkstate.NewFollower(f.session, f.root+"/home")
	if _, err := reader.WaitUnlocked(ctx, "tests", func(string) { cancel() }); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v", err)
	}
}
