package tasks

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"muster/resource"
	"muster/resource/queue"
	"muster/tasks/store"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

func (f *fixture) submitConfig(id string) SubmitConfig {
	return SubmitConfig{
		Root: f.queue.Root, Queue: f.queue.Name, ID: id, By: "tester@here", Redis: Access{Getenv: noEnvironment},
	}
}

// numbered are payloads "0", "1", ….
func numbered(n int) Source {
	all := make([][]byte, n)
	for i := range all {
		all[i] = fmt.Append(nil, i)
	}
	return Payloads(all...)
}

// submit submits in the observer's session.
func (f *fixture) submit(id string, source Source) Submitted {
	f.t.Helper()
	got, err := Submit(f.t.Context(), f.s, f.submitConfig(id), source)
	if err != nil {
		f.t.Fatal(err)
	}
	return got
}

// inRedis is a batch as Redis has it.
func (f *fixture) inRedis(id string) store.Batch {
	f.t.Helper()
	b, err := f.store().Batch(f.t.Context(), id)
	if err != nil {
		f.t.Fatal(err)
	}
	return b
}

// batch is a manifest.
func (f *fixture) batch(id string) Manifest {
	f.t.Helper()
	m, err := manifest(f.t.Context(), f.s, f.queue.Root, f.generation(), id)
	if err != nil {
		f.t.Fatal(err)
	}
	return m
}

// TestSubmitWritesEverything: the first submit of a queue makes its folders; the batch is open in both places.
func TestSubmitWritesEverything(t *testing.T) {
	f := newFixture(t)
	got := f.submit("", numbered(2500))
	m, b := f.batch(got.ID), f.inRedis(got.ID)
	if m != got.Manifest || m.State != znode.BatchOpen || m.Tasks != 2500 || m.Results != queue.ResultsWatcher {
		t.Errorf("manifest %+v, returned %+v", m, got.Manifest)
	}
	if b.State != "open" || b.Tasks != 2500 || b.Waiting != 2500 || b.Version != int64(m.Version) || b.Life != m.Life {
		t.Errorf("redis: %+v", b)
	}
	if b.Declared != b.Sum {
		t.Errorf("declared %d bytes, %d came", b.Declared, b.Sum)
	}
	f.join("e", queue.Executor) // the folders fit
}

// TestSubmitAgain: the same batch is the same; another one is refused, and the error says what differs.
func TestSubmitAgain(t *testing.T) {
	f := newFixture(t)
	first := f.submit("b", numbered(10))
	again := f.submit("b", numbered(10))
	if !again.Found || again.Manifest != first.Manifest || first.Found {
		t.Errorf("%+v, then %+v", first, again)
	}
	c := f.submitConfig("b")
	for what, try := range map[string]func() (Submitted, error){
		"has 10 tasks, not 11": func() (Submitted, error) { return Submit(t.Context(), f.s, c, numbered(11)) },
		"as many and as large": func() (Submitted, error) {
			other := Payloads([]byte("012"), nil, nil, nil, nil, nil, nil, nil, nil, []byte("3456789"))
			return Submit(t.Context(), f.s, c, other)
		},
		`results for "watcher", not "discard"`: func() (Submitted, error) {
			c := c
			c.Results = queue.ResultsDiscard
			return Submit(t.Context(), f.s, c, numbered(10))
		},
	} {
		if _, err := try(); !errors.Is(err, ErrOtherBatch) || !contains(err, what) {
			t.Errorf("want %q, got %v", what, err)
		}
	}
}

// TestSubmitRefuses: nothing is written of a batch that the queue does not take.
func TestSubmitRefuses(t *testing.T) {
	f := newFixture(t, func(q *queue.Queue) { q.MaxTask, q.MaxBytes = 1<<10, resource.Size(1<<20) })
	big := make([]byte, 1<<10+1)
	var many [][]byte
	for range 1100 {
		many = append(many, big[:1000])
	}
	for name, c := range map[string]struct {
		source Source
		want   error
		text   string
	}{
		"no tasks":   {Payloads(), ErrNoTasks, "at least one task"},
		"large task": {Payloads(big[:1<<10], big), ErrTooLarge, "task 1 is larger than the queue's max_task, 1KiB"},
		"max_bytes":  {Payloads(many...), ErrTooLarge, "max_bytes is 1MiB"},
	} {
		_, err := Submit(t.Context(), f.s, f.submitConfig("b"), c.source)
		if !errors.Is(err, c.want) || !contains(err, c.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if f.look().Count("batches") != 0 || f.books().Batches != 0 {
		t.Error("something was written")
	}
}

// TestSubmitWithoutPermission: nobody may write batches, which waiting does not cure.
func TestSubmitWithoutPermission(t *testing.T) {
	f := newFixture(t)
	f.submit("first", numbered(1)) // which makes the folders
	err := f.operator().Cancel(t.Context(), "first")
	folder := znode.Batches(f.queue.Root, f.generation())
	if err == nil {
		err = f.s.Delete(t.Context(), folder, -1)
	}
	if err == nil {
		_, err = f.s.Create(t.Context(), folder, nil, zkconn.Persistent, zkconn.World(zkconn.PermRead))
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := Submit(ctx, f.s, f.submitConfig("b"), numbered(1)); !errors.Is(err, zkconn.ErrNoAuth) {
		t.Errorf("it ended with %v", err)
	}
}

func contains(err error, text string) bool { return err != nil && strings.Contains(err.Error(), text) }
