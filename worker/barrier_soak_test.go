package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/dev/fault"
	"muster/dev/zkserver"
	"muster/resource/job"
	"muster/sim/rig"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// TestBarrierSoak passes rounds with random timeouts while connections break, replies get lost and processes die: no
// round is released early, all learn the same outcome, nobody hangs, and an aborted round names exactly who is
// missing. With retry each round is released in the end, and all learn the same outcome of each attempt. With
// MUSTER_SOAK=1 there are 1,000 rounds of each mode on three servers, whose leader is killed on the way.
func TestBarrierSoak(t *testing.T) {
	t.Parallel()
	rounds, limit := 30, 5*time.Minute
	ensemble := servers
	if rig.Long() {
		rounds, limit = 1000, 30*time.Minute
		var err error
		if ensemble, err = zkserver.Start(t.Context(), zkserver.Options{Servers: 3}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ensemble.Stop() })
	}
	for i := range 4 {
		live, retry := i%2 == 1, i >= 2
		t.Run(string(znode.NewBarrierMode(live, retry)), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			newSoakRun(t, ctx, ensemble, live, retry, rounds).run(ctx)
		})
	}
}

const soakWorkers = 5

// soakRun is a job whose workers pass rounds.
type soakRun struct {
	t        *testing.T
	ensemble *zkserver.Ensemble
	job      job.Job
	live     bool
	retry    bool
	observer *zkconn.Session
	workers  []*soakWorker

	mu       sync.Mutex
	begun    [][]bool                     // round, id: has called
	outcomes map[at2]*worker.AbortedError // Name is "" for a release
	faults   map[string]int
}

// at2 is an attempt at a round; attempt 0 is of a release that was learnt when the round was gone.
type at2 struct{ round, attempt int }

// soakWorker is one worker, in whatever life.
type soakWorker struct {
	*soakRun
	id      int
	proxies []*fault.Proxy // one per server

	mu     sync.Mutex
	s      *zkconn.Session
	member *worker.Member
}

func newSoakRun(
	t *testing.T, ctx context.Context, ensemble *zkserver.Ensemble, live, retry bool, rounds int,
) *soakRun {
	t.Helper()
	observer := dial(t, ensemble.Addrs()...)
	d := &soakRun{t: t, ensemble: ensemble, live: live, retry: retry, observer: observer, faults: map[string]int{}}
	d.job = job.Default()
	d.job.Root, d.job.Name, d.job.Workers = "/soak-"+zkstate.NewID(), "j", soakWorkers
	create(t, storeIn(t, observer, d.job), d.job)
	d.outcomes = map[at2]*worker.AbortedError{}
	for range rounds {
		d.begun = append(d.begun, make([]bool, soakWorkers))
	}
	for i := range soakWorkers {
		one := &soakWorker{soakRun: d}
		for _, addr := range ensemble.Addrs() {
			one.proxies = append(one.proxies, rig.Proxy(t, addr))
		}
		if _, err := one.revive(ctx, i); err != nil {
			t.Fatal(err)
		}
		one.id = one.member.ID
		d.workers = append(d.workers, one)
	}
	return d
}

func (d *soakRun) run(ctx context.Context) {
	harm, peace := context.WithCancel(ctx)
	var faults, all sync.WaitGroup
	faults.Go(func() { d.disturb(harm) })
	for i, one := range d.workers {
		all.Go(func() {
			for round := range d.begun {
				if err := one.pass(ctx, i, round); err != nil {
					d.t.Errorf("worker %d, round %d: %v", one.id, round, err)
					return
				}
			}
		})
	}
	all.Wait()
	peace()
	faults.Wait()
	released, ofRound := 0, map[int]int{}
	for at, o := range d.outcomes {
		if o.Name == "" {
			released++
		}
		if before := ofRound[at.round]; o.Name == "" && at.attempt > 0 {
			if ofRound[at.round] = at.attempt; before > 0 {
				d.t.Errorf("attempts %d and %d at round %d were released", before, at.attempt, at.round)
			}
		}
	}
	d.t.Logf("%d rounds, %d outcomes, %d of them released; faults %v", len(d.begun), len(d.outcomes), released, d.faults)
	if released == 0 || released == len(d.outcomes) || d.retry && released < len(d.begun) {
		d.t.Errorf("%d of %d outcomes are releases: the timeouts are badly chosen", released, len(d.outcomes))
	}
}

// pass calls for a round until its outcome is known, through as many lives as it takes.
func (o *soakWorker) pass(ctx context.Context, i, round int) error {
	o.soakRun.mu.Lock()
	o.begun[round][o.id] = true
	o.soakRun.mu.Unlock()
	attempt := 0
	for {
		b := worker.Barrier{
			Name: "b", Round: &round, Live: o.live, Retry: o.retry, Attempt: &attempt, Timeout: 20 * time.Second,
		}
		if rand.IntN(6) == 0 {
			b.Timeout = time.Duration(1+rand.IntN(80)) * time.Millisecond
		}
		err := o.member.Barrier(ctx, b)
		var abort *worker.AbortedError
		switch {
		case err == nil:
			return o.compare(ctx, at2{round, attempt}, worker.AbortedError{})
		case errors.As(err, &abort):
			if err := o.compare(ctx, at2{round, abort.Attempt}, *abort); err != nil || !o.retry {
				return err
			}
			attempt = 0
			continue
		case ctx.Err() != nil, errors.Is(err, worker.ErrFenced):
			return err
		case o.member.Context().Err() == nil:
			return fmt.Errorf("while a member: %w", err)
		}
		died, err := o.revive(ctx, i)
		if err != nil {
			return err
		}
		if died { // another process does not know of that call
			attempt = 0
		}
	}
}

// compare checks an outcome against what the others learned, and against what is there.
func (o *soakWorker) compare(ctx context.Context, at at2, got worker.AbortedError) error {
	o.soakRun.mu.Lock()
	first := o.outcomes[at]
	if first == nil {
		o.outcomes[at] = &got
	}
	begun := slices.Clone(o.begun[at.round])
	o.soakRun.mu.Unlock()
	if first != nil {
		if d := cmp.Diff(*first, got); d != "" {
			return fmt.Errorf("two outcomes of %v (-first +this):\n%s", at, d)
		}
		return nil
	}
	if got.Name == "" {
		if slices.Contains(begun, false) {
			return fmt.Errorf("released early: %v", begun)
		}
		return nil
	}
	if o.live || o.retry { // a worker that had arrived then may be dead by now; the next attempt clears this one
		return nil
	}
	missing, err := o.missing(ctx, at.round)
	if d := cmp.Diff(missing, got.Missing); err == nil && d != "" {
		err = fmt.Errorf("missing (-want +got):\n%s", d)
	}
	return err
}

// missing lists the ids that had not arrived when the round was aborted.
func (o *soakWorker) missing(ctx context.Context, round int) ([]int, error) {
	dir := roundDir(o.member, "b", round)
	if err := o.observer.Sync(ctx, dir); err != nil {
		return nil, err
	}
	st, _, err := o.observer.Exists(ctx, znode.RoundState(dir))
	if err != nil {
		return nil, err
	}
	var ids []int
	for id := range soakWorkers {
		a, there, err := o.observer.Exists(ctx, znode.Arrival(dir, id))
		if err != nil {
			return nil, err
		}
		if !there || a.Czxid > st.Mzxid { // what acknowledge wrote
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// revive begins a new life: of the same process, or of another one, since that one died.
func (o *soakWorker) revive(ctx context.Context, i int) (died bool, err error) {
	var addrs []string
	for _, p := range o.proxies {
		addrs = append(addrs, p.Addr())
	}
	for died = o.member == nil; ; {
		s, err := zkconn.Dial(ctx, zkconn.Config{Servers: addrs, Timeout: time.Second})
		if err != nil {
			return died, err
		}
		var m *worker.Member
		if !died && rand.IntN(2) == 0 {
			m, err = o.member.Rejoin(ctx, s)
		} else {
			died = true // this join may have taken the identity over, even if its session is lost
			m, err = worker.Join(ctx, s, config(o.job, fmt.Sprint("w-", i)))
		}
		if err == nil {
			o.mu.Lock()
			o.s, o.member = s, m
			o.mu.Unlock()
			return died, nil
		}
		lost := s.Context().Err() != nil
		s.Close()
		if !lost {
			return died, err
		}
	}
}

// die ends a life, and the servers are not told.
func (o *soakWorker) die() {
	for _, p := range o.proxies {
		p.Refuse(true)
		p.Cut()
	}
	o.mu.Lock()
	o.s.Close()
	o.mu.Unlock()
	for _, p := range o.proxies {
		p.Refuse(false)
	}
}

// disturb breaks things until ctx ends.
func (d *soakRun) disturb(ctx context.Context) {
	requests := []int32{fault.OpMulti, fault.OpExists, fault.OpGetData, fault.OpGetChildren2}
	arms := map[string]func(*fault.Proxy, func(int32, []byte) bool) <-chan struct{}{
		"before":     (*fault.Proxy).BeforeSend,
		"reply lost": (*fault.Proxy).DropReply,
		"after":      (*fault.Proxy).AfterReply,
	}
	kinds := []string{"before", "reply lost", "after", "cut", "death"}
	leaderDies := time.NewTimer(20 * time.Second)
	defer leaderDies.Stop()
	for ctx.Err() == nil {
		o := d.workers[rand.IntN(len(d.workers))]
		p := o.proxies[rand.IntN(len(o.proxies))]
		kind := kinds[rand.IntN(len(kinds))]
		if kind == "death" && rand.IntN(5) > 0 {
			kind = "cut"
		}
		d.faults[kind]++
		switch kind {
		case "cut":
			p.Cut()
		case "death":
			o.die()
		default:
			arm, n, of := arms[kind], 1+rand.Int32N(3), requests[rand.IntN(len(requests))]
			var seen atomic.Int32
			arm(p, func(op int32, _ []byte) bool { return op == of && seen.Add(1) == n })
		}
		select {
		case <-ctx.Done():
		case <-leaderDies.C:
			d.killLeader(ctx)
		case <-time.After(time.Duration(rand.IntN(120)) * time.Millisecond):
		}
	}
}

func (d *soakRun) killLeader(ctx context.Context) {
	if d.ensemble == servers || d.live { // once is enough
		return
	}
	leader, err := d.ensemble.Leader(ctx)
	if err == nil {
		d.faults["leader"]++
		s := d.ensemble.Server(leader)
		if err = s.Kill(); err == nil {
			err = s.Restart(ctx)
		}
	}
	if err != nil && ctx.Err() == nil {
		d.t.Error(err)
	}
}
