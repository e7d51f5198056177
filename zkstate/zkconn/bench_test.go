package zkconn_test

import (
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"muster/zkstate/zkconn"
)

// BenchmarkPipelinedGet reads through a Session and through the library alone, in turn, with the same number of calls
// in flight. The ratio of the times is the cost of the session. What ends in -cpu compares the processor time of this
// process, which depends less on what else the machine does.
func BenchmarkPipelinedGet(b *testing.B) {
	dir := root(b)
	s := dial(b, zkconn.Config{})
	raw, _, err := zk.Connect(shared.Addrs(), 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		b.Fatal(err)
	}
	defer raw.Close()
	const calls, inFlight = 5000, 128
	timed := func(get func() error, wall, cpu *time.Duration) {
		begin, used := time.Now(), processorTime(b)
		var all sync.WaitGroup
		for range inFlight {
			all.Go(func() {
				for range calls / inFlight {
					if err := get(); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		*wall += time.Since(begin)
		*cpu += processorTime(b) - used
	}
	var ours, theirs, oursCPU, theirsCPU time.Duration
	for b.Loop() {
		timed(func() error { _, _, err := s.Get(b.Context(), dir); return err }, &ours, &oursCPU)
		timed(func() error { _, _, err := raw.Get(dir); return err }, &theirs, &theirsCPU)
	}
	total := float64(b.N) * calls
	b.ReportMetric(total/ours.Seconds(), "gets/s")
	b.ReportMetric(total/theirs.Seconds(), "raw-gets/s")
	b.ReportMetric(float64(ours)/float64(theirs), "times-raw")
	b.ReportMetric(float64(oursCPU)/float64(theirsCPU), "times-raw-cpu")
	b.ReportMetric(float64(oursCPU.Nanoseconds())/total, "cpu-ns/get")
}

// processorTime is what this process has used.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
