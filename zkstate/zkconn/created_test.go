package zkconn_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"muster/zkstate/zkconn"
)

// TestCreatedW: created returns true only for an event on the connection on which the watch was set.
func TestCreatedW(t *testing.T) {
	ctx, dir := within(t, 20*time.Second), root(t)
	p := proxy(t, shared.Connect())
	s, other := dial(t, zkconn.Config{Servers: []string{p.Addr()}}), dial(t, zkconn.Config{})
	watch := func(name string) (<-chan struct{}, func() bool) {
		_, exists, changed, created, err := s.CreatedW(ctx, dir+"/"+name)
		if err != nil || exists {
			t.Fatal(exists, err)
		}
		return changed, created
	}
	changed, created := watch("a")
	must(other.Create(ctx, dir+"/a", nil, zkconn.Persistent, open))(t)
	closes(t, changed, 5*time.Second)
	if !created() {
		t.Error("a creation was not seen")
	}
	if _, exists, _, _, err := s.CreatedW(ctx, dir+"/a"); err != nil || !exists {
		t.Errorf("a: %v, %v", exists, err)
	}
	changed, created = watch("b")
	p.Cut()
	if err := s.Sync(ctx, dir); err != nil {
		t.Fatal(err)
	}
	must(other.Create(ctx, dir+"/b", nil, zkconn.Persistent, open))(t)
	closes(t, changed, 5*time.Second)
	if created() {
		t.Error("an event of another connection counts as a creation")
	}
	changed, created = watch("c")
	s.Close()
	closes(t, changed, 5*time.Second)
	if created() {
		t.Error("the end of the session counts as a creation")
	}
}

// TestAWatchIsSetOnce: who reads with the same watch again and again sets it once, and again after its event.
func TestAWatchIsSetOnce(t *testing.T) {
	ctx, dir := within(t, 20*time.Second), root(t)
	p := proxy(t, shared.Connect())
	s, other := dial(t, zkconn.Config{Servers: []string{p.Addr()}}), dial(t, zkconn.Config{})
	var set atomic.Int32
	const exists, getData, getChildren2 = 3, 4, 12
	p.BeforeSend(func(op int32, request []byte) bool {
		if (op == exists || op == getData || op == getChildren2) && request[len(request)-1] == 1 {
			set.Add(1)
		}
		return false
	})
	for round := range int32(2) {
		var changed, created, members <-chan struct{}
		var err error
		for range 5 {
			if _, _, changed, err = s.GetW(ctx, dir); err == nil {
				_, _, members, err = s.ChildrenW(ctx, dir)
			}
			if err == nil {
				_, _, created, err = s.ExistsW(ctx, fmt.Sprint(dir, "/", round))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if got := set.Load(); got != 3*(round+1) {
			t.Errorf("round %d: %d watches were set", round, got)
		}
		must(other.Create(ctx, fmt.Sprint(dir, "/", round), nil, zkconn.Persistent, open))(t)
		must(other.Set(ctx, dir, nil, -1))(t)
		for _, event := range []<-chan struct{}{changed, created, members} {
			closes(t, event, 5*time.Second)
		}
	}
}
