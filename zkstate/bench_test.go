package zkstate_test

import (
	"fmt"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"golang.org/x/sync/errgroup"

	"muster/apply"
	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

const benchJobs = 10000

// BenchmarkTenThousandJobs plans 10,000 jobs, creates, updates and deletes them, three times. It reports shares of what
// the client library reaches by itself in the same run, in turns: reads pipelined 128 deep, and the same operations in
// transactions of 100. What ends in -cpu compares the processor time of this process.
func BenchmarkTenThousandJobs(b *testing.B) {
	f := newFixture(b)
	raw := newRaw(b, f.root+"-raw")
	plain := f.many(benchJobs, 8)
	labelled := f.many(benchJobs, 8, func(j *job.Job) { j.Labels = map[string]string{"team": "data"} })
	raw.writes() // the server warms up
	for range b.N {
		var sum benchSums
		for range 3 {
			sum.add(raw.writes())
			sum.ours(&sum.create, f.timedApply(plain))
			sum.plan(f, raw, plain)
			sum.ours(&sum.update, f.timedApply(labelled))
			sum.ours(&sum.remove, f.timedApply(nil))
		}
		sum.report(b)
	}
}

// benchSums are the sums of all rounds.
type benchSums struct {
	rawCreate, rawUpdate, rawRemove time.Duration
	create, update, remove          applyTimes
	planned, bare                   time.Duration
	plannedCPU, bareCPU             time.Duration
	requests                        int
}

// applyTimes are of the changes alone, and of the whole apply: with the lock, and with what is collected afterwards.
type applyTimes struct{ changes, whole time.Duration }

func (s *benchSums) add(create, update, remove time.Duration) {
	s.rawCreate, s.rawUpdate, s.rawRemove = s.rawCreate+create, s.rawUpdate+update, s.rawRemove+remove
}

func (s *benchSums) ours(sum *applyTimes, t applyTimes) {
	sum.changes, sum.whole = sum.changes+t.changes, sum.whole+t.whole
}

// plan plans jobs, which are unchanged, and then makes as many requests with the client library alone.
func (s *benchSums) plan(f *fixture, raw *raw, jobs []job.Job) {
	f.t.Helper()
	before, start, cpu := packets(f.t), time.Now(), processorTime(f.t)
	p := f.readAndPlan(jobs)
	s.planned, s.plannedCPU = s.planned+time.Since(start), s.plannedCPU+processorTime(f.t)-cpu
	for _, r := range p.Rows {
		if r.Action() != plan.None {
			f.t.Fatal(r.Path, r.Reason)
		}
	}
	requests := packets(f.t) - before
	s.requests += requests
	start, cpu = time.Now(), processorTime(f.t)
	raw.pipelined(requests, 128, func(i int) error {
		_, _, err := raw.conn.Get(fmt.Sprintf("%s/jobs/.muster/job/j%03d", f.root, i%benchJobs))
		return err
	})
	s.bare, s.bareCPU = s.bare+time.Since(start), s.bareCPU+processorTime(f.t)-cpu
}

func (s *benchSums) report(b *testing.B) {
	ratio := func(name string, x, y time.Duration) { b.ReportMetric(float64(x)/float64(y), name) }
	ratio("create/raw", s.rawCreate, s.create.changes) // rates
	ratio("update/raw", s.rawUpdate, s.update.changes)
	ratio("delete/raw", s.rawRemove, s.remove.changes)
	ratio("whole-delete/create", s.remove.whole, s.create.whole)
	ratio("plan/bare-reads", s.planned, s.bare)
	ratio("plan/bare-reads-cpu", s.plannedCPU, s.bareCPU)
	b.ReportMetric(float64(s.requests)/(3*benchJobs), "requests/job")
	b.ReportMetric(float64(s.plannedCPU.Microseconds())/float64(s.requests), "plan-cpu-us/request")
	for name, d := range map[string]time.Duration{
		"plan-ms": s.planned, "create-ms": s.create.whole, "update-ms": s.update.whole, "delete-ms": s.remove.whole,
	} {
		b.ReportMetric(d.Seconds()*1000/3, name)
	}
}

// timedApply applies jobs as the command does, after it has planned.
func (f *fixture) timedApply(jobs []job.Job) (t applyTimes) {
	f.t.Helper()
	p := f.plan(jobs...)
	p.ID, p.Roots = "bench", []string{f.root + "/jobs"}
	start := time.Now()
	var begun, ended time.Time
	outcomes, err := apply.Run(f.t.Context(), f.store, p, apply.Options{
		CommitOptions: apply.CommitOptions{ObservedAt: start, Each: func(apply.Outcome) { ended = time.Now() }},
		LockTimeout:   time.Minute, Starting: func() { begun = time.Now() },
		CleanupFailed: func(err error) { f.t.Error(err) },
	})
	if err != nil || len(outcomes) != benchJobs {
		f.t.Fatalf("%d outcomes: %v", len(outcomes), err)
	}
	for _, o := range outcomes {
		if o.Result != apply.Applied {
			f.t.Fatal(o.Row.Path, o.Result, o.Err)
		}
	}
	return applyTimes{ended.Sub(begun), time.Since(start)}
}

// packets is how many requests the server has received.
func packets(t testing.TB) int {
	t.Helper()
	facts, err := servers.Server(0).Mntr(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(facts["zk_packets_received"])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// processorTime is what this process has used.
func processorTime(t testing.TB) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// raw is a connection of the client library alone to the same server.
type raw struct {
	t    testing.TB
	conn *zk.Conn
	dir  string
}

func newRaw(t testing.TB, dir string) *raw {
	t.Helper()
	c, events, err := zk.Connect(servers.Addrs(), 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		t.Fatal(err)
	}
	for e := range events {
		if e.State == zk.StateHasSession {
			break
		}
	}
	t.Cleanup(c.Close)
	if _, err := c.Create(dir, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	return &raw{t, c, dir}
}

// pipelined calls f n times, at most parallel at once, and returns how long that took.
func (r *raw) pipelined(n, parallel int, f func(i int) error) time.Duration {
	r.t.Helper()
	var g errgroup.Group
	g.SetLimit(parallel)
	start := time.Now()
	for i := range n {
		g.Go(func() error { return f(i) })
	}
	if err := g.Wait(); err != nil {
		r.t.Fatal(err)
	}
	return time.Since(start)
}

// writes makes, updates and deletes what ZooKeeper holds of benchJobs jobs, in transactions of at most 100 operations.
func (r *raw) writes() (create, update, remove time.Duration) {
	r.t.Helper()
	record, acl := make([]byte, 500), zk.WorldACL(zk.PermAll)
	bodies := [][]byte{nil, record, record, nil} // the job, its Record, its generation, the gate
	path := func(job, part int) string { return fmt.Sprintf("%s/%d-%d", r.dir, job, part) }
	batches := func(each int, add func(ops []any, job int) []any) time.Duration {
		return r.pipelined((benchJobs+each-1)/each, 16, func(i int) error {
			var ops []any
			for j := i * each; j < min((i+1)*each, benchJobs); j++ {
				ops = add(ops, j)
			}
			_, err := r.conn.Multi(ops...)
			return err
		})
	}
	create = batches(25, func(ops []any, job int) []any {
		for part, body := range bodies {
			ops = append(ops, &zk.CreateRequest{Path: path(job, part), Data: body, Acl: acl})
		}
		return ops
	})
	update = batches(33, func(ops []any, job int) []any {
		return append(ops, &zk.CheckVersionRequest{Path: path(job, 3)},
			&zk.SetDataRequest{Path: path(job, 1), Data: record},
			&zk.SetDataRequest{Path: path(job, 2), Data: record, Version: -1})
	})
	remove = batches(25, func(ops []any, job int) []any {
		for part := range bodies {
			ops = append(ops, &zk.DeleteRequest{Path: path(job, part), Version: -1})
		}
		return ops
	})
	return create, update, remove
}

// BenchmarkTracker follows 10,000 jobs with a live worker each. It reports what the first Read takes beside a plain
// Read of the same run, what a change takes until it is seen, and what a job takes in memory: of this process, besides
// what a Read returns.
func BenchmarkTracker(b *testing.B) {
	f := newFixture(b)
	jobs := f.many(benchJobs, 8)
	f.timedApply(jobs)
	f.run(jobs)
	roots := []string{f.root + "/jobs"}
	for range b.N {
		plain := zkstate.NewReader(f.dial(), f.root+"/home", allKinds()...)
		start, cpu := time.Now(), processorTime(b)
		if _, err := plain.Read(b.Context(), roots); err != nil {
			b.Fatal(err)
		}
		read, readCPU := time.Since(start), processorTime(b)-cpu

		before, requests := heap(), packets(b)
		w := f.follow(f.dial(), roots...)
		start, cpu = time.Now(), processorTime(b)
		if _, err := w.tracker.Read(b.Context(), roots); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(time.Since(start))/float64(read), "first/read")
		b.ReportMetric(float64(processorTime(b)-cpu)/float64(readCPU), "first/read-cpu")
		b.ReportMetric(time.Since(start).Seconds(), "first-s")
		b.ReportMetric(float64(packets(b)-requests)/benchJobs, "requests/job")
		b.ReportMetric(float64(heap()-before)/benchJobs, "bytes/job")

		requests, cpu = packets(b), processorTime(b)
		const changes = 200
		var seen time.Duration
		for i := range changes {
			seen += f.change(w, jobs[i])
		}
		b.ReportMetric(seen.Seconds()*1000/changes, "seen-ms")
		b.ReportMetric(float64((processorTime(b)-cpu).Microseconds())/changes, "cpu-us/change")
		b.ReportMetric(float64(packets(b)-requests)/changes, "requests/change")
		w.tracker.Close()
	}
}

// BenchmarkWorkersAgain looks at a job of 10,000 workers again after one of them has gone, and reports what that takes
// beside a plain read of the workers.
func BenchmarkWorkersAgain(b *testing.B) {
	f := newFixture(b)
	j := f.declare("large", 10000)
	f.apply(j)
	f.crowd(j)
	mirror := zkstate.NewMirror(f.dial())
	workers := func(s zkstate.Source, want int) {
		ws, _, err := zkstate.NewReader(s, f.root+"/home", allKinds()...).Workers(b.Context(), j.Path())
		live := 0
		for _, w := range ws {
			if w.Live {
				live++
			}
		}
		if err != nil || len(ws) != j.Workers || live != want {
			b.Fatal(len(ws), live, err)
		}
	}
	timed := func(do func()) (time.Duration, time.Duration) {
		start, cpu := time.Now(), processorTime(b)
		do()
		return time.Since(start), processorTime(b) - cpu
	}
	for range b.N {
		plain, plainCPU := timed(func() { workers(f.session, j.Workers) })
		before, look := heap(), mirror.Look()
		workers(look, j.Workers)
		b.ReportMetric(float64(heap()-before)/float64(j.Workers), "bytes/worker")
		var again, againCPU time.Duration
		const changes = 10
		for i := range changes {
			if err := f.session.Delete(b.Context(), znode.Live(j.Root, j.Name, fmt.Sprint("w", i)), -1); err != nil {
				b.Fatal(err)
			}
			<-look.Changed()
			took, cpu := timed(func() {
				next := mirror.Look()
				workers(next, j.Workers-i-1)
				look.Close()
				look = next
			})
			again, againCPU = again+took, againCPU+cpu
		}
		b.ReportMetric(float64(again)/changes/float64(plain), "again/plain")
		b.ReportMetric(float64(againCPU)/changes/float64(plainCPU), "again/plain-cpu")
		b.ReportMetric(again.Seconds()*1000/changes, "again-ms")
	}
}

// heap is how many bytes are in use.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}

// run writes what a worker of each job writes when it joins.
func (f *fixture) run(jobs []job.Job) {
	f.t.Helper()
	state, err := f.store.Read(f.t.Context(), []string{f.root + "/jobs"})
	if err != nil {
		f.t.Fatal(err)
	}
	body, err := znode.Encode(znode.Claim{Nonce: "n", Lives: 1, State: znode.In})
	if err != nil {
		f.t.Fatal(err)
	}
	var ops []zkconn.Op
	for i, j := range jobs {
		create := func(path string, body []byte, mode zkconn.Mode) {
			ops = append(ops, zkconn.CreateOp(path, body, mode, anyone()))
		}
		g := state.Found[j.Path()].Record.Generation
		for _, folder := range znode.JobFolders(job.Job{}) {
			create(resource.Join(znode.Run(j.Root, g), folder), nil, zkconn.Persistent)
		}
		create(znode.ByIdentity(j.Root, g, "w"), body, zkconn.Persistent)
		create(znode.ID(j.Root, g, 0), nil, zkconn.Persistent)
		create(znode.Live(j.Root, j.Name, "w"), nil, zkconn.Ephemeral)
		if len(ops) > 100 || i == len(jobs)-1 {
			if _, err := f.session.Multi(f.t.Context(), ops...); err != nil {
				f.t.Fatal(err)
			}
			ops = nil
		}
	}
}

// crowd writes what all workers of a job write when they join.
func (f *fixture) crowd(j job.Job) {
	f.t.Helper()
	o, err := f.store.Look(f.t.Context(), j.Path())
	if err != nil {
		f.t.Fatal(err)
	}
	g := o.Record.Generation
	claim, err := znode.Encode(znode.Claim{Nonce: "n", Lives: 1, State: znode.In})
	if err != nil {
		f.t.Fatal(err)
	}
	var ops []zkconn.Op
	for _, folder := range znode.JobFolders(job.Job{}) {
		at := resource.Join(znode.Run(j.Root, g), folder)
		ops = append(ops, zkconn.CreateOp(at, nil, zkconn.Persistent, anyone()))
	}
	for i := range j.Workers {
		name := fmt.Sprint("w", i)
		info, err := znode.EncodeWorker(znode.Worker{ID: i, IP: "10.0.0.1", Port: 7000})
		if err != nil {
			f.t.Fatal(err)
		}
		ops = append(ops,
			zkconn.CreateOp(znode.ByIdentity(j.Root, g, name), claim, zkconn.Persistent, anyone()),
			zkconn.CreateOp(znode.ID(j.Root, g, i), info, zkconn.Persistent, anyone()),
			zkconn.CreateOp(znode.Live(j.Root, j.Name, name), info, zkconn.Ephemeral, anyone()))
		if len(ops) > 150 || i == j.Workers-1 {
			if _, err := f.session.Multi(f.t.Context(), ops...); err != nil {
				f.t.Fatal(err)
			}
			ops = nil
		}
	}
}

// change makes a worker of a job go, and returns how long it took until the tracker said so.
func (f *fixture) change(w *follower, j job.Job) time.Duration {
	f.t.Helper()
	if err := f.session.Delete(f.t.Context(), znode.Live(j.Root, j.Name, "w"), -1); err != nil {
		f.t.Fatal(err)
	}
	start := time.Now()
	for {
		changed := w.tracker.Changed()
		state, err := w.tracker.Read(f.t.Context(), w.roots)
		if err != nil {
			f.t.Fatal(err)
		}
		if state.Found[j.Path()].Live == 0 {
			return time.Since(start)
		}
		<-changed
	}
}
