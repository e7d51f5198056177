package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/sim/rig"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// addresses are those that m sees: of everybody who has joined, and of who is live.
func addresses(t *testing.T, m *worker.Member) (joined, live []string) {
	t.Helper()
	all, err := m.Joined(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range all {
		joined = append(joined, w.Address())
	}
	if all, err = m.Live(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, w := range all {
		live = append(live, w.Address())
	}
	return joined, live
}

// sees fails unless m sees worker 0 at this address, wherever it looks.
func sees(t *testing.T, m *worker.Member, address string) {
	t.Helper()
	joined, live := addresses(t, m)
	if joined[0] != address || live[0] != address {
		t.Errorf("worker 0 has joined at %v, and is live at %v; want %s", joined, live, address)
	}
}

func advertise(t *testing.T, m *worker.Member, host string, port int) {
	t.Helper()
	if err := m.Advertise(t.Context(), host, port); err != nil {
		t.Fatal(err)
	}
}

// TestAnAddressThatIsAdvertisedLater holds over a lost session and a live znode that is deleted by hand, until the next
// life joins with its own.
func TestAnAddressThatIsAdvertisedLater(t *testing.T) {
	t.Parallel()
	j, _ := newJob(t, 2)
	proxy := newProxy(t)
	m := joinIn(t, dial(t, proxy.Addr()), config(j, "w0"))
	peer := join(t, j, "w1")
	sees(t, peer, "127.0.0.1:7000")
	advertise(t, m, "gpu-3.cluster.local", 29500)
	sees(t, peer, "gpu-3.cluster.local:29500")
	if m.Address() != "gpu-3.cluster.local:29500" {
		t.Errorf("it believes that it is at %s", m.Address())
	}
	s, live := dial(t), znode.Live(j.Root, j.Name, "w0")
	if err := s.Delete(t.Context(), live, -1); err != nil {
		t.Fatal(err)
	}
	advertise(t, m, "gpu-4", 29501)
	sees(t, peer, "gpu-4:29501")
	if err := s.Delete(t.Context(), live, -1); err != nil {
		t.Fatal(err)
	}
	rig.Await(t, "it is live again", func() bool {
		_, there, err := s.Exists(t.Context(), live)
		return there && err == nil
	})
	sees(t, peer, "gpu-4:29501")
	proxy.Refuse(true)
	proxy.Cut()
	<-m.Context().Done()
	again, err := m.Rejoin(t.Context(), dial(t))
	if err != nil {
		t.Fatal(err)
	}
	sees(t, peer, "gpu-4:29501")
	if again.Address() != "gpu-4:29501" {
		t.Errorf("after a lost session it believes that it is at %s", again.Address())
	}
	if err := again.Leave(t.Context(), worker.End{}); err != nil {
		t.Fatal(err)
	}
	join(t, j, "w0")
	sees(t, peer, "127.0.0.1:7000")
}

// TestAnAddressWhoseReplyIsLostForGood is written again by the rejoin: it may not have been committed.
func TestAnAddressWhoseReplyIsLostForGood(t *testing.T) {
	t.Parallel()
	j, _ := newJob(t, 1)
	proxy := newProxy(t)
	s := dial(t, proxy.Addr())
	m := joinIn(t, s, config(j, "w0"))
	cut := proxy.BeforeSend(func(op int32, req []byte) bool {
		if !isMulti(op, req) || !mentions(req, "late") {
			return false
		}
		proxy.Refuse(true)
		return true
	})
	go func() { <-cut; s.Close() }()
	if err := m.Advertise(t.Context(), "late", 1); !errors.Is(err, zkconn.ErrSessionLost) {
		t.Fatalf("without a session: %v", err)
	}
	again, err := m.Rejoin(t.Context(), dial(t))
	if err != nil {
		t.Fatal(err)
	}
	sees(t, again, "late:1")
}

func TestAnAddressThatCannotBe(t *testing.T) {
	t.Parallel()
	_, ms := team(t, 1)
	if err := ms[0].Advertise(t.Context(), "host", 1<<16); err == nil {
		t.Error("a port above 65535")
	}
	sees(t, ms[0], "127.0.0.1:7000")
}

// fenced waits for the end of a membership and checks its cause.
func fenced(t *testing.T, m *worker.Member) {
	t.Helper()
	select {
	case <-m.Context().Done():
	case <-time.After(patience):
		t.Fatal("still a member")
	}
	if cause := context.Cause(m.Context()); !errors.Is(cause, worker.ErrFenced) {
		t.Errorf("the membership ended with %v, want %v", cause, worker.ErrFenced)
	}
	if err := m.Barrier(t.Context(), worker.Barrier{Name: "b"}); !errors.Is(err, worker.ErrFenced) {
		t.Errorf("barrier: %v, want %v", err, worker.ErrFenced)
	}
	if err := m.Complete(t.Context(), 0); !errors.Is(err, worker.ErrFenced) {
		t.Errorf("complete: %v, want %v", err, worker.ErrFenced)
	}
	if err := m.Leave(t.Context(), worker.End{}); !errors.Is(err, worker.ErrFenced) {
		t.Errorf("leave: %v, want %v", err, worker.ErrFenced)
	}
	if _, err := m.Rejoin(t.Context(), dial(t)); !errors.Is(err, worker.ErrFenced) {
		t.Errorf("rejoin: %v, want %v", err, worker.ErrFenced)
	}
}

// TestLiveZnodeDeletedByHandIsMadeAgain, with the id in it as before.
func TestLiveZnodeDeletedByHandIsMadeAgain(t *testing.T) {
	t.Parallel()
	j, _ := newJob(t, 1)
	m := join(t, j, "w0")
	admin := dial(t)
	live := znode.Live(j.Root, j.Name, "w0")
	hasID := func() bool {
		body, _, err := admin.Get(t.Context(), live)
		if errors.Is(err, zkconn.ErrNoNode) {
			return false
		}
		w, decodeErr := znode.DecodeWorker(body)
		if err != nil || decodeErr != nil {
			t.Fatal(err, decodeErr)
		}
		return w.ID == 0
	}
	rig.Await(t, "the live znode has the id", hasID)
	for range 100 { // also in the moment after it was made
		_, there, changed, err := admin.ExistsW(t.Context(), live)
		if err != nil {
			t.Fatal(err)
		}
		if !there {
			rig.Receive(t, changed, "the live znode is back")
		}
		if err := admin.Delete(t.Context(), live, -1); err != nil {
			t.Fatal(err)
		}
	}
	rig.Await(t, "the live znode is back", hasID)
	if m.Context().Err() != nil {
		t.Error(context.Cause(m.Context()))
	}
	if err := m.Complete(t.Context(), 0); err != nil {
		t.Error(err)
	}
}

// TestTakenOverWorkerIsFenced: somebody deletes the live znode by hand, and another process of the identity is faster.
func TestTakenOverWorkerIsFenced(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 2)
	proxy := newProxy(t)
	old := joinIn(t, dialFor(t, time.Minute, proxy.Addr()), config(j, "w0"))
	proxy.Hang(true)
	if err := dial(t).Delete(t.Context(), znode.Live(j.Root, j.Name, "w0"), -1); err != nil {
		t.Fatal(err)
	}
	now := join(t, j, "w0")
	proxy.Hang(false)
	fenced(t, old)
	if o := look(t, store, j); now.ID != 0 || o.Live != 1 || job.Joined(o) != 1 {
		t.Errorf("the other is %d, observed %+v", now.ID, o)
	}
}

// TestWorkerOfAnEndedGenerationIsFenced, however it ended.
func TestWorkerOfAnEndedGenerationIsFenced(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 1)
	proxy := newProxy(t)
	m := joinIn(t, dialFor(t, time.Minute, proxy.Addr()), config(j, "w0"))
	// Deleted by hand while the worker cannot see it, and then replaced: no worker is live.
	proxy.Hang(true)
	if err := dial(t).Delete(t.Context(), znode.Live(j.Root, j.Name, "w0"), -1); err != nil {
		t.Fatal(err)
	}
	replace := plan.Row{Path: j.Path(), Old: look(t, store, j), New: j, Reason: plan.StaleLeftover}
	if err := store.Commit(t.Context(), replace); err != nil {
		t.Fatal(err)
	}
	proxy.Hang(false)
	fenced(t, m)
	if o := look(t, store, j); o.Status() != resource.StatusReady {
		t.Errorf("the new generation is %s", o.Status())
	}

	m = join(t, j, "w0")
	if _, err := dial(t).Multi(t.Context(),
		zkconn.DeleteOp(znode.Live(j.Root, j.Name, "w0"), -1), zkconn.DeleteOp(j.Path(), -1),
		zkconn.DeleteOp(znode.Gate(j.Root, m.Generation), -1),
		zkconn.DeleteOp(znode.Record(job.KindName, j.Root, j.Name), -1),
	); err != nil {
		t.Fatal(err)
	}
	fenced(t, m)
}

// TestNoRollKeepsWhatANewerMusterWrote: the worker that notes in the Record that the roll is too large leaves every
// field in it that it does not know, and the Record verifies.
func TestNoRollKeepsWhatANewerMusterWrote(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 60)
	s := dial(t)
	at := znode.Record(job.KindName, j.Root, j.Name)
	body, _, err := s.Get(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	unknown := []string{`"quota":{"cpu":4}`, `"priority":[3,"high"]`, `"drain":{"soft":"5s"}`}
	newer := strings.NewReplacer(
		`"job":{`, unknown[0]+`,"job":{`, `"workers":`, unknown[1]+`,"workers":`, `"session":`, unknown[2]+`,"session":`,
	).Replace(string(body))
	rec, err := znode.DecodeRecord(job.Kind(), []byte(newer))
	if err != nil {
		t.Fatal(err)
	}
	rec.Sign()
	ops, err := zkstate.SetRecordOps(rec, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Multi(t.Context(), ops...); err != nil {
		t.Fatal(err)
	}

	last := joinLarge(t, j)
	if err := last.WriteRoll(t.Context()); err != nil {
		t.Fatal(err)
	}
	o := look(t, store, j)
	if job.NoRoll(o.Record) != last.Generation || o.Record.Edited() {
		t.Errorf("no_roll is %q; edited: %v", job.NoRoll(o.Record), o.Record.Edited())
	}
	for _, path := range []string{at, znode.Run(j.Root, last.Generation)} {
		body, _, err := s.Get(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range unknown {
			if strings.Count(string(body), field) != 1 {
				t.Errorf("%s has not %s once:\n%s", path, field, body)
			}
		}
	}
}

// foreign joins as the protocol says, with a WorkerInfo of its own: as a program in another language may.
func foreign(t *testing.T, j job.Job, identity, run string, info []byte) {
	t.Helper()
	world := zkconn.World(zkconn.PermAll)
	claim, err := znode.Encode(znode.Claim{Nonce: "0123456789abcdef0123456789abcdef", Lives: 1, State: znode.In})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dial(t).Multi(t.Context(),
		zkconn.CheckOp(znode.Gate(j.Root, run), 0),
		zkconn.CreateOp(znode.ByIdentity(j.Root, run, identity), claim, zkconn.Persistent, world),
		zkconn.CreateOp(znode.NewID(j.Root, run), info, zkconn.PersistentSequential, world),
		zkconn.CreateOp(znode.Live(j.Root, j.Name, identity), info, zkconn.Ephemeral, world),
	); err != nil {
		t.Fatal(err)
	}
}

// TestForeignWorkerInfo that is not one, or is larger than allowed, does not end the others: they have the roll,
// without the address of that worker.
func TestForeignWorkerInfo(t *testing.T) {
	t.Parallel()
	good, err := znode.EncodeWorker(znode.Worker{ID: znode.NoID, IP: "10.0.0.9,x", Port: 9})
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []job.RollFormat{job.Protobuf, job.Text} {
		j, _ := newJob(t, 5, func(j *job.Job) { j.RollFormat = format })
		first := join(t, j, "w0")
		foreign(t, j, "alien-1", first.Generation, []byte("\xff\xff\xff not a message"))
		foreign(t, j, "alien-2", first.Generation, []byte(strings.Repeat("x", 400<<10)))
		foreign(t, j, "alien-3", first.Generation, good) // whose address does not fit into a text roll
		c := config(j, "w4")
		c.Info.Port = 7004
		last := joinIn(t, dial(t), c)

		roll, err := first.Roll(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		rows, odd := znode.DecodeRoll(rollBody(t, j))
		if len(rows) != 5 || len(odd) > 0 {
			t.Errorf("%s: the roll that was written has %d rows: %q", format, len(rows), odd)
		}
		joined, err := last.Joined(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		live, err := last.Live(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for what, ws := range map[string][]worker.Worker{"roll": roll, "joined": joined, "live": live} {
			for i, w := range ws {
				if known := i == 0 || i == 4 || i == 3 && (what != "roll" || format == job.Protobuf); w.ID != i ||
					known != (w.IP != "") {
					t.Errorf("%s %s: worker %d is %+v", format, what, i, w)
				}
			}
			if len(ws) != 5 {
				t.Errorf("%s %s: %d workers", format, what, len(ws))
			}
		}
		problems := []bool{false, true, true, false, false}
		for i, w := range live {
			if w.Problem != "" != problems[i] || len(w.Problem) > 200 {
				t.Errorf("%s: problem of worker %d: %q", format, i, w.Problem)
			}
		}
		if d := cmp.Diff("w4", live[4].Identity); d != "" {
			t.Error(d)
		}
		for ws, err := range last.Changes(t.Context()) {
			if err != nil || len(ws) != 5 {
				t.Errorf("%s: changes: %d, %v", format, len(ws), err)
			}
			break
		}
	}
}

func rollBody(t *testing.T, j job.Job) []byte {
	t.Helper()
	s := dial(t)
	var body []byte
	rig.Await(t, fmt.Sprint("the roll of ", j.Path()), func() bool {
		b, stat, err := s.Get(t.Context(), j.Path())
		body = b
		return err == nil && stat.Version > 0
	})
	return body
}

// TestRestartAfterCompletion: a container that is started again does not run its command again: while others still
// work, after the run has ended, and in a job that is retained.
func TestRestartAfterCompletion(t *testing.T) {
	t.Parallel()
	j, _ := newJob(t, 2)
	c := config(j, "w0")
	c.Run = "monday"
	m := joinIn(t, dial(t), c)
	if err := m.Complete(t.Context(), 7); err != nil {
		t.Fatal(err)
	}
	var done *worker.DoneError
	if _, err := tryJoin(t, c); !errors.As(err, &done) || done.Exit != 7 {
		t.Errorf("while others work: %v", err)
	}
	next := c
	next.Run = "tuesday"
	if _, err := tryJoin(t, next); !errors.Is(err, worker.ErrNotOpen) {
		t.Errorf("the next run came early: %v", err)
	}
	c.Identity = "w1"
	complete(t, joinIn(t, dial(t), c))
	for _, c.Identity = range []string{"w0", "w1"} {
		if _, err := tryJoin(t, c); !errors.Is(err, worker.ErrCompleted) {
			t.Errorf("%s after the run: %v", c.Identity, err)
		}
	}
	if m, err := tryJoin(t, next); err != nil || m.ID != 0 {
		t.Errorf("the next run: %+v, %v", m, err)
	}

	kept, _ := newJob(t, 1, onComplete(job.Retain))
	complete(t, join(t, kept, "w0"))
	if _, err := tryJoin(t, config(kept, "w0")); !errors.Is(err, worker.ErrDone) {
		t.Errorf("in a retained job: %v", err)
	}
}

// TestRunsDoNotMix: the first worker says which run a generation belongs to. A worker of another run waits for another
// generation, also under an identity that is expected in this one, and does not complete this one.
func TestRunsDoNotMix(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 2)
	of := func(run, identity string) worker.Config {
		c := config(j, identity)
		c.Run = run
		return c
	}
	first, err := worker.Join(t.Context(), dial(t), of("monday", "w0"))
	if err != nil {
		t.Fatal(err)
	}
	left, err := worker.Join(t.Context(), dial(t), of("monday", "w1"))
	if err != nil {
		t.Fatal(err)
	}
	complete(t, first)
	if err := left.Leave(t.Context(), worker.End{}); err != nil {
		t.Fatal(err)
	}
	for _, identity := range []string{"w0", "w1", "w2"} {
		_, err := tryJoin(t, of("tuesday", identity))
		if !errors.Is(err, worker.ErrNotOpen) || !strings.Contains(err.Error(), "this one is of run monday") {
			t.Errorf("%s of the next run: %v", identity, err)
		}
	}
	back, err := worker.Join(t.Context(), dial(t), of("monday", "w1"))
	if err != nil {
		t.Fatal(err)
	}
	complete(t, back)
	if last := job.LastRun(look(t, store, j).Record); last == nil || last.ID != "monday" {
		t.Errorf("the last run: %+v", last)
	}

	join(t, j, "w0") // of the generation that follows; it names no run
	_, err = tryJoin(t, of("tuesday", "w1"))
	if !errors.Is(err, worker.ErrNotOpen) || !strings.Contains(err.Error(), "named no run") {
		t.Errorf("after a worker without a run: %v", err)
	}
	join(t, j, "w1")
}

// TestRunsThatBeginAtOnce: of several runs one gets the generation.
func TestRunsThatBeginAtOnce(t *testing.T) {
	t.Parallel()
	for range 20 {
		j, store := newJob(t, 4)
		var all sync.WaitGroup
		joined := make([]bool, 4)
		for i := range joined {
			all.Go(func() {
				c := config(j, fmt.Sprint("w", i))
				c.Run = []string{"monday", "tuesday"}[i%2]
				m, err := tryJoin(t, c)
				if err != nil && !errors.Is(err, worker.ErrNotOpen) {
					t.Error(err)
				}
				joined[i] = m != nil
			})
		}
		all.Wait()
		o := look(t, store, j)
		if job.Joined(o) != 2 || joined[0] != joined[2] || joined[1] != joined[3] || joined[0] == joined[1] {
			t.Fatalf("joined: %v, observed %+v", joined, o)
		}
	}
}
