package tasks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/dev/fault"
	"muster/resource"
	"muster/resource/queue"
	"muster/sim/rig"
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
	m, err := f.ledger().Manifest(f.t.Context(), id)
	if err != nil {
		f.t.Fatal(err)
	}
	return m
}

// TestSubmitWritesEverything: the first submit of a queue makes its folders; the batch is open in both places.
func TestSubmitWritesEverything(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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
	t.Parallel()
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

// inOrder checks that a batch has these tasks, by executing it, and ends it.
func (f *fixture) inOrder(id string, n int) {
	f.t.Helper()
	var want []string
	for i := range n {
		want = append(want, fmt.Sprint(i))
	}
	m := f.batch(id)
	if b := f.inRedis(id); b.State != "open" || b.Declared != b.Sum && b.Bytes != b.Sum || m.State != znode.BatchOpen {
		f.t.Errorf("%+v, in redis %+v", m, b)
	}
	if had := f.worker("w-" + id).work(echo); !slices.Equal(had, want) {
		f.t.Errorf("%d tasks were executed, not %d in order", len(had), n)
	}
	if err := f.operator().Collected(f.t.Context(), id, m); err != nil {
		f.t.Fatal(err)
	}
	if b := f.books(); b.Batches != 0 || b.Bytes != 0 {
		f.t.Errorf("left in redis: %+v", b)
	}
}

// TestSubmitLostReplies: of each of the two writes of the manifest the request or the reply is lost, and the submit
// goes on. What is lost of Redis is tried in the worlds of sim/queues.
func TestSubmitLostReplies(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	proxy := rig.Proxy(t, servers.Addrs()[0])
	for nth := range 2 {
		for name, lose := range map[string]func(func(int32, []byte) bool) <-chan struct{}{
			"reply": proxy.DropReply, "request": proxy.BeforeSend,
		} {
			id := fmt.Sprint("b", nth, name)
			seen := 0
			lost := lose(func(op int32, req []byte) bool {
				if (op == fault.OpMulti || op == fault.OpSetData) && bytes.Contains(req, []byte(id)) {
					seen++
					return seen == nth+1
				}
				return false
			})
			if _, err := Submit(t.Context(), dial(t, proxy.Addr()), f.submitConfig(id), numbered(10)); err != nil {
				t.Fatalf("%s: %v", id, err)
			}
			<-lost
			f.inOrder(id, 10)
		}
	}
}

// TestEndLostReplies: whatever is lost at the end of a batch, doing it again ends it, once.
func TestEndLostReplies(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	proxy := rig.Proxy(t, servers.Addrs()[0])
	for _, name := range []string{"reply", "request", "dies"} {
		got := f.submit(name, numbered(3))
		end := func(st *store.Queue) error {
			return ledger{dial(t, proxy.Addr()), f.queue.Root, f.generation()}.end(t.Context(), st, name, got.Manifest,
				znode.EndCancelled, "tester")
		}
		match := func(op int32, req []byte) bool { return op == fault.OpMulti && bytes.Contains(req, []byte(name)) }
		st := f.store()
		switch name {
		case "reply":
			proxy.DropReply(match)
		case "request":
			proxy.BeforeSend(match)
		case "dies": // between ZooKeeper and Redis
			client, err := Access{Getenv: noEnvironment}.connect(t.Context(), f.queue)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			calls := 0
			client.AddHook(hook(func(cmd redis.Cmder, send func() error) error {
				if calls++; calls == 2 {
					return lost(cmd)
				}
				return send()
			}))
			if err := end(open(client, f.queue, f.generation())); err == nil || f.books().Batches != 1 {
				t.Fatalf("%v, %+v", err, f.books())
			}
		}
		if err := end(st); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		e, err := f.operator().Ended(t.Context(), name)
		if err != nil || e == nil || e.How != znode.EndCancelled || f.books().Batches != 0 {
			t.Errorf("%s: %+v, %v, %+v", name, e, err, f.books())
		}
	}
}

// TestSubmitAfterRedisLostTheBatch: a submit with the id of a batch that Redis lost writes it again.
func TestSubmitAfterRedisLostTheBatch(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	got := f.submit("b", numbered(1200))
	if err := f.store().Remove(t.Context(), "b", got.Manifest.Life); err != nil {
		t.Fatal(err)
	}
	if _, err := f.operator().Pause(t.Context(), "b"); err == nil {
		t.Error("a lost batch was paused")
	}
	if _, err := f.operator().Resume(t.Context(), "b"); err == nil {
		t.Error("a lost batch was resumed")
	}
	if again := f.submit("b", numbered(1200)); !again.Found || again.Manifest.Life != got.Manifest.Life {
		t.Errorf("%+v", again)
	}
	f.inOrder("b", 1200)
}

// TestSubmitBesideARefusedOne: Redis refuses a batch for dead tasks that came after they were looked for. They are
// dropped, and another submit goes on with the manifest, before the first one knows: so that does not take it back.
func TestSubmitBesideARefusedOne(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.submit("first", numbered(1)) // which makes the folders
	if err := f.operator().Cancel(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	client, err := Access{Getenv: noEnvironment}.connect(t.Context(), f.queue)
	if err != nil {
		t.Fatal(err)
	}
	x := newSubmission(f.s, f.submitConfig("b"), numbered(3))
	x.join.client, x.join.url = client, f.queue.Redis
	defer x.join.disconnect()
	var other Submitted
	came := false
	client.AddHook(hook(func(cmd redis.Cmder, send func() error) error {
		err := send()
		switch {
		case !came && err == nil && slices.Contains(cmd.Args(), any("dead")):
			came = true
			f.leaveDead("b")
		case err != nil && strings.HasPrefix(err.Error(), "DEAD"):
			if _, err := f.operator().DropDead(t.Context(), "b"); err != nil {
				t.Error(err)
			}
			other = f.submit("b", numbered(3))
		}
		return err
	}))
	if err := x.run(t.Context()); err != nil || x.out.Manifest.Life == "" || x.out.Manifest.Life != other.Manifest.Life {
		t.Errorf("%v: %+v beside %+v", err, x.out, other)
	}
	f.inOrder("b", 3)
}

// TestSubmitBesideDeadTasks: before a submit looks for dead tasks, another one makes the same batch, and its tasks die.
// That is no reason to refuse it, whether the batch is still there or has ended.
func TestSubmitBesideDeadTasks(t *testing.T) {
	t.Parallel()
	for _, ends := range []bool{false, true} {
		f := newFixture(t)
		x := newSubmission(f.s, f.submitConfig("b"), numbered(3))
		x.join.client, x.join.url = f.client(), f.queue.Redis
		var other Submitted
		x.join.client.AddHook(hook(func(cmd redis.Cmder, send func() error) error {
			if other.ID == "" && slices.Contains(cmd.Args(), any("dead")) {
				other = f.submit("b", numbered(3))
				f.worker("w").work(never)
				if ends {
					if err := f.operator().Collected(t.Context(), "b", other.Manifest); err != nil {
						t.Error(err)
					}
				}
			}
			return send()
		}))
		err := x.run(t.Context())
		if err != nil || !x.out.Found || (x.out.Ended != nil) != ends || !ends && x.out.Manifest != f.batch("b") {
			t.Errorf("ends %v: %v: %+v beside %+v", ends, err, x.out, other)
		}
	}
}

// leaveDead leaves a dead task of a batch of which ZooKeeper knows nothing.
func (f *fixture) leaveDead(id string) {
	f.t.Helper()
	st, ctx := f.store(), f.t.Context()
	b := store.NewBatch{ID: id, Life: "x", Weight: 1, Attempts: 1, Results: "watcher", Bytes: 33}
	err := st.Begin(ctx, b, 1<<20)
	if err == nil {
		_, err = st.Append(ctx, id, "x", 0, [][]byte{{'x'}})
	}
	if err == nil {
		err = st.Open(ctx, id, "x", 1)
	}
	if err == nil {
		_, err = st.Hello(ctx, "1", queue.Executor, 1)
	}
	if err == nil {
		_, err = st.Turn(ctx, "1", 1, store.Turn{Idle: 1, MaxBytes: 1 << 20})
	}
	if err == nil {
		dead := store.Result{Task: store.Task{Batch: id}, Attempt: 1, Outcome: store.Never, Data: []byte("no")}
		_, err = st.Turn(ctx, "1", 2, store.Turn{Results: []store.Result{dead}, MaxBytes: 1 << 20})
	}
	if err == nil {
		err = st.Remove(ctx, id, "x")
	}
	if err == nil {
		_, _, err = st.Evict(ctx, store.Left, "1")
	}
	if err != nil {
		f.t.Fatal(err)
	}
}
