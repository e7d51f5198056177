package member_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"testing"
	"time"

	"muster/dev/zkserver"
	"muster/member"
	"muster/resource/group"
	"muster/resource/group/schedule"
	"muster/sim/rig"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// journal notes which attempts were really made, by any member.
type journal struct {
	mu   sync.Mutex
	made map[string][]string // by tick: attempt and epoch
	all  int
}

// run is a command that ends at once.
func (j *journal) run(_ context.Context, r member.Run) member.Ended {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.made == nil {
		j.made = map[string][]string{}
	}
	tick := r.Tick.Format(time.RFC3339)
	j.made[tick] = append(j.made[tick], fmt.Sprintf("%d@%d", r.Attempt, r.Epoch))
	j.all++
	return ok
}

func (j *journal) count() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.all
}

// of is what was made of one tick.
func (j *journal) of(tick time.Time) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.made[tick.Format(time.RFC3339)]
}

// account checks that each tick from the first record to the cursor has exactly one fate, and that the records say what
// was really done. It needs that nothing was forgotten, and that nobody holds the duty.
func (f *fixture) account(j *journal) {
	f.t.Helper()
	d := f.group.Duties[0]
	sched, err := schedule.Parse(d.Schedule, d.Timezone)
	if err != nil {
		f.t.Fatal(err)
	}
	fates, first := map[time.Time]int{}, f.cursor().Tick
	for _, r := range f.runsOf() {
		from, made := r.Tick, j.of(r.Tick)
		switch {
		case r.Range():
			from = r.First
			if len(made) > 0 {
				f.t.Errorf("%s is %s, and ran: %v", r.Tick, r.State, made)
			}
		case r.State == znode.TickRunning:
			f.t.Errorf("%s is running, and nobody holds the duty", r.Tick)
		case r.State == znode.TickDone && d.Lost == group.LostRerun && len(made) == 0,
			r.State == znode.TickDone && d.Lost == group.LostSkip && len(made) != 1,
			r.State != znode.TickDone && d.Lost == group.LostSkip && len(made) > 1:
			f.t.Errorf("%s is %s, and ran: %v", r.Tick, r.State, made)
		}
		for at := from; !at.After(r.Tick); at, _ = sched.Next(at) {
			fates[at]++
		}
		if from.Before(first) {
			first = from
		}
	}
	for at := first; !at.After(f.cursor().Tick); at, _ = sched.Next(at) {
		if fates[at] != 1 && len(f.runsOf()) > 0 {
			f.t.Errorf("%s has %d fates", at, fates[at])
		}
	}
	if f.t.Failed() {
		f.t.Logf("cursor %s; records: %s", f.cursor().Tick, f.records())
	}
}

func isMulti(op int32, _ []byte) bool { return op == zkserver.OpMulti }

// joinThrough joins through a proxy.
func (f *fixture) joinThrough(p *zkserver.Proxy, identity string) *member.Member {
	f.t.Helper()
	m, err := member.Join(f.t.Context(), dial(f.t, p.Addr()), f.config(identity, "1.0", job))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { m.Leave() })
	return m
}

// TestFaultAtEveryWrite: each transaction of a holder is cut before it is sent, or after it was committed, with or
// without its reply. Each tick has one fate, and each attempt is made once.
func TestFaultAtEveryWrite(t *testing.T) {
	t.Parallel()
	f := newCronFixture(t, func(d *group.Duty) { d.Keep, d.Lost = 100, group.LostSkip })
	p := newProxy(t)
	m := f.joinThrough(p, "a")
	faults := []func(func(int32, []byte) bool) <-chan struct{}{p.BeforeSend, p.DropReply, p.AfterReply, p.DropReply}
	next := faults[1](isMulti)
	j := &journal{}
	stop := f.runTicks(m, j.run)
	last := f.cursor().Tick
	for i := 0; i < 24 || j.count() < 5; i++ {
		select {
		case <-next:
		case <-time.After(2 * time.Minute):
			t.Fatalf("no write %d; records: %s", i, f.records())
		}
		next = faults[i%len(faults)](isMulti)
		if now := f.cursor().Tick; now.Before(last) {
			t.Errorf("the cursor went from %s to %s", last, now)
		} else {
			last = now
		}
	}
	if err := stop(); !errors.Is(err, member.ErrLeaving) {
		t.Errorf("RunTicks ended with %v", err)
	}
	f.account(j)
	for _, r := range f.runsOf() {
		if r.State == znode.TickDone && r.Attempt != 1 || r.State == znode.TickLost {
			t.Errorf("%s: %s after %d attempts: its holder was never lost", r.Tick, r.State, r.Attempt)
		}
	}
}

// TestCrashAtEveryWrite: a holder is cut off for good at its nth transaction, before or after it is committed, and
// counts as gone. The next holder continues: each tick has one fate. At its return the first one can write nothing.
func TestCrashAtEveryWrite(t *testing.T) {
	t.Parallel()
	for n := range 12 {
		for _, committed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d,committed=%v", n+1, committed), func(t *testing.T) {
				t.Parallel()
				lost := []group.Lost{group.LostSkip, group.LostRerun}[n%2]
				if committed {
					lost = []group.Lost{group.LostRerun, group.LostSkip}[n/2%2]
				}
				f := newCronFixture(t, func(d *group.Duty) { d.Keep, d.Lost = 100, lost })
				f.crash(n, committed)
			})
		}
	}
}

// crash is one case of TestCrashAtEveryWrite.
func (f *fixture) crash(n int, committed bool) {
	t, p := f.t, newProxy(f.t)
	a := f.joinThrough(p, "a")
	arm := p.BeforeSend
	if committed {
		arm = p.DropReply
	}
	var mu sync.Mutex
	crashed := arm(func(op int32, _ []byte) bool {
		mu.Lock()
		defer mu.Unlock()
		if op == zkserver.OpMulti {
			n--
		}
		return n < 0 && op == zkserver.OpMulti
	})
	p.Refuse(true)
	j := &journal{}
	stopA := f.runTicks(a, j.run)
	select {
	case <-crashed:
	case <-time.After(2 * time.Minute):
		t.Fatalf("it has not come to that write; records: %s", f.records())
	}
	seats, _, err := f.s.Children(t.Context(), znode.Seats(f.group.Root, f.generation()))
	if err != nil || len(seats) != 1 {
		t.Fatal(seats, err)
	}
	cursor := f.cursor().Tick
	b := f.join("b", "1.0", job)
	for _, gone := range []string{
		znode.Held(f.group.Root, f.generation(), job), znode.Live(f.group.Root, f.group.Name, "a"),
		znode.SeatAt(f.group.Root, f.generation(), path.Base(seats[0])),
	} {
		if err := f.s.Delete(t.Context(), gone, -1); err != nil && !errors.Is(err, zkconn.ErrNoNode) {
			t.Fatal(err)
		}
	}
	before := j.count()
	stopB := f.runTicks(b, j.run)
	f.until("b has run two ticks", func() bool { return j.count() >= before+2 })
	p.Refuse(false)
	if cause := ended(t, a.Context()); !errors.Is(cause, member.ErrRemoved) && !errors.Is(cause, member.ErrSessionLost) {
		t.Errorf("the first membership ended with %v", cause)
	}
	stopA()
	if err := stopB(); !errors.Is(err, member.ErrLeaving) {
		t.Errorf("the second member ended with %v", err)
	}
	if now := f.cursor().Tick; now.Before(cursor) {
		t.Errorf("the cursor went from %s to %s", cursor, now)
	}
	f.account(j)
}

// TestLostReplyOfTheFirstClaim: the first decision of a holder starts a run, and its reply is lost. The run is made
// once, and is not taken for one of an earlier holder.
func TestLostReplyOfTheFirstClaim(t *testing.T) {
	t.Parallel()
	f := newCronFixture(t, func(d *group.Duty) { d.Schedule, d.Lost = "@yearly", group.LostSkip })
	p := newProxy(t)
	m := f.joinThrough(p, "a")
	f.setCursor(time.Now().AddDate(-1, 0, 0), f.group.Duties[0])
	dropped := p.DropReply(func(op int32, body []byte) bool {
		return isMulti(op, nil) && bytes.Contains(body, []byte(`"state":"running"`))
	})
	j := &journal{}
	f.runTicks(m, j.run)
	<-dropped
	r := f.record("end", func(r member.RunRecord) bool { return r.Final() && !r.Range() })
	if made := j.of(r.Tick); r.State != znode.TickDone || r.Attempt != 1 || len(made) != 1 {
		t.Errorf("%s is %s after attempt %d, and ran: %v", r.Tick, r.State, r.Attempt, made)
	}
}

// TestLostReplyOfTheLastWrite: a holder gives the duty back in the transaction that ends a run. Its reply is lost, and
// the run has an event nevertheless.
func TestLostReplyOfTheLastWrite(t *testing.T) {
	t.Parallel()
	f := newCronFixture(t, func(d *group.Duty) { d.Schedule = "@yearly" })
	p := newProxy(t)
	m := f.joinThrough(p, "a")
	events := make(chan member.EventKind, 1000)
	all := m.Events(t.Context())
	go func() {
		for e := range all {
			events <- e.Kind
		}
	}()
	await := func(want member.EventKind) {
		t.Helper()
		for rig.Receive(t, events, string(want)) != want {
		}
	}
	f.setCursor(time.Now().AddDate(-1, 0, 0), f.group.Duties[0])
	run := f.startCron(m).next()
	f.send(znode.Ask{Do: znode.AskPause, Duty: job})
	await(member.EventHandOver)
	dropped := p.DropReply(func(op int32, body []byte) bool {
		return isMulti(op, nil) && bytes.Contains(body, []byte(`"state":"done"`))
	})
	run.end <- ok
	rig.Receive(t, dropped, "the last write")
	await(member.EventRunEnded)
}
