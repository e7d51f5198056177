package zkstate_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"golang.org/x/sync/errgroup"

	"muster/apply"
	"muster/job"
	"muster/plan"
	"muster/zkstate"
)

const benchJobs = 10000

// rawConn is a connection of the client library alone to the same server.
func rawConn(t testing.TB) *zk.Conn {
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
	return c
}

// pipelined calls f n times, at most parallel at once, and returns how many a second.
func pipelined(t testing.TB, n, parallel int, f func(i int) error) float64 {
	t.Helper()
	var g errgroup.Group
	g.SetLimit(parallel)
	start := time.Now()
	for i := range n {
		g.Go(func() error { return f(i) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	return float64(n) / time.Since(start).Seconds()
}

// BenchmarkTenThousandJobs plans, creates and plans again 10,000 jobs. It reports reads and znodes created a second as
// a share of what the client library reaches by itself in the same run: reads pipelined 128 deep; creates in
// transactions of 4 (as large as ours: one job each) and of 100.
func BenchmarkTenThousandJobs(b *testing.B) {
	f := newFixture(b)
	raw := rawConn(b)
	var declared []job.Job
	for i := range benchJobs {
		declared = append(declared, f.declare(fmt.Sprintf("job-%05d", i), 8))
	}
	acl := zk.WorldACL(zk.PermAll)
	body := make([]byte, 600) // a Record
	for range b.N {
		dir := f.root + "/raw-" + zkstate.NewID()
		if _, err := raw.Create(f.root, nil, 0, acl); err != nil && err != zk.ErrNodeExists {
			b.Fatal(err)
		}
		if _, err := raw.Create(dir, nil, 0, acl); err != nil {
			b.Fatal(err)
		}
		writes := func(name string, size, parallel int) float64 {
			txns := 4 * benchJobs / size
			return float64(size) * pipelined(b, txns, parallel, func(i int) error {
				ops := make([]any, size)
				for k := range ops {
					var data []byte
					if k%4 == 1 {
						data = body
					}
					ops[k] = &zk.CreateRequest{Path: fmt.Sprintf("%s/%s-%d-%d", dir, name, i, k), Data: data, Acl: acl}
				}
				_, err := raw.Multi(ops...)
				return err
			})
		}
		writes("warm", 100, 16)
		small := writes("small", 4, apply.DefaultParallel)
		large := writes("large", 100, 16)

		p := f.plan(declared...)
		start := time.Now()
		for _, o := range apply.Commit(b.Context(), f.store, p, apply.CommitOptions{ObservedAt: start}) {
			if o.Result != apply.Applied {
				b.Fatal(o.Row.Path, o.Result, o.Err)
			}
		}
		commits := 4 * benchJobs / time.Since(start).Seconds()

		reads := pipelined(b, 3*benchJobs, 128, func(i int) error {
			_, _, err := raw.Get(fmt.Sprintf("%s/jobs/.muster/job/job-%05d", f.root, i%benchJobs))
			return err
		})
		start = time.Now()
		p = f.plan(declared...)
		took := time.Since(start)
		for _, r := range p.Rows {
			if r.Action() != plan.None {
				b.Fatal(r.Path, r.Reason)
			}
		}
		b.ReportMetric(3*benchJobs/took.Seconds()/reads, "reads/raw")
		b.ReportMetric(commits/small, "creates/raw-of-4")
		b.ReportMetric(commits/large, "creates/raw-of-100")
		b.ReportMetric(took.Seconds()*1000, "plan-ms")
		b.ReportMetric(commits/4, "jobs-created/s")
		f.apply()
	}
}
