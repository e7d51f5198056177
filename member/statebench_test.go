package member_test

import (
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// BenchmarkLargestValue saves and reads 16 MiB. It reports the times over those of the same chunks, without guards and
// manifest, written and read as many at once in the same run.
func BenchmarkLargestValue(b *testing.B) {
	f := newFixture(b, "coordinator")
	a := f.join("a", "1.0", "coordinator")
	h := f.take(a, "coordinator")
	v := value(1, znode.MaxStateValue)
	const chunks = (znode.MaxStateValue + znode.MaxChunk - 1) / znode.MaxChunk
	each := func(do func(i int) error) time.Duration {
		b.Helper()
		begun := time.Now()
		var tasks errgroup.Group
		tasks.SetLimit(4)
		for i := range chunks {
			tasks.Go(func() error { return do(i) })
		}
		if err := tasks.Wait(); err != nil {
			b.Fatal(err)
		}
		return time.Since(begun)
	}
	var put, read, rawPut, rawRead time.Duration
	for range b.N {
		dir := f.group.Root + "/raw-" + zkstate.NewID()
		acl := zkconn.World(zkconn.PermAll)
		if _, err := f.s.Create(b.Context(), dir, nil, zkconn.Persistent, acl); err != nil {
			b.Fatal(err)
		}
		at := func(i int) string { return fmt.Sprintf("%s/%d", dir, i) }
		rawPut += each(func(i int) error {
			chunk := v[i*znode.MaxChunk : min(len(v), (i+1)*znode.MaxChunk)]
			_, err := f.s.Create(b.Context(), at(i), chunk, zkconn.Persistent, acl)
			return err
		})
		rawRead += each(func(i int) error {
			_, _, err := f.s.Get(b.Context(), at(i))
			return err
		})
		begun := time.Now()
		if err := h.Put(b.Context(), "k", v); err != nil {
			b.Fatal(err)
		}
		put += time.Since(begun)
		begun = time.Now()
		if _, err := a.Get(b.Context(), "coordinator", "k"); err != nil {
			b.Fatal(err)
		}
		read += time.Since(begun)
		each(func(i int) error { return f.s.Delete(b.Context(), at(i), -1) })
	}
	b.ReportMetric(float64(put)/float64(rawPut), "put/raw")
	b.ReportMetric(float64(read)/float64(rawRead), "get/raw")
}
