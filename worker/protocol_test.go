package worker_test

import (
	"flag"
	"regexp"
	"testing"
	"time"

	"muster/plan"
	"muster/resource/job"
	"muster/sim/rig"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

var update = flag.Bool("update", false, "rewrite the dump in docs/protocol/jobs.md")

// The dump of a real job in docs/protocol/jobs.md is between these lines.
const (
	protocolPage = "../docs/protocol/jobs.md"
	dumpBegins   = "<!-- go test ./worker -run Dump -update writes what follows -->\n"
	dumpEnds     = "<!-- end of the dump -->\n"
)

// TestDumpInTheProtocol compares the dump in docs/protocol/jobs.md with what two workers leave in a real server, from
// apply until they have completed.
func TestDumpInTheProtocol(t *testing.T) {
	t.Parallel()
	d := newDump(t)
	j := d.apply()
	d.Moment("After `apply`")
	first, second := d.joinBoth(j)
	d.Moment("Both workers have joined, and the roll is written")
	d.values(first)
	d.Moment("Worker 0 has published a value under the key `peer`, and advertised another address")
	d.barriers(first, second)
	d.Moment("Round 0 of the barrier `loaded` was released. At round 1 worker 1 did not arrive in time")
	d.attempts(first, second)
	d.Moment("At the barrier `trained`, which has attempts, the first one was aborted and the second released")
	complete(t, first)
	if err := second.Leave(t.Context(), worker.End{Signal: "TERM"}); err != nil {
		t.Fatal(err)
	}
	d.Moment("Worker 0 has completed, and worker 1 was stopped")
	complete(t, d.join(j, "w-1", "10.0.0.3"))
	d.Moment("Worker 1 came back from another address and completed as the last one: the job is reset")

	d.Page(t, protocolPage, dumpBegins, dumpEnds, *update)
}

// dump is a dump of a job.
type dump struct {
	*rig.Dump
	t       *testing.T
	session *zkconn.Session
}

func newDump(t *testing.T) *dump {
	t.Helper()
	s := dial(t)
	completion := rig.Mask{
		What: regexp.MustCompile(`"completed":"[^"]*"`), With: `"completed":"2026-11-20T23:10:00Z"`,
	}
	return &dump{rig.NewDump(t, s, []rig.Mask{completion}, "/.muster", "/jobs"), t, s}
}

// apply creates the job as stack etl.
func (d *dump) apply() job.Job {
	d.t.Helper()
	j := declare(2, func(j *job.Job) { j.Root, j.Name, j.Address = "/jobs", "pair", "job.pair" })
	store, err := zkstate.NewStore(d.session, zkstate.Config{
		Stack: "etl", By: "ann@deploy-1", At: time.Date(2026, 11, 20, 21, 0, 0, 0, time.UTC),
		Kinds: []zkstate.Kind{zkstate.Job()},
	})
	if err == nil {
		err = store.Commit(d.t.Context(), plan.Row{Path: j.Path(), New: j, Reason: plan.NotThere})
	}
	if err != nil {
		d.t.Fatal(err)
	}
	return j
}

func (d *dump) join(j job.Job, identity, ip string) *worker.Member {
	d.t.Helper()
	m, err := worker.Join(d.t.Context(), dial(d.t), worker.Config{
		Root: j.Root, Job: j.Name, Identity: identity, Info: znode.Worker{IP: ip, Port: 9000}, Run: "2026-11-20",
	})
	if err != nil {
		d.t.Fatal(err)
	}
	return m
}

// joinBoth returns when everything is written that follows a join.
func (d *dump) joinBoth(j job.Job) (first, second *worker.Member) {
	d.t.Helper()
	first, second = d.join(j, "w-0", "10.0.0.1"), d.join(j, "w-1", "10.0.0.2")
	for _, path := range []string{
		j.Path(), znode.Live(j.Root, j.Name, "w-0"), znode.Live(j.Root, j.Name, "w-1"),
	} {
		rig.Await(d.t, path+" is written", func() bool {
			stat, _, err := d.session.Exists(d.t.Context(), path)
			return err == nil && stat.Version == 1
		})
	}
	return first, second
}

// barriers takes both through one round, and lets the next one be aborted.
func (d *dump) barriers(first, second *worker.Member) {
	d.t.Helper()
	ctx, b := d.t.Context(), worker.Barrier{Name: "loaded"}
	passed := make(chan error, 1)
	go func() { passed <- first.Barrier(ctx, b) }()
	next := znode.Attempt(first.Job.Root, first.Generation, b.Name, 1, 1)
	rig.Await(d.t, "worker 0 has arrived and made the next round", func() bool {
		_, made, err := d.session.Exists(ctx, next)
		return err == nil && made
	})
	if err := second.Barrier(ctx, b); err != nil {
		d.t.Fatal(err)
	}
	if err := <-passed; err != nil {
		d.t.Fatal(err)
	}
	b.Timeout = 50 * time.Millisecond
	if err := first.Barrier(ctx, b); err == nil {
		d.t.Fatal("worker 0 passed alone")
	}
}

// values publishes a value and another address.
func (d *dump) values(m *worker.Member) {
	d.t.Helper()
	err := m.Publish(d.t.Context(), "peer", []byte("10.0.0.1:7000"))
	if err == nil {
		err = m.Advertise(d.t.Context(), "pair-0.example", 9100)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// attempts lets one attempt at a round be aborted, and takes both through the next.
func (d *dump) attempts(first, second *worker.Member) {
	d.t.Helper()
	ctx, b := d.t.Context(), worker.Barrier{Name: "trained", Retry: true, Timeout: 50 * time.Millisecond}
	if err := first.Barrier(ctx, b); err == nil {
		d.t.Fatal("worker 0 passed alone")
	}
	b.Timeout = patience
	passed := make(chan error, 1)
	go func() { passed <- first.Barrier(ctx, b) }()
	arrival := znode.Arrival(znode.Attempt(first.Job.Root, first.Generation, b.Name, 0, 2), 0)
	rig.Await(d.t, "worker 0 has arrived at the second attempt", func() bool {
		_, arrived, err := d.session.Exists(ctx, arrival)
		return err == nil && arrived
	})
	if err := second.Barrier(ctx, b); err != nil {
		d.t.Fatal(err)
	}
	if err := <-passed; err != nil {
		d.t.Fatal(err)
	}
}
