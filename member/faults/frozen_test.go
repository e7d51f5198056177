package faults

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"muster/dev/zkserver"
	"muster/resource"
	"muster/resource/group"
	"muster/sim/soak"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// freeze is what a member was, and when it went on.
type freeze struct {
	who    string
	before int64         // what it held then has a smaller epoch
	thawed time.Duration // since this machine started
}

// TestSoakFrozenPastTheLimit: members are frozen for more than half of a session, and go on before it is over. They
// start nothing then in what they held before, and what had ended by itself meanwhile is recorded as it ended. With
// MUSTER_SOAK=1 there are ten times as many rounds.
func TestSoakFrozenPastTheLimit(t *testing.T) {
	const timeout, members, crons = 3 * time.Second, 4, 12
	rounds := 5
	if soak.Long() {
		rounds *= 10
	}
	w := newWorld(t, zkserver.Options{}, func(g *group.Group) {
		g.Settle, g.Timeouts.Session = resource.Duration(time.Millisecond), resource.Duration(timeout)
		g.Timeouts.Drain = resource.Duration(time.Second)
		for i := range crons {
			d := group.NewDuty(group.Cron, fmt.Sprint("cron-", i))
			d.Schedule, d.Lost, d.Retries, d.Keep = "@every 1s", group.LostSkip, 0, 100
			g.Add(d)
		}
	})
	w.longest = 700 * time.Millisecond
	for i := range members {
		w.add(fmt.Sprint("m", i), "1.0", false, false)
	}
	soak.Await(t, 3*time.Minute, "all to join", w.allLive)
	soak.Await(t, 3*time.Minute, "the first holders", w.allHeld)
	books := newBooks(w)
	if err := books.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	seed, s := soak.Seed(t), w.session()
	var all sync.WaitGroup
	var mu sync.Mutex
	var freezes []freeze
	for i := range members {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		p := w.members[fmt.Sprint("m", i)]
		all.Go(func() {
			for range rounds {
				f, err := w.freezeFor(s, p, soak.Between(random, timeout*55/100, timeout*75/100))
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				freezes = append(freezes, f)
				mu.Unlock()
				soak.Pause(t.Context(), soak.Between(random, 0, time.Second))
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		all.Wait()
	}()
	for going := true; going; {
		select {
		case <-time.After(10 * time.Second): // before records are deleted
		case <-done:
			going = false
		}
		if err := books.read(t.Context()); err != nil {
			t.Error(err)
		}
	}
	soak.Await(t, 3*time.Minute, "holders of all", w.allHeld)
	for _, p := range w.members {
		if err := p.leave(time.Minute); err != nil {
			t.Error(err)
		}
	}
	checkAll(t, books)
	checkFrozen(t, books, freezes)
}

// freezeFor freezes a member that holds something, and returns when it has joined again.
func (w *world) freezeFor(s *zkconn.Session, p *process, long time.Duration) (f freeze, err error) {
	ctx, live := w.t.Context(), znode.Live(w.group.Root, w.group.Name, p.identity)
	was, _, err := s.Exists(ctx, live)
	if err == nil {
		err = p.freeze()
	}
	if err != nil {
		return f, err
	}
	soak.Pause(ctx, long)
	now, err := s.Set(ctx, w.group.Root, nil, -1)
	var clock unix.Timespec
	err = errors.Join(err, unix.ClockGettime(unix.CLOCK_BOOTTIME, &clock), p.thaw())
	f = freeze{p.identity, now.Mzxid, time.Duration(clock.Nano())}
	for late := time.Now().Add(time.Minute); err == nil; soak.Pause(ctx, soak.PollEvery) {
		stat, there, e := s.Exists(ctx, live)
		switch {
		case e != nil:
			err = e
		case there && stat.EphemeralOwner != was.EphemeralOwner:
			return f, nil
		case time.Now().After(late):
			err = fmt.Errorf("%s was frozen past its limit, and has not joined again", p.identity)
		}
	}
	return f, err
}

// checkFrozen looks for what members did after their limit.
func checkFrozen(t *testing.T, books *books, freezes []freeze) {
	t.Helper()
	lines, err := readRuns(books.w.dir)
	if err != nil {
		t.Fatal(err)
	}
	late, lost := 0, 0
	for _, f := range freezes {
		for _, l := range lines {
			if l.what == "start" && l.who == f.who && l.at >= f.thawed && l.epoch < f.before {
				late++
				t.Logf("%s started %s for %s after it was frozen past its limit: %s after that", l.who, l.duty, l.tick,
					l.at-f.thawed)
			}
		}
	}
	for name, ledger := range books.all {
		for at, r := range ledger.records {
			if r.State == znode.TickLost && r.Exit != nil && *r.Exit == 0 {
				lost++
				t.Logf("%s at %s: %+v", name, at.Format(time.TimeOnly), r.TickRecord)
			}
		}
	}
	if late+lost > 0 {
		t.Errorf("after %d freezes: %d runs started past the limit, %d that exited with 0 are lost", len(freezes), late, lost)
	}
}
