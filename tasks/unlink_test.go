package tasks

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"muster/plan"
	"muster/resource"
	"muster/resource/queue"
	"muster/zkstate"
)

// TestUnlink deletes every key of a deleted generation, in pages, and none of another.
func TestUnlink(t *testing.T) {
	f, other := newFixture(t), newFixture(t)
	for i := range 3 {
		f.submit(fmt.Sprint("b", i), numbered(5))
	}
	other.submit("b0", numbered(5))
	c := f.client()
	for i := range 3 * unlinkPage {
		if err := c.Set(t.Context(), fmt.Sprint(keyPrefix(f.generation()), "b:x", i), "", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	rec := f.look().Record
	for range 2 {
		if err := Unlink(t.Context(), rec, Access{Getenv: noEnvironment}, []string{rediss.Addr()}); err != nil {
			t.Fatal(err)
		}
	}
	left, err := c.Keys(t.Context(), keyPrefix(f.generation())+"*").Result()
	if err != nil || len(left) != 0 {
		t.Errorf("%d keys are left: %v", len(left), err)
	}
	if b := other.inRedis("b0"); b.Waiting != 5 {
		t.Errorf("the other queue: %+v", b)
	}
}

// TestAGenerationStaysUntilItsKeysAreGone: a process was there, the queue was deleted, and Redis did not answer.
func TestAGenerationStaysUntilItsKeysAreGone(t *testing.T) {
	proxy := newProxy(t, rediss.Addr())
	f := newFixture(t, func(q *queue.Queue) { q.Redis = "redis://" + proxy.Addr() })
	p := f.join("p", queue.Executor)
	g := f.generation()
	if err := p.Leave(); err != nil {
		t.Fatal(err)
	}
	direct := redis.NewClient(&redis.Options{Addr: rediss.Addr(), Protocol: 2})
	t.Cleanup(func() { direct.Close() })
	keys := func() int {
		left, err := direct.Keys(t.Context(), keyPrefix(g)+"*").Result()
		if err != nil {
			t.Fatal(err)
		}
		return len(left)
	}
	if keys() == 0 {
		t.Fatal("it has no keys")
	}
	row := plan.Row{Path: f.queue.Path(), Old: f.look(), Reason: plan.Undeclared}
	if err := f.admin.Commit(t.Context(), row); err != nil {
		t.Fatal(err)
	}
	kind := zkstate.Queue()
	kind.Unlink = func(ctx context.Context, rec *resource.Record) error {
		return Unlink(ctx, rec, Access{Getenv: noEnvironment}, []string{proxy.Addr()})
	}
	admin, err := zkstate.NewStore(f.s, zkstate.Config{
		Home: f.queue.Root + "/home", Stack: "tests", Kinds: []zkstate.Kind{kind},
	})
	if err != nil {
		t.Fatal(err)
	}
	proxy.Refuse(true)
	proxy.Cut()
	if n, err := admin.Collect(t.Context(), []string{f.queue.Root}); n != 0 || !errors.Is(err, zkstate.ErrOutside) {
		t.Errorf("without Redis: %d, %v", n, err)
	}
	proxy.Refuse(false)
	if n, err := admin.Collect(t.Context(), []string{f.queue.Root}); n != 1 || err != nil {
		t.Errorf("with Redis: %d, %v", n, err)
	}
	if n := keys(); n != 0 {
		t.Errorf("%d keys are left", n)
	}
}
