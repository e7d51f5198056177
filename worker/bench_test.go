package worker_test

import (
	"fmt"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/job"
	"muster/plan"
	"muster/worker"
	"muster/zkserver"
	"muster/zkstate"
	"muster/zkstate/zkconn"
)

const few, many = 1000, 10_000

// writesRoll says which sessions are of those who join last.
func writesRoll(i int) bool { return i == few-1 || i == many-1 }

// fleet is many real sessions in this process, against a server of their own.
type fleet struct {
	b        *testing.B
	server   *zkserver.Server
	observer *zkconn.Session
	sessions []*zkconn.Session
}

// BenchmarkTenThousandWorkers opens 10,000 sessions, which join a job, wait for all and pass barriers. Costs are ratios to the
// rate at which the same sessions commit the transaction of a join by itself, in the same run; growth is the cost per
// worker with 10,000 over that with 1,000.
func BenchmarkTenThousandWorkers(b *testing.B) {
	f := newFleet(b, many)
	f.round(few) // the server warms up
	for range b.N {
		small, large := f.round(few), f.round(many)
		b.ReportMetric(large.join.Seconds(), "join-s")
		b.ReportMetric(float64(large.raw)/float64(large.join), "join/raw")
		b.ReportMetric(large.wait.Seconds(), "wait-s")
		b.ReportMetric(large.woken.Seconds()*1000, "wait-fanout-ms")
		b.ReportMetric(large.barrier.Seconds(), "barrier-s")
		b.ReportMetric(float64(large.raw)/float64(large.barrier), "barrier/raw")
		b.ReportMetric(float64(large.raw)/float64(large.first), "first-barrier/raw")
		b.ReportMetric(float64(large.raw)/float64(large.next), "next-barriers/raw")
		b.ReportMetric(100*float64(large.release)/float64(large.barrier), "fanout-%-of-barrier")
		growth := func(name string, f func(costs) time.Duration) {
			b.ReportMetric(float64(f(large))/many/(float64(f(small))/few), name+"-growth")
		}
		growth("join", func(c costs) time.Duration { return c.join })
		growth("wait", func(c costs) time.Duration { return c.wait })
		growth("barrier", func(c costs) time.Duration { return c.barrier })
		growth("raw", func(c costs) time.Duration { return c.raw })
	}
}

func newFleet(b *testing.B, n int) *fleet {
	b.Helper()
	raiseFileLimit(b, n)
	ensemble, err := zkserver.Start(b.Context(), zkserver.Options{Heap: "1536m"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { ensemble.Stop() })
	f := &fleet{b: b, server: ensemble.Server(0), sessions: make([]*zkconn.Session, n)}
	if f.observer, err = zkconn.Dial(b.Context(), zkconn.Config{Servers: ensemble.Addrs()}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.observer.Close() })
	start := time.Now()
	var dials errgroup.Group
	dials.SetLimit(200)
	for i := range f.sessions {
		dials.Go(func() error {
			var err error
			f.sessions[i], err = zkconn.Dial(b.Context(), zkconn.Config{
				// Small, but for the lists that whoever clears a round reads, and for the roll, which the last to join
				// writes. Nobody expires while others are measured.
				Servers: ensemble.Addrs(), Timeout: 2 * time.Minute, Small: !writesRoll(i), ReadBuffer: 256 << 10,
			})
			return err
		})
	}
	if err := dials.Wait(); err != nil {
		b.Fatal(err)
	}
	b.Logf("%d sessions in %s", n, time.Since(start).Round(time.Millisecond))
	return f
}

// raiseFileLimit lets this process open n connections.
func raiseFileLimit(b *testing.B, n int) {
	b.Helper()
	need := uint64(n + 500)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		b.Fatal(err)
	}
	if limit.Max < need {
		b.Fatalf("%d sessions need %d open files; the hard limit is %d: raise it with ulimit -Hn", n, need, limit.Max)
	}
	limit.Cur = max(limit.Cur, need)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		b.Fatal(err)
	}
}

// costs are how long it took all workers together.
type costs struct {
	raw     time.Duration // the transaction of a join by itself
	join    time.Duration
	wait    time.Duration // to set the watch, for all but one
	woken   time.Duration // from the last join until all know
	first   time.Duration // a barrier that nobody has made yet: all try
	barrier time.Duration // to arrive, and until all know
	release time.Duration // the last arrival, and until all know: part of barrier
	next    time.Duration // a barrier without the pause before the last arrival, with the clearing of an older round
}

// round does everything once with n workers of a new job.
func (f *fleet) round(n int) costs {
	j := job.Default()
	j.Root, j.Name, j.Workers = "/bench-"+zkstate.NewID(), "j", n
	j.Timeouts.Barrier, j.Timeouts.Join = job.Duration(5*time.Minute), job.Duration(5*time.Minute)
	store, err := zkstate.NewStore(f.observer, zkstate.Config{Home: j.Root + "/home", Stack: "bench"})
	if err == nil {
		err = store.Commit(f.b.Context(), plan.Row{Path: j.Path(), New: &j, Reason: plan.NoJob})
	}
	if err != nil {
		f.b.Fatal(err)
	}
	c := costs{raw: f.raw(n, j.Root+"/raw")}
	ms := make([]*worker.Member, n)
	join := func(i int) (err error) {
		ms[i], err = worker.Join(f.b.Context(), f.sessions[i], config(j, fmt.Sprint("w-", i)))
		return err
	}
	if err := join(n - 2); err != nil { // makes the folders, which otherwise all would try
		f.b.Fatal(err)
	}
	c.join = f.all(n-2, join)

	c.wait, c.woken = f.held(n-1, func(i int) error { return ms[i].WaitAll(f.b.Context()) }, func() error { return join(n - 1) })
	pass := func(round int) func(i int) error {
		return func(i int) error { return ms[i].Barrier(f.b.Context(), worker.Barrier{Name: "b", Round: &round}) }
	}
	c.first = f.all(n, pass(0))
	arrive, release := f.held(n-1, pass(1), func() error { return pass(1)(n - 1) })
	c.barrier, c.release = arrive+release, release
	const more = 3
	for round := 2; round < 2+more; round++ {
		c.next += f.all(n, pass(round)) / more
	}
	for _, m := range ms {
		if err := m.Leave(f.b.Context(), worker.End{}); err != nil {
			f.b.Fatal(err)
		}
	}
	f.b.Logf("%d workers: raw %v, join %v, wait %v, woken %v, first barrier %v, second %v, of which release %v, next ones %v", n,
		c.raw.Round(time.Millisecond), c.join.Round(time.Millisecond), c.wait.Round(time.Millisecond),
		c.woken.Round(time.Millisecond), c.first.Round(time.Millisecond), c.barrier.Round(time.Millisecond), c.release.Round(time.Millisecond), c.next.Round(time.Millisecond))
	return c
}

// held calls wait for 0 to n-1, and release when the server has that many watches more. It returns how long either took; the
// latter until all waits have returned.
func (f *fleet) held(n int, wait func(i int) error, release func() error) (armed, woken time.Duration) {
	f.b.Helper()
	before := f.watches()
	start := time.Now()
	var waits errgroup.Group
	for i := range n {
		waits.Go(func() error { return wait(i) })
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for f.watches() < before+n {
		select {
		case <-tick.C:
		case <-f.b.Context().Done():
			f.b.Fatal("not all wait")
		}
	}
	armed = time.Since(start)
	start = time.Now()
	released := call(release)
	if err := waits.Wait(); err != nil {
		f.b.Fatal(err)
	}
	woken = time.Since(start)
	if err := <-released; err != nil { // it may have more to do: the roll, or clearing up
		f.b.Fatal(err)
	}
	return armed, woken
}

// watches is how many watches the server keeps.
func (f *fleet) watches() int {
	f.b.Helper()
	facts, err := f.server.Mntr(f.b.Context())
	if err != nil {
		f.b.Fatal(err)
	}
	n, err := strconv.Atoi(facts["zk_watch_count"])
	if err != nil {
		f.b.Fatal(err)
	}
	return n
}

// all calls do for 0 to n-1, all at once.
func (f *fleet) all(n int, do func(i int) error) time.Duration {
	f.b.Helper()
	start := time.Now()
	var calls errgroup.Group
	for i := range n {
		calls.Go(func() error { return do(i) })
	}
	if err := calls.Wait(); err != nil {
		f.b.Fatal(err)
	}
	return time.Since(start)
}

// raw commits the transaction of a join n times, without a recipe around it.
func (f *fleet) raw(n int, dir string) time.Duration {
	acl := zkconn.World(zkconn.PermAll)
	for _, p := range []string{dir, dir + "/gate", dir + "/by", dir + "/id", dir + "/live"} {
		if _, err := f.observer.Create(f.b.Context(), p, nil, zkconn.Persistent, acl); err != nil {
			f.b.Fatal(err)
		}
	}
	body := make([]byte, 60)
	return f.all(n, func(i int) error {
		_, err := f.sessions[i].Multi(f.b.Context(),
			zkconn.CheckOp(dir+"/gate", 0),
			zkconn.CreateOp(fmt.Sprintf("%s/by/w-%d", dir, i), body, zkconn.Persistent, acl),
			zkconn.CreateOp(dir+"/id/n-", body, zkconn.PersistentSequential, acl),
			zkconn.CreateOp(fmt.Sprintf("%s/live/w-%d", dir, i), body, zkconn.Ephemeral, acl))
		return err
	})
}
