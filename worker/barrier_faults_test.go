package worker_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/dev/zkserver"
	"muster/resource/job"
	"muster/worker"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// A part is what one of three workers, the victim, does at a barrier; the other two do theirs. Every request that the
// victim sends meanwhile is cut in turn.
type part struct {
	live    bool
	retry   bool
	attempt int                                         // at which the round is released; 0 is the first
	prepare func(ctx context.Context, p *partRun) error // before the victim calls
	timeout time.Duration                               // of the victim's call
	finish  func(ctx context.Context, p *partRun) error // once it has called, or died
	round   int
	missing []int // nil: the round is released
	writes  bool  // only these are cut: there are many reads, as in the other parts
}

var parts = map[string]part{
	"arrives first": {finish: others},
	"arrives last":  {prepare: othersArrive},
	"aborts":        {prepare: oneArrives, timeout: time.Millisecond, missing: []int{2}},
	"clears":        {prepare: earlierRounds, round: 3, writes: true},
	"is live first": {live: true, finish: others},
	"is live last":  {live: true, prepare: othersArrive},
	"aborts live":   {live: true, prepare: oneArrives, timeout: time.Millisecond, missing: []int{2}},
	"tries again":   {retry: true, attempt: 2, prepare: abortedOnce, finish: others},
	"joins again":   {retry: true, attempt: 2, prepare: abortedThenArrive},
	"clears again":  {retry: true, attempt: 1, prepare: earlierRounds, round: 3, writes: true},
	"is live again": {live: true, retry: true, attempt: 2, prepare: abortedOnce, finish: others},
}

// partRun is one performance of a part, at a barrier of its own.
type partRun struct {
	part
	name     string
	rest     []*worker.Member
	observer *zkconn.Session
	calls    []<-chan error
}

func (p *partRun) call(ctx context.Context, m *worker.Member, timeout time.Duration) <-chan error {
	return call(func() error {
		return m.Barrier(ctx, worker.Barrier{
			Name: p.name, Round: &p.round, Live: p.live, Retry: p.retry, Timeout: timeout,
		})
	})
}

// arrive makes the workers wait at the round.
func (p *partRun) arrive(ctx context.Context, ms ...*worker.Member) error {
	for _, m := range ms {
		p.calls = append(p.calls, p.call(ctx, m, 0))
	}
	dir := attemptDir(ms[0], p.name, p.round, p.attempt)
	for {
		names, _, err := p.observer.Children(ctx, znode.Arrivals(dir))
		if err == nil && len(names) >= len(ms) || ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func others(_ context.Context, p *partRun) error {
	for _, m := range p.rest {
		p.calls = append(p.calls, p.call(context.Background(), m, 0))
	}
	return nil
}

func othersArrive(ctx context.Context, p *partRun) error { return p.arrive(ctx, p.rest...) }
func oneArrives(ctx context.Context, p *partRun) error   { return p.arrive(ctx, p.rest[0]) }

// abortedOnce aborts the first attempt.
func abortedOnce(ctx context.Context, p *partRun) error {
	var a *worker.AbortedError
	if err := <-p.call(ctx, p.rest[0], time.Millisecond); !errors.As(err, &a) || !a.Retry {
		return fmt.Errorf("the first attempt: %w", err)
	}
	return nil
}

func abortedThenArrive(ctx context.Context, p *partRun) error {
	if err := abortedOnce(ctx, p); err != nil {
		return err
	}
	return othersArrive(ctx, p)
}

// earlierRounds makes rounds that the victim's round will clear, though nobody has cleared them yet: they were
// released by a worker that died at once.
func earlierRounds(ctx context.Context, p *partRun) error {
	m := p.rest[0]
	world := zkconn.World(zkconn.PermAll)
	floor := znode.BarrierFloor(m.Job.Root, m.Generation, p.name)
	ops := []zkconn.Op{zkconn.CreateOp(floor, znode.EncodeFloor(0), zkconn.Persistent, world)}
	for round := range p.round {
		st := znode.Round{Workers: 3, Mode: znode.NewBarrierMode(false, p.retry)}
		if round == 1 && p.retry {
			ops = append(ops, earlierRound(attemptDir(m, p.name, 1, 2), st)...)
		}
		if round == 1 {
			st.Aborted, st.Missing = "a test", []int{0, 1}
		}
		ops = append(ops, earlierRound(roundDir(m, p.name, round), st)...)
	}
	if _, err := p.observer.Multi(ctx, ops...); err != nil {
		return err
	}
	return othersArrive(ctx, p)
}

// earlierRound makes a round or an attempt of three workers that have all arrived.
func earlierRound(dir string, st znode.Round) []zkconn.Op {
	world := zkconn.World(zkconn.PermAll)
	body, _ := znode.Encode(st)
	var ops []zkconn.Op
	for _, path := range []string{dir, znode.Arrivals(dir), znode.Count(dir)} {
		ops = append(ops, zkconn.CreateOp(path, nil, zkconn.Persistent, world))
	}
	ops = append(ops, zkconn.CreateOp(znode.RoundState(dir), body, zkconn.Persistent, world))
	if st.Aborted != "" {
		ops = append(ops, zkconn.SetOp(znode.RoundState(dir), body, 0))
	}
	for id := range 3 {
		ops = append(ops, zkconn.CreateOp(znode.Arrival(dir, id), nil, zkconn.Persistent, world),
			zkconn.CreateOp(znode.Counted(dir, id), nil, zkconn.Persistent, world))
	}
	return ops
}

// check compares every call's outcome, also that of a worker that comes late, and what the round has left.
func (p *partRun) check(ctx context.Context) error {
	for i := 0; i < len(p.calls); i++ {
		c := p.calls[i]
		select {
		case err := <-c:
			if err := p.expect(err); err != nil {
				return fmt.Errorf("call %d: %w", i, err)
			}
			if p.missing != nil && len(p.calls) == len(p.rest) { // it is aborted: now worker 2 comes, too late
				p.calls = append(p.calls, p.call(ctx, p.rest[1], 0))
			}
		case <-ctx.Done():
			return fmt.Errorf("call %d hangs", i)
		}
	}
	m := p.rest[0]
	count, _, err := p.observer.Exists(ctx, znode.Count(attemptDir(m, p.name, p.round, p.attempt)))
	if err == nil && !p.live && count.NumChildren != 3 { // two and the next one's number and T, or three
		err = fmt.Errorf("%d znodes count the arrivals", count.NumChildren)
	}
	return err
}

func (p *partRun) expect(err error) error {
	var a *worker.AbortedError
	switch {
	case p.missing == nil:
		return err
	case !errors.As(err, &a):
		return fmt.Errorf("%w instead of an abort", err)
	case !slices.Equal(a.Missing, p.missing):
		return fmt.Errorf("missing %v, want %v", a.Missing, p.missing)
	}
	return nil
}

// cutNth arms a fault for the nth request with one of these opcodes from now on. cut is closed when its connection is
// gone. disarm ends that, and reports whether there was such a request.
func cutNth(proxy *zkserver.Proxy, fault arm, n int32, ops ...int32) (cut <-chan struct{}, disarm func() bool) {
	var seen atomic.Int32
	var over atomic.Bool
	cut = fault(proxy, func(op int32, _ []byte) bool {
		return slices.Contains(ops, op) && !over.Load() && seen.Add(1) == n
	})
	return cut, func() bool {
		over.Store(true)
		return seen.Load() >= n
	}
}

type arm = func(*zkserver.Proxy, func(int32, []byte) bool) <-chan struct{}

var arms = map[string]arm{
	"before":     (*zkserver.Proxy).BeforeSend,
	"reply lost": (*zkserver.Proxy).DropReply,
	"after":      (*zkserver.Proxy).AfterReply,
}

// TestBarrierWithEveryOperationCut: the connection breaks at any request of the victim, which goes on in the same
// session.
func TestBarrierWithEveryOperationCut(t *testing.T) {
	t.Parallel()
	for n, title := range slices.Sorted(maps.Keys(parts)) {
		part := parts[title]
		for kind, fault := range oneOf(arms, n) {
			t.Run(title+"/"+kind, func(t *testing.T) {
				t.Parallel()
				proxy, ms := slowTeam(t, 3, 10*time.Second)
				observer := dial(t)
				for n := int32(1); ; n++ {
					p := &partRun{part: part, name: fmt.Sprint("b", n), rest: ms[1:], observer: observer}
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					cut, err := p.perform(ctx, proxy, ms[0], fault, n)
					cancel()
					if err != nil {
						t.Fatalf("request %d cut: %v", n, err)
					}
					if !cut {
						if n <= 2 {
							t.Errorf("only %d requests", n-1)
						}
						break
					}
				}
			})
		}
	}
}

// perform reports whether there was an nth request.
func (p *partRun) perform(
	ctx context.Context, proxy *zkserver.Proxy, victim *worker.Member, fault arm, n int32,
) (cut bool, err error) {
	if p.prepare != nil {
		if err := p.prepare(ctx, p); err != nil {
			return false, err
		}
	}
	ops := []int32{zkserver.OpMulti, zkserver.OpExists, zkserver.OpGetData, zkserver.OpGetChildren2, zkserver.OpSync}
	if p.writes {
		ops = ops[:1]
	}
	_, disarm := cutNth(proxy, fault, n, ops...)
	defer disarm()
	p.calls = append(p.calls, p.call(ctx, victim, p.timeout))
	if p.finish != nil {
		if err := p.finish(ctx, p); err != nil {
			return false, err
		}
	}
	if err := p.check(ctx); err != nil {
		return false, err
	}
	return disarm(), nil
}

// TestBarrierWithADeathAtEveryOperation: the victim's process dies after each of its transactions in turn, and its
// next life calls for the same round. For the server a death at the reads that follow, or before the next
// transaction, is the same.
func TestBarrierWithADeathAtEveryOperation(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 5*patience)
	defer cancel()
	var group errgroup.Group
	for title, part := range parts {
		j, _ := newJob(t, 3)
		observer, proxy := dial(t), newProxy(t)
		firstLife, _, err := live(ctx, j, 10*time.Second, servers.Addrs()...)
		if err != nil {
			t.Fatal(err)
		}
		rest := []*worker.Member{join(t, j, "w-1"), join(t, j, "w-2")}
		firstLife.Close()
		group.Go(func() error {
			for n := int32(1); ; n++ {
				p := &partRun{part: part, name: fmt.Sprint("b", n), rest: rest, observer: observer}
				died, err := p.die(ctx, j, proxy, n)
				if err != nil {
					return fmt.Errorf("%s, transaction %d: %w", title, n, err)
				}
				if !died {
					return nil
				}
			}
		})
	}
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

// die reports whether there was an nth transaction to die at.
func (p *partRun) die(ctx context.Context, j job.Job, proxy *zkserver.Proxy, n int32) (died bool, err error) {
	proxy.Refuse(false)
	s, victim, err := live(ctx, j, 500*time.Millisecond, proxy.Addr())
	if err != nil {
		return false, err
	}
	defer s.Close()
	if p.prepare != nil {
		if err := p.prepare(ctx, p); err != nil {
			return false, err
		}
	}
	fired, disarm := cutNth(proxy, (*zkserver.Proxy).DropReply, n, zkserver.OpMulti)
	defer disarm()
	last := p.call(ctx, victim, p.timeout)
	if p.finish != nil {
		if err := p.finish(ctx, p); err != nil {
			return false, err
		}
	}
	select {
	case err := <-last:
		if !errors.Is(err, zkconn.ErrSessionLost) { // which may happen on a busy machine
			p.calls = append(p.calls, call(func() error { return err }))
			return false, p.check(ctx)
		}
	case <-fired:
	}
	proxy.Refuse(true)
	s.Close()
	s, next, err := live(ctx, j, 10*time.Second, servers.Addrs()...)
	if err != nil {
		return false, err
	}
	defer s.Close()
	p.calls = append(p.calls, p.call(ctx, next, p.timeout))
	return true, p.check(ctx)
}

// live is a life of the victim in a session with this timeout.
func live(
	ctx context.Context, j job.Job, timeout time.Duration, addrs ...string,
) (*zkconn.Session, *worker.Member, error) {
	for {
		s, err := zkconn.Dial(ctx, zkconn.Config{Servers: addrs, Timeout: timeout})
		if err != nil {
			return nil, nil, err
		}
		m, err := worker.Join(ctx, s, config(j, "w-0"))
		if !errors.Is(err, zkconn.ErrSessionLost) {
			return s, m, err
		}
	}
}
