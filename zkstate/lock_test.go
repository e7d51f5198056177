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
	b := newBed(t)
	var mu sync.Mutex
	holders, most, total := 0, 0, 0
	var all sync.WaitGroup
	for range 5 {
		store := b.newStore(b.dial())
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
				if _, err := store.Ensemble(t.Context()); err != nil { // let others try
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

func TestLockNamesItsHolderAndGivesUp(t *testing.T) {
	b := newBed(t)
	ann := b.storeOf(b.session, "ann@build1")
	_, release, err := ann.Lock(t.Context(), "p", 10*time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	other := b.storeOf(b.dial(), "bob@build2")
	var told []string
	_, _, err = other.Lock(t.Context(), "p", 300*time.Millisecond, func(holder string) { told = append(told, holder) })
	if !errors.Is(err, zkstate.ErrLocked) || !strings.Contains(err.Error(), "ann@build1") {
		t.Errorf("lock: %v; want it to name the holder", err)
	}
	if len(told) != 1 || !strings.HasPrefix(told[0], "ann@build1 holds it") {
		t.Errorf("told %v; want the holder, once", told)
	}
	if h, ok, err := b.store.Holder(t.Context(), "tests"); !ok || h.Who != "ann@build1" || err != nil {
		t.Errorf("holder %v %v %v", h, ok, err)
	}
	if _, _, err := other.Lock(t.Context(), "p", 0, nil); !errors.Is(err, zkstate.ErrLocked) {
		t.Errorf("lock without patience: %v", err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	if left := b.tree(b.root + "/home/lock/tests"); len(left) != 0 {
		t.Errorf("left in the queue: %v", left)
	}
	if _, ok, err := b.store.Holder(t.Context(), "tests"); ok || err != nil {
		t.Errorf("somebody holds a released lock: %v", err)
	}
}

// TestLockDiesWithItsHolder: the next in the queue gets the lock when the holder's session ends.
func TestLockDiesWithItsHolder(t *testing.T) {
	b := newBed(t)
	s := b.dial()
	held, _, err := b.storeOf(s, "ann").Lock(t.Context(), "p", 10*time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	waiting := make(chan string, 1)
	go func() {
		<-waiting
		s.Close()
	}()
	_, release, err := b.store.Lock(t.Context(), "p", 10*time.Second, func(holder string) { waiting <- holder })
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	<-held.Done()
}

// TestLockRemovedByHandIsLost: whoever held it is told.
func TestLockRemovedByHandIsLost(t *testing.T) {
	b := newBed(t)
	held, release, err := b.store.Lock(t.Context(), "p", 10*time.Second, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range b.tree(b.root + "/home/lock/tests") {
		b.remove(b.root + "/home/lock/tests/" + name)
	}
	<-held.Done()
	if err := context.Cause(held); !strings.Contains(err.Error(), "removed") {
		t.Errorf("the lock ended with %v", err)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
}

func TestAppliedPlansArePruned(t *testing.T) {
	b := newBed(t)
	if err := b.store.MarkApplied(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if err := b.store.PruneApplied(t.Context(), time.Hour, time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := b.store.MarkApplied(t.Context(), "one"); !errors.Is(err, plan.ErrApplied) || !strings.Contains(err.Error(), "tester@here") {
		t.Errorf("applied again: %v", err)
	}
	if err := b.store.PruneApplied(t.Context(), time.Hour, time.Now().Add(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := b.store.MarkApplied(t.Context(), "one"); err != nil {
		t.Errorf("a pruned plan: %v", err)
	}
}

// TestMarksThatCannotBeRead: junk in the queue is somebody, and junk for an ensemble's id is said instead of believed.
func TestMarksThatCannotBeRead(t *testing.T) {
	b := newBed(t)
	if _, release, err := b.store.Lock(t.Context(), "p", 0, nil); err != nil {
		t.Fatal(err)
	} else if err := release(); err != nil {
		t.Fatal(err)
	}
	b.write(b.root+"/home/lock/tests/note", nil, zkconn.Persistent)
	if _, ok, err := b.store.Holder(t.Context(), "tests"); ok || err != nil {
		t.Errorf("a note in the queue holds the lock: %v", err)
	}
	b.write(b.root+"/home/lock/tests/lock-", []byte("junk"), zkconn.EphemeralSequential)
	var told string
	_, _, err := b.store.Lock(t.Context(), "p", 0, func(holder string) { told = holder })
	if !errors.Is(err, zkstate.ErrLocked) || !strings.Contains(told, "cannot be read") {
		t.Errorf("lock behind junk: %v; told %q", err, told)
	}
	for _, junk := range []string{"", "\x1b[31m"} {
		b.write(b.root+"/home/ensemble", []byte(junk), zkconn.Persistent)
		if id, err := b.store.CreateEnsembleID(t.Context()); err == nil || !strings.Contains(err.Error(), "delete it") {
			t.Errorf("an ensemble's id of %q is taken as %q, %v", junk, id, err)
		}
	}
}
