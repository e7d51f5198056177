package zkstate_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"muster/zkstate"
)

func TestQuietWaitsOutTheLockAndTellsWhetherItWasTaken(t *testing.T) {
	b := newBed(t)
	reader := zkstate.NewReader(b.dial(), b.root+"/home", zkstate.Job())
	quiet := func() int64 {
		t.Helper()
		n, err := reader.Quiet(t.Context(), "tests", nil)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	never := quiet()
	if quiet() != never {
		t.Error("two looks at a stack without an apply differ")
	}
	_, release, err := b.storeOf(b.session, "ann@build1").Lock(t.Context(), "p", 10*time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}

	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := reader.Quiet(short, "tests", nil); !errors.Is(err, zkstate.ErrLocked) || !strings.Contains(err.Error(), "ann@build1") {
		t.Errorf("error = %v", err)
	}
	if n, err := reader.Quiet(t.Context(), "another", nil); err != nil || n != 0 {
		t.Errorf("another stack: %d, %v", n, err)
	}

	var held []string
	_, err = reader.Quiet(t.Context(), "tests", func(holder string) {
		held = append(held, holder)
		if err := release(); err != nil {
			t.Error(err)
		}
	})
	if err != nil || len(held) != 1 || !strings.HasPrefix(held[0], "ann@build1 holds it") {
		t.Errorf("waited for %q, %v", held, err)
	}
	after := quiet()
	if after == never || quiet() != after {
		t.Errorf("%d before the apply, %d after it", never, after)
	}
}

func TestQuietEndsWithTheCallersContext(t *testing.T) {
	b := newBed(t)
	_, release, err := b.storeOf(b.session, "ann@build1").Lock(t.Context(), "p", 10*time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := b.store.Quiet(ctx, "tests", func(string) { cancel() }); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v", err)
	}
}
