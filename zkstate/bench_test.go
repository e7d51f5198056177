package zkstate_test

import (
	"fmt"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"golang.org/x/sync/errgroup"

	"muster/apply"
	"muster/plan"
	"muster/resource/job"
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
