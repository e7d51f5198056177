package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/dev/fault"
	"muster/dev/zkserver"
	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/sim/rig"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/zkconn"
)

// soakSize is how much of a soak is run.
type soakSize struct {
	workers, extra int // places, and identities beyond
	joins          int
	processes      int
}

func size() soakSize {
	if rig.Long() {
		return soakSize{workers: 1000, extra: 20, joins: 5000, processes: 6}
	}
	return soakSize{workers: 60, extra: 6, joins: 300, processes: 3}
}

// childMany joins as all its identities, over and over, until it is killed. It says each id it gets.
func childMany(ctx context.Context, cfg zkconn.Config, root, name string) int {
	const atOnce = 16
	cfg.Timeout = 2 * time.Second
	identities := strings.Fields(os.Getenv(childWorkers))
	queue := make(chan string, len(identities))
	for _, i := range rand.Perm(len(identities)) {
		queue <- identities[i]
	}
	var say sync.Mutex
	for range atOnce {
		go func() {
			for identity := range queue {
				c := config(job.Job{Common: resource.Common{Root: root, Name: name}}, identity)
				c.FindIndex = indexInSoak
				said, again := joinOnce(ctx, cfg, c)
				say.Lock()
				fmt.Println(said)
				say.Unlock()
				if again {
					queue <- identity
				}
			}
		}()
	}
	<-ctx.Done()
	return 0
}

// indexInSoak is the index of an identity such as w3, if the job takes ids from its workers. Some share one.
func indexInSoak(identity string) (k int, err error) {
	_, err = fmt.Sscanf(identity, "w%d", &k)
	return k % size().workers, err
}

// joinOnce joins and ends the membership in some way.
func joinOnce(ctx context.Context, cfg zkconn.Config, c worker.Config) (said string, again bool) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	s, err := zkconn.Dial(ctx, cfg)
	if err != nil {
		return "error " + err.Error(), true
	}
	defer s.Close()
	m, err := worker.Join(ctx, s, c)
	switch {
	case errors.Is(err, worker.ErrFull), errors.Is(err, worker.ErrNoPlace):
		return "full " + c.Identity, false
	case err != nil:
		return "error " + err.Error(), true
	}
	if rand.IntN(2) == 0 {
		if err := m.Leave(ctx, worker.End{}); errors.Is(err, worker.ErrFenced) {
			return "error " + err.Error(), true
		}
	}
	return fmt.Sprint("id ", m.Identity, " ", m.ID), true
}

// joinSoak is an ensemble of three behind proxies, and processes that join.
type joinSoak struct {
	t        *testing.T
	size     soakSize
	ensemble *zkserver.Ensemble
	proxies  []*fault.Proxy
	addrs    []string
	job      job.Job
	children []*child
	said     chan string
	ids      map[string]int // that each identity got
	joins    int
}

// TestIDsUnderFaults: workers join on an ensemble of three while their processes are killed, replies are dropped and
// the leader dies. Ids are 0 to N-1, without a gap or a duplicate, and every identity keeps its own; whether the job
// gives ids or takes them from its workers. With MUSTER_SOAK=1 there are 5,000 joins.
func TestIDsUnderFaults(t *testing.T) {
	t.Parallel()
	for _, ids := range []job.IDs{job.ByJoin, job.ByIndex} {
		t.Run(string(ids), func(t *testing.T) {
			t.Parallel()
			testIDsUnderFaults(t, ids)
		})
	}
}

func testIDsUnderFaults(t *testing.T, ids job.IDs) {
	k := newJoinSoak(t, ids)
	for i := range k.size.processes {
		k.spawn(i)
	}
	next, leaderDied := 0, false
	limit := time.After(5 * time.Minute)
	for k.joins < k.size.joins || k.places() < k.size.workers {
		select {
		case line := <-k.said:
			k.hear(line)
		case <-limit:
			t.Fatalf("%d joins, %d of %d places taken", k.joins, k.places(), k.size.workers)
		}
		if k.joins >= next {
			next = k.joins + 1 + rand.IntN(k.size.joins/20)
			k.dropReply()
			k.kill(rand.IntN(len(k.children)))
		}
		if !leaderDied && k.joins > k.size.joins/2 {
			leaderDied = true
			k.killLeader()
		}
	}
	for _, c := range k.children {
		c.kill()
	}
	k.verify()
}

func newJoinSoak(t *testing.T, ids job.IDs) *joinSoak {
	t.Helper()
	k := &joinSoak{t: t, size: size(), said: make(chan string, 10000), ids: map[string]int{}}
	var err error
	if k.ensemble, err = zkserver.Start(t.Context(), zkserver.Options{Servers: 3}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.ensemble.Stop() })
	for _, addr := range k.ensemble.Addrs() {
		p := rig.Proxy(t, addr)
		k.proxies, k.addrs = append(k.proxies, p), append(k.addrs, p.Addr())
	}
	k.children = make([]*child, k.size.processes)
	k.job = job.Default()
	k.job.Root, k.job.Name, k.job.Workers, k.job.IDs = "/soak", "j", k.size.workers, ids
	if err := k.store().Commit(t.Context(), plan.Row{Path: k.job.Path(), New: k.job, Reason: plan.NotThere}); err != nil {
		t.Fatal(err)
	}
	// Somebody is always live: new workers do not join a job that is stale.
	const keeper = "w0"
	c := config(k.job, keeper)
	c.FindIndex = indexInSoak
	k.ids[keeper] = joinIn(t, dial(t, k.ensemble.Addrs()...), c).ID
	return k
}

func (k *joinSoak) store() *zkstate.Store {
	k.t.Helper()
	return rig.Store(k.t, dial(k.t, k.ensemble.Addrs()...), k.job.Root, zkstate.Job())
}

// spawn starts process i with its share of the identities.
func (k *joinSoak) spawn(i int) {
	var share []string
	for w := i + 1; w < k.size.workers+k.size.extra; w += k.size.processes {
		share = append(share, fmt.Sprint("w", w))
	}
	c := spawn(k.t, k.job, "many", strings.Join(share, " "), k.addrs...)
	k.children[i] = c
	go func() {
		for line := range c.lines {
			k.said <- line
		}
	}()
}

// hear checks what a process printed: an identity that had an id has it again.
func (k *joinSoak) hear(line string) {
	var identity string
	var id int
	if n, _ := fmt.Sscanf(line, "id %s %d", &identity, &id); n != 2 {
		if strings.Contains(line, worker.ErrFenced.Error()) {
			k.t.Error(line) // nobody else is this identity
		}
		return
	}
	k.joins++
	if before, known := k.ids[identity]; known && before != id {
		k.t.Errorf("%s is %d, was %d", identity, id, before)
	}
	k.ids[identity] = id
}

func (k *joinSoak) places() int { return len(k.ids) }

func (k *joinSoak) kill(i int) {
	k.children[i].cmd.Process.Kill()
	k.spawn(i)
}

func (k *joinSoak) dropReply() { k.proxies[rand.IntN(len(k.proxies))].DropReply(isMulti) }

func (k *joinSoak) killLeader() {
	leader, err := k.ensemble.Leader(k.t.Context())
	if err != nil {
		k.t.Fatal(err)
	}
	if err := k.ensemble.Server(leader).Kill(); err != nil {
		k.t.Fatal(err)
	}
	if err := k.ensemble.Server(leader).Restart(k.t.Context()); err != nil {
		k.t.Fatal(err)
	}
}

// verify compares what was printed with what is there. A join that came too late and was killed withdraws now.
func (k *joinSoak) verify() {
	store := k.store()
	for identity, id := range ids(k.t, store, k.job) { // none in a job that takes ids
		if id < k.size.workers {
			continue
		}
		s := dial(k.t, k.ensemble.Addrs()...)
		if _, err := worker.Join(k.t.Context(), s, config(k.job, identity)); !errors.Is(err, worker.ErrFull) {
			k.t.Errorf("%s has id %d of %d, and joins with %v", identity, id, k.size.workers, err)
		}
	}
	holder := map[int]string{}
	for identity, id := range ids(k.t, store, k.job) {
		if first, ok := k.ids[identity]; ok && first != id {
			k.t.Errorf("%s is %d, was %d", identity, id, first)
		}
		if other, twice := holder[id]; twice {
			k.t.Errorf("%s and %s both have id %d", identity, other, id)
		}
		holder[id] = identity
	}
	for id := range k.size.workers {
		if holder[id] == "" {
			k.t.Errorf("nobody has id %d", id)
		}
	}
	if len(holder) != k.size.workers {
		k.t.Errorf("%d ids for %d workers", len(holder), k.size.workers)
	}
	k.t.Logf("%d joins, %d identities", k.joins, len(k.ids))
}
