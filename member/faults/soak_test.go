package faults

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/dev/zkserver"
	"muster/resource"
	"muster/resource/group"
	"muster/sim/rig"
	"muster/zkstate/zkconn"
)

// The faults of TestGroupSoak. Durations are as long as the fault goes on.
const (
	sessionTimeout = 4 * time.Second
	// frozenFor is the longest time for which a member is frozen or cut off: its session may be over or not.
	frozenFor = 2 * sessionTimeout
)

// size is how much of a soak is run.
type size struct {
	members, python, leaders, crons int
	faults, atOnce                  int
	every                           string // a cron runs
}

func soakSize() size {
	if rig.Long() {
		return size{members: 24, leaders: 12, crons: 28, faults: 1000, atOnce: 7, every: "@every 5s"}
	}
	return size{members: 20, leaders: 12, crons: 28, faults: 40, atOnce: 7, every: "@every 3s"}
}

// TestGroupSoak: members of two versions do the duties of a group on three servers, while members, commands, guards,
// connections, servers and clocks fail at random. No command of a duty runs beside another one, epochs grow, every tick
// has one fate, and at the end every duty is held again. With MUSTER_SOAK=1 there are 1,000 faults; MUSTER_SEED repeats
// the choice of faults, but not what they meet.
func TestGroupSoak(t *testing.T) {
	soak(t, soakSize()).over()
}

// TestPythonSoak: the same with members in Python beside ours, which take seats x- and lead. Afterwards, while nothing
// else fails, one of them after the other is killed, frozen and asked to leave. None of its duties is vacant for longer
// than docs/protocol/groups.md says.
func TestPythonSoak(t *testing.T) {
	size := size{members: 4, python: 4, leaders: 12, crons: 4, faults: 30, atOnce: 3, every: "@every 3s"}
	if rig.Long() {
		size.faults = 400
	}
	k := soak(t, size)
	k.vacancies()
	k.over()
}

// soak makes the faults, and heals what they have left.
func soak(t *testing.T, size size) *soakRun {
	t.Helper()
	w := newWorld(t, zkserver.Options{Servers: 3, Heap: "256m"}, func(g *group.Group) { declare(g, size) })
	w.longest = 2 * time.Second
	k := &soakRun{
		world: w, size: size, books: newBooks(w), random: rand.New(rand.NewPCG(rig.Seed(t), 1)),
		well: map[string]bool{}, count: map[string]int{},
	}
	for i := range size.members {
		id := fmt.Sprintf("m-%02d", i)
		w.add(id, []string{"1.9.0", "2.0.0"}[i%2], i%3 == 0, true)
		k.well[id] = true
	}
	for i := range size.python {
		id := fmt.Sprintf("python-%d", i)
		w.addPython(id, []string{"1.9.0", "2.0.0"}[i%2])
		k.well[id] = true
	}
	rig.Until(t, 2*time.Minute, "the first holders", w.allHeld)
	k.readBooks() // what is after these cursors is accounted for
	k.run()
	k.heal()
	return k
}

// over ends all members, and checks what they and their commands have left.
func (k *soakRun) over() {
	k.t.Helper()
	finish(k.t, k.books)
	if left := k.commandsOf(""); len(left) > 0 {
		k.t.Errorf("commands outlive their members: %v", left)
	}
}

// slack is what a busy machine adds to a time that the protocol says.
const slack = 20 * time.Second

// vacancies takes members in Python away, each in another way, and measures how long their duties are vacant.
func (k *soakRun) vacancies() {
	k.t.Helper()
	taken := map[string]bool{}
	for _, away := range []struct {
		how   string
		limit time.Duration // that the protocol says
		do    func(*process) error
	}{
		{"was killed", sessionTimeout, func(p *process) error { p.kill(); return nil }},
		{"was frozen", sessionTimeout, (*process).freeze},
		{"has left", 0, func(p *process) error { return p.leave(time.Minute) }},
	} {
		p := k.holderInPython(taken)
		taken[p.identity] = true
		held := k.loads()[p.identity]
		begun := time.Now()
		if err := away.do(p); err != nil {
			k.t.Fatal(err)
		}
		rig.Until(k.t, 2*time.Minute, "other holders", func() string {
			if n := k.loads()[p.identity]; n > 0 {
				return fmt.Sprintf("%s has %d duties still", p.identity, n)
			}
			return k.allHeld()
		})
		took := time.Since(begun)
		k.t.Logf("%s %s: its %d duties were with others after %s", p.identity, away.how, held, took.Round(time.Millisecond))
		if took > away.limit+slack {
			k.t.Errorf("that is more than %s", away.limit+slack)
		}
		if p.frozen {
			if err := p.thaw(); err != nil {
				k.t.Fatal(err)
			}
		}
	}
}

// holderInPython is a member in Python that holds a duty and is not taken. Leaders stay where they are, so that it may
// be that all are with others. Then one of ours that has the most dies, until there is one.
func (k *soakRun) holderInPython(taken map[string]bool) *process {
	k.t.Helper()
	for range 10 {
		rig.Until(k.t, 2*time.Minute, "holders of all duties", k.allHeld)
		loads := k.loads()
		most := ""
		for id := range k.members {
			switch inPython := strings.HasPrefix(id, "python-"); {
			case inPython && loads[id] > 0 && !taken[id]:
				return k.members[id]
			case !inPython && loads[id] > loads[most]:
				most = id
			}
		}
		k.t.Logf("no duty is with a member in Python, %s dies: %v", most, loads)
		p := k.members[most]
		p.kill()
		rig.Until(k.t, 2*time.Minute, "other holders", func() string {
			if n := k.loads()[most]; n > 0 {
				return fmt.Sprintf("%s has %d duties still", most, n)
			}
			return k.allHeld()
		})
		if err := p.start(); err != nil {
			k.t.Fatal(err)
		}
	}
	k.t.Fatalf("no member in Python gets a duty: %v", k.loads())
	return nil
}

// declare declares leaders and crons of all kinds.
func declare(g *group.Group, size size) {
	g.Settle, g.Timeouts.Session = resource.Duration(time.Second), resource.Duration(sessionTimeout)
	g.Timeouts.Drain = resource.Duration(5 * time.Second)
	for i := range size.leaders {
		d := group.NewDuty(group.Leader, fmt.Sprintf("leader-%02d", i))
		if i%3 == 0 {
			d.Prefer = group.Newest
		}
		if i%4 == 0 {
			d.Versions = ">= 2.0"
		}
		g.Add(d)
	}
	for i := range size.crons {
		d := group.NewDuty(group.Cron, fmt.Sprintf("cron-%02d", i))
		d.Schedule, d.Keep = size.every, 100
		d.Lost, d.Retries = group.LostRerun, 100
		if i%2 == 0 {
			d.Lost, d.Retries = group.LostSkip, 0
		}
		d.Missed = []group.Missed{group.MissedAll, group.MissedLatest, group.MissedSkip}[i%3]
		if i%4 < 2 {
			d.Overlap = group.OverlapWait
		}
		if i%5 == 0 {
			d.Prefer = group.Any
		}
		g.Add(d)
	}
}

// soakRun is a soak under way.
type soakRun struct {
	*world
	size   size
	books  *books
	random *rand.Rand // only of the goroutine that chooses

	running sync.WaitGroup
	mu      sync.Mutex
	well    map[string]bool // members that have no fault now
	common  bool            // a fault of a server or of an operator goes on
	count   map[string]int  // of faults, by kind
	first   error           // that a fault could not be made, or what it showed
}

// fail keeps the first error.
func (k *soakRun) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.first == nil {
		k.first = err
	}
}

// run makes faults, several at once, and reads the ticks.
func (k *soakRun) run() {
	slots := make(chan struct{}, k.size.atOnce)
	read := time.NewTicker(10 * time.Second)
	defer read.Stop()
	begun, done := time.Now(), 0
	for done < k.size.faults && !k.failed() {
		select {
		case <-read.C:
			k.readBooks()
		case slots <- struct{}{}:
			if !k.one(func() { <-slots }) {
				<-slots
				zkconn.Pause(k.t.Context(), rig.PollEvery)
				continue
			}
			if done++; done%100 == 0 {
				k.t.Logf("%d faults after %s", done, time.Since(begun).Round(time.Second))
			}
		case <-k.t.Context().Done():
			return
		}
	}
	k.running.Wait()
	k.t.Logf("%d faults in %s: %v", done, time.Since(begun).Round(time.Second), k.count)
}

func (k *soakRun) failed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.first != nil
}

// readBooks reads the ticks. While the servers are down it is not said in time.
func (k *soakRun) readBooks() {
	ctx, cancel := k.withLimit(time.Minute)
	defer cancel()
	if err := k.books.read(ctx); err != nil {
		k.t.Logf("reading the ticks: %v", err)
	}
}

// one begins one fault. It returns false if nothing is well that could have it.
func (k *soakRun) one(over func()) bool {
	kinds := kindsOfFaults()
	total := 0
	for _, f := range kinds {
		total += f.weight
	}
	n, chosen := k.random.IntN(total), faultKind{}
	for _, f := range kinds {
		if n -= f.weight; n < 0 {
			chosen = f
			break
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	var p *process
	if chosen.ofAll {
		if k.common {
			return false
		}
		k.common = true
	} else {
		ids := slices.DeleteFunc(slices.Sorted(maps.Keys(k.well)), func(id string) bool {
			return chosen.ofClock && k.members[id].args != nil // its clock cannot be set
		})
		if len(ids) == 0 {
			return false
		}
		p = k.members[ids[k.random.IntN(len(ids))]]
		delete(k.well, p.identity)
	}
	k.count[chosen.name]++
	random := rand.New(rand.NewPCG(k.random.Uint64(), 2))
	k.running.Go(func() {
		defer over()
		err := k.ended(p)
		if err == nil {
			err = chosen.make(k, p, random)
		}
		if err != nil && k.t.Context().Err() == nil {
			k.fail(fmt.Errorf("%s: %w", chosen.name, err))
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		if p == nil {
			k.common = false
		} else {
			k.well[p.identity] = true
		}
	})
	return true
}

// ended is an error if a member has ended by itself.
func (k *soakRun) ended(p *process) error {
	if p == nil || !p.run.Ended() {
		return nil
	}
	return fmt.Errorf("%s has ended by itself, with %d", p.identity, p.run.Code())
}

// heal waits until every duty is held, every cron has had two more ticks, and no run of before waits any more.
func (k *soakRun) heal() {
	k.t.Helper()
	if k.first != nil {
		k.t.Fatal(k.first)
	}
	healed := time.Now()
	rig.Until(k.t, 3*time.Minute, "holders of all duties after the faults", k.allHeld)
	k.t.Logf("every duty was held %s after the last fault", time.Since(healed).Round(100*time.Millisecond))
	until := time.Now().UTC().Add(10 * time.Second)
	rig.Until(k.t, 6*time.Minute, "ticks after the faults", func() string {
		k.readBooks()
		for name, l := range k.books.all {
			if l.cursor.Before(until) {
				h, held := k.holder(name)
				return fmt.Sprintf("%s is at %s, held by %+v (%t)", name, l.cursor.Format(time.TimeOnly), h, held)
			}
			for at, r := range l.records {
				if !r.Final() && at.Before(until) {
					return fmt.Sprintf("%s is %s at %s", name, r.State, at.Format(time.TimeOnly))
				}
			}
		}
		return ""
	})
}
