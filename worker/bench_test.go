package worker_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/dev/zkserver"
	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/zkconn"
)

const few, many = 1000, 10_000

// writesRoll reports which sessions belong to the workers that join last.
func writesRoll(i int) bool { return i == few-1 || i == many-1 }

// fleet is many real sessions in this process, against a server of their own.
type fleet struct {
	b        *testing.B
	server   *zkserver.Server
	observer *zkconn.Session
	sessions []*zkconn.Session
}

// BenchmarkTenThousandWorkers opens 10,000 sessions, which join a job, wait for all and pass barriers. Costs are
// ratios to the rate at which the same sessions commit the transaction of a join by itself, in the same run; growth
// is the cost per worker with 10,000 over that with 1,000. What ends in -cpu compares processor time of client and
// server together: it depends less on what else the machine does.
func BenchmarkTenThousandWorkers(b *testing.B) {
	f := newFleet(b, many)
	f.round(few) // the server warms up
	f.round(many)
	for range b.N {
		small, large := f.round(few), f.round(many)
		ratio := func(name string, x, y cost) {
			b.ReportMetric(float64(x.wall)/float64(y.wall), name)
			b.ReportMetric(float64(x.cpu)/float64(y.cpu), name+"-cpu")
		}
		ratio("join/raw", large.raw, large.join) // rates
		ratio("join/bare", large.bare, large.join)
		ratio("join-by-index/join", large.byIndex, large.join)
		ratio("barrier/raw", large.raw, large.barrier)
		ratio("first-barrier/raw", large.raw, large.first)
		ratio("next-barriers/raw", large.raw, large.next)
		ratio("release-of-barrier", large.release, large.barrier)
		ratio("raw-events-of-barrier", large.events, large.barrier)
		growth := func(name string, of func(costs) cost) {
			ratio(name+"-growth", of(large).by(many), of(small).by(few))
		}
		growth("raw", func(c costs) cost { return c.raw })
		growth("join", func(c costs) cost { return c.join })
		growth("wait", func(c costs) cost { return c.wait })
		growth("barrier", func(c costs) cost { return c.barrier })
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
	if f.observer, err = zkconn.Dial(b.Context(), zkconn.Config{
		Servers: ensemble.Addrs(), Timeout: 2 * time.Minute,
	}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { f.observer.Close() })
	start := time.Now()
	var dials errgroup.Group
	dials.SetLimit(200)
	for i := range f.sessions {
		dials.Go(func() error {
			var err error
			f.sessions[i], err = zkconn.Dial(b.Context(), f.config(i))
			return err
		})
	}
	if err := dials.Wait(); err != nil {
		b.Fatal(err)
	}
	b.Logf("%d sessions in %s", n, time.Since(start).Round(time.Millisecond))
	return f
}

// config is that of session i. It is small, but for the lists that whoever clears a round reads, and for the roll,
// which the last to join writes. Nobody expires while others are measured.
func (f *fleet) config(i int) zkconn.Config {
	return zkconn.Config{
		Servers: []string{f.server.Addr()}, Timeout: 2 * time.Minute, Small: !writesRoll(i), ReadBuffer: 256 << 10,
	}
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

// cost is what all workers together took.
type cost struct {
	wall time.Duration
	cpu  time.Duration // of this process and the server's
}

func (c cost) by(n int) cost        { return cost{c.wall / time.Duration(n), c.cpu / time.Duration(n)} }
func (c cost) plus(other cost) cost { return cost{c.wall + other.wall, c.cpu + other.cpu} }
func (c cost) String() string {
	return fmt.Sprintf("%v (cpu %v)", c.wall.Round(time.Millisecond), c.cpu.Round(time.Millisecond))
}

// costs are those of one round.
type costs struct {
	raw     cost // the transaction of a join by itself
	bare    cost // that, and before it the two reads of a join
	join    cost
	byIndex cost // the join of a job that takes ids from its workers
	settle  cost // after join, until the members have written their ids and set their watches
	wait    cost // to set the watch, for all but one
	woken   cost // from the last join until all know
	events  cost // an event for each session, by itself: no barrier can be released for less
	first   cost // a barrier that nobody has made yet: all try
	barrier cost // to arrive, and until all know
	release cost // the last arrival, and until all know: part of barrier
	next    cost // a barrier without the pause before the last arrival, with the clearing of an older round
}

// round does everything once with n workers of a new job.
func (f *fleet) round(n int) costs {
	j := f.create(n, job.ByJoin)
	raw := f.raw(n, j.Root+"/raw-0", false)
	ms := make([]*worker.Member, n)
	join := func(i int) (err error) {
		ms[i], err = worker.Join(f.b.Context(), f.sessions[i], config(j, fmt.Sprint("w-", i)))
		return err
	}
	leave := func() {
		for _, m := range ms {
			if err := m.Leave(f.b.Context(), worker.End{}); err != nil {
				f.b.Fatal(err)
			}
		}
	}
	if err := join(n - 2); err != nil { // it makes the folders, so that not all try
		f.b.Fatal(err)
	}
	standing := f.watches() // perhaps with those of the first worker
	var c costs
	c.join = f.all(n-2, join)
	// Each watches its live znode and its gate.
	c.settle = f.timed(func() error { f.armed(standing + 2*(n-2)); return nil })
	c.raw = raw.plus(f.raw(n, j.Root+"/raw-1", false)).by(2) // the machine changes while we measure
	c.bare = f.raw(n, j.Root+"/bare", true)

	wait := func(i int) error { return ms[i].WaitAll(f.b.Context()) }
	c.wait, c.woken = f.held(n-1, 1, wait, func() error { return join(n - 1) })
	c.events = f.events(n, j.Root+"/event")
	pass := func(round int) func(i int) error {
		return func(i int) error { return ms[i].Barrier(f.b.Context(), worker.Barrier{Name: "b", Round: &round}) }
	}
	c.first = f.all(n, pass(0))
	arrive, release := f.held(n-1, 2, pass(1), func() error { return pass(1)(n - 1) })
	c.barrier, c.release = arrive.plus(release), release
	const more = 3
	for round := 2; round < 2+more; round++ {
		c.next = c.next.plus(f.all(n, pass(round)).by(more))
	}
	leave()
	indexed := f.create(n, job.ByIndex)
	joinIndexed := func(i int) (err error) {
		c := config(indexed, fmt.Sprint("w-", i))
		c.Index = &i
		ms[i], err = worker.Join(f.b.Context(), f.sessions[i], c)
		return err
	}
	for _, i := range []int{n - 2, n - 1} {
		if err := joinIndexed(i); err != nil {
			f.b.Fatal(err)
		}
	}
	c.byIndex = f.all(n-2, joinIndexed)
	leave()
	f.b.Logf("%d workers:\n raw %v, bare %v, events %v\n join %v, by index %v, settled %v\n wait %v, woken %v\n"+
		" first barrier %v\n second %v, of which release %v\n next ones %v", n,
		c.raw, c.bare, c.events, c.join, c.byIndex, c.settle, c.wait, c.woken, c.first, c.barrier, c.release, c.next)
	return c
}

// create creates a job of n workers in a root of its own.
func (f *fleet) create(n int, ids job.IDs, edits ...func(*job.Job)) job.Job {
	f.b.Helper()
	j := job.Default()
	j.Root, j.Name, j.Workers, j.IDs = "/bench-"+zkstate.NewID(), "j", n, ids
	j.Timeouts.Barrier, j.Timeouts.Join = resource.Duration(5*time.Minute), resource.Duration(5*time.Minute)
	for _, edit := range edits {
		edit(&j)
	}
	store, err := zkstate.NewStore(f.observer, zkstate.Config{
		Home: j.Root + "/home", Stack: "bench", Kinds: []zkstate.Kind{zkstate.Job()},
	})
	if err == nil {
		err = store.Commit(f.b.Context(), plan.Row{Path: j.Path(), New: j, Reason: plan.NotThere})
	}
	if err != nil {
		f.b.Fatal(err)
	}
	return j
}

// events wakes all of n sessions by one znode.
func (f *fleet) events(n int, path string) cost {
	f.b.Helper()
	_, woken := f.held(n-1, 1, func(i int) error {
		_, exists, event, err := f.sessions[i].ExistsW(f.b.Context(), path)
		if err == nil && !exists {
			<-event
		}
		return err
	}, func() error {
		_, err := f.sessions[n-1].Create(f.b.Context(), path, nil, zkconn.Persistent, zkconn.World(zkconn.PermAll))
		return err
	})
	return woken
}

// held calls wait for 0 to n-1, which sets that many watches each, and release when the server has them all. It
// returns what either took; the latter until all waits have returned.
func (f *fleet) held(n, each int, wait func(i int) error, release func() error) (armed, woken cost) {
	f.b.Helper()
	before := f.watches()
	var waits errgroup.Group
	armed = f.timed(func() error {
		for i := range n {
			waits.Go(func() error { return wait(i) })
		}
		f.armed(before + n*each)
		return nil
	})
	var released <-chan error
	woken = f.timed(func() error {
		released = call(release)
		return waits.Wait()
	})
	if err := <-released; err != nil { // it may have more to do: the roll, or clearing up
		f.b.Fatal(err)
	}
	return armed, woken
}

// timed is what do costs.
func (f *fleet) timed(do func() error) cost {
	f.b.Helper()
	start, cpu := time.Now(), f.cpu()
	if err := do(); err != nil {
		f.b.Fatal(err)
	}
	return cost{time.Since(start), f.cpu() - cpu}
}

// cpu is how much processor time this process and the server have had.
func (f *fleet) cpu() time.Duration {
	f.b.Helper()
	var own syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &own)
	stat, e := os.ReadFile(fmt.Sprintf("/proc/%d/stat", f.server.Run().OS.Pid))
	if err = errors.Join(err, e); err != nil {
		f.b.Fatal(err)
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // from the third, the state
	ticks := 0
	for _, s := range fields[11:13] { // utime and stime, in hundredths of a second
		n, err := strconv.Atoi(s)
		if err != nil {
			f.b.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(own.Utime.Nano()+own.Stime.Nano()) + time.Duration(ticks)*10*time.Millisecond
}

// armed returns when the server has n watches.
func (f *fleet) armed(n int) {
	f.b.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for f.watches() < n {
		select {
		case <-tick.C:
		case <-f.b.Context().Done():
			f.b.Fatal("not all wait")
		}
	}
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
func (f *fleet) all(n int, do func(i int) error) cost {
	f.b.Helper()
	return f.timed(func() error {
		var calls errgroup.Group
		for i := range n {
			calls.Go(func() error { return do(i) })
		}
		return calls.Wait()
	})
}

// raw commits the transaction of a join n times, without a recipe around it; with reads, after those of a join.
func (f *fleet) raw(n int, dir string, reads bool) cost {
	acl := zkconn.World(zkconn.PermAll)
	for _, p := range []string{dir, dir + "/gate", dir + "/by", dir + "/id", dir + "/live"} {
		if _, err := f.observer.Create(f.b.Context(), p, nil, zkconn.Persistent, acl); err != nil {
			f.b.Fatal(err)
		}
	}
	body := make([]byte, 60)
	return f.all(n, func(i int) error {
		if reads {
			_, _, e := f.sessions[i].Get(f.b.Context(), dir+"/gate")
			_, _, err := f.sessions[i].Exists(f.b.Context(), dir+"/live")
			if err = errors.Join(e, err); err != nil {
				return err
			}
		}
		_, err := f.sessions[i].Multi(f.b.Context(),
			zkconn.CheckOp(dir+"/gate", 0),
			zkconn.CreateOp(fmt.Sprintf("%s/by/w-%d", dir, i), body, zkconn.Persistent, acl),
			zkconn.CreateOp(dir+"/id/n-", body, zkconn.PersistentSequential, acl),
			zkconn.CreateOp(fmt.Sprintf("%s/live/w-%d", dir, i), body, zkconn.Ephemeral, acl))
		return err
	})
}
