package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/dev/fault"
	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/sim/rig"
	"muster/worker"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// TestIDsHaveNoGap: workers that join at once get the ids 0 to N-1, and those too many are turned away without a trace.
func TestIDsHaveNoGap(t *testing.T) {
	t.Parallel()
	const n, extra = 40, 10
	j, store := newJob(t, n)
	s := dial(t, servers.Addrs()...)
	var mu sync.Mutex
	var ids []int
	full := 0
	var all sync.WaitGroup
	for i := range n + extra {
		all.Go(func() {
			m, err := worker.Join(t.Context(), s, config(j, fmt.Sprint("w", i)))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				ids = append(ids, m.ID)
			case errors.Is(err, worker.ErrFull):
				full++
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	slices.Sort(ids)
	var want []int
	for i := range n {
		want = append(want, i)
	}
	if d := cmp.Diff(want, ids); d != "" {
		t.Errorf("ids (-want +got):\n%s", d)
	}
	if full != extra {
		t.Errorf("%d were turned away, want %d", full, extra)
	}
	ws, _, err := store.Workers(t.Context(), j.Path())
	if err != nil || len(ws) != n {
		t.Errorf("%d workers are recorded, %v; want %d", len(ws), err, n)
	}
}

// TestJoinRefuses what no wait can change, and says what it would wait for.
func TestJoinRefuses(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 2)
	missing := j
	missing.Name = "nobody"
	_, err := tryJoin(t, config(missing, "w0"))
	if !errors.Is(err, worker.ErrNoJob) || !errors.Is(err, context.Canceled) {
		t.Errorf("no such job: %v", err)
	}
	if _, err := tryJoin(t, config(j, "a/b")); err == nil {
		t.Error("an identity with a slash was accepted")
	}
	crash(t, j, "w0")
	if _, err := tryJoin(t, config(j, "w1")); !errors.Is(err, worker.ErrNotOpen) {
		t.Errorf("a newcomer in a stale job: %v", err)
	}
	if d := cmp.Diff(map[string]int{"w0": 0}, ids(t, store, j)); d != "" {
		t.Errorf("refused joins left something (-want +got):\n%s", d)
	}
}

// TestJoinCancelled says that there was no job, also if the job appears at that moment.
func TestJoinCancelled(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 1)
	s := dial(t)
	for i := range 20 {
		later := j
		later.Name = fmt.Sprint("later-", i)
		ctx, giveUp := context.WithCancel(t.Context())
		c := config(later, "w0")
		c.Waiting = func(string) {
			create(t, store, later)
			if err := s.Sync(ctx, later.Path()); err != nil { // now the event is here too
				t.Error(err)
			}
			giveUp()
		}
		if _, err := worker.Join(ctx, s, c); !errors.Is(err, worker.ErrNoJob) || !errors.Is(err, context.Canceled) {
			t.Fatalf("attempt %d: %v", i, err)
		}
	}
}

// TestJoinWaitsForTheJob: by watch, no longer than the deadline, and for the job's own timeout without one.
func TestJoinWaitsForTheJob(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 1)
	later := j
	later.Name = "later"
	c := config(later, "w0")
	c.Waiting = func(what string) {
		if !strings.HasPrefix(what, "the job to be created: "+later.Path()+" (1m") { // 1m40s, or a little less
			t.Errorf("waits for %q", what)
		}
		create(t, store, later)
	}
	if m, err := worker.Join(t.Context(), dial(t), c); err != nil || m.ID != 0 {
		t.Errorf("joined as %+v, %v", m, err)
	}

	never := j
	never.Name = "never"
	ctx, c := newDeadline(), config(never, "w0")
	c.Waiting = func(string) { ctx.pass() }
	_, err := worker.Join(ctx, dial(t), c)
	if !errors.Is(err, worker.ErrNoJob) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("at the deadline: %v", err)
	}

	proxy := newProxy(t)
	hung := config(never, "w0")
	ctx = newDeadline()
	hung.Waiting = func(string) { proxy.Hang(true); ctx.pass() }
	_, err = worker.Join(ctx, dialFor(t, time.Minute, proxy.Addr()), hung)
	if !errors.Is(err, zkconn.ErrUnreachable) || errors.Is(err, worker.ErrNoJob) {
		t.Errorf("where no server answers: %v", err)
	}
	proxy.Hang(false)

	s, waits := dialFor(t, time.Minute, proxy.Addr()), make(chan struct{})
	ctx = newDeadline()
	hung.Waiting = func(string) { proxy.Hang(true); close(waits) }
	late := call(func() error { _, err := worker.Join(ctx, s, hung); return err })
	<-waits
	create(t, store, never)
	ctx.pass()
	proxy.Hang(false)
	err = <-late
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, worker.ErrNoJob) ||
		errors.Is(err, zkconn.ErrUnreachable) {
		t.Errorf("where the server tells too late: %v", err)
	}

	hasty, _ := newJob(t, 2, func(j *job.Job) { j.Timeouts.Join = resource.Duration(50 * time.Millisecond) })
	crash(t, hasty, "w0")
	_, err = worker.Join(t.Context(), dial(t), config(hasty, "w1"))
	if !errors.Is(err, worker.ErrNotOpen) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the job's join timeout: %v", err)
	}
}

// TestJoinOfALeftover: a newcomer waits until an old worker is back, or until there is a new generation.
func TestJoinOfALeftover(t *testing.T) {
	t.Parallel()
	for name, revive := range map[string]func(job.Job){
		"old worker": func(j job.Job) { join(t, j, "w0") },
		"new generation": func(j job.Job) {
			store := newStore(t, j)
			o, err := store.Look(t.Context(), j.Path())
			if err == nil {
				err = store.Commit(t.Context(), plan.Row{Path: j.Path(), Old: o, New: j, Reason: plan.StaleLeftover})
			}
			if err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			j, store := newJob(t, 2)
			crash(t, j, "w0")
			c := config(j, "w1")
			c.Waiting = func(string) { revive(j) }
			m := joinIn(t, dial(t), c)
			want := map[string]int{"w0": 0, "w1": 1}
			if name == "new generation" {
				want = map[string]int{"w1": 0}
			}
			if d := cmp.Diff(want, ids(t, store, j)); d != "" || m.ID != want["w1"] {
				t.Errorf("joined as %d, ids (-want +got):\n%s", m.ID, d)
			}
		})
	}
}

// TestJoinOfATerminatingJob waits for the next generation.
func TestJoinOfATerminatingJob(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 2)
	m := join(t, j, "w0")
	asked := make(chan struct{})
	var once sync.Once
	terminated := make(chan error, 1)
	go func() {
		tell := func([]string) { once.Do(func() { close(asked) }) }
		terminated <- store.Terminate(t.Context(), j.Path(), time.Minute, tell)
	}()
	<-asked
	c := config(j, "w1")
	c.Waiting = func(what string) {
		switch {
		case strings.Contains(what, "asked to stop"):
			if err := m.Leave(t.Context(), worker.End{}); err != nil {
				t.Error(err)
			}
			if err := <-terminated; err != nil {
				t.Error(err)
			}
		case strings.Contains(what, "created"):
			create(t, store, j)
		}
	}
	again := joinIn(t, dial(t), c)
	if again.ID != 0 || again.Generation == m.Generation {
		t.Errorf("joined as %d, in the old generation: %v", again.ID, again.Generation == m.Generation)
	}
}

// TestFullJobNamesWhoIsMissing: the ids that are not live and the identities that may take them up; nothing is written.
func TestFullJobNamesWhoIsMissing(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 3, onComplete(job.Retain))
	join(t, j, "w0")
	crash(t, j, "w1")
	if err := join(t, j, "w2").Complete(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	before := look(t, store, j)
	_, err := tryJoin(t, config(j, "late"))
	if !errors.Is(err, worker.ErrFull) || !strings.HasSuffix(err.Error(), "under the same identity: id 1 (w1)") {
		t.Errorf("a full job: %v", err)
	}
	if d := cmp.Diff(before, look(t, store, j)); d != "" {
		t.Errorf("the job changed (-before +after):\n%s", d)
	}
}

// TestTooLateJoinWithdraws: after a lost reply, or in its next life, a join that got an id of N takes back all it
// wrote.
func TestTooLateJoinWithdraws(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 1)
	m := join(t, j, "w0")
	late := config(j, "late")
	writeDeadJoin(t, m, late.Identity)
	if o := look(t, store, j); o.Live != 1 {
		t.Fatalf("observed %+v", o)
	}
	if _, err := tryJoin(t, late); !errors.Is(err, worker.ErrFull) {
		t.Errorf("the next life of a late join: %v", err)
	}
	if d := cmp.Diff(map[string]int{"w0": 0}, ids(t, store, j)); d != "" {
		t.Errorf("ids (-want +got):\n%s", d)
	}
}

// TestFullJobWithoutRoll: the last worker to join died before it wrote the roll, which tells that the job is full.
func TestFullJobWithoutRoll(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 2)
	m := join(t, j, "w0")
	writeDeadJoin(t, m, "w1")
	_, err := tryJoin(t, config(j, "late"))
	if !errors.Is(err, worker.ErrFull) || !strings.HasSuffix(err.Error(), "under the same identity: id 1 (w1)") {
		t.Errorf("a full job: %v", err)
	}
	if d := cmp.Diff(map[string]int{"w0": 0, "w1": 1}, ids(t, store, j)); d != "" {
		t.Errorf("ids (-want +got):\n%s", d)
	}
	if back := join(t, j, "w1"); back.ID != 1 {
		t.Errorf("w1 is back as %d", back.ID)
	}
}

// TestFirstJoinBesideAStranger: a child of the job znode that is no worker does not keep the first worker out.
func TestFirstJoinBesideAStranger(t *testing.T) {
	t.Parallel()
	j, _ := newJob(t, 2)
	world := zkconn.World(zkconn.PermAll)
	if _, err := dial(t).Create(t.Context(), j.Path()+"/lost+found", nil, zkconn.Persistent, world); err != nil {
		t.Fatal(err)
	}
	if m := join(t, j, "w0"); m.ID != 0 {
		t.Errorf("joined as %d", m.ID)
	}
}

// writeDeadJoin writes what a join leaves behind if its process dies, perhaps before it could withdraw.
func writeDeadJoin(t *testing.T, m *worker.Member, identity string) {
	t.Helper()
	claim, err := znode.Encode(znode.Claim{Nonce: "dead", Lives: 1, State: znode.In})
	if err != nil {
		t.Fatal(err)
	}
	root, g, all := m.Job.Root, m.Generation, zkconn.World(zkconn.PermAll)
	if _, err := dial(t).Multi(t.Context(),
		zkconn.CreateOp(znode.ByIdentity(root, g, identity), claim, zkconn.Persistent, all),
		zkconn.CreateOp(znode.NewID(root, g), nil, zkconn.PersistentSequential, all),
	); err != nil {
		t.Fatal(err)
	}
}

// TestStoppedJoinerHoldsNobodyUp: there is no lock that it could hold, or believe to hold after it has lost it.
// What it had sent happens late, as a whole.
func TestStoppedJoinerHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 4)
	join(t, j, "w0")
	proxy := newProxy(t)
	reached := make(chan struct{})
	stop := sync.OnceFunc(func() {
		proxy.Hang(true)
		close(reached)
	})
	proxy.BeforeSend(func(op int32, req []byte) bool {
		if isMulti(op, req) {
			stop()
		}
		return false
	})
	c := spawn(t, j, "1m stay", "stopped", proxy.Addr())
	c.reach(t, reached)
	if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	join(t, j, "w1")
	join(t, j, "w2")
	proxy.Hang(false)
	rig.Await(t, "the late join", func() bool { return job.Joined(look(t, store, j)) == 4 })
	if err := c.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	c.kill()
	if err := dial(t).Delete(t.Context(), znode.Live(j.Root, j.Name, "stopped"), -1); err != nil {
		t.Fatal(err)
	}
	if m := join(t, j, "stopped"); m.ID != 3 {
		t.Errorf("id %d, want 3", m.ID)
	}
	if d := cmp.Diff(map[string]int{"w0": 0, "w1": 1, "w2": 2, "stopped": 3}, ids(t, store, j)); d != "" {
		t.Errorf("ids (-want +got):\n%s", d)
	}
}

// TestJoiningCostsTheSameForEachWorker, in requests, however many have joined.
func TestJoiningCostsTheSameForEachWorker(t *testing.T) {
	t.Parallel()
	const n = 200
	j, _ := newJob(t, n)
	s := dial(t)
	measure := func(identity string) (requests int) {
		proxy := newProxy(t)
		if _, err := worker.Join(t.Context(), dial(t, proxy.Addr()), config(j, identity)); err != nil {
			t.Fatal(err)
		}
		rig.Await(t, "it is told its id, and watches", func() bool {
			requests = 0
			all := proxy.Requests()
			for op, n := range all {
				if op != fault.OpPing {
					requests += n
				}
			}
			return all[fault.OpMulti] == 2 && all[fault.OpGetData] == 4
		})
		return requests
	}
	join(t, j, "first")
	early := measure("early")
	for i := range n - 4 { // the last of all writes the roll
		if _, err := worker.Join(t.Context(), s, config(j, fmt.Sprint("w", i))); err != nil {
			t.Fatal(err)
		}
	}
	if late := measure("late"); late != early {
		t.Errorf("%d requests for a late worker, %d for the second", late, early)
	}
}

func TestIdentify(t *testing.T) {
	t.Parallel()
	type choice struct {
		Identity string
		Stable   bool
	}
	const kubernetes, address = "KUBERNETES_SERVICE_HOST", "10.0.0.1:1"
	both := map[string]string{"MUSTER_IDENTITY": "env", "JOB_COMPLETION_INDEX": "1"}
	indexed := map[string]string{"JOB_COMPLETION_INDEX": "0", kubernetes: "x"}
	for name, c := range map[string]struct {
		flag      string
		env       map[string]string
		host      string
		advertise string
		want      choice
	}{
		"flag_before_all": {"me", both, "h", address, choice{"me", true}},
		"environment":     {"", both, "h", address, choice{"env", true}},
		"indexed_job":     {"", indexed, "job-x7k2p", address, choice{"worker-0", true}},
		"slurm":           {"", map[string]string{"SLURM_PROCID": "12"}, "node7", address, choice{"worker-12", true}},
		"stateful_set":    {"", map[string]string{kubernetes: "x"}, "ingest-3", address, choice{"ingest-3", true}},
		"deployment":      {"", map[string]string{kubernetes: "x"}, "ingest-7d9f-x2x", address, choice{address, false}},
		"other_machine":   {"", nil, "node-3", address, choice{address, false}},
		"ipv6":            {"", nil, "node-3", "[fe80::1]:7000", choice{"[fe80::1]:7000", false}},
	} {
		t.Run(name, func(t *testing.T) {
			getenv := func(k string) string { return c.env[k] }
			identity, stable, err := worker.Identify(c.flag, getenv, c.host, c.advertise)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, choice{identity, stable}); d != "" {
				t.Errorf("identity (-want +got):\n%s", d)
			}
		})
	}
}

func TestIdentifyNamesTheSourceOfABadIdentity(t *testing.T) {
	t.Parallel()
	for want, env := range map[string]map[string]string{
		"MUSTER_IDENTITY":      {"MUSTER_IDENTITY": "a/b"},
		"JOB_COMPLETION_INDEX": {"JOB_COMPLETION_INDEX": "01"},
		"SLURM_PROCID":         {"SLURM_PROCID": "-1"},
		"the address":          {},
	} {
		_, _, err := worker.Identify("", func(k string) string { return env[k] }, "h", "")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that names %s", err, want)
		}
	}
}

// TestRejoinKeepsTheID, finds it by a binary search, and gives the newest address.
func TestRejoinKeepsTheID(t *testing.T) {
	t.Parallel()
	const n = 60
	j, store := newJob(t, n)
	s := dial(t)
	want := map[string]int{}
	for i := range n {
		m := joinIn(t, s, config(j, fmt.Sprint("w", i)))
		want[m.Identity] = m.ID
	}
	s.Close()
	proxy := newProxy(t)
	s = dial(t, proxy.Addr())
	var searched atomic.Int64
	proxy.BeforeSend(func(op int32, req []byte) bool {
		if op == fault.OpExists && bytes.Contains(req, []byte("/id/n-")) {
			searched.Add(1)
		}
		return false
	})
	for i := range n {
		searched.Store(0)
		c := config(j, fmt.Sprint("w", i))
		c.Info.Port = 8000 + i
		m := joinIn(t, s, c)
		if m.ID != want[m.Identity] {
			t.Errorf("%s came back as %d, was %d", m.Identity, m.ID, want[m.Identity])
		}
		if reads := searched.Load(); reads < 1 || reads > 6 {
			t.Errorf("%s: found among %d in %d reads", m.Identity, n, reads)
		}
	}
	ws, _, err := store.Workers(t.Context(), j.Path())
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range ws {
		if c := w.Claim; !w.Live || c.Lives != 2 || c.State != znode.In || w.Info.Port < 8000 {
			t.Errorf("recorded: %+v", w)
		}
	}
	if d := cmp.Diff(want, ids(t, store, j)); d != "" {
		t.Errorf("ids (-want +got):\n%s", d)
	}
}

// TestTakeover: a worker whose identity is live says at once what it waits for, and joins when the other is gone. With
// FailHeld it fails at once.
func TestTakeover(t *testing.T) {
	t.Parallel()
	j, _ := newJob(t, 1)
	s := dial(t)
	old := joinIn(t, s, config(j, "w0"))
	c := config(j, "w0")
	c.FailHeld = true
	if _, err := worker.Join(t.Context(), dial(t), c); !errors.Is(err, worker.ErrHeld) {
		t.Errorf("told to fail: %v", err)
	}
	c = config(j, "w0")
	c.Waiting = func(what string) {
		if !strings.Contains(what, "older process that is w0") {
			t.Errorf("waits for %q", what)
		}
		s.Close()
	}
	m := joinIn(t, dial(t), c)
	if m.ID != old.ID {
		t.Errorf("id %d, was %d", m.ID, old.ID)
	}
}

// TestOneOfManyProcessesOfOneIdentityIsMember, at any time: each waits for the one before it.
func TestOneOfManyProcessesOfOneIdentityIsMember(t *testing.T) {
	t.Parallel()
	const processes = 12
	j, store := newJob(t, 2)
	var mu sync.Mutex
	holders, most := 0, 0
	var all sync.WaitGroup
	for range processes {
		s := dial(t)
		all.Go(func() {
			m, err := worker.Join(t.Context(), s, config(j, "w0"))
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			holders++
			most = max(most, holders)
			mu.Unlock()
			if m.ID != 0 {
				t.Errorf("id %d", m.ID)
			}
			if err := m.Context().Err(); err != nil {
				t.Errorf("fenced while holding: %v", context.Cause(m.Context()))
			}
			mu.Lock()
			holders--
			mu.Unlock()
			if err := m.Leave(t.Context(), worker.End{}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if most != 1 {
		t.Errorf("%d processes held one identity at once", most)
	}
	ws, _, err := store.Workers(t.Context(), j.Path())
	if err != nil || len(ws) != 1 || ws[0].Claim.Lives != processes || ws[0].Claim.State != znode.Left {
		t.Errorf("recorded %+v, %v", ws, err)
	}
}

// lose joins and then loses the session, which the server does not know yet: it still holds the live znode.
func lose(t *testing.T, c worker.Config) *worker.Member {
	t.Helper()
	proxy := newProxy(t)
	s := dial(t, proxy.Addr())
	m := joinIn(t, s, c)
	proxy.Refuse(true)
	proxy.Cut()
	s.Close()
	<-m.Context().Done()
	return m
}

// TestRejoinAfterTheLossOfTheSession: the same worker goes on at once, although the lost session is still there.
func TestRejoinAfterTheLossOfTheSession(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 2)
	m := lose(t, config(j, "w0"))
	if cause := context.Cause(m.Context()); !errors.Is(cause, zkconn.ErrSessionLost) {
		t.Errorf("the membership ended with %v", cause)
	}
	again, err := m.Rejoin(t.Context(), dial(t))
	if err != nil {
		t.Fatal(err)
	}
	ws, _, err := store.Workers(t.Context(), j.Path())
	if err != nil || len(ws) != 1 || !ws[0].Live || ws[0].Claim.Lives != 1 || ws[0].Info.ID != 0 || again.ID != 0 {
		t.Errorf("rejoined as %d, recorded %+v, %v", again.ID, ws, err)
	}
	if err := m.Leave(t.Context(), worker.End{}); err == nil {
		t.Error("the membership of the lost session could still write")
	}
	if err := again.Complete(t.Context(), 0); err != nil {
		t.Error(err)
	}
}

// TestRejoinAfterAnUnansweredRejoin: the first attempt was committed, and then that session was lost too.
func TestRejoinAfterAnUnansweredRejoin(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 2)
	m := lose(t, config(j, "w0"))
	proxy := newProxy(t)
	s, fired := dial(t, proxy.Addr()), dropForGood(proxy)
	go func() { <-fired; s.Close() }()
	if _, err := m.Rejoin(t.Context(), s); !errors.Is(err, zkconn.ErrSessionLost) {
		t.Fatalf("rejoin: %v, want %v", err, zkconn.ErrSessionLost)
	}
	again, err := m.Rejoin(t.Context(), dial(t))
	if err != nil {
		t.Fatal(err)
	}
	if o := look(t, store, j); again.ID != 0 || o.Live != 1 || job.Joined(o) != 1 {
		t.Errorf("rejoined as %d, observed %+v", again.ID, o)
	}
}

// dropForGood drops the reply of the next transaction, and no connection comes after that.
func dropForGood(proxy *fault.Proxy) (fired <-chan struct{}) {
	return proxy.DropReply(func(op int32, req []byte) bool {
		if isMulti(op, req) {
			proxy.Refuse(true)
		}
		return isMulti(op, req)
	})
}

func TestRejoinAfterATakeoverIsFenced(t *testing.T) {
	t.Parallel() // the other waits until the lost session has expired
	j, store := newJob(t, 2)
	m := lose(t, config(j, "w0"))
	now := join(t, j, "w0")
	if _, err := m.Rejoin(t.Context(), dial(t)); !errors.Is(err, worker.ErrFenced) {
		t.Errorf("rejoin: %v, want %v", err, worker.ErrFenced)
	}
	if o := look(t, store, j); o.Live != 1 || now.Context().Err() != nil {
		t.Errorf("the other was disturbed: %+v, %v", o, context.Cause(now.Context()))
	}
}

func TestRejoinLearnsOfAnUnansweredCompletion(t *testing.T) {
	t.Parallel()
	for name, n := range map[string]int{"one of two": 2, "the last": 1} {
		t.Run(name, func(t *testing.T) {
			j, store := newJob(t, n)
			proxy := newProxy(t)
			s := dial(t, proxy.Addr())
			m := joinIn(t, s, config(j, "w0"))
			observer := dial(t)
			rig.Await(t, "the id is told", func() bool {
				body, _, err := observer.Get(t.Context(), znode.Live(j.Root, j.Name, "w0"))
				w, _ := znode.DecodeWorker(body)
				return err == nil && w.ID == 0
			})
			rig.Await(t, "the roll is written", func() bool { return n > 1 || look(t, store, j).Version > 0 })
			fired := dropForGood(proxy)
			go func() { <-fired; s.Close() }()
			if err := m.Complete(t.Context(), 3); !errors.Is(err, zkconn.ErrUnknown) {
				t.Fatalf("complete: %v, want an unknown outcome", err)
			}
			var done *worker.DoneError
			if _, err := m.Rejoin(t.Context(), dial(t)); !errors.As(err, &done) || done.Exit != 3 {
				t.Errorf("rejoin: %v, want %v with code 3", err, worker.ErrDone)
			}
			if o := look(t, store, j); n == 1 && job.LastRun(o.Record) == nil || n == 2 && job.Done(o) != 1 {
				t.Errorf("observed %+v", o)
			}
		})
	}
}

// TestRejoinAfterTerminate: a worker whose Complete got no answer does not take a generation that terminate ended for a
// completed one.
func TestRejoinAfterTerminate(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 2)
	proxy := newProxy(t)
	s := dial(t, proxy.Addr())
	m := joinIn(t, s, config(j, "w0"))
	observer := dial(t)
	rig.Await(t, "the id is told", func() bool {
		stat, _, err := observer.Exists(t.Context(), znode.Live(j.Root, j.Name, "w0"))
		return err == nil && stat.Version > 0
	})
	fired := dropForGood(proxy)
	go func() { <-fired; s.Close() }()
	if err := m.Complete(t.Context(), 0); !errors.Is(err, zkconn.ErrUnknown) {
		t.Fatalf("complete: %v, want an unknown outcome", err)
	}
	if err := store.Terminate(t.Context(), j.Path(), time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Rejoin(t.Context(), observer); !errors.Is(err, worker.ErrFenced) || errors.Is(err, worker.ErrDone) {
		t.Errorf("rejoin: %v, want %v", err, worker.ErrFenced)
	}
}

// TestStoppedProcessIsFenced: a process that was stopped for longer than its session timeout cannot write when it
// goes on, and finds out that it was replaced.
func TestStoppedProcessIsFenced(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 2)
	c := spawn(t, j, "10s stay rejoin leave", "w0", servers.Addrs()...)
	c.expect(t, "joined 0")
	if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	now := join(t, j, "w0") // waits until the session has expired
	if err := c.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	c.expect(t, "stay lost")
	c.expect(t, "rejoin fenced")
	c.expect(t, "leave lost")
	ws, _, err := store.Workers(t.Context(), j.Path())
	if err != nil || len(ws) != 1 || !ws[0].Live || ws[0].Claim.Lives != 2 || now.Context().Err() != nil {
		t.Errorf("recorded %+v, %v; the new member: %v", ws, err, context.Cause(now.Context()))
	}
}
