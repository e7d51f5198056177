package zkstate_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"muster/job"
	"muster/resource"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// BenchmarkTracker follows 10,000 jobs with a live worker each. It reports what the first Update takes beside a plain
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
		if _, err := w.tracker.Update(b.Context(), roots); err != nil {
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
	body, err := znode.EncodeClaim(znode.Claim{Nonce: "n", Lives: 1, State: znode.In})
	if err != nil {
		f.t.Fatal(err)
	}
	var ops []zkconn.Op
	for i, j := range jobs {
		create := func(path string, body []byte, mode zkconn.Mode) {
			ops = append(ops, zkconn.CreateOp(path, body, mode, anyone()))
		}
		g := state.Found[j.Path()].Record.Generation
		for _, folder := range zkstate.Job().Folders {
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

// change makes a worker of a job go, and returns how long it took until the tracker said so.
func (f *fixture) change(w *follower, j job.Job) time.Duration {
	f.t.Helper()
	if err := f.session.Delete(f.t.Context(), znode.Live(j.Root, j.Name, "w"), -1); err != nil {
		f.t.Fatal(err)
	}
	start := time.Now()
	for {
		changed := w.tracker.Changed()
		paths, err := w.tracker.Update(f.t.Context(), w.roots)
		if err != nil {
			f.t.Fatal(err)
		}
		if w.tracker.Resource(j.Path()).Live == 0 {
			if fmt.Sprint(paths) != fmt.Sprint([]string{j.Path()}) {
				f.t.Fatalf("read again: %q, want only %s", paths, j.Path())
			}
			return time.Since(start)
		}
		<-changed
	}
}
