package zkstate_test

import (
	"context"
	"errors"
	"strings"
	"time"

	"muster/plan"
	"muster/resource"
	"muster/resource/queue"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// primes is a queue in the fixture's root. Nothing in these tests talks to its Redis.
func (f *fixture) primes(edits ...func(*queue.Queue)) queue.Queue {
	q := queue.Default()
	q.Root, q.Name, q.Address, q.Redis = f.root+"/jobs", "primes", "queue.primes", "redis://redis-1"
	q.Timeouts.Stale = resource.Duration(time.Second)
	for _, edit := range edits {
		edit(&q)
	}
	return q
}

func moveToOther(q *queue.Queue) { q.Redis = "redis://redis-2" }

// queueRow is the row of the queue, which may be declared.
func (f *fixture) queueRow(declared ...resource.Declaration) plan.Row {
	f.t.Helper()
	state, err := f.store.Read(f.t.Context(), []string{f.root + "/jobs"})
	if err != nil {
		f.t.Fatal(err)
	}
	for _, r := range plan.Diff(plan.Want{Stack: "tests", Home: f.root + "/home", Declared: declared}, state).Rows {
		if strings.HasSuffix(r.Path, "/primes") {
			return r
		}
	}
	return plan.Row{}
}

// commitQueue plans the queue, and commits a row that must have this reason.
func (f *fixture) commitQueue(want plan.Reason, declared ...resource.Declaration) plan.Row {
	f.t.Helper()
	r := f.queueRow(declared...)
	if r.Reason != want {
		f.t.Fatalf("the queue is %s, want %s: %+v", r.Reason, want, r.Old)
	}
	if err := f.store.Commit(f.t.Context(), r); err != nil {
		f.t.Fatal(err)
	}
	return r
}

// generation is the generation of the queue.
func (f *fixture) generation(q queue.Queue) string {
	f.t.Helper()
	o, err := f.store.Look(f.t.Context(), q.Path())
	if err != nil || o == nil || o.Record == nil {
		f.t.Fatalf("the queue: %+v, %v", o, err)
	}
	return o.Record.Generation
}

func world() []zkconn.ACL { return zkconn.World(zkconn.PermAll) }

// beginQueue creates the folders of a generation, as its first process does.
func (f *fixture) beginQueue(q queue.Queue, g string) error {
	ops := []zkconn.Op{zkconn.CheckOp(znode.Gate(q.Root, g), 0)}
	for _, folder := range znode.QueueFolders() {
		ops = append(ops, zkconn.CreateOp(resource.Join(znode.Run(q.Root, g), folder), nil, zkconn.Persistent, world()))
	}
	_, err := f.session.Multi(context.Background(), ops...)
	if errors.Is(err, zkconn.ErrNodeExists) {
		return nil
	}
	return err
}

// submit writes a manifest, as a submitter does.
func (f *fixture) submit(q queue.Queue, g, id string, state znode.BatchState) error {
	if err := f.beginQueue(q, g); err != nil {
		return err
	}
	body, err := znode.Encode(znode.BatchManifest{
		Tasks: 10, Bytes: 20, SHA256: strings.Repeat("0a", 32), Weight: 1, Results: queue.ResultsWatcher,
		By: "ann@desk", Since: time.Unix(1700000000, 0), State: state,
	})
	if err != nil {
		return err
	}
	_, err = f.session.Multi(context.Background(), zkconn.CheckOp(znode.Gate(q.Root, g), 0),
		zkconn.CreateOp(znode.Batch(q.Root, g, id), body, zkconn.Persistent, world()))
	return err
}

// keepCompleted makes of a batch an open one that is completed, and whose results are kept.
func (f *fixture) keepCompleted(q queue.Queue, g, id string) {
	f.t.Helper()
	at := znode.Batch(q.Root, g, id)
	body, _, err := f.session.Get(f.t.Context(), at)
	if err == nil {
		var b znode.BatchManifest
		if b, err = znode.Decode[znode.BatchManifest](body); err == nil {
			b.State, b.Results, b.Completed = znode.BatchOpen, queue.KeepResults+"24h", b.Since
			body, err = znode.Encode(b)
		}
	}
	if err == nil {
		_, err = f.session.Set(f.t.Context(), at, body, -1)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// joinQueue is a process of the queue with a session of its own. It returns its seat, and what ends it.
func (f *fixture) joinQueue(q queue.Queue, g, identity string, role queue.Role) (seat string, leave func()) {
	f.t.Helper()
	s := f.dial()
	process, err := znode.Encode(znode.QueueProcess{Nonce: identity, Role: role, Host: "here", Parallel: 4})
	if err != nil {
		f.t.Fatal(err)
	}
	body, err := znode.Encode(znode.QueueSeat{Identity: identity, Nonce: identity, Role: role})
	if err == nil {
		err = f.beginQueue(q, g)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	done, err := s.Multi(f.t.Context(), zkconn.CheckOp(znode.Gate(q.Root, g), 0),
		zkconn.CreateOp(znode.NewSeat(q.Root, g), body, zkconn.EphemeralSequential, world()),
		zkconn.CreateOp(znode.Live(q.Root, q.Name, identity), process, zkconn.Ephemeral, world()))
	if err != nil {
		f.t.Fatal(err)
	}
	return done[1].Path[strings.LastIndexByte(done[1].Path, '/')+1:], func() { s.Close() }
}

func (f *fixture) setHealth(q queue.Queue, g string, h znode.Health) {
	f.t.Helper()
	body, err := znode.Encode(h)
	if err == nil {
		_, err = f.session.Set(f.t.Context(), znode.QueueHealth(q.Root, g), body, -1)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}
