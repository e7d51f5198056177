package zkconn_test

import (
	"fmt"
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

// TestWhoGivesUpLeavesNoChannel: who reads with the same watch again and again gets the same channel until its event.
func TestWhoGivesUpLeavesNoChannel(t *testing.T) {
	ctx, dir := within(t, 20*time.Second), root(t)
	s, other := dial(t, zkconn.Config{}), dial(t, zkconn.Config{})
	for round := range 2 {
		var set []<-chan struct{}
		child := fmt.Sprint(dir, "/", round)
		for name, watch := range map[string]func() (<-chan struct{}, error){
			"data":     func() (<-chan struct{}, error) { _, _, changed, err := s.GetW(ctx, dir); return changed, err },
			"children": func() (<-chan struct{}, error) { _, _, changed, err := s.ChildrenW(ctx, dir); return changed, err },
			"creation": func() (<-chan struct{}, error) { _, _, changed, err := s.ExistsW(ctx, child); return changed, err },
		} {
			first := must(watch())(t)
			for range 5 {
				if must(watch())(t) != first {
					t.Errorf("round %d, %s: another channel", round, name)
				}
			}
			set = append(set, first)
		}
		must(other.Create(ctx, child, nil, zkconn.Persistent, open))(t)
		must(other.Set(ctx, dir, nil, -1))(t)
		for _, changed := range set { // or else the next round may begin before the events have come
			closes(t, changed, 5*time.Second)
		}
	}
}

// TestWatchWhoseEventMayNotBeTold: a server tells nobody of a change who may not read the znode, and forgets the watch.
// Who reads again watches again.
func TestWatchWhoseEventMayNotBeTold(t *testing.T) {
	ctx, path := within(t, 30*time.Second), root(t)+"/secret"
	s, other := dial(t, zkconn.Config{}), dial(t, zkconn.Config{})
	watch := func() <-chan struct{} {
		t.Helper()
		_, there, changed, err := s.ExistsW(ctx, path)
		if err != nil || there {
			t.Fatal(there, err)
		}
		return changed
	}
	watch()
	must(other.Create(ctx, path, nil, zkconn.Persistent, zkconn.World(zkconn.PermAll&^zkconn.PermRead)))(t)
	if err := other.Delete(ctx, path, -1); err != nil {
		t.Fatal(err)
	}
	changed := watch()
	must(other.Create(ctx, path, nil, zkconn.Persistent, open))(t)
	closes(t, changed, 10*time.Second)
}
