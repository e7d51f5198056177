package worker_test

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/resource/job"
	"muster/sim/rig"
	"muster/worker"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// BenchmarkGang cuts off one worker of a gang of 1,000, and of 10,000, whose sessions are all in this process, and
// begins again with another process of it. It counts what the server gets, and compares times in the same run:
// restart/barrier is from when all know that the attempt is over until all may start their commands, over a live
// barrier of as many; recovery is from the cut until then, over the session timeout and such a barrier.
func BenchmarkGang(b *testing.B) {
	f := newFleet(b, many)
	f.restart(few) // the server warms up
	for range b.N {
		for _, n := range []int{few, many} {
			r := f.restart(n)
			name := fmt.Sprint("-", n)
			b.ReportMetric(float64(r.restart.wall)/float64(r.barrier.wall), "restart/barrier"+name)
			b.ReportMetric(float64(r.loss.plus(r.restart).wall)/float64(lostTimeout+r.barrier.wall), "recovery"+name)
			b.ReportMetric(r.watches, "watches/worker"+name)
			b.ReportMetric(r.told, "told-of-loss"+name)
			b.ReportMetric(r.requests, "requests/worker"+name)
			if r.told != 1 || r.requests > 10 {
				b.Errorf("%v of %d workers have seen the loss, which cost %.1f requests each", r.told, n, r.requests)
			}
		}
	}
}

// lostTimeout is the timeout of the session that is cut off: long enough to outlast what is measured before.
const lostTimeout = 20 * time.Second

// restarted is what one loss and one restart of a gang took.
type restarted struct {
	barrier  cost    // a live barrier of all
	loss     cost    // from the cut until all know that the attempt is over
	restart  cost    // from then until all may start their commands again
	watches  float64 // of a worker whose command runs, besides those that every worker has
	told     float64 // how many workers have an event of the loss
	requests float64 // of a worker, from when it knows of the loss until it may start its command; with some pings
}

// restart begins an attempt with n workers, loses one, and begins the next.
func (f *fleet) restart(n int) (r restarted) {
	ctx := f.b.Context()
	j := f.create(n, job.ByIndex, ofGang(1))
	ms, as := make([]*worker.Member, n), make([]*worker.Attempt, n)
	join := func(i int) (err error) {
		c := config(j, fmt.Sprint("w-", i))
		c.Index = &i
		ms[i], err = worker.Join(ctx, f.sessions[i], c)
		return err
	}
	ordinary := f.sessions[n-1]
	proxy := rig.Proxy(f.b, f.server.Addr())
	cut := f.config(n - 1)
	cut.Servers, cut.Timeout = []string{proxy.Addr()}, lostTimeout
	var err error
	if f.sessions[n-1], err = zkconn.Dial(ctx, cut); err != nil {
		f.b.Fatal(err)
	}
	defer f.sessions[n-1].Close()
	if err := join(0); err != nil { // it makes the folders, so that not all try
		f.b.Fatal(err)
	}
	joined := call(func() error { return join(n - 1) })
	f.all(n-2, func(i int) error { return join(i + 1) })
	if err := <-joined; err != nil {
		f.b.Fatal(err)
	}
	start := func(i int) (err error) {
		if as[i], err = ms[i].Attempt(ctx); err == nil {
			err = ms[i].StartAttempt(ctx, as[i])
		}
		return err
	}
	// The last to arrive writes the roll, for which it needs a session that is not small.
	startAll := func(attempt int, last func() error) error {
		var all errgroup.Group
		for i := range n - 1 {
			all.Go(func() error { return start(i) })
		}
		arrivals := znode.Arrivals(znode.StartRound(j.Root, ms[0].Generation, attempt))
		rig.Await(f.b, "all but the last", func() bool {
			stat, _, err := f.observer.Exists(ctx, arrivals)
			return err != nil || int(stat.NumChildren) == n-1
		})
		all.Go(func() error {
			if err := last(); err != nil {
				return err
			}
			return start(n - 1)
		})
		return all.Wait()
	}
	if err := startAll(1, func() error { return nil }); err != nil {
		f.b.Fatal(err)
	}
	r.barrier = f.all(n, func(i int) error {
		return ms[i].Barrier(ctx, worker.Barrier{Name: "b", Round: new(int), Live: true})
	})

	before := f.watches()
	told := make(chan int, n)
	var waits errgroup.Group
	for i := range n - 1 {
		waits.Go(func() error {
			err := ms[i].AwaitLoss(ctx, as[i])
			if lost, ok := errors.AsType[*worker.LostError](err); ok {
				told <- i
				err = ms[i].Decide(ctx, as[i], worker.Loss{Because: lost.Error(), Lost: lost.IDs})
				return err
			}
			if !errors.Is(err, worker.ErrMoved) {
				return fmt.Errorf("worker %d is told %w", i, err)
			}
			return nil
		})
	}
	f.armed(before + n - 1) // the watches of the attempt were set when it was read
	r.watches = 1 + float64(f.watches()-before)/float64(n-1)
	r.loss = f.timed(func() error {
		proxy.Refuse(true)
		proxy.Cut()
		return waits.Wait()
	})
	r.told = float64(len(told))
	packets := f.packets()
	r.restart = f.timed(func() error {
		return startAll(2, func() error {
			f.sessions[n-1] = ordinary
			return join(n - 1)
		})
	})
	r.requests = float64(f.packets()-packets) / float64(n)
	f.b.Logf("%d workers: live barrier %v, session timeout %v, loss %v, restart %v, %.2f watches, %v told, "+
		"%.2f requests each", n, r.barrier, lostTimeout, r.loss, r.restart, r.watches, r.told, r.requests)
	if slices.ContainsFunc(as, func(a *worker.Attempt) bool { return a.Number != 2 || a.Used != 1 }) {
		f.b.Error("not all are in attempt 2, which has used a restart")
	}
	for _, m := range ms {
		if err := m.Leave(ctx, worker.End{}); err != nil {
			f.b.Fatal(err)
		}
	}
	return r
}

// packets is how many requests the server has got so far.
func (f *fleet) packets() int {
	f.b.Helper()
	facts, err := f.server.Mntr(f.b.Context())
	if err != nil {
		f.b.Fatal(err)
	}
	n, err := strconv.Atoi(facts["zk_packets_received"])
	if err != nil {
		f.b.Fatal(err)
	}
	return n
}
