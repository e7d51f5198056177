package zkstate_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/dev/fault"
	"muster/plan"
	"muster/resource"
	"muster/resource/queue"
	"muster/sim/rig"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// TestWhatIsCountedOfAQueue: live processes by role, unfinished batches, and what is amiss.
func TestWhatIsCountedOfAQueue(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.primes()
	f.commitQueue(plan.NotThere, q)
	g := f.generation(q)
	expect := func(what string, status resource.Status, want queue.Found) {
		t.Helper()
		r := f.queueRow(q)
		if got := queue.FoundOf(r.Old); got != want || r.Old.Status() != status || r.Reason != plan.Equal {
			t.Errorf("%s: %s, %s, %+v, want %s, %+v", what, r.Reason, r.Old.Status(), got, status, want)
		}
	}
	expect("new", resource.StatusReady, queue.Found{})
	for id, state := range map[string]znode.BatchState{
		"a": znode.BatchOpen, "b": znode.BatchPaused, "c": znode.BatchSubmitting, "d": znode.BatchCancelled,
	} {
		if err := f.submit(q, g, id, state); err != nil {
			t.Fatal(err)
		}
	}
	expect("nobody is live", queue.Degraded, queue.Found{Batches: 4, Waiting: 1})
	_, err := f.session.Create(t.Context(), znode.Batch(q.Root, g, "odd"), []byte("?"), zkconn.Persistent, world())
	if err != nil {
		t.Fatal(err)
	}
	expect("a damaged batch", queue.Degraded, queue.Found{Batches: 5, Waiting: 2})
	w1, leaveW1 := f.joinQueue(q, g, "w1", queue.Watcher)
	expect("a watcher", queue.Degraded, queue.Found{Watchers: 1, Batches: 5, Waiting: 2})
	f.setHealth(q, g, znode.Health{Seat: w1, Completed: 1})
	expect("one is completed", queue.Degraded, queue.Found{Watchers: 1, Batches: 5, Waiting: 1})
	f.keepCompleted(q, g, "b")
	expect("the results of another one are kept", queue.Degraded, queue.Found{Watchers: 1, Batches: 5, Waiting: 1})
	e1, leaveE1 := f.joinQueue(q, g, "e1", queue.Executor)
	f.joinQueue(q, g, "e2", queue.Executor)
	f.joinQueue(q, g, "s1", "submitter") // a role of a newer muster
	expect("all roles", queue.Running, queue.Found{Executors: 2, Watchers: 1, Batches: 5})
	f.setHealth(q, g, znode.Health{Seat: e1, Completed: 1, Lost: []string{"a"}, Redis: "OOM"})
	expect("Redis", queue.Degraded, queue.Found{Executors: 2, Watchers: 1, Batches: 5, Lost: 1, Refused: true})
	leaveW1()
	expect("no watcher", queue.Degraded, queue.Found{Executors: 2, Batches: 5, Completed: 1, Lost: 1, Refused: true})
	leaveE1()
	expect("who wrote it is gone", queue.Running, queue.Found{Executors: 1, Batches: 5})

	o, err := f.store.Look(t.Context(), q.Path())
	if err != nil {
		t.Fatal(err)
	}
	s, err := f.store.QueueState(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var who, batches []string
	for _, p := range s.Processes {
		who = append(who, fmt.Sprintf("%s %s %s %d", p.Role, p.Identity, p.Host, p.Parallel))
	}
	for _, b := range s.Batches {
		batches = append(batches, fmt.Sprintf("%s %s %d", b.ID, b.State, b.Tasks))
	}
	if d := cmp.Diff([]string{"executor e2 here 4", "submitter s1 here 4"}, who); d != "" || s.First != "e2" {
		t.Errorf("the first is %q; processes (-want +got):\n%s", s.First, d)
	}
	if d := cmp.Diff([]string{"a open 10", "b open 10", "c submitting 10", "d cancelled 10"}, batches); d != "" {
		t.Errorf("batches (-want +got):\n%s", d)
	}
	if len(s.Unread) != 1 || !strings.Contains(s.Unread[0], "/batch/odd: ") || len(s.Lost) > 0 || s.Refused != "" {
		t.Errorf("unread %q: %+v", s.Unread, s)
	}
}

// TestAQueueThatMayNotBeListed: it is unreadable, and no error: others are shown beside it.
func TestAQueueThatMayNotBeListed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q := f.primes()
	f.commitQueue(plan.NotThere, q)
	if err := f.submit(q, f.generation(q), "a", znode.BatchOpen); err != nil {
		t.Fatal(err)
	}
	if err := f.session.Delete(t.Context(), q.Path(), -1); err != nil {
		t.Fatal(err)
	}
	unlisted := zkconn.ACL{Perms: zkconn.PermAll &^ zkconn.PermRead, Scheme: "world", ID: "anyone"}
	_, err := f.session.Create(t.Context(), q.Path(), nil, zkconn.Persistent, []zkconn.ACL{unlisted})
	if err != nil {
		t.Fatal(err)
	}
	o, err := f.store.Look(t.Context(), q.Path())
	why := q.Path() + ": permission denied"
	if err != nil || o.Status() != resource.StatusUnreadable || !strings.Contains(o.Problem, why) {
		t.Errorf("%v: %+v", err, o)
	}
}

// TestAQueueWithBatchesStays: it is neither deleted nor moved. Then it is moved into a new generation, and deleted.
// What is left of a generation that somebody joined stays until Redis is clean.
func TestAQueueWithBatchesStays(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q, moved := f.primes(), f.primes(moveToOther)
	f.commitQueue(plan.NotThere, q)
	g := f.generation(q)
	for _, id := range []string{"a", "b"} {
		if err := f.submit(q, g, id, znode.BatchPaused); err != nil {
			t.Fatal(err)
		}
	}
	_, leave := f.joinQueue(q, g, "e1", queue.Executor)
	for name, r := range map[string]plan.Row{"moved while live": f.queueRow(moved)} {
		if r.Reason != plan.WorkUnfinished || r.Because() != "2 batches are unfinished" {
			t.Errorf("%s: %s, %s", name, r.Reason, r.Because())
		}
	}
	if r := f.queueRow(); r.Action() != plan.LeftRunning || r.Because() != "owned by stack tests, 1 executor is live" {
		t.Errorf("not declared while live: %s, %s", r.Reason, r.Because())
	}
	leave()
	for name, r := range map[string]plan.Row{"moved": f.queueRow(moved), "not declared": f.queueRow()} {
		if r.Reason != plan.WorkUnfinished || r.Because() != "2 batches are unfinished" {
			t.Errorf("%s: %s, %s", name, r.Reason, r.Because())
		}
	}
	f.commitQueue(plan.MutableDiffers, f.primes(func(q *queue.Queue) { q.Attempts = 7 }))
	for _, id := range []string{"a", "b"} {
		if err := f.session.Delete(t.Context(), znode.Batch(q.Root, g, id), -1); err != nil {
			t.Fatal(err)
		}
	}
	_, leave = f.joinQueue(q, g, "e2", queue.Executor)
	if r := f.queueRow(moved); r.Reason != plan.LiveDiffers || r.Because() != "1 executor is live" {
		t.Errorf("moved while live, without batches: %s, %s", r.Reason, r.Because())
	}
	leave()
	f.commitQueue(plan.ReadyDiffers, moved)
	next := f.generation(q)
	if next == g || f.queueRow(moved).Reason != plan.Equal {
		t.Errorf("generation %s after %s: %s", next, g, f.queueRow(moved).Reason)
	}
	if err := f.submit(q, g, "late", znode.BatchOpen); err == nil {
		t.Error("a batch was submitted to the old generation")
	}
	f.commitQueue(plan.Undeclared)
	if n, err := f.store.Collect(t.Context(), []string{q.Root}); n != 1 || !errors.Is(err, zkstate.ErrOutside) ||
		!strings.Contains(err.Error(), q.Path()) {
		t.Errorf("%d generations were collected, %v; want only the one that nobody joined", n, err)
	}
	if there, err := f.exists(znode.Run(q.Root, g)); err != nil || !there {
		t.Errorf("what is left of the old generation is gone: %v", err)
	}
	f.collectWith(q, func(rec *resource.Record) error { return errors.New("Redis is away") })
	var unlinked []string
	f.collectWith(q, func(rec *resource.Record) error {
		unlinked = append(unlinked, rec.Generation+" "+queue.Of(rec).Redis)
		return nil
	})
	if d := cmp.Diff([]string{g + " redis://redis-1"}, unlinked); d != "" {
		t.Errorf("unlinked (-want +got):\n%s", d)
	}
	if below := f.tree(q.Root + "/.muster/run"); len(below) > 0 {
		t.Errorf("%s is left", below)
	}
}

// exists reports whether a znode exists.
func (f *fixture) exists(path string) (bool, error) {
	_, there, err := f.session.Exists(f.t.Context(), path)
	return there, err
}

// collectWith collects with something that deletes what is outside ZooKeeper; the error of Collect is its own.
func (f *fixture) collectWith(q queue.Queue, unlink func(rec *resource.Record) error) {
	f.t.Helper()
	kind := zkstate.Queue()
	var want error
	kind.Unlink = func(_ context.Context, rec *resource.Record) error {
		want = unlink(rec)
		return want
	}
	_, err := rig.Store(f.t, f.session, f.root, kind).Collect(f.t.Context(), []string{q.Root})
	if (want == nil) != (err == nil) || want != nil && !errors.Is(err, want) {
		f.t.Errorf("collect: %v, want %v", err, want)
	}
}

// TestSubmitBeforeADelete: a batch that is submitted after the delete or the move of its queue was checked wins, also
// if it is the first thing in the queue.
func TestSubmitBeforeADelete(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ begun, move bool }{
		"delete of a used queue": {begun: true}, "delete of a new queue": {},
		"move of a used queue": {begun: true, move: true}, "move of a new queue": {move: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			committing, f, proxy := newProxyPair(t)
			q := f.primes()
			f.commitQueue(plan.NotThere, q)
			g := f.generation(q)
			if c.begun {
				if err := f.beginQueue(q, g); err != nil {
					t.Fatal(err)
				}
			}
			var declared []resource.Declaration
			if c.move {
				declared = append(declared, f.primes(moveToOther))
			}
			r := f.queueRow(declared...)
			if !r.Action().Changes() {
				t.Fatalf("it is %s", r.Reason)
			}
			submitted := errors.New("no transaction was sent")
			first := true
			proxy.BeforeSend(func(op int32, _ []byte) bool {
				if op == opMulti && first {
					first, submitted = false, f.submit(q, g, "b", znode.BatchOpen)
				}
				return false
			})
			err := committing.store.Commit(t.Context(), r)
			if submitted != nil {
				t.Fatal(submitted)
			}
			if !errors.Is(err, plan.ErrMoved) || !strings.Contains(err.Error(), "unfinished batches 0 -> 1") {
				t.Errorf("commit: %v, want moved", err)
			}
			if r := f.queueRow(declared...); r.Reason != plan.WorkUnfinished || f.generation(q) != g {
				t.Errorf("the queue is %s", r.Reason)
			}
		})
	}
}

// TestDamagedQueue: whatever somebody deletes by hand is put back in the same generation, also if the reply to the
// repair is lost.
func TestDamagedQueue(t *testing.T) {
	t.Parallel()
	damages := map[string][]resource.Part{
		"record": {resource.PartRecord}, "gate": {resource.PartGate}, "znode": {resource.PartZnode},
		"generation": {resource.PartGeneration}, "gate and batch": {resource.PartGate, "batch"},
	}
	for _, folder := range znode.QueueFolders() {
		damages[folder] = []resource.Part{resource.Part(folder)}
	}
	for name, parts := range damages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repairing, f, proxy := newProxyPair(t)
			q := f.primes()
			f.commitQueue(plan.NotThere, q)
			g := f.generation(q)
			if err := f.submit(q, g, "b", znode.BatchPaused); err != nil {
				t.Fatal(err)
			}
			before := f.queueRow(q)
			if err := f.loseOfQueue(q, g, parts); err != nil {
				t.Fatal(err)
			}
			r := f.queueRow(q)
			if r.Reason != plan.IsDamaged || r.Action() != plan.Update || !cmp.Equal(r.Old.Lost, parts) {
				t.Fatalf("%s, lost %v: %+v", r.Reason, r.Old.Lost, r.Old)
			}
			fired := proxyDrop(name, proxy)
			if err := repairing.store.Commit(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			<-fired
			after := f.queueRow(q)
			if after.Reason != plan.Equal || !cmp.Equal(before.Old.Record.Body, after.Old.Record.Body) ||
				after.Old.Record.Generation != g {
				t.Errorf("after: %s, %+v", after.Reason, after.Old.Record)
			}
			batches := queue.FoundOf(after.Old).Batches
			if lost := strings.Contains(name, "batch") || name == "generation"; (batches == 0) != lost {
				t.Errorf("%d batches", batches)
			}
			if err := f.submit(q, g, "c", znode.BatchOpen); err != nil {
				t.Errorf("a submit: %v", err)
			}
		})
	}
}

// proxyDrop loses the reply to a repair, or its connection before it is sent.
func proxyDrop(name string, p *fault.Proxy) <-chan struct{} {
	if len(name)%2 == 0 {
		return p.BeforeSend(isMulti)
	}
	return p.DropReply(isMulti)
}

// loseOfQueue deletes parts, each with all that is below it.
func (f *fixture) loseOfQueue(q queue.Queue, g string, parts []resource.Part) error {
	for _, p := range parts {
		at := resource.Join(znode.Run(q.Root, g), string(p))
		switch p {
		case resource.PartRecord:
			at = znode.Record(queue.KindName, q.Root, q.Name)
		case resource.PartZnode:
			at = q.Path()
		case resource.PartGeneration:
			at = znode.Run(q.Root, g)
		}
		if err := f.deleteTree(at); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	return nil
}

// TestTerminateOfAQueue: its processes are asked to stop, and its batches stay. Apply opens it again; if it is moved,
// it stays stopped until no batch is unfinished.
func TestTerminateOfAQueue(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	q, moved := f.primes(), f.primes(moveToOther)
	f.commitQueue(plan.NotThere, q)
	g := f.generation(q)
	if err := f.submit(q, g, "b", znode.BatchOpen); err != nil {
		t.Fatal(err)
	}
	_, leave := f.joinQueue(q, g, "e1", queue.Executor)
	if err := f.store.Terminate(t.Context(), q.Path(), time.Minute, func([]string) { leave() }); err != nil {
		t.Fatal(err)
	}
	if r := f.queueRow(); r.Reason != plan.WorkUnfinished {
		t.Errorf("not declared: %s", r.Reason)
	}
	if r := f.queueRow(moved); r.Reason != plan.WorkUnfinished {
		t.Errorf("moved: %s", r.Reason)
	}
	f.commitQueue(plan.TerminatedKept, q)
	if r := f.queueRow(q); r.Reason != plan.Equal || f.generation(q) != g || queue.FoundOf(r.Old).Batches != 1 {
		t.Errorf("opened again it is %s: %+v", r.Reason, r.Old)
	}
	if err := f.store.Terminate(t.Context(), q.Path(), time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	if err := f.session.Delete(t.Context(), znode.Batch(q.Root, g, "b"), -1); err != nil {
		t.Fatal(err)
	}
	f.commitQueue(plan.TerminatedIdle, moved)
	if r := f.queueRow(moved); r.Reason != plan.Equal || f.generation(q) == g {
		t.Errorf("moved after all it is %s", r.Reason)
	}
}

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
