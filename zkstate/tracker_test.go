package zkstate_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/dev/zkserver"
	"muster/plan"
	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/resource/queue"
	"muster/sim/rig"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// allKinds are the kinds that the tests of Mirrors read.
func allKinds() []zkstate.Kind {
	return []zkstate.Kind{zkstate.Job(), zkstate.Group(), zkstate.Queue()}
}

// follower is a Tracker, and a Reader with a session of its own that it is compared with.
type follower struct {
	f       *fixture
	roots   []string
	tracker *zkstate.Tracker
	plain   *zkstate.Reader
}

func (f *fixture) follow(s *zkconn.Session, roots ...string) *follower {
	f.t.Helper()
	t := zkstate.NewTracker(zkstate.NewMirror(s), zkstate.TrackerConfig{Home: f.root + "/home", Kinds: allKinds()})
	f.t.Cleanup(t.Close)
	return &follower{f, roots, t, zkstate.NewReader(f.dial(), f.root+"/home", allKinds()...)}
}

// agrees waits until the Tracker says what a plain Read says. Nothing else may change anything meanwhile.
func (w *follower) agrees(what string) {
	w.f.t.Helper()
	ctx, cancel := context.WithTimeout(w.f.t.Context(), 2*time.Minute)
	defer cancel()
	want, err := w.plain.Read(ctx, w.roots)
	if err != nil {
		w.f.t.Fatal(err)
	}
	for {
		changed := w.tracker.Changed()
		state, err := w.tracker.Read(ctx, w.roots)
		if err != nil {
			w.f.t.Fatalf("%s: %v", what, err)
		}
		difference := cmp.Diff(want, state)
		if difference == "" {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			w.f.t.Fatalf("%s: the tracker never heard of it (-want +got):\n%s", what, difference)
		}
	}
}

// hand changes what is below a root at random: by what muster does, and by hand.
type hand struct {
	f       *fixture
	random  *rand.Rand
	roots   []string
	members []*worker.Member
	leave   map[*worker.Member]func()
}

func (f *fixture) hand(seed uint64, roots ...string) *hand {
	return &hand{f: f, random: rand.New(rand.NewPCG(seed, 1)), roots: roots, leave: map[*worker.Member]func(){}}
}

func (h *hand) name() string { return fmt.Sprintf("j%d", h.random.IntN(6)) }
func (h *hand) root() string { return h.roots[h.random.IntN(len(h.roots))] }

// act does one thing, and returns what it was. What is refused does no harm.
func (h *hand) act() string {
	ctx, root, name := h.f.t.Context(), h.root(), h.name()
	path := root + "/" + name
	acts := []struct {
		what string
		do   func()
	}{
		{"declare", func() { h.declare(root) }},
		{"declare", func() { h.declare(root) }},
		{"join", func() { h.join(root, name) }},
		{"join", func() { h.join(root, name) }},
		{"join", func() { h.join(root, name) }},
		{"complete", h.complete},
		{"complete", h.complete},
		{"die", h.die},
		{"damage " + path, func() { h.damage(path) }},
		{"foreign", func() { _, _ = h.f.session.Create(ctx, path, []byte("x"), zkconn.Persistent, anyone()) }},
		{"classic", func() {
			_, _ = h.f.session.Create(ctx, path+"-dai", []byte{0, 0, 0, 1}, zkconn.Persistent, anyone())
			_, _ = h.f.session.Create(ctx, path, nil, zkconn.Persistent, anyone())
		}},
		{"finish", func() {
			o, err := h.f.store.Look(ctx, path)
			if err == nil && o != nil && o.Record != nil {
				_ = h.f.store.Finish(ctx, path, o.Record.Generation)
			}
		}},
	}
	act := acts[h.random.IntN(len(acts))]
	act.do()
	return act.what
}

func anyone() []zkconn.ACL { return zkconn.World(zkconn.PermAll) }

// declare applies some jobs, a group and a queue, with fields that change; what is not declared is deleted.
func (h *hand) declare(root string) {
	ctx := h.f.t.Context()
	var want []resource.Declaration
	for i := range 6 {
		if h.random.IntN(3) > 0 {
			j := h.f.declare(fmt.Sprintf("j%d", i), 1+h.random.IntN(2))
			j.Root, j.Labels = root, map[string]string{"n": fmt.Sprint(h.random.IntN(3))}
			if h.random.IntN(2) == 0 {
				j.Lifecycle.OnComplete = job.Retain
			}
			want = append(want, j)
		}
	}
	if h.random.IntN(2) == 0 {
		g := group.Default()
		g.Root, g.Name, g.Address = root, "shop", "group.shop"
		g.Duties = []group.Duty{group.NewDuty(group.Leader, "d")}
		q := queue.Default()
		q.Root, q.Name, q.Address, q.Redis = root, "mails", "queue.mails", "127.0.0.1:6379"
		want = append(want, g, q)
	}
	state, err := h.f.store.Read(ctx, []string{root})
	if err != nil {
		h.f.t.Fatal(err)
	}
	for _, r := range plan.Diff(plan.Want{Stack: "tests", Home: h.f.root + "/home", Declared: want}, state).Rows {
		if r.Action().Changes() {
			_ = h.f.store.Commit(ctx, r)
		}
	}
}

func (h *hand) join(root, name string) {
	ctx, cancel := context.WithTimeout(h.f.t.Context(), time.Second)
	defer cancel()
	s := h.f.dial()
	m, err := worker.Join(ctx, s, worker.Config{
		Root: root, Job: name, Identity: fmt.Sprintf("w%d", h.random.IntN(3)),
		Info: znode.Worker{IP: "127.0.0.1", Port: 7000},
	})
	if err != nil {
		s.Close()
		return
	}
	h.members = append(h.members, m)
	h.leave[m] = func() { s.Close() }
}

// pick takes one of those who have joined.
func (h *hand) pick() *worker.Member {
	if len(h.members) == 0 {
		return nil
	}
	i := h.random.IntN(len(h.members))
	m := h.members[i]
	h.members = slices.Delete(h.members, i, i+1)
	return m
}

func (h *hand) die() {
	if m := h.pick(); m != nil {
		h.leave[m]()
	}
}

func (h *hand) complete() {
	if m := h.pick(); m != nil {
		ctx, cancel := context.WithTimeout(h.f.t.Context(), 5*time.Second)
		defer cancel()
		_ = m.Complete(ctx, 0)
		h.leave[m]()
	}
}

// damage deletes or overwrites one of the znodes of a job by hand.
func (h *hand) damage(path string) {
	ctx, s := h.f.t.Context(), h.f.session
	o, err := h.f.store.Look(ctx, path)
	if err != nil || o == nil || o.Record == nil {
		_ = s.Delete(ctx, path, -1)
		return
	}
	id, g := o.Record.Declaration.ID(), o.Record.Generation
	record := znode.Record(o.Record.Declaration.Kind().Name, id.Root, id.Name)
	switch h.random.IntN(7) {
	case 6: // a second generation, as if a backup had been put back
		body, _, _ := s.Get(ctx, znode.Run(id.Root, g))
		other := zkstate.NewID()
		_, _ = s.Create(ctx, znode.Run(id.Root, other), bytes.ReplaceAll(body, []byte(g), []byte(other)),
			zkconn.Persistent, anyone())
		_, _ = s.Create(ctx, znode.Gate(id.Root, other), nil, zkconn.Persistent, anyone())
	case 0:
		_ = s.Delete(ctx, record, -1)
	case 1:
		_ = s.Delete(ctx, znode.Gate(id.Root, g), -1)
	case 2:
		_ = s.Delete(ctx, path, -1)
	case 3:
		_, _ = s.Set(ctx, record, []byte("{"), -1)
	case 4:
		_ = s.Delete(ctx, record, -1)
		_ = s.Delete(ctx, path, -1)
	case 5:
		_ = s.Delete(ctx, znode.IDs(id.Root, g), -1)
	}
}

// TestTrackerAgreesWithARead: after each random burst of changes a Tracker says what a plain Read says.
func TestTrackerAgreesWithARead(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.bursts(seed, f.dial(), func(int) {})
		})
	}
}

// bursts changes two roots at random, one of which the other leads to, and compares after each burst. between is called
// in the middle of each.
func (f *fixture) bursts(seed uint64, s *zkconn.Session, between func(burst int)) {
	roots := []string{f.root + "/jobs", f.root + "/jobs/j1/inner"}
	w, h := f.follow(s, roots...), f.hand(seed, roots...)
	w.agrees("at first")
	for burst := range 12 {
		if burst == 6 {
			w.roots = roots[:1]
		}
		if burst == 8 {
			w.roots = roots
		}
		var done []string
		n := 1 + h.random.IntN(6)
		for i := range n {
			if done = append(done, h.act()); i == n/2 {
				between(burst)
				if _, err := w.tracker.Read(f.t.Context(), w.roots); err != nil {
					f.t.Fatal(err)
				}
			}
		}
		w.agrees(fmt.Sprintf("burst %d: %q", burst, done))
	}
}

// TestTrackerAgreesAfterLostConnections: the same, while connections are cut.
func TestTrackerAgreesAfterLostConnections(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p := rig.Proxy(t, servers.Connect())
	s, err := zkconn.Dial(t.Context(), zkconn.Config{Servers: []string{p.Addr()}, Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	f.bursts(99, s, func(int) { p.Cut() })
}

// TestTrackerAgreesWhileServersAreKilled: the same with three servers, of which one after the other is killed and
// started again.
func TestTrackerAgreesWhileServersAreKilled(t *testing.T) {
	t.Parallel()
	three, err := zkserver.Start(t.Context(), zkserver.Options{Servers: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = three.Stop() })
	f := newFixtureAt(t, three.Addrs())
	f.timeout = 40 * time.Second // a busy machine takes long to elect a leader
	f.session = f.dial()
	f.store = f.newStore(f.session)
	f.bursts(7, f.dial(), func(burst int) {
		server := three.Server(burst / 2 % 3)
		if burst%2 == 0 {
			err = server.Kill()
		} else {
			err = server.Restart(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
	})
}
