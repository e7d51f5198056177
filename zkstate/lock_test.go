package zkstate_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/plan"
	"muster/zkstate"
	"muster/zkstate/zkconn"
)

func TestLockIsHeldByOneAtATime(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var mu sync.Mutex
	holders, most, total := 0, 0, 0
	var all sync.WaitGroup
	for range 5 {
		store := f.newStore(f.dial())
		all.Go(func() {
			for range 10 {
				_, release, err := store.Lock(t.Context(), "p", 10*time.Second, nil)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				holders++
				total++
				most = max(most, holders)
				mu.Unlock()
				if _, err := store.Ensemble(t.Context()); err != nil { // gives the others time to try
					t.Error(err)
				}
				mu.Lock()
				holders--
				mu.Unlock()
				if err := release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if most != 1 || total != 50 {
		t.Errorf("%d holders at once in %d locks; want 1 in 50", most, total)
	}
}

func TestLockTimeoutNamesTheHolder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann := f.storeOf(f.session, "ann@build1")
	_, release, err := ann.Lock(t.Context(), "p", 10*time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	other := f.storeOf(f.dial(), "bob@build2")
	var holders []string
	_, _, err = other.Lock(t.Context(), "p", 300*time.Millisecond, func(holder string) {
		holders = append(holders, holder)
	})
	if !errors.Is(err, zkstate.ErrLocked) || !strings.Contains(err.Error(), "ann@build1") {
		t.Errorf("lock: %v; want it to name the holder", err)
	}
	if len(holders) != 1 || !strings.HasPrefix(holders[0], "ann@build1 holds it") {
		t.Errorf("waiting got %v; want the holder, once", holders)
	}
	if h, ok, err := f.store.Holder(t.Context(), "tests"); !ok || h.Who != "ann@build1" || err != nil {
		t.Errorf("holder %v %v %v", h, ok, err)
	}
	if _, _, err := other.Lock(t.Context(), "p", 0, nil); !errors.Is(err, zkstate.ErrLocked) {
		t.Errorf("lock without a timeout: %v", err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	if left := f.tree(f.root + "/home/lock/tests"); len(left) != 0 {
		t.Errorf("left in the queue: %v", left)
	}
	if _, ok, err := f.store.Holder(t.Context(), "tests"); ok || err != nil {
		t.Errorf("somebody holds a released lock: %v", err)
	}
}

// TestLockEndsWithItsSession: the next in the queue gets the lock when the holder's session ends.
func TestLockEndsWithItsSession(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.dial()
	held, _, err := f.storeOf(s, "ann").Lock(t.Context(), "p", 10*time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	waiting := make(chan string, 1)
	go func() {
		<-waiting
		s.Close()
	}()
	_, release, err := f.store.Lock(t.Context(), "p", 10*time.Second, func(holder string) { waiting <- holder })
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	<-held.Done()
}

// TestLockRemovedByHandIsLost: the holder's context ends.
func TestLockRemovedByHandIsLost(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	held, release, err := f.store.Lock(t.Context(), "p", 10*time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range f.tree(f.root + "/home/lock/tests") {
		f.remove(f.root + "/home/lock/tests/" + name)
	}
	<-held.Done()
	if err := context.Cause(held); !strings.Contains(err.Error(), "removed") {
		t.Errorf("the lock ended with %v", err)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
}

// TestPlaceRemovedByHand: an apply whose place in the queue was deleted while it waited did not get the lock.
func TestPlaceRemovedByHand(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, release, err := f.store.Lock(t.Context(), "p", 10*time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	other := f.newStore(f.dial())
	_, _, err = other.Lock(t.Context(), "p", time.Minute, func(string) {
		f.remove(f.root + "/home/lock/tests/" + f.tree(f.root + "/home/lock/tests")[1])
		if err := release(); err != nil {
			t.Error(err)
		}
	})
	if !errors.Is(err, zkstate.ErrLocked) || !strings.Contains(err.Error(), "removed") {
		t.Errorf("lock: %v", err)
	}
}

func TestAppliedPlansArePruned(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if err := f.store.MarkApplied(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if err := f.store.PruneApplied(t.Context(), time.Hour, time.Now()); err != nil {
		t.Fatal(err)
	}
	err := f.store.MarkApplied(t.Context(), "one")
	if !errors.Is(err, plan.ErrApplied) || !strings.Contains(err.Error(), "tester@here") {
		t.Errorf("applied again: %v", err)
	}
	if err := f.store.PruneApplied(t.Context(), time.Hour, time.Now().Add(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := f.store.MarkApplied(t.Context(), "one"); err != nil {
		t.Errorf("a pruned plan: %v", err)
	}
}

// TestUnreadableMarks: an unreadable mark in the queue holds the lock, and an unreadable id of the ensemble is an
// error.
func TestUnreadableMarks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if _, release, err := f.store.Lock(t.Context(), "p", 0, nil); err != nil {
		t.Fatal(err)
	} else if err := release(); err != nil {
		t.Fatal(err)
	}
	f.write(f.root+"/home/lock/tests/note", nil, zkconn.Persistent)
	if _, ok, err := f.store.Holder(t.Context(), "tests"); ok || err != nil {
		t.Errorf("a note in the queue holds the lock: %v", err)
	}
	f.write(f.root+"/home/lock/tests/lock-", []byte("junk"), zkconn.EphemeralSequential)
	var got string
	_, _, err := f.store.Lock(t.Context(), "p", 0, func(holder string) { got = holder })
	if !errors.Is(err, zkstate.ErrLocked) || !strings.Contains(got, "cannot be read") {
		t.Errorf("lock behind junk: %v; the holder is %q", err, got)
	}
	for _, junk := range []string{"", "\x1b[31m"} {
		f.write(f.root+"/home/ensemble", []byte(junk), zkconn.Persistent)
		if id, err := f.store.CreateEnsembleID(t.Context()); err == nil || !strings.Contains(err.Error(), "delete it") {
			t.Errorf("an ensemble's id of %q is taken as %q, %v", junk, id, err)
		}
	}
}

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
