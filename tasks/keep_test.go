package tasks

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"muster/resource/queue"
	"muster/sim/rig"
	"muster/tasks/store"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// quick are limits with which the keeper looks all the time; edits change the others.
func quick(edits ...func(*keepLimits)) *keepLimits {
	l := defaultKeepLimits()
	l.period = 20 * time.Millisecond
	for _, edit := range edits {
		edit(&l)
	}
	return &l
}

// joinKeeper joins a process whose keeper has these limits.
func (f *fixture) joinKeeper(identity string, l *keepLimits) *Process {
	f.t.Helper()
	return f.join(identity, queue.Watcher, func(c *Config) { c.keep = l })
}

// edit writes the manifest of a batch.
func (f *fixture) edit(id string, change func(*znode.BatchManifest)) Manifest {
	f.t.Helper()
	m := f.batch(id)
	change(&m.BatchManifest)
	body, err := znode.Encode(m.BatchManifest)
	if err == nil {
		_, err = f.s.Set(f.t.Context(), znode.Batch(f.queue.Root, f.generation(), id), body, m.Version)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return f.batch(id)
}

// half is a batch whose submitter has died after some of the steps: "manifest", "begin", "append", "open".
func (f *fixture) half(id string, last string, edits ...func(*znode.BatchManifest)) Manifest {
	f.t.Helper()
	f.submit(id, numbered(3))
	m := f.edit(id, func(b *znode.BatchManifest) {
		b.State = znode.BatchSubmitting
		for _, edit := range edits {
			edit(b)
		}
	})
	st, ctx := f.store(), f.t.Context()
	if last != "open" {
		if err := st.Remove(ctx, id, m.Life); err != nil {
			f.t.Fatal(err)
		}
	}
	var err error
	switch last {
	case "begin", "append":
		err = st.Begin(ctx, store.NewBatch{
			ID: id, Life: m.Life, Weight: 1, Attempts: 3, Results: string(m.Results), Bytes: 3,
		}, 1<<30)
	}
	if last == "append" && err == nil {
		_, err = st.Append(ctx, id, m.Life, 0, [][]byte{{'0'}, {'1'}, {'2'}})
	}
	if err != nil {
		f.t.Fatal(err)
	}
	return m
}

// gone reports whether a batch is neither in ZooKeeper nor in Redis.
func (f *fixture) gone(id string) bool {
	f.t.Helper()
	_, err := f.ledger().Manifest(f.t.Context(), id)
	_, inRedis := f.store().Batch(f.t.Context(), id)
	return errors.Is(err, ErrNoBatch) && errors.Is(inRedis, store.ErrNoBatch)
}

// how is how a batch ended; "" if it is not known to have.
func (f *fixture) how(id string) znode.EndState {
	f.t.Helper()
	end, err := f.ledger().Ended(f.t.Context(), id)
	if err != nil {
		f.t.Fatal(err)
	}
	if end == nil {
		return ""
	}
	return end.How
}

// always is how each attempt ends, for executeAll.
func always(o store.Outcome) func(int64) (store.Outcome, []byte) {
	return func(int64) (store.Outcome, []byte) { return o, nil }
}

// health is what the keeper has found; nil if nobody has.
func (f *fixture) health() *znode.Health {
	f.t.Helper()
	body, _, err := f.s.Get(f.t.Context(), znode.QueueHealth(f.queue.Root, f.generation()))
	if err != nil {
		f.t.Fatal(err)
	}
	if len(body) == 0 {
		return nil
	}
	h, err := znode.Decode[znode.Health](body)
	if err != nil {
		f.t.Fatal(err)
	}
	return &h
}

// TestHalfASubmit: whatever its submitter had done, a batch that nobody goes on with is ended, and one that Redis has
// opened is open. Before that time nothing happens to it.
func TestHalfASubmit(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"manifest", "begin", "append"} {
		t.Run(step, func(t *testing.T) {
			f := newFixture(t)
			f.half("b1", step)
			soon := f.joinKeeper("k1", quick(func(l *keepLimits) { l.ahead = l.giveUp - 10*time.Minute }))
			f.half("sign", "open", func(b *znode.BatchManifest) { b.State = znode.BatchCancelled })
			rig.Await(t, "a pass", func() bool { return f.gone("sign") })
			f.batch("b1")
			if err := soon.Leave(); err != nil {
				t.Fatal(err)
			}
			f.joinKeeper("k2", quick(func(l *keepLimits) { l.ahead = l.giveUp }))
			rig.Await(t, "the end of it", func() bool { return f.gone("b1") })
			if how := f.how("b1"); how != znode.EndUnattended {
				t.Errorf("it ended as %q", how)
			}
		})
	}
	t.Run("open", func(t *testing.T) {
		f := newFixture(t)
		f.half("b1", "open")
		f.joinKeeper("k", quick(func(l *keepLimits) { l.ahead = l.finish }))
		rig.Await(t, "the manifest to be open", func() bool { return f.batch("b1").State == znode.BatchOpen })
	})
}

// TestHalfAnEnd: a batch that has ended in ZooKeeper is removed from Redis, also if its counts do not fit. One that was
// submitted again under its name is not.
func TestHalfAnEnd(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ended := func(id string) {
		f.submit(id, numbered(3))
		at := znode.Batch(f.queue.Root, f.generation(), id)
		if err := f.s.Delete(t.Context(), at, f.batch(id).Version); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"b1", "broken", "typed"} {
		ended(id)
	}
	c := f.client()
	prefix := "muster:{" + f.generation() + "}:b:"
	if err := errors.Join(c.HIncrBy(t.Context(), prefix+"broken", "done", 1).Err(),
		c.Del(t.Context(), prefix+"typed").Err(), c.Set(t.Context(), prefix+"typed", "x", 0).Err()); err != nil {
		t.Fatal(err)
	}
	f.submit("b2", numbered(3))
	f.joinKeeper("k", quick())
	for _, id := range []string{"b1", "broken", "typed"} {
		rig.Await(t, "the keys of "+id+" to go", func() bool { return f.gone(id) })
	}
	if b := f.inRedis("b2"); b.Waiting != 3 {
		t.Errorf("the other batch: %+v", b)
	}
}

// TestALateKeeperRemovesNothingNew: what a keeper read of Redis and ZooKeeper is old when it acts. Meanwhile the batch
// was submitted again.
func TestALateKeeperRemovesNothingNew(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	old := f.half("b1", "open")
	if err := f.s.Delete(t.Context(), znode.Batch(f.queue.Root, f.generation(), "b1"), old.Version); err != nil {
		t.Fatal(err)
	}
	if err := f.store().Remove(t.Context(), "b1", old.Life); err != nil {
		t.Fatal(err)
	}
	f.submit("b1", numbered(3))
	p := f.join("p", queue.Watcher)
	k := &keeper{p: p, limits: p.limits, seats: map[string]string{}}
	for _, life := range []string{old.Life, "", f.batch("b1").Life} {
		if err := k.one("b1", "", k.removeEnded(t.Context(), "b1", life)); err != nil {
			t.Fatal(err)
		}
	}
	err := k.carryOut(t.Context(), "b1", old, decision{repairEnd, znode.EndUnattended})
	if b := f.inRedis("b1"); b.Waiting != 3 {
		t.Fatalf("the new batch: %+v, %v", b, err)
	}
	if m := f.batch("b1"); m.State != znode.BatchOpen || m.Life == old.Life {
		t.Errorf("its manifest: %+v", m)
	}
}

// TestChangesReachRedis: what an operator wrote in ZooKeeper before it died holds in Redis too.
func TestChangesReachRedis(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.submit("b1", numbered(3))
	f.edit("b1", func(b *znode.BatchManifest) { b.State, b.Weight = znode.BatchPaused, 7 })
	f.joinKeeper("k", quick())
	rig.Await(t, "the pause", func() bool { b := f.inRedis("b1"); return b.State == "paused" && b.Weight == 7 })
	f.edit("b1", func(b *znode.BatchManifest) { b.State = znode.BatchOpen })
	rig.Await(t, "the resume", func() bool { return f.inRedis("b1").State == "open" })
	f.edit("b1", func(b *znode.BatchManifest) { b.State = znode.BatchCancelled })
	rig.Await(t, "the end", func() bool { return f.gone("b1") })
	if how := f.how("b1"); how != znode.EndCancelled {
		t.Errorf("it ended as %q", how)
	}
}

// TestRedisWentBack: a batch whose open is lost is opened again if all its tasks are there. Otherwise it is named, and
// nothing is made up; when it is there again, it is not named any more.
func TestRedisWentBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	open := func(b *znode.BatchManifest) { b.State = znode.BatchOpen }
	f.half("whole", "append", open)
	f.half("part", "begin", open)
	f.half("none", "manifest", open)
	f.half("fresh", "manifest") // its submitter is at work
	f.joinKeeper("k", quick())
	rig.Await(t, "the open", func() bool { return f.inRedis("whole").State == "open" })
	named := func(want ...string) func() bool {
		return func() bool {
			h := f.health()
			return h != nil && fmt.Sprint(h.Lost) == fmt.Sprint(want)
		}
	}
	rig.Await(t, "the lost ones", named("none", "part"))
	if b := f.inRedis("part"); b.State != "submitting" || b.Tasks != 0 {
		t.Errorf("the part: %+v", b)
	}
	life, all := f.batch("part").Life, [][]byte{{'0'}, {'1'}, {'2'}}
	if _, err := f.store().Append(t.Context(), "part", life, 0, all); err != nil {
		t.Fatal(err)
	}
	rig.Await(t, "the batch that is back", named("none"))
	f.edit("none", func(b *znode.BatchManifest) { b.State = znode.BatchCancelled })
	rig.Await(t, "nothing to be amiss", named())
}

// TestWhyRedisRefuses is in the health of the queue, for as long as it does.
func TestWhyRedisRefuses(t *testing.T) {
	proxy := rig.Proxy(t, rediss.Addr())
	f := newFixture(t, func(q *queue.Queue) { q.Redis = "redis://" + proxy.Addr() })
	c := f.client()
	f.joinKeeper("k", quick())
	says := func(text string) func() bool {
		return func() bool {
			h := f.health()
			return h != nil && strings.Contains(h.Redis, text) && (text == "") == (h.Redis == "")
		}
	}
	format := func(value int) {
		if err := c.HSet(t.Context(), store.Prefix(f.generation())+"q", "format", value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	format(99)
	rig.Await(t, "the refusal", says("another format"))
	format(1)
	rig.Await(t, "the end of it", says(""))
	proxy.Refuse(true)
	proxy.Cut()
	rig.Await(t, "the silence", says("does not answer"))
	proxy.Refuse(false)
	rig.Await(t, "the end of that", says(""))
}

// TestALateKeeperNamesNothingThatIsThere: Redis did not have a batch when the keeper looked, and has it now; or the
// batch has ended since.
func TestALateKeeperNamesNothingThatIsThere(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.submit("b1", numbered(3))
	m := f.batch("b1")
	p := f.join("p", queue.Watcher)
	k := &keeper{p: p, limits: p.limits, seats: map[string]string{}}
	lost := func() int {
		var amiss znode.Health
		if err := k.repairBatch(t.Context(), "b1", m, nil, &amiss); err != nil {
			t.Fatal(err)
		}
		return len(amiss.Lost)
	}
	if lost() != 0 {
		t.Error("it is there, and is named")
	}
	if err := f.store().Remove(t.Context(), "b1", m.Life); err != nil {
		t.Fatal(err)
	}
	if lost() != 1 {
		t.Error("it is lost, and is not named")
	}
	if err := f.s.Delete(t.Context(), znode.Batch(f.queue.Root, f.generation(), "b1"), -1); err != nil {
		t.Fatal(err)
	}
	if lost() != 0 {
		t.Error("it has ended, and is named")
	}
}

// TestAManifestThatCannotBeRead: its batch is left alone, and the others are looked after. A seat that cannot be read
// hinders nobody either.
func TestAManifestThatCannotBeRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	m := f.half("other", "manifest", func(b *znode.BatchManifest) { b.State = znode.BatchCancelled })
	body, err := znode.Encode(m.BatchManifest)
	if err != nil {
		t.Fatal(err)
	}
	at := znode.Batch(f.queue.Root, f.generation(), "b1")
	acl := zkconn.World(zkconn.PermAll &^ zkconn.PermRead)
	if _, err := f.s.Create(t.Context(), at, body, zkconn.Persistent, acl); err != nil {
		t.Fatal(err)
	}
	stat, _, err := f.s.Exists(t.Context(), znode.Batches(f.queue.Root, f.generation()))
	if err != nil {
		t.Fatal(err)
	}
	life := hex(stat.Pzxid) // the latest child is the manifest
	b := store.NewBatch{ID: "b1", Life: life, Weight: 1, Attempts: 3, Results: "watcher", Bytes: 1}
	if err := f.store().Begin(t.Context(), b, 1<<30); err != nil {
		t.Fatal(err)
	}
	f.joinKeeper("k", quick())
	seat := znode.NewSeat(f.queue.Root, f.generation())
	if _, err := f.s.Create(t.Context(), seat, nil, zkconn.EphemeralSequential, acl); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"other", "next"} { // two passes
		rig.Await(t, "the end of "+id, func() bool { return f.gone(id) })
		if id == "other" {
			f.half("next", "manifest", func(b *znode.BatchManifest) { b.State = znode.BatchCancelled })
		}
	}
	if _, err := f.store().Batch(t.Context(), "b1"); err != nil {
		t.Errorf("the batch in Redis: %v", err)
	}
}

// TestSeatsThatComeAndGo: they do not keep the keeper from the batches.
func TestSeatsThatComeAndGo(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := f.join("p", queue.Executor)
	for _, id := range []string{"b1", "b2", "b3"} {
		f.submit(id, numbered(3))
		f.edit(id, func(b *znode.BatchManifest) { b.State = znode.BatchPaused })
	}
	k := &keeper{p: p, limits: p.limits, seats: map[string]string{}}
	changed := make(chan struct{})
	close(changed)
	k.events = changed
	if err := k.repair(t.Context(), store.Books{}); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"b1", "b2", "b3"} {
		if b := f.inRedis(id); b.State != string(znode.BatchPaused) {
			t.Errorf("%s is %s", id, b.State)
		}
	}
	if k.events == changed {
		t.Error("the seats were not looked at")
	}
}

// TestADamagedSeat: what Redis has of one seat cannot be read. The others are evicted, and batches are looked after.
func TestADamagedSeat(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.half("b1", "open", func(b *znode.BatchManifest) { b.State = znode.BatchCancelled })
	if _, err := f.store().Hello(t.Context(), "dead", queue.Executor, 1); err != nil {
		t.Fatal(err)
	}
	if err := f.client().HSet(t.Context(), store.Prefix(f.generation())+"hands", "bad", "?").Err(); err != nil {
		t.Fatal(err)
	}
	f.joinKeeper("k", quick())
	rig.Await(t, "the end of the batch", func() bool { return f.gone("b1") })
	rig.Await(t, "the eviction", func() bool { return len(f.books().Seats) == 2 })
}

// crash ends the session of a process as its death does, without a word to Redis.
func crash(t testing.TB, p *Process) {
	t.Helper()
	if err := p.session.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestADeadExecutorGivesBack: the keeper evicts it, and its tasks are there for another one.
func TestADeadExecutorGivesBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.joinKeeper("k", defaultLong())
	a, b := f.join("a", queue.Executor), f.join("b", queue.Executor)
	f.submit("b1", numbered(10))
	if n := f.take(a, 10); n == 0 {
		t.Fatal("nothing taken")
	}
	crash(t, a)
	rig.Await(t, "the eviction", func() bool { return len(f.books().Seats) == 2 })
	f.executeAll(b, always(store.Done))
	if got := f.inRedis("b1"); got.Done != 10 {
		t.Errorf("done: %d", got.Done)
	}
}

// defaultLong never looks by itself: only the seats wake it.
func defaultLong() *keepLimits {
	l := defaultKeepLimits()
	l.period, l.abandoned = time.Hour, time.Hour
	return &l
}

// TestTheKeeperDies: the next seat is the keeper, and evicts the one before.
func TestTheKeeperDies(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	k := f.joinKeeper("k", defaultLong())
	f.joinKeeper("l", defaultLong())
	f.joinKeeper("m", defaultLong())
	if n := len(f.books().Seats); n != 3 {
		t.Fatalf("%d seats", n)
	}
	crash(t, k)
	rig.Await(t, "the eviction", func() bool { return len(f.books().Seats) == 2 })
}

// idleKeeper makes a seat before all others, whose process does nothing. The queue has its folders, and nobody in it.
func (f *fixture) idleKeeper() {
	f.t.Helper()
	body, err := znode.Encode(znode.QueueSeat{Identity: "idle", Nonce: "n", Role: queue.Watcher})
	if err == nil {
		at := znode.NewSeat(f.queue.Root, f.generation())
		_, err = f.s.Create(f.t.Context(), at, body, zkconn.PersistentSequential, zkconn.World(zkconn.PermAll))
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// TestAKeeperThatDoesNothing: any other process evicts what it leaves.
func TestAKeeperThatDoesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.submit("b1", numbered(1))
	f.idleKeeper()
	st := f.store()
	for _, seat := range []string{"dead1", "dead2"} {
		if _, err := st.Hello(t.Context(), seat, queue.Executor, 1); err != nil {
			t.Fatal(err)
		}
	}
	l := defaultLong()
	f.joinKeeper("patient", l)
	if n := len(f.books().Seats); n != 3 {
		t.Fatalf("%d seats", n)
	}
	l.abandoned = 10 * time.Millisecond
	f.joinKeeper("p", l)
	rig.Await(t, "the evictions", func() bool { return len(f.books().Seats) == 2 })
}

// TestAFrozenKeeper: what it read of Redis is old when it looks at ZooKeeper, and what it decided is old when it acts.
// It evicts nobody who is there.
func TestAFrozenKeeper(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	proxy := rig.Proxy(t, servers.Addrs()[0])
	s := dialTimeout(t, 20*time.Second, proxy.Addr())
	f.joinIn(s, "frozen", queue.Watcher, func(c *Config) { c.keep = quick() })
	e := f.join("e1", queue.Executor)
	f.submit("b1", numbered(4))
	proxy.Hang(true)
	f.take(e, 2)
	late := f.join("e2", queue.Executor)
	f.take(late, 1)
	f.submit("b2", numbered(4))
	crash(t, e)
	proxy.Hang(false)
	rig.Await(t, "the dead seat to go", func() bool { return len(f.books().Seats) == 2 })
	if b := f.inRedis("b1"); b.Out+f.inRedis("b2").Out != 1 {
		t.Errorf("in hand: %d", b.Out)
	}
	f.executeAll(late, always(store.Done))
}

// TestSeatsChangeWhileRedisIsAway: the keeper does not look again and again.
func TestSeatsChangeWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := f.joinKeeper("keeper", defaultLong())
	if _, err := p.store.Hello(t.Context(), "dead", queue.Executor, 1); err != nil {
		t.Fatal(err)
	}
	rig.Await(t, "a keeper", func() bool { return len(f.books().Seats) == 1 })
	var calls atomic.Int64
	p.client.AddHook(hook(func(cmd redis.Cmder, _ func() error) error {
		calls.Add(1)
		return lost(cmd)
	}))
	f.join("another", queue.Watcher)
	rig.Await(t, "a look", func() bool { return calls.Load() > 0 })
	<-time.After(time.Second)
	if n := calls.Load(); n > 50 {
		t.Errorf("redis was asked %d times in a second", n)
	}
}

// TestWhatNobodyCollects: discarded batches end when they are completed, kept ones after their time, and those of a
// submitter that does not come.
func TestWhatNobodyCollects(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for id, results := range map[string]queue.Results{
		"discard": queue.ResultsDiscard, "keep": "keep:2h", "submitter": queue.ResultsSubmitter,
		"watcher": queue.ResultsWatcher,
	} {
		c := f.submitConfig(id)
		c.Results = results
		if _, err := Submit(t.Context(), f.s, c, numbered(3)); err != nil {
			t.Fatal(err)
		}
	}
	early := f.joinKeeper("early", quick())
	e := f.join("e", queue.Executor)
	for _, id := range []string{"keep", "submitter"} {
		if m := f.batch(id); !m.Completed.IsZero() {
			t.Errorf("%s is not completed", id)
		}
	}
	f.executeAll(e, always(store.Done))
	rig.Await(t, "the end of what is discarded", func() bool { return f.gone("discard") })
	for _, id := range []string{"keep", "submitter"} {
		rig.Await(t, "a note at "+id, func() bool { return !f.batch(id).Completed.IsZero() })
	}
	rig.Await(t, "the count", func() bool { h := f.health(); return h != nil && h.Completed == 1 })
	if err := early.Leave(); err != nil {
		t.Fatal(err)
	}
	if err := e.Leave(); err != nil {
		t.Fatal(err)
	}
	later := f.joinKeeper("later", quick(func(l *keepLimits) { l.ahead = 3 * time.Hour }))
	rig.Await(t, "the end of what was kept", func() bool { return f.gone("keep") })
	f.batch("submitter")
	if err := later.Leave(); err != nil {
		t.Fatal(err)
	}
	f.joinKeeper("latest", quick(func(l *keepLimits) { l.ahead = 24 * time.Hour }))
	rig.Await(t, "the end of what nobody came for", func() bool { return f.gone("submitter") })
	f.batch("watcher")
	for id, want := range map[string]znode.EndState{
		"discard": znode.EndDiscarded, "keep": znode.EndDiscarded, "submitter": znode.EndUnattended,
	} {
		if how := f.how(id); how != want {
			t.Errorf("%s ended as %q, want %q", id, how, want)
		}
	}
}

// TestOldThingsGo: what is known of old batches is deleted in pages, and dead tasks when they are not kept any more.
func TestOldThingsGo(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(q *queue.Queue) { q.KeepDead = 1 })
	f.submit("b1", numbered(3))
	e := f.join("e", queue.Executor)
	f.executeAll(e, always(store.Never))
	if err := e.Leave(); err != nil { // it would begin to forget them
		t.Fatal(err)
	}
	root, g := f.queue.Root, f.generation()
	old, recent := time.Now().Add(-9*24*time.Hour), time.Now().Add(-6*24*time.Hour)
	for day, n := range map[time.Time]int{old: 7, recent: 2} {
		create(t, f.s, znode.EndedDay(root, g, day))
		for i := range n {
			create(t, f.s, znode.EndedBatch(root, g, day, fmt.Sprint("x", i)))
		}
	}
	f.joinKeeper("k", quick(func(l *keepLimits) { l.page = 3 }))
	rig.Await(t, "the old day to go", func() bool {
		days, _, err := f.s.Children(t.Context(), znode.EndedDays(root, g))
		return err == nil && fmt.Sprint(days) == fmt.Sprint([]string{recent.UTC().Format(time.DateOnly)})
	})
	left, _, err := f.s.Children(t.Context(), znode.EndedDay(root, g, recent))
	if err != nil || len(left) != 2 {
		t.Errorf("of the recent day: %v, %v", left, err)
	}
	rig.Await(t, "the dead tasks to go", func() bool { return f.books().WithDead == 0 })
}

func create(t testing.TB, s *zkconn.Session, at string) {
	t.Helper()
	if _, err := s.Create(t.Context(), at, nil, zkconn.Persistent, zkconn.World(zkconn.PermAll)); err != nil {
		t.Fatal(err)
	}
}
