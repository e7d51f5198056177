package zkstate_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"muster/resource"
	"muster/resource/job"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

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
		ws, err := zkstate.NewReader(s, f.root+"/home", allKinds()...).Workers(b.Context(), j.Path())
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
	for _, folder := range zkstate.Job().Folders {
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
