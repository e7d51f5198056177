package worker_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"muster/dev/zkserver"
	"muster/resource/job"
	"muster/worker"
	"muster/zkstate/znode"
)

func rollFormat(f job.RollFormat) func(*job.Job) { return func(j *job.Job) { j.RollFormat = f } }

// roll reads the body of the job znode.
func roll(t *testing.T, j job.Job) (job.RollFormat, []znode.Worker, int32) {
	t.Helper()
	body, stat, err := dial(t).Get(t.Context(), j.Path())
	if err != nil {
		t.Fatal(err)
	}
	format, ws, problems := znode.DecodeRoll(body)
	if problems != nil {
		t.Errorf("the roll: %v", problems)
	}
	return format, ws, stat.Version
}

// TestLastToJoinWritesTheRollBeforeItLeaves, though it leaves at once.
func TestLastToJoinWritesTheRollBeforeItLeaves(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 2, onComplete(job.Retain))
	join(t, j, "w0")
	if err := join(t, j, "w1").Complete(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if o := look(t, store, j); o.Version != 1 {
		t.Errorf("the job znode has version %d, want 1: the roll", o.Version)
	}
}

func TestRollIsWrittenOnceAllHaveJoined(t *testing.T) {
	t.Parallel()
	for _, format := range []job.RollFormat{job.Protobuf, job.Text} {
		t.Run(string(format), func(t *testing.T) {
			j, _ := newJob(t, 3, rollFormat(format))
			var ms []*worker.Member
			var want []znode.Worker
			for i := range 3 {
				c := config(j, fmt.Sprint("w-", i))
				c.Info.Port += i
				if i < 2 {
					c.Info.Node = znode.Node{IP: "10.0.0.1", Rack: "r1", Datacenter: "d1"}
				}
				m, err := worker.Join(t.Context(), dial(t), c)
				if err != nil {
					t.Fatal(err)
				}
				if i < 2 {
					if err := m.WriteRoll(t.Context()); err != nil {
						t.Error(err)
					}
					if _, ws, version := roll(t, j); len(ws) > 0 || version > 0 {
						t.Errorf("with %d of 3: the roll is %v, version %d", i+1, ws, version)
					}
				}
				c.Info.ID = i
				ms, want = append(ms, m), append(want, c.Info)
			}
			var all errgroup.Group // as if several found it empty
			for _, m := range ms {
				all.Go(func() error { return m.WriteRoll(t.Context()) })
			}
			if err := all.Wait(); err != nil {
				t.Error(err)
			}
			got, ws, version := roll(t, j)
			if d := cmp.Diff(want, ws); d != "" {
				t.Errorf("roll (-want +got):\n%s", d)
			}
			if got != format || version != 1 {
				t.Errorf("format %s, version %d; want %s, 1", got, version, format)
			}
		})
	}
}

// TestRollWithEveryOperationCut: it is written once, whatever happens to the connection of the last worker to join.
func TestRollWithEveryOperationCut(t *testing.T) {
	t.Parallel()
	for kind, fault := range arms {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for n, cut := int32(1), true; cut; n++ {
				j, _ := newJob(t, 2)
				join(t, j, "w-0")
				proxy := newProxy(t)
				s := dial(t, proxy.Addr())
				_, disarm := cutNth(proxy, fault, n, zkserver.OpMulti, zkserver.OpExists, zkserver.OpGetData)
				c := config(j, "w-1")
				c.Info.Port++
				m, err := worker.Join(t.Context(), s, c)
				if err == nil {
					err = m.WriteRoll(t.Context())
				}
				if err != nil {
					t.Errorf("request %d cut: %v", n, err)
				}
				cut = disarm()
				if _, ws, version := roll(t, j); len(ws) != 2 || version != 1 {
					t.Errorf("request %d cut: roll %v, version %d", n, ws, version)
				}
			}
		})
	}
}

// TestRollThatDoesNotFit is not written: the Record says so, and peers are found by id.
func TestRollThatDoesNotFit(t *testing.T) {
	t.Parallel()
	const n = 60
	j, store := newJob(t, n)
	large := map[string]int{}
	for i := range 60 {
		large[strings.Repeat("x", 250)+fmt.Sprint(i)] = 1
	}
	s := dial(t)
	var last *worker.Member
	for i := range n {
		c := config(j, fmt.Sprint("w-", i))
		c.Info.Ports = large
		m, err := worker.Join(t.Context(), s, c)
		if err != nil {
			t.Fatal(err)
		}
		last = m
	}
	for range 2 {
		if err := last.WriteRoll(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, ws, version := roll(t, j); len(ws) > 0 || version > 0 {
		t.Errorf("%d workers are in the roll, version %d", len(ws), version)
	}
	o := look(t, store, j)
	if job.NoRoll(o.Record) != last.Generation || o.RecordVersion != 1 || o.Record.Edited() {
		t.Errorf("the record says %q, version %d", job.NoRoll(o.Record), o.RecordVersion)
	}
	if w, err := last.Lookup(t.Context(), 7); err != nil || len(w.Ports) != 60 {
		t.Errorf("worker 7 is %v, %v", w, err)
	}
}
