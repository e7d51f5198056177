package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/dev/zkserver"
	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/sim/rig"
	"muster/sim/soak"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// soakSize is how much of a soak is run.
type soakSize struct {
	workers, extra int // places, and identities beyond
	joins          int
	processes      int
}

func size() soakSize {
	if soak.Long() {
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
				said, again := joinOnce(ctx, cfg, config(job.Job{Common: resource.Common{Root: root, Name: name}}, identity))
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
	case errors.Is(err, worker.ErrFull):
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
	proxies  []*zkserver.Proxy
	addrs    []string
	job      job.Job
	children []*child
	said     chan string
	ids      map[string]int // that each identity got
	joins    int
}

// TestIDsUnderFaults: workers join on an ensemble of three while their processes are killed, replies are dropped and
// the leader dies. Ids are 0 to N-1, without a gap or a duplicate, and every identity keeps its own. With
// MUSTER_SOAK=1 there are 5,000 joins.
func TestIDsUnderFaults(t *testing.T) {
	t.Parallel()
	k := newJoinSoak(t)
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

func newJoinSoak(t *testing.T) *joinSoak {
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
	k.job.Root, k.job.Name, k.job.Workers = "/soak", "j", k.size.workers
	if err := k.store().Commit(t.Context(), plan.Row{Path: k.job.Path(), New: k.job, Reason: plan.NotThere}); err != nil {
		t.Fatal(err)
	}
	// Somebody is always live: new workers do not join a job that is stale.
	m, err := worker.Join(t.Context(), dial(t, k.ensemble.Addrs()...), config(k.job, "keeper"))
	if err != nil {
		t.Fatal(err)
	}
	k.ids["keeper"] = m.ID
	return k
}

func (k *joinSoak) store() *zkstate.Store {
	k.t.Helper()
	return rig.Store(k.t, dial(k.t, k.ensemble.Addrs()...), k.job.Root, zkstate.Job())
}

// spawn starts process i with its share of the identities.
func (k *joinSoak) spawn(i int) {
	var share []string
	for w := i; w < k.size.workers+k.size.extra; w += k.size.processes {
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
	for identity, id := range ids(k.t, store, k.job) {
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

func isMulti(op int32, _ []byte) bool { return op == zkserver.OpMulti }

// completes recognises the transaction of Complete.
func completes(req []byte) bool { return bytes.Contains(req, []byte("/end/d-")) }

// matched arms a fault for a request that match accepts.
type matched = func(p *zkserver.Proxy, match func(op int32, req []byte) bool) <-chan struct{}

func faults() map[string]matched {
	return map[string]matched{
		"before it is sent": (*zkserver.Proxy).BeforeSend,
		"before its reply":  (*zkserver.Proxy).DropReply,
		"after its reply":   (*zkserver.Proxy).AfterReply,
		"throttled":         (*zkserver.Proxy).Throttle,
	}
}

// nth accepts the nth request, from 0, that is not a ping.
func nth(n int) func(int32, []byte) bool {
	var mu sync.Mutex
	seen := -1
	return func(op int32, _ []byte) bool {
		mu.Lock()
		defer mu.Unlock()
		if op == zkserver.OpPing || op == zkserver.OpCloseSession {
			return false
		}
		seen++
		return seen == n
	}
}

func happened(fired <-chan struct{}) bool {
	select {
	case <-fired:
		return true
	default:
		return false
	}
}

// recipe is a worker's way through a job of which it is w1; w0 is there already, unless there is one place.
type recipe struct {
	name    string
	workers int
	lived   bool   // it is not w1's first life
	script  string // after the join: what a child process understands
	cuts    int    // more than there are operations
	// How its next life joins, and the job's status then.
	next   error
	status resource.Status
}

func recipes() []recipe {
	return []recipe{
		{name: "join first", cuts: 24, workers: 1, script: "stay", status: job.Running},
		{name: "join", cuts: 20, workers: 3, script: "stay", status: job.Forming},
		{name: "rejoin", cuts: 28, workers: 3, lived: true, script: "stay", status: job.Forming},
		{name: "leave", cuts: 14, workers: 3, script: "leave", status: job.Forming},
		{name: "complete", cuts: 14, workers: 3, script: "complete", next: worker.ErrDone, status: job.Forming},
		{name: "complete last", cuts: 60, workers: 1, script: "complete", status: job.Running},
	}
}

// prepare creates the job and its earlier lives, and returns the id that each identity must have. All but w1 work in
// session s.
func (r recipe) prepare(t *testing.T, s *zkconn.Session) (j job.Job, store *zkstate.Store, want map[string]int) {
	t.Helper()
	j = declare(r.workers)
	store = storeIn(t, s, j)
	create(t, store, j)
	want = map[string]int{"w1": 0}
	if r.workers > 1 {
		if _, err := worker.Join(t.Context(), s, config(j, "w0")); err != nil {
			t.Fatal(err)
		}
		want = map[string]int{"w0": 0, "w1": 1}
	}
	if r.lived {
		crash(t, j, "w1")
	}
	return j, store, want
}

// verify joins as w1 once more: it has the id that it had, and no other worker has appeared. A process that was
// killed may not have got as far as its script says.
func (r recipe) verify(
	t *testing.T, s *zkconn.Session, j job.Job, store *zkstate.Store, want map[string]int, killed bool,
) error {
	m, err := worker.Join(t.Context(), s, config(j, "w1"))
	o := look(t, store, j)
	wantErr, status, done := r.next, r.status, 0
	switch {
	case killed && errors.Is(err, worker.ErrDone) && r.script == "complete":
		wantErr = worker.ErrDone
		if r.workers == 1 { // the reset, in which it was killed, is done by the life that has just come
			status, want = resource.StatusReady, map[string]int{}
		}
	case killed:
		wantErr = nil
	}
	if errors.Is(wantErr, worker.ErrDone) && status != resource.StatusReady {
		done = 1
	}
	switch {
	case !errors.Is(err, wantErr):
		return fmt.Errorf("the next life joined with %v, want %v", err, wantErr)
	case m != nil && m.ID != want["w1"]:
		return fmt.Errorf("the next life is %d, want %d", m.ID, want["w1"])
	case o.Status() != status || job.Joined(o) != len(want) || job.Done(o) != done || o.Live != len(want)-done:
		return fmt.Errorf("the job is %s: %d joined, %d completed, %d live; want %s",
			o.Status(), job.Joined(o), job.Done(o), o.Live, status)
	}
	if d := cmp.Diff(want, ids(t, store, j)); d != "" {
		return fmt.Errorf("ids (-want +got):\n%s", d)
	}
	return nil
}

// oneOf is one of the faults, another one for each n; with MUSTER_SOAK=1 it is all of them.
func oneOf[F any](all map[string]F, n int) map[string]F {
	if soak.Long() {
		return all
	}
	name := slices.Sorted(maps.Keys(all))[n%len(all)]
	return map[string]F{name: all[name]}
}

// eachMoment runs f for every operation of every recipe, several at a time: each with one of the faults, or with all.
func eachMoment(t *testing.T, f func(r recipe, others *zkconn.Session, arm matched, i int) error) {
	t.Helper()
	others := dial(t)
	const atOnce = 12
	places := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for n, r := range recipes() {
		for i := range r.cuts {
			for fault, arm := range oneOf(faults(), n+i) {
				all.Go(func() {
					places <- struct{}{}
					defer func() { <-places }()
					if err := f(r, others, arm, i); err != nil {
						t.Errorf("%s, operation %d, %s: %v", r.name, i, fault, err)
					}
				})
			}
		}
	}
	all.Wait()
}

// TestCutConnection cuts every operation of each recipe before it is sent, after it was executed and before its
// reply, and after its reply; or the server is too busy for it. The process goes on, and does what it would have
// done.
func TestCutConnection(t *testing.T) {
	t.Parallel()
	eachMoment(t, func(r recipe, others *zkconn.Session, arm matched, i int) error {
		fired, err := r.cutAt(t, others, arm, i)
		if err == nil && fired && i == r.cuts-1 {
			err = errors.New("there may be more operations: raise the recipe's cuts")
		}
		return err
	})
}

func (r recipe) cutAt(t *testing.T, others *zkconn.Session, arm matched, i int) (fired bool, err error) {
	j, store, want := r.prepare(t, others)
	proxy := newProxy(t)
	s := dial(t, proxy.Addr())
	cut := arm(proxy, nth(i))
	m, err := worker.Join(t.Context(), s, config(j, "w1"))
	if err != nil {
		return false, err
	}
	if m.ID != want["w1"] {
		return false, fmt.Errorf("id %d, want %d", m.ID, want["w1"])
	}
	switch r.script {
	case "leave":
		err = m.Leave(t.Context(), worker.End{})
	case "complete":
		err = m.Complete(t.Context(), 0)
	case "stay":
		revive(t, others, m)
	}
	if err != nil {
		return false, err
	}
	fired = happened(cut)
	s.Close()
	return fired, r.verify(t, others, j, store, want, false)
}

// revive deletes the live znode, and returns when the member has made it again.
func revive(t *testing.T, admin *zkconn.Session, m *worker.Member) {
	t.Helper()
	live := znode.Live(m.Job.Root, m.Job.Name, m.Identity)
	if err := admin.Delete(t.Context(), live, -1); err != nil {
		t.Fatal(err)
	}
	rig.Await(t, "the live znode is back", func() bool {
		_, exists, err := admin.Exists(t.Context(), live)
		return err == nil && exists
	})
}

// TestKilledProcess is TestCutConnection with kill -9 at the same moments. The next life finds what is right whether
// the operation was done or not.
func TestKilledProcess(t *testing.T) {
	t.Parallel()
	eachMoment(t, func(r recipe, others *zkconn.Session, arm matched, i int) error {
		if r.script == "stay" && i > 12 || i > 28 { // it has joined, or reset the job
			return nil
		}
		return r.killAt(t, others, arm, i)
	})
}

// killAt does it again, in another job, while a busy machine lets the process lose its session before its moment has
// come. The short session timeout is for the next life, which waits for it.
func (r recipe) killAt(t *testing.T, others *zkconn.Session, arm matched, i int) error {
	const longest = 2 * time.Minute
	for timeout := time.Second; ; timeout *= 2 {
		err := r.killOnce(t, others, arm, i, timeout)
		if !errors.Is(err, zkconn.ErrSessionLost) || timeout >= longest {
			return err
		}
	}
}

// killOnce fails with ErrSessionLost if the process has lost its session before its moment has come.
func (r recipe) killOnce(
	t *testing.T, others *zkconn.Session, arm matched, i int, timeout time.Duration,
) error {
	j, store, want := r.prepare(t, others)
	proxy := newProxy(t)
	cut := arm(proxy, nth(i))
	c := spawn(t, j, fmt.Sprint(timeout, " ", r.script), "w1", proxy.Addr())
	joined := fmt.Sprint("joined ", want["w1"])
	over := map[string]string{"stay": joined, "leave": "leave ok", "complete": "complete ok"}[r.script]
	var said []string
	for due := false; !due; {
		select {
		case line, alive := <-c.lines:
			said = append(said, line)
			switch {
			case line == over || happened(cut):
				due = true
			case strings.HasSuffix(line, " lost"):
				return fmt.Errorf("it said %q: %w", append(said, c.kill()...), zkconn.ErrSessionLost)
			case !alive || line != joined:
				return fmt.Errorf("it said %q, want %q and %q", append(said, c.kill()...), joined, over)
			}
		case <-cut:
			due = true
		case <-time.After(timeout + patience):
			return fmt.Errorf("after %q nothing happened; standard error has the stacks: %v", said, c.quit())
		}
	}
	said = append(said, c.kill()...)
	proxy.Close() // what the process sent last does not happen while the next life looks
	for _, line := range said {
		if strings.HasPrefix(line, "joined ") && line != joined {
			return fmt.Errorf("it said %q, want %q", line, joined)
		}
	}
	return r.verify(t, others, j, store, want, true)
}
