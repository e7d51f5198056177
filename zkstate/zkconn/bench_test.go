package zkconn_test

import (
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"muster/zkstate/zkconn"
)

// BenchmarkPipelinedGet reads through a Session and through the library alone, in turn, with the same number of calls
// in flight. The ratio of the times is the cost of the session.
func BenchmarkPipelinedGet(b *testing.B) {
	dir := root(b)
	s := dial(b, zkconn.Config{})
	raw, _, err := zk.Connect(shared.Addrs(), 10*time.Second, zk.WithLogInfo(false))
	if err != nil {
		b.Fatal(err)
	}
	defer raw.Close()
	const calls, inFlight = 5000, 128
	timed := func(get func() error) time.Duration {
		begin := time.Now()
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
		return time.Since(begin)
	}
	var ours, theirs time.Duration
	for b.Loop() {
		ours += timed(func() error { _, _, err := s.Get(b.Context(), dir); return err })
		theirs += timed(func() error { _, _, err := raw.Get(dir); return err })
	}
	total := float64(b.N) * calls
	b.ReportMetric(total/ours.Seconds(), "gets/s")
	b.ReportMetric(total/theirs.Seconds(), "raw-gets/s")
	b.ReportMetric(float64(ours)/float64(theirs), "times-raw")
}
