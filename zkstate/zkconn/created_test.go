package zkconn_test

import (
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
