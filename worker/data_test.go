package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"muster/dev/fault"
	"muster/resource/job"
	"muster/worker"
	"muster/zkstate/znode"
)

func publish(t *testing.T, m *worker.Member, key, value string) {
	t.Helper()
	if err := m.Publish(t.Context(), key, []byte(value)); err != nil {
		t.Fatal(err)
	}
}

// values are those that m sees, without waiting for others than these.
func values(t *testing.T, m *worker.Member, key string, ids ...int) []worker.Published {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	all, err := m.Values(ctx, key, ids)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestWhatIsPublishedIsSeenByAll(t *testing.T) {
	t.Parallel()
	_, ms := team(t, 3)
	publish(t, ms[2], "port", "7002")
	publish(t, ms[0], "port", "old")
	publish(t, ms[0], "port", "7000")
	publish(t, ms[1], "port", "")
	publish(t, ms[1], "other", "\x00\n\xff")
	for _, m := range ms {
		want := []worker.Published{{ID: 0, Life: 1, Value: []byte("7000")}, {ID: 1, Life: 1, Value: []byte{}},
			{ID: 2, Life: 1, Value: []byte("7002")}}
		if d := cmp.Diff(want, values(t, m, "port")); d != "" {
			t.Errorf("all ports (-want +got):\n%s", d)
		}
		if got := values(t, m, "other", 1); string(got[0].Value) != "\x00\n\xff" {
			t.Errorf("other: %+v", got)
		}
	}
}

// TestAValueIsWaitedForWithAWatch: nothing is asked again and again.
func TestAValueIsWaitedForWithAWatch(t *testing.T) {
	t.Parallel()
	j, _ := newJob(t, 2)
	first, proxy := join(t, j, "w0"), newProxy(t)
	m := joinIn(t, dial(t, proxy.Addr()), config(j, "w1"))
	var reads atomic.Int64
	armed := make(chan struct{})
	watching := sync.OnceFunc(func() { close(armed) })
	tap(proxy, func(op int32, req []byte) {
		if op == fault.OpExists && mentions(req, znode.Data(j.Root, m.Generation, 0, "port")) {
			watching()
		}
		if op != fault.OpMulti && mentions(req, "/port") {
			reads.Add(1)
		}
	})
	got := make(chan []worker.Published, 1)
	go func() { got <- values(t, m, "port", 0) }()
	<-armed
	quiet, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	<-quiet.Done() // polling would show in the count
	publish(t, first, "port", "7000")
	if all := <-got; len(all) != 1 || string(all[0].Value) != "7000" {
		t.Errorf("got %+v", all)
	}
	if n := reads.Load(); n > 5 { // get; exists, get; after the event exists, get
		t.Errorf("%d reads for one value", n)
	}
}

func TestValuesThatAreNotPublishedInTime(t *testing.T) {
	t.Parallel()
	_, ms := team(t, 3)
	publish(t, ms[1], "port", "7001")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := ms[0].Values(ctx, "port", nil)
	var missing *worker.UnpublishedError
	if !errors.As(err, &missing) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if d := cmp.Diff([]int{0, 2}, missing.Missing); d != "" || missing.Key != "port" {
		t.Errorf("missing (-want +got):\n%s%v", d, err)
	}
	if _, err := ms[0].Values(t.Context(), "port", []int{3}); !errors.Is(err, worker.ErrNoWorker) {
		t.Errorf("worker 3 of 3: %v", err)
	}
	if _, err := ms[0].Values(t.Context(), "a/b", nil); err == nil {
		t.Error("a key with a slash")
	}
}

// TestLimitsOfValues: of one value, of what a worker may use by itself, and of what all share.
func TestLimitsOfValues(t *testing.T) {
	t.Parallel()
	j, _ := newJob(t, 2000)
	s, m := dial(t), join(t, j, "w0")
	full := bytes.Repeat([]byte("x"), znode.MaxValue)
	if err := m.Publish(t.Context(), "k", append(full, 'x')); !errors.Is(err, worker.ErrDataFull) {
		t.Errorf("64 KiB and a byte: %v", err)
	}
	by := znode.By(j.Root, m.Generation)
	own := worker.MaxData / 2 / 2000
	publish(t, m, "small", string(full[:own/2]))
	if n := shared(t, j, m); n != 0 {
		t.Errorf("%d bytes are taken for what is its own", n)
	}
	publish(t, m, "k", string(full))
	taken := shared(t, j, m)
	if beyond := own/2 + len(full) - own; taken < beyond || taken > beyond+1000 {
		t.Errorf("%d shared bytes are taken, want %d and a little", taken, beyond)
	}
	const left = 1000
	if _, err := s.Set(t.Context(), by, znode.EncodeShared(worker.MaxData/2-left), -1); err != nil {
		t.Fatal(err)
	}
	if err := m.Publish(t.Context(), "k2", full[:2*left]); !errors.Is(err, worker.ErrDataFull) {
		t.Errorf("more than all may hold: %v", err)
	}
	publish(t, m, "k", "short") // gives room back
	if n := shared(t, j, m); n != worker.MaxData/2-left-taken {
		t.Errorf("%d shared bytes are taken after giving back %d", n, taken)
	}
	publish(t, m, "k2", string(full[:2*left]))
}

// shared is how many bytes are taken of the room that the workers share.
func shared(t *testing.T, j job.Job, m *worker.Member) int {
	t.Helper()
	body, _, err := dial(t).Get(t.Context(), znode.By(j.Root, m.Generation))
	if err != nil {
		t.Fatal(err)
	}
	n, err := znode.DecodeShared(body)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestValuesOutliveTheWorker, and say which life wrote them. They go with the generation.
func TestValuesOutliveTheWorker(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 2, onComplete(job.Reset))
	w1 := join(t, j, "w1")
	m := lose(t, config(j, "w0"))
	again, err := m.Rejoin(t.Context(), dial(t))
	if err != nil {
		t.Fatal(err)
	}
	publish(t, again, "port", "1")
	if err := again.Leave(t.Context(), worker.End{}); err != nil {
		t.Fatal(err)
	}
	if got := values(t, w1, "port", again.ID); string(got[0].Value) != "1" || got[0].Life != 1 {
		t.Errorf("after it left: %+v", got)
	}
	next := join(t, j, "w0")
	publish(t, next, "port", "2")
	if got := values(t, w1, "port", next.ID); string(got[0].Value) != "2" || got[0].Life != 2 {
		t.Errorf("of the next life: %+v", got)
	}
	complete(t, next)
	complete(t, w1)
	if _, err := store.Collect(t.Context(), []string{j.Root}); err != nil {
		t.Fatal(err)
	}
	if _, there, err := dial(t).Exists(t.Context(), znode.Run(j.Root, next.Generation)); there || err != nil {
		t.Errorf("the generation is left: %v", err)
	}
}

func TestAProcessThatWasReplacedPublishesNothing(t *testing.T) {
	t.Parallel()
	j, _ := newJob(t, 1)
	m := join(t, j, "w0")
	publish(t, m, "port", "1")
	claim, err := znode.Encode(znode.Claim{Nonce: "another", Lives: 2, State: znode.In})
	if err == nil {
		_, err = dial(t).Set(t.Context(), znode.ByIdentity(j.Root, m.Generation, "w0"), claim, -1)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"publish":   m.Publish(t.Context(), "port", []byte("2")),
		"advertise": m.Advertise(t.Context(), "host", 1),
	} {
		if !errors.Is(err, worker.ErrFenced) {
			t.Errorf("%s: %v", name, err)
		}
	}
	body, _, err := dial(t).Get(t.Context(), znode.Data(j.Root, m.Generation, 0, "port"))
	if v, bad := znode.DecodeValue(body); err != nil || bad != nil || string(v.Data) != "1" {
		t.Errorf("port is %q, %v", body, err)
	}
}

// TestManyTakeSharedRoomAtOnce: each gets what it needs, and the count is right.
func TestManyTakeSharedRoomAtOnce(t *testing.T) {
	t.Parallel()
	j, _ := newJob(t, 2000)
	var ms []*worker.Member
	for i := range 8 {
		m := join(t, j, fmt.Sprint("w", i))
		publish(t, m, "large", string(make([]byte, worker.MaxData/2/2000))) // it has nothing left of its own
		ms = append(ms, m)
	}
	before := shared(t, j, ms[0])
	var calls []<-chan error
	for _, m := range ms {
		calls = append(calls, call(func() error { return m.Publish(t.Context(), "k", make([]byte, 1000)) }))
	}
	for _, done := range calls {
		if err := result(t, done); err != nil {
			t.Error(err)
		}
	}
	if n := shared(t, j, ms[0]) - before; n < 8*1000 || n%8 != 0 {
		t.Errorf("%d bytes more are taken", n)
	}
}

func rollFormat(f job.RollFormat) func(*job.Job) { return func(j *job.Job) { j.RollFormat = f } }

// roll reads the body of the job znode.
func roll(t *testing.T, j job.Job) (job.RollFormat, []znode.Worker, int32) {
	t.Helper()
	body, stat, err := dial(t).Get(t.Context(), j.Path())
	if err != nil {
		t.Fatal(err)
	}
	ws, problems := znode.DecodeRoll(body)
	if problems != nil {
		t.Errorf("the roll: %v", problems)
	}
	format := job.Text
	if bytes.HasPrefix(body, []byte{0}) {
		format = job.Protobuf
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
				m := joinIn(t, dial(t), c)
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

// joinLarge joins all workers of a job of 60, in one session, and returns the last one. Those before it describe
// themselves in 15 KB each, as only the programs of others do, so that the roll does not fit.
func joinLarge(t *testing.T, j job.Job) *worker.Member {
	t.Helper()
	large := map[string]int{}
	for i := range 60 {
		large[strings.Repeat("x", 250)+fmt.Sprint(i)] = 1
	}
	s := dial(t)
	for i := 0; ; i++ {
		m := joinIn(t, s, config(j, fmt.Sprint("w-", i)))
		if i == j.Workers-1 {
			return m
		}
		body, err := znode.EncodeWorker(znode.Worker{ID: m.ID, IP: "127.0.0.1", Port: 7000, Ports: large})
		if err == nil {
			_, err = s.Set(t.Context(), znode.ID(j.Root, m.Generation, m.ID), body, -1)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestRollThatDoesNotFit is not written: the Record says so, and peers are found by id.
func TestRollThatDoesNotFit(t *testing.T) {
	t.Parallel()
	j, store := newJob(t, 60)
	last := joinLarge(t, j)
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
