package worker_test

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/dev/zkserver"
	"muster/resource/job"
	"muster/worker"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Each test here is named after a bug of the classic worker controllers' way to join.

// TestJ1DeathWhileJoiningLeavesNoGap: a worker that dies before, in or after its join transaction takes an id that it
// gets back, or none.
func TestJ1DeathWhileJoiningLeavesNoGap(t *testing.T) {
	for fault, arm := range faults() {
		t.Run(fault, func(t *testing.T) {
			t.Parallel() // the next life waits until the session has expired
			j, store := newJob(t, 3)
			join(t, j, "w0")
			proxy := newProxy(t)
			cut := arm(proxy, isMulti)
			c := spawn(t, j, "10s stay", "dies", proxy.Addr())
			c.reach(t, cut)
			c.kill()
			join(t, j, "w1")
			join(t, j, "dies")
			got := slices.Sorted(maps.Values(ids(t, store, j)))
			if d := cmp.Diff([]int{0, 1, 2}, got); d != "" {
				t.Errorf("ids (-want +got):\n%s", d)
			}
		})
	}
}

// TestJ2ManyAtOnceEachGetAnID: no worker gives up, and no id is lost, when all come in the same moment.
func TestJ2ManyAtOnceEachGetAnID(t *testing.T) {
	const n = 64
	j, store := newJob(t, n)
	sessions := make([]*zkconn.Session, n)
	for i := range sessions {
		sessions[i] = dial(t)
	}
	var all sync.WaitGroup
	for i, s := range sessions {
		all.Go(func() {
			m, err := worker.Join(t.Context(), s, config(j, fmt.Sprint("w", i)))
			if err != nil || m.ID < 0 || m.ID >= n {
				t.Errorf("joined as %+v, %v", m, err)
			}
		})
	}
	all.Wait()
	got := slices.Sorted(maps.Values(ids(t, store, j)))
	var want []int
	for i := range n {
		want = append(want, i)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("ids (-want +got):\n%s", d)
	}
}

// TestJ3LostReplyTakesNoSecondID: the transaction was committed and its reply was lost.
func TestJ3LostReplyTakesNoSecondID(t *testing.T) {
	j, store := newJob(t, 3)
	join(t, j, "w0")
	proxy := newProxy(t)
	cut := proxy.DropReply(isMulti)
	m, err := worker.Join(t.Context(), dial(t, proxy.Addr()), config(j, "w1"))
	if err != nil || m.ID != 1 {
		t.Fatalf("joined as %+v, %v", m, err)
	}
	<-cut
	join(t, j, "w2")
	if d := cmp.Diff(map[string]int{"w0": 0, "w1": 1, "w2": 2}, ids(t, store, j)); d != "" {
		t.Errorf("ids (-want +got):\n%s", d)
	}
}

// TestJ4FirstWorkersRaceHarmlessly to make the folders.
func TestJ4FirstWorkersRaceHarmlessly(t *testing.T) {
	for range 20 {
		j, store := newJob(t, 2)
		var both sync.WaitGroup
		for _, identity := range []string{"a", "b"} {
			s := dial(t)
			both.Go(func() {
				if _, err := worker.Join(t.Context(), s, config(j, identity)); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		if o := look(t, store, j); o.Status() != job.Running {
			t.Fatalf("the job is %s: %s", o.Status(), o.Problem)
		}
	}
}

// TestJ5EveryLiveWorkerHasAnID: none is ever seen live without one.
func TestJ5EveryLiveWorkerHasAnID(t *testing.T) {
	j, store := newJob(t, 40)
	s := dial(t)
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			if _, err := worker.Join(t.Context(), s, config(j, fmt.Sprint("w", i))); err != nil {
				t.Error(err)
			}
		})
	}
	for live := 0; live < 40; {
		ws, err := store.Workers(t.Context(), j.Path()) // lists the live workers first, then those that have joined
		if err != nil {
			t.Fatal(err)
		}
		live = 0
		for _, w := range ws {
			if w.Live {
				live++
			}
			if w.ID < 0 {
				t.Fatalf("%s is live without an id", w.Identity)
			}
		}
	}
	all.Wait()
}

// TestJ6J7StoppedJoinerHoldsNobodyUp: there is no lock that it could hold, or believe to hold after it has lost it.
// What it had sent happens late, as a whole.
func TestJ6J7StoppedJoinerHoldsNobodyUp(t *testing.T) {
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
	await(t, "the late join", func() bool { return job.Joined(look(t, store, j)) == 4 })
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

// TestJ8RejoinBesideTheOldSession never shows a worker twice: it waits, and then takes the place.
func TestJ8RejoinBesideTheOldSession(t *testing.T) {
	j, store := newJob(t, 2)
	old := join(t, j, "w0")
	c := config(j, "w0")
	c.Waiting = func(string) {
		if o := look(t, store, j); o.Live != 1 {
			t.Errorf("%d are live", o.Live)
		}
		if err := old.Leave(t.Context(), worker.End{}); err != nil {
			t.Error(err)
		}
	}
	if _, err := worker.Join(t.Context(), dial(t), c); err != nil {
		t.Fatal(err)
	}
	if o := look(t, store, j); o.Live != 1 || job.Joined(o) != 1 {
		t.Errorf("%d are live, %d have joined", o.Live, job.Joined(o))
	}
}

// TestJ9IdentityIsNotTheAddress: a new worker with a recycled address inherits nothing, and an old one with a new
// address keeps its id.
func TestJ9IdentityIsNotTheAddress(t *testing.T) {
	j, store := newJob(t, 2)
	crash(t, j, "w0")
	moved := config(j, "w0")
	moved.Info = znode.Worker{IP: "10.0.0.9", Port: 9}
	if m, err := worker.Join(t.Context(), dial(t), moved); err != nil || m.ID != 0 {
		t.Fatalf("joined as %+v, %v", m, err)
	}
	if m := join(t, j, "new"); m.ID != 1 { // at the address that w0 had
		t.Errorf("id %d, want 1", m.ID)
	}
	ws, err := store.Workers(t.Context(), j.Path())
	if err != nil || len(ws) != 2 || ws[0].Info.Address() != "10.0.0.9:9" {
		t.Errorf("recorded %+v, %v", ws, err)
	}
}

// TestJ10JoiningCostsTheSameForEachWorker, in requests, however many have joined.
func TestJ10JoiningCostsTheSameForEachWorker(t *testing.T) {
	const n = 200
	j, _ := newJob(t, n)
	s := dial(t)
	measure := func(identity string) (requests int) {
		proxy := newProxy(t)
		if _, err := worker.Join(t.Context(), dial(t, proxy.Addr()), config(j, identity)); err != nil {
			t.Fatal(err)
		}
		await(t, "it is told its id, and watches", func() bool {
			requests = 0
			all := proxy.Requests()
			for op, n := range all {
				if op != zkserver.OpPing {
					requests += n
				}
			}
			return all[zkserver.OpMulti] == 2 && all[zkserver.OpExists] == 3
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

// TestJ11IPv6: as the identity and as the address.
func TestJ11IPv6(t *testing.T) {
	j, store := newJob(t, 1)
	c := config(j, "[fe80::1]:7000")
	c.Info = znode.Worker{IP: "fe80::1", Port: 7000}
	if _, err := worker.Join(t.Context(), dial(t), c); err != nil {
		t.Fatal(err)
	}
	ws, err := store.Workers(t.Context(), j.Path())
	if err != nil || len(ws) != 1 || ws[0].Identity != "[fe80::1]:7000" || ws[0].Info.Address() != "[fe80::1]:7000" {
		t.Errorf("recorded %+v, %v", ws, err)
	}
}

// TestJ12NextJobOfTheNameStartsAtZero, whatever the one before left behind.
func TestJ12NextJobOfTheNameStartsAtZero(t *testing.T) {
	j, store := newJob(t, 2)
	crash(t, j, "w0")
	crash2 := join(t, j, "w0")
	if err := crash2.Leave(t.Context(), worker.End{}); err != nil {
		t.Fatal(err)
	}
	if err := store.Terminate(t.Context(), j.Path(), time.Minute, nil); err != nil {
		t.Fatal(err)
	}
	create(t, store, j)
	for i, identity := range []string{"x", "w0"} {
		if m := join(t, j, identity); m.ID != i {
			t.Errorf("%s is %d, want %d", identity, m.ID, i)
		}
	}
	if d := cmp.Diff(map[string]int{"x": 0, "w0": 1}, ids(t, store, j)); d != "" {
		t.Errorf("ids (-want +got):\n%s", d)
	}
}
