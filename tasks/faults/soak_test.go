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
	"muster/sim/rig"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// The faults of TestQueueSoak. Durations are as long as the fault goes on.
const (
	sessionTimeout = 4 * time.Second
	// frozenFor is the longest time for which something is frozen or cut off: sessions may be over or not.
	frozenFor = 2 * sessionTimeout
)

// size is how much of a soak is run.
type size struct {
	tasks, most int           // in all, and of a batch
	submit      time.Duration // batches are submitted over this time
	decks       int           // of faults: each has every fault as often as its weight
	atOnce      int           // faults
}

func soakSize() size {
	if rig.Long() {
		return size{tasks: 1_000_000, most: 30_000, submit: 6 * time.Minute, decks: 11, atOnce: 4}
	}
	return size{tasks: 12_000, most: 1_500, submit: 20 * time.Second, decks: 1, atOnce: 8}
}

const (
	executors  = 8
	watchers   = 2
	submitters = 6
)

// TestQueueSoak: executors of all forms do the tasks of many batches, on three ZooKeeper servers and a Redis that loses
// nothing it has acknowledged, while executors, watchers, submitters, commands, connections and servers fail at random.
// Every task is exactly once in the results that watchers and submitters get, only tasks die that are meant to, and at
// the end nothing is left in ZooKeeper or in Redis. With MUSTER_SOAK=1 there are 1,000,000 tasks.
func TestQueueSoak(t *testing.T) {
	size := soakSize()
	w := newWorld(t, zkserver.Options{Servers: 3, Heap: "256m"}, sessions(sessionTimeout))
	k := newRun(w, size)
	k.startAll()
	k.run()
	k.heal()
	k.collectKept()
	k.leaveAll()
	k.verify()
}

// soakRun is a soak under way.
type soakRun struct {
	*world
	size    size
	batches []batch
	random  *rand.Rand
	begun   time.Time

	mu       sync.Mutex
	running  sync.WaitGroup
	well     map[string]bool    // processes that no fault happens to
	busy     map[subject]bool   // others that a fault happens to
	count    map[string]int     // faults by name
	submits  map[string]int     // by fault and exit code
	received map[string]finding // by batches whose results somebody waited for
	first    error
}

func newRun(w *world, size size) *soakRun {
	w.seed = rig.Seed(w.t)
	return &soakRun{
		world: w, size: size, batches: batchesOf(w.seed, size.tasks, size.most),
		random: rand.New(rand.NewPCG(w.seed, 1)), well: map[string]bool{}, busy: map[subject]bool{},
		count: map[string]int{}, submits: map[string]int{}, received: map[string]finding{},
	}
}

// startAll starts executors of all forms, and watchers.
func (k *soakRun) startAll() {
	forms := [][]string{
		k.executor("--parallel", "2", "--lines", "--", self, "act-lines", k.dir),
		k.executor("--parallel", "4", "--lines=json", "--", self, "act-json", k.dir),
		k.executor("--parallel", "2", "--", self, "act-one", k.dir),
		{self, "act-go", k.dir, "1"},
	}
	for i := range executors {
		form := forms[[executors]int{0, 0, 0, 1, 1, 1, 2, 3}[i]]
		k.well[k.add(fmt.Sprint("e-", i), true, form...).name] = true
	}
	ledger := []string{muster(), "watcher", k.queue.Name, "--", self, "act-ledger", k.dir, fmt.Sprint(k.seed)}
	for i := range watchers {
		k.well[k.add(fmt.Sprint("w-", i), true, ledger...).name] = true
	}
	k.begun = time.Now()
	for i := range submitters {
		p := k.add(fmt.Sprint("s-", i), true, muster(), "version")
		<-p.run.Done
		s := &submitter{k: k, p: p, random: rand.New(rand.NewPCG(k.seed, uint64(100+i)))}
		k.running.Go(func() { k.submitSome(s, i) })
	}
}

// submitSome submits every n-th batch, in time.
func (k *soakRun) submitSome(s *submitter, first int) {
	for i := first; i < len(k.batches) && !k.failed(); i += submitters {
		due := k.size.submit * time.Duration(i) / time.Duration(len(k.batches))
		zkconn.Pause(k.t.Context(), due-time.Since(k.begun))
		if err := s.submit(k.batches[i]); err != nil {
			k.fail(err)
			return
		}
	}
}

func (k *soakRun) countSubmit(fault string, code int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.submits[fmt.Sprintf("%s: %d", fault, code)]++
}

// got notes the results of a batch that somebody waited for.
func (k *soakRun) got(f finding) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.received[f.Batch] = f
}

func (k *soakRun) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.first == nil {
		k.first = fmt.Errorf("after %s: %w", time.Since(k.begun).Round(time.Second), err)
	}
}

func (k *soakRun) failed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.first != nil || k.t.Context().Err() != nil
}

// run makes the faults, and waits for them and for the submitters.
func (k *soakRun) run() {
	var deck []faultKind
	for range k.size.decks {
		var some []faultKind
		for _, f := range faults() {
			for range f.weight {
				some = append(some, f)
			}
		}
		k.random.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
		deck = append(deck, some...)
	}
	slots := make(chan struct{}, k.size.atOnce)
	for n := len(deck); len(deck) > 0 && !k.failed(); {
		slots <- struct{}{}
		i := slices.IndexFunc(deck, func(f faultKind) bool { return k.one(f, func() { <-slots }) })
		if i < 0 {
			<-slots
			zkconn.Pause(k.t.Context(), rig.PollEvery)
			continue
		}
		deck = slices.Delete(deck, i, i+1)
		if done := n - len(deck); done%50 == 0 {
			k.t.Logf("%d faults after %s", done, time.Since(k.begun).Round(time.Second))
		}
	}
	begun := time.Since(k.begun).Round(time.Second)
	k.running.Wait()
	k.t.Logf("faults: all begun after %s: %v", begun, k.count)
	k.t.Logf("submits: %s: %v", time.Since(k.begun).Round(time.Second), k.submits)
}

// one begins a fault. It returns false if nothing is well that could have it.
func (k *soakRun) one(f faultKind, over func()) bool {
	p, ok := k.choose(f.to)
	if !ok {
		return false
	}
	random := rand.New(rand.NewPCG(k.random.Uint64(), 2))
	k.running.Go(func() {
		defer over()
		err := k.alive(p)
		if err == nil {
			err = f.make(k, p, random)
		}
		if err != nil && k.t.Context().Err() == nil {
			k.fail(fmt.Errorf("%s: %w", f.name, err))
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		if p == nil {
			delete(k.busy, f.to)
		} else {
			k.well[p.name] = true
		}
		k.count[f.name]++
	})
	return true
}

// choose chooses what a fault happens to.
func (k *soakRun) choose(to subject) (p *process, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if to != toProcess && to != toExecutor && to != toWatcher {
		if k.busy[to] {
			return nil, false
		}
		k.busy[to] = true
		return nil, true
	}
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(k.well)), func(name string) bool {
		executes := isExecutor(k.processes[name])
		return to == toExecutor && !executes || to == toWatcher && executes
	})
	if len(names) == 0 {
		return nil, false
	}
	p = k.processes[names[k.random.IntN(len(names))]]
	delete(k.well, p.name)
	return p, true
}

// takeAll takes all processes that are well.
func (k *soakRun) takeAll(which func(*process) bool) (mine []*process) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(k.well)) {
		if p := k.processes[name]; which(p) {
			delete(k.well, name)
			mine = append(mine, p)
		}
	}
	return mine
}

func (k *soakRun) giveBack(mine ...*process) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range mine {
		k.well[p.name] = true
	}
}

// alive is an error if a process has ended by itself.
func (k *soakRun) alive(p *process) error {
	if p == nil || !p.run.Ended() {
		return nil
	}
	return fmt.Errorf("%s has ended by itself, with %d", p.name, p.run.Code())
}

// heal waits until every batch has ended, except those that are kept: they are complete.
func (k *soakRun) heal() {
	k.t.Helper()
	if k.first != nil {
		k.t.Fatal(k.first)
	}
	rig.Until(k.t, patience, "all batches to end", func() string {
		s, err := k.state()
		if err != nil {
			return err.Error()
		}
		_, q := k.books()
		all, err := q.Batches(k.t.Context(), 0, 1000)
		if err != nil {
			return err.Error()
		}
		for _, b := range all {
			if b.Broken != "" || b.Done+b.Dead < b.Tasks || !strings.HasPrefix(b.Results, "keep") {
				return fmt.Sprintf("%d unfinished in ZooKeeper, %d in Redis: %+v", len(s.Batches), len(all), b)
			}
		}
		for _, b := range s.Batches {
			if _, keep := b.Results.Keep(); !keep || b.State != string(znode.BatchOpen) {
				return fmt.Sprintf("%d unfinished: %+v", len(s.Batches), b)
			}
		}
		return ""
	})
	took := time.Since(k.begun)
	k.t.Logf("%d tasks in %d batches after %s: %.0f a second", k.size.tasks, len(k.batches),
		took.Round(time.Second), float64(k.size.tasks)/took.Seconds())
}

// collectKept reads the results of kept batches, and ends them. It drops the dead tasks of all.
func (k *soakRun) collectKept() {
	k.t.Helper()
	for _, b := range k.batches {
		if _, keep := b.results().Keep(); !keep {
			continue
		}
		at := k.queue.Name + "/" + b.id()
		out, err := k.muster("queue", "batches", at, "--results")
		if err != nil {
			k.t.Fatal(err, "\n", k.where(b))
		}
		found, err := check(b, strings.NewReader(out))
		if err != nil {
			k.t.Fatal(err)
		}
		k.got(found)
		if _, err := k.muster("queue", "cancel", "--yes", at); err != nil {
			k.t.Fatal(err)
		}
	}
	if out, err := k.muster("queue", "drop", "--yes", k.queue.Name); err != nil {
		k.t.Fatal(err, out)
	}
}

// where says which servers have an unfinished batch.
func (w *world) where(b batch) (all string) {
	for _, addr := range w.ensemble.Addrs() {
		s, err := zkconn.Dial(w.t.Context(), zkconn.Config{Servers: []string{addr}, Timeout: calmTimeout})
		if err != nil {
			return all + err.Error()
		}
		stat, there, err := s.Exists(w.t.Context(), znode.Batch(w.queue.Root, w.generation, b.id()))
		all += fmt.Sprintf("%s: %t, %+v, %v\n", addr, there, stat, err)
		s.Close()
	}
	_, q := w.books()
	inRedis, err := q.Batch(w.t.Context(), b.id())
	ended, endedErr := w.ended()
	return all + fmt.Sprintf("redis: %+v, %v\nended: %+v, %v", inRedis, err, ended[b.id()], endedErr)
}

// leaveAll asks all processes to leave.
func (k *soakRun) leaveAll() {
	rig.Until(k.t, patience, "no unfinished batch", func() string {
		s, err := k.state()
		if err != nil || len(s.Batches) > 0 {
			return fmt.Sprintf("%d batches, %v", len(s.Batches), err)
		}
		if left, err := k.keysLeft(); err != nil || slices.ContainsFunc(left, func(name string) bool {
			return !strings.HasSuffix(name, ":hands")
		}) {
			return fmt.Sprintf("%q, %v", left, err)
		}
		return ""
	})
	var all sync.WaitGroup
	for name := range k.well {
		p := k.processes[name]
		all.Go(func() {
			err := k.alive(p)
			if err == nil {
				err = p.leave(patience)
			}
			if err != nil {
				k.fail(err)
			}
		})
	}
	all.Wait()
	if k.first != nil {
		k.t.Error(k.first)
	}
	if left := k.commands(); len(left) > 0 {
		k.t.Errorf("commands outlive their processes: %v", left)
	}
}
