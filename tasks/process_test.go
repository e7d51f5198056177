package tasks

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"muster/dev/redisserver"
	"muster/resource/queue"
	"muster/sim/rig"
	"muster/tasks/store"
	"muster/zkstate/znode"
)

// TestSilence: while ZooKeeper is silent a process is not connected, and still live. It ends when its session has.
func TestSilence(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	proxy := rig.Proxy(t, servers.Addrs()[0])
	s := dialTimeout(t, 6*time.Second, proxy.Addr())
	p := f.joinIn(s, "e", queue.Executor)
	proxy.Hang(true)
	rig.Await(t, "it to notice", func() bool { return !p.Connected() })
	if p.ctx.Err() != nil {
		t.Error("it ended at once")
	}
	if p.Ready() {
		t.Error("it is ready")
	}
	proxy.Hang(false)
	rig.Await(t, "it to go on", p.Ready)
	proxy.Hang(true)
	if err := ended(t, p.Context()); !errors.Is(err, ErrSessionLost) {
		t.Errorf("it ended with %v", err)
	}
	if err := p.Call(t.Context(), func(context.Context, int64) error { return nil }); !errors.Is(err, ErrSessionLost) {
		t.Errorf("a call after that: %v", err)
	}
}

// turn takes up to n tasks.
func turn(p *Process, n int) (held []store.Held, err error) {
	err = p.Call(context.Background(), func(ctx context.Context, seq int64) error {
		got, err := p.Store().Turn(ctx, p.Seat, seq, store.Turn{Idle: n, MaxBytes: 1 << 30})
		for _, g := range got.Granted {
			for i := range g.Payloads {
				held = append(held, store.Held{
					Task: store.Task{Batch: g.Batch, Index: g.Index + int64(i)}, Attempt: g.Attempt,
				})
			}
		}
		return err
	})
	return held, err
}

// take takes n tasks, and returns how many there were.
func (f *fixture) take(p *Process, n int) int {
	f.t.Helper()
	held, err := turn(p, n)
	if err != nil {
		f.t.Fatal(err)
	}
	return len(held)
}

// TestALostReplyOfRedis: until it is recovered, nothing is called. What is kept stays in hand; what nobody knows of
// goes back; nobody is charged.
func TestALostReplyOfRedis(t *testing.T) {
	t.Parallel()
	proxy := rig.Proxy(t, rediss.Addr())
	f := newFixture(t, func(q *queue.Queue) { q.Redis = "redis://" + proxy.Addr() })
	e := f.join("e", queue.Executor)
	f.submit("b1", numbered(10))
	f.queue.Redis = "redis://" + rediss.Addr() // for the observer
	f.redis = nil
	held, err := turn(e, 2)
	if err != nil || len(held) != 2 {
		t.Fatal(held, err)
	}
	proxy.Mute(true)
	if _, err = turn(e, 3); err == nil || refused(err) {
		t.Fatalf("without a reply: %v", err)
	}
	rig.Await(t, "the lost turn to be executed", func() bool { return f.inRedis("b1").Out == 5 })
	if _, err := turn(e, 1); !errors.Is(err, ErrRecover) {
		t.Errorf("before it is recovered: %v", err)
	}
	proxy.Cut()
	proxy.Mute(false)
	stranger := store.Held{Task: store.Task{Batch: "b1", Index: 9}, Attempt: 1}
	kept, err := e.Recover(t.Context(), append(held, stranger))
	if err != nil || len(kept) != 2 {
		t.Errorf("kept %v, %v", kept, err)
	}
	if b := f.inRedis("b1"); b.Out != 2 || b.Returned != 3 {
		t.Errorf("in hand %d, returned %d", b.Out, b.Returned)
	}
	f.executeAll(e, nil)
	if b := f.inRedis("b1"); b.Done != 8 || b.Finished != 8 {
		t.Errorf("%d done in %d attempts", b.Done, b.Finished)
	}
}

// TestALateCall: a call that arrives after Recover does nothing.
func TestALateCall(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	e := f.join("e", queue.Executor)
	f.submit("b1", numbered(10))
	var late int64
	err := e.Call(t.Context(), func(_ context.Context, seq int64) error {
		late = seq
		return errors.New("on its way")
	})
	if err == nil {
		t.Fatal("no error")
	}
	if _, err := e.Recover(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	_, err = e.store.Turn(t.Context(), e.Seat, late, store.Turn{Idle: 1, MaxBytes: 1 << 30})
	if !errors.Is(err, store.ErrSeq) {
		t.Errorf("the late call: %v", err)
	}
	if n := f.take(e, 1); n != 1 {
		t.Errorf("took %d", n)
	}
}

// TestRedisIsKilled: a process waits, is not ready meanwhile, and goes on with the server's data.
func TestRedisIsKilled(t *testing.T) {
	t.Parallel()
	server := rig.StartRedis(t, redisserver.Options{Fsync: "always"})
	f := newFixture(t, func(q *queue.Queue) { q.Redis = "redis://" + server.Addr() })
	e := f.join("e", queue.Executor)
	f.submit("b1", numbered(10))
	held, err := turn(e, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := turn(e, 2); err == nil {
		t.Fatal("a turn without a server")
	}
	recovered := make(chan []store.Held, 1)
	go func() {
		kept, err := e.Recover(t.Context(), held)
		if err != nil {
			t.Error(err)
		}
		recovered <- kept
	}()
	rig.Await(t, "it to notice", func() bool { return !e.Ready() })
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if kept := <-recovered; len(kept) != 2 {
		t.Errorf("kept %v", kept)
	}
	if !e.Ready() {
		t.Error("it is not ready again")
	}
	f.executeAll(e, nil)
}

// TestRedisForgotTheSeat: a process whose seat stands says hello again. One whose seat is gone stops.
func TestRedisForgotTheSeat(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	e := f.join("e", queue.Executor)
	f.submit("b1", numbered(4))
	if _, err := turn(e, 1); err != nil {
		t.Fatal(err)
	}
	forget := func() {
		if _, _, err := f.store().Evict(t.Context(), store.Left, e.Seat); err != nil {
			t.Fatal(err)
		}
	}
	forget()
	if _, err := turn(e, 1); !errors.Is(err, store.ErrNoSeat) {
		t.Fatalf("without a seat: %v", err)
	}
	if _, err := e.Recover(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if n := f.take(e, 1); n != 1 {
		t.Errorf("took %d", n)
	}
	forget()
	if _, err := turn(e, 1); !errors.Is(err, store.ErrNoSeat) {
		t.Fatalf("without a seat: %v", err)
	}
	if err := f.s.Delete(t.Context(), e.seat.Path, -1); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Recover(t.Context(), nil); !errors.Is(err, ErrRemoved) {
		t.Errorf("without a znode: %v", err)
	}
	if err := ended(t, e.Context()); !errors.Is(err, ErrRemoved) {
		t.Errorf("it ended with %v", err)
	}
	if n := len(f.books().Seats); n != 0 {
		t.Errorf("%d seats", n)
	}
}

// TestAFailOverToAReplicaThatIsBehind: a seat sees that its own seq is too low, and holds what the new primary says.
func TestAFailOverToAReplicaThatIsBehind(t *testing.T) {
	t.Parallel()
	w, err := redisserver.StartWatched(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Stop(); err != nil {
			t.Error(err)
		}
	})
	url := "redis+sentinel://" + strings.Join(w.SentinelAddrs(), ",") + "/" + w.Name
	f := newFixture(t, func(q *queue.Queue) { q.Redis = url })
	e := f.join("e", queue.Executor)
	f.submit("b1", numbered(10))
	first, err := turn(e, 2)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := f.client().Wait(t.Context(), 1, limit).Result(); err != nil || n != 1 {
		t.Fatalf("the replica has not all: %d, %v", n, err)
	}
	replica := w.Servers[1]
	if err := replica.Pause(); err != nil { // it cannot connect again
		t.Fatal(err)
	}
	if err := f.client().ClientKillByFilter(t.Context(), "TYPE", "replica").Err(); err != nil {
		t.Fatal(err)
	}
	second, err := turn(e, 2)
	if err != nil || len(second) != 2 {
		t.Fatal(second, err)
	}
	if _, err := turn(e, 1); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Servers[0].Kill(), replica.Resume()); err != nil {
		t.Fatal(err)
	}
	var failed error
	rig.Await(t, "the turn of the new primary", func() bool {
		_, failed = turn(e, 1)
		if errors.Is(failed, ErrRecover) { // the calls before found no primary
			return true
		}
		return errors.Is(failed, store.ErrSeq)
	})
	kept, err := e.Recover(t.Context(), append(first, second...))
	if err != nil || len(kept) != len(first) {
		t.Fatalf("kept %v of %v, %v", kept, first, err)
	}
	f.executeAll(e, nil)
	if b := f.inRedis("b1"); b.Done != 8 || b.Out != 2 {
		t.Errorf("%+v", b)
	}
}

// TestWait: a token ends it, and so does Wake. One that has ended takes no token any more.
func TestWait(t *testing.T) {
	f := newFixture(t)
	a, b := f.join("a", queue.Executor), f.join("b", queue.Executor)
	wait := func(p *Process) <-chan struct{} {
		returned := make(chan struct{})
		go func() {
			defer close(returned)
			p.Wait(t.Context(), WakeExecutor, 2*limit)
		}()
		return returned
	}
	returns := func(what string, returned <-chan struct{}) {
		t.Helper()
		select {
		case <-returned:
		case <-time.After(limit):
			t.Fatalf("%s: it waits", what)
		}
	}
	blocked := func(n int64) func() bool {
		return func() bool {
			info, err := f.client().InfoMap(t.Context(), "clients").Result()
			return err == nil && info["Clients"]["blocked_clients"] == string(rune('0'+n))
		}
	}
	first := wait(a)
	rig.Await(t, "it to block", blocked(1))
	a.Wake()
	returns("wake", first)
	rig.Await(t, "it not to block", blocked(0))
	second := wait(b)
	rig.Await(t, "the other one to block", blocked(1))
	f.submit("b1", numbered(1))
	returns("a token", second)
	if n := f.take(b, 1); n != 1 {
		t.Errorf("took %d", n)
	}
	a.Wait(t.Context(), WakeExecutor, 10*time.Millisecond)
	rig.Await(t, "it not to block", blocked(0))
	third := wait(a)
	rig.Await(t, "it to block again", blocked(1))
	a.Leave()
	returns("the end of the membership", third)
}

// TestManifests are followed until the batch has ended.
func TestManifests(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := f.join("p", queue.Executor)
	if _, err := p.Manifest(t.Context(), "b1"); !errors.Is(err, ErrNoBatch) {
		t.Errorf("before there is one: %v", err)
	}
	for _, end := range []string{"cancel", "delete"} {
		f.submit(end, numbered(1))
		var m Manifest
		var err error
		rig.Await(t, "the open batch", func() bool {
			m, err = p.Manifest(t.Context(), end)
			return err != nil || m.State == znode.BatchOpen
		})
		if err != nil || m.Life != f.inRedis(end).Life {
			t.Fatalf("%+v, %v", m, err)
		}
		batch, _ := p.followBatch(end)
		f.edit(end, func(b *znode.BatchManifest) { b.Weight = 9 })
		rig.Await(t, "the weight", func() bool {
			m, err = p.Manifest(t.Context(), end)
			return err == nil && m.Weight == 9
		})
		select {
		case <-batch.over.Done():
			t.Error("it is over")
		default:
		}
		if end == "cancel" {
			f.edit(end, func(b *znode.BatchManifest) { b.State = znode.BatchCancelled })
		} else if err := f.s.Delete(t.Context(), znode.Batch(f.queue.Root, f.generation(), end), -1); err != nil {
			t.Fatal(err)
		}
		select {
		case <-batch.over.Done():
		case <-time.After(limit):
			t.Errorf("%s: it is not over", end)
		}
	}
}
