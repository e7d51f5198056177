package reconcile

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"muster/sim/rig"
	"muster/zkstate/zkconn"
)

// BenchmarkReconcile has a reconciler of 1,000 jobs, and one of 10,000. It counts what an idle one asks in a minute,
// and what it takes until one change is put right: requests, and time.
func BenchmarkReconcile(b *testing.B) {
	for range b.N {
		for _, n := range []int{1000, 10_000} {
			idle, requests, took := reconciledCost(b, n)
			b.ReportMetric(idle, fmt.Sprint("idle-requests/min-", n))
			b.ReportMetric(requests, fmt.Sprint("requests/change-", n))
			b.ReportMetric(took.Seconds(), fmt.Sprint("s/change-", n))
			if requests > 100 {
				b.Errorf("one change of one of %d jobs costs %.0f requests", n, requests)
			}
		}
	}
}

func reconciledCost(b *testing.B, n int) (idle, requests float64, took time.Duration) {
	b.Helper()
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("j%d:barrier=3m", i))
	}
	e := newEstate(b, names...)
	p := rig.Proxy(b, servers.Addrs()[0])
	r := e.start(func(c *Config) {
		c.Connect, c.Log, c.Events = connectTo(p.Addr()), slog.New(slog.DiscardHandler), nil
	})
	settled := func() bool { now := r.Now(); return now.Rows["committed"] >= n && now.Passes["ok"] > 1 }
	rig.Await(b, "all jobs", settled)
	count := func() (all int) {
		for _, n := range p.Requests() {
			all += n
		}
		return all
	}
	zkconn.Pause(b.Context(), 5*time.Second) // the pass after the last change
	const watched = 20 * time.Second
	before := count()
	zkconn.Pause(b.Context(), watched)
	idle = float64(count()-before) * float64(time.Minute) / float64(watched)

	const rounds = 3
	for i := range rounds {
		before = count()
		name := fmt.Sprint("j", i)
		rig.Update(b, e.store, e.job(name+":barrier=9m"))
		began := time.Now()
		rig.Await(b, name, func() bool { return e.barrier(name) == 3*time.Minute })
		took += time.Since(began) / rounds
		zkconn.Pause(b.Context(), 3*time.Second)
		requests += float64(count()-before) / rounds
	}
	return idle, requests, took
}
