package zkstate_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/dev/fault"
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

// mirrored is a fixture whose session goes through a proxy, a Mirror of that session, and another session.
type mirrored struct {
	*fixture
	proxy  *fault.Proxy
	mirror *zkstate.Mirror
	other  *zkconn.Session
}

func newMirrored(t *testing.T) mirrored {
	t.Helper()
	f, p := newProxyFixture(t)
	m := mirrored{f, p, zkstate.NewMirror(f.session), newFixture(t).session}
	m.create(f.root, nil)
	return m
}

func (m mirrored) create(path string, body []byte, acl ...zkconn.ACL) {
	m.t.Helper()
	if acl == nil {
		acl = anyone()
	}
	if _, err := m.other.Create(m.t.Context(), path, body, zkconn.Persistent, acl); err != nil {
		m.t.Fatal(err)
	}
}

func (m mirrored) set(path string, body string) {
	m.t.Helper()
	if _, err := m.other.Set(m.t.Context(), path, []byte(body), -1); err != nil {
		m.t.Fatal(err)
	}
}

// reads is how many reads the proxy has seen.
func (m mirrored) reads() int {
	sent := m.proxy.Requests()
	return sent[3] + sent[4] + sent[12]
}

// changes waits until a Look has changed.
func (m mirrored) changes(l *zkstate.Look) {
	m.t.Helper()
	select {
	case <-l.Changed():
	case <-time.After(time.Minute):
		m.t.Fatal("the look never changed")
	}
}

func unchanged(t *testing.T, l *zkstate.Look) {
	t.Helper()
	select {
	case <-l.Changed():
		t.Error("the look changed")
	default:
	}
}

func get(t *testing.T, s zkstate.Source, path string) string {
	t.Helper()
	body, _, err := s.Get(t.Context(), path)
	if err != nil && !errors.Is(err, zkconn.ErrNoNode) {
		t.Fatal(err)
	}
	if err != nil {
		return "none"
	}
	return string(body)
}

// TestLookSeesEachChange: whatever is read through a Look, it changes when that does, and only then.
func TestLookSeesEachChange(t *testing.T) {
	t.Parallel()
	m := newMirrored(t)
	ctx := t.Context()
	for name, read := range map[string]func(s zkstate.Source, at string) string{
		"data": func(s zkstate.Source, at string) string { return get(t, s, at) },
		"existence": func(s zkstate.Source, at string) string {
			stat, there, err := s.Exists(ctx, at)
			return fmt.Sprint(stat, there, err)
		},
		"children": func(s zkstate.Source, at string) string {
			names, _, err := s.Children(ctx, at)
			return fmt.Sprint(names, err)
		},
	} {
		at := m.root + "/" + name // of its own: another kind of read must not set its watches
		for i, test := range []struct {
			change func()
			seen   string
		}{
			{func() { m.create(at, []byte("1")) }, "data existence children"},
			{func() { m.set(at, "2") }, "data existence"},
			{func() { m.create(at+"/c", nil) }, "existence children"},
			{func() { _ = m.other.Delete(ctx, at+"/c", -1) }, "existence children"},
			{func() { _ = m.other.Delete(ctx, at, -1) }, "data existence children"},
		} {
			l := m.mirror.Look()
			if got, want := read(l, at), read(m.other, at); got != want {
				t.Errorf("%s, change %d: %s, want %s", name, i, got, want)
			}
			unchanged(t, l)
			if test.change(); strings.Contains(test.seen, name) {
				m.changes(l)
				continue
			}
			if err := m.session.Sync(ctx, "/"); err != nil { // an event would have come before the answer
				t.Fatal(err)
			}
			unchanged(t, l)
		}
	}
}

// TestWhatHasNotChangedIsReadOnce: also by two Looks at the same time, and by a Look that replaces another.
func TestWhatHasNotChangedIsReadOnce(t *testing.T) {
	t.Parallel()
	m := newMirrored(t)
	for i := range 10 {
		m.create(fmt.Sprintf("%s/%d", m.root, i), []byte("x"))
	}
	readAll := func(l *zkstate.Look) {
		var all sync.WaitGroup
		for i := range 10 {
			for range 5 {
				all.Go(func() {
					if got := get(t, l, fmt.Sprintf("%s/%d", m.root, i)); got == "none" {
						t.Errorf("%d: %s", i, got)
					}
				})
			}
		}
		all.Wait()
	}
	before, l, beside := m.reads(), m.mirror.Look(), m.mirror.Look()
	var both sync.WaitGroup
	both.Go(func() { readAll(l) })
	both.Go(func() { readAll(beside) })
	both.Wait()
	if n := m.reads() - before; n != 10 {
		t.Errorf("%d reads for 10 znodes", n)
	}
	beside.Close()
	m.set(m.root+"/3", "y")
	m.changes(l)
	next := m.mirror.Look()
	readAll(next)
	l.Close()
	if n := m.reads() - before; n != 11 || get(t, next, m.root+"/3") != "y" {
		t.Errorf("%d reads, want one more", n)
	}
}

// TestAnEventDuringTheReadIsNotLost: a server has read, its answer is on the way, and the znode changes.
func TestAnEventDuringTheReadIsNotLost(t *testing.T) {
	t.Parallel()
	m := newMirrored(t)
	for i := range 20 {
		at := fmt.Sprintf("%s/%d", m.root, i)
		m.create(at, []byte("old"))
		before := m.reads()
		m.proxy.Mute(true)
		l, got := m.mirror.Look(), make(chan string, 1)
		go func() { got <- get(t, l, at) }()
		for m.reads() == before {
			if err := m.other.Sync(t.Context(), "/"); err != nil {
				t.Fatal(err)
			}
		}
		m.set(at, "new")
		m.proxy.Mute(false)
		if seen := <-got; seen == "old" {
			m.changes(l)
		}
		if seen := get(t, l, at); seen != "new" {
			t.Fatal(seen)
		}
	}
}

// TestAReadThatIsGivenUpIsReadAgain: the one who waits for it does not get the error of the one who gave up.
func TestAReadThatIsGivenUpIsReadAgain(t *testing.T) {
	t.Parallel()
	m := newMirrored(t)
	m.create(m.root+"/a", []byte("x"))
	before := m.reads()
	m.proxy.Mute(true)
	hasty, giveUp := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, _, err := m.mirror.Look().Get(hasty, m.root+"/a")
		first <- err
	}()
	for m.reads() == before {
		if err := m.other.Sync(t.Context(), "/"); err != nil {
			t.Fatal(err)
		}
	}
	second, l := make(chan string, 1), m.mirror.Look()
	go func() { second <- get(t, l, m.root+"/a") }()
	for l.Uses() == 0 {
		runtime.Gosched()
	}
	giveUp()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v", err)
	}
	m.proxy.Mute(false)
	if got := <-second; got != "x" {
		t.Error(got)
	}
}

// TestARefusalIsDoubted: no event says that an ACL has changed.
func TestARefusalIsDoubted(t *testing.T) {
	t.Parallel()
	m := newMirrored(t)
	at := m.root + "/secret"
	m.create(at, []byte("x"), zkconn.ACL{Perms: zkconn.PermAdmin, Scheme: "world", ID: "anyone"})
	l := m.mirror.Look()
	for range 2 {
		if _, _, err := l.Get(t.Context(), at); !errors.Is(err, zkconn.ErrNoAuth) {
			t.Errorf("error = %v", err)
		}
		_, there, err := l.Exists(t.Context(), at)
		if !there || err != nil && !errors.Is(err, zkconn.ErrNoAuth) { // some servers tell everybody
			t.Errorf("exists: %v, %v", there, err)
		}
	}
	unchanged(t, l)
	m.mirror.Doubt()
	m.changes(l)
	if _, _, err := l.Get(t.Context(), at); !errors.Is(err, zkconn.ErrNoAuth) {
		t.Errorf("error = %v", err)
	}
}

// TestLooksEndWithTheSession: all of them change, and their reads say why.
func TestLooksEndWithTheSession(t *testing.T) {
	t.Parallel()
	f, p := newProxyFixture(t)
	s, err := zkconn.Dial(t.Context(), zkconn.Config{Servers: f.servers, Timeout: 4 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	m := mirrored{f, p, zkstate.NewMirror(s), f.session}
	l, unused := m.mirror.Look(), m.mirror.Look()
	if got := get(t, l, m.root); got != "none" {
		t.Fatal(got)
	}
	p.Refuse(true)
	p.Cut()
	if got := get(t, l, m.root); got != "none" { // from memory
		t.Fatal(got)
	}
	for _, look := range []*zkstate.Look{l, unused, m.mirror.Look()} {
		m.changes(look)
		if _, _, err := look.Get(t.Context(), m.root); !errors.Is(err, zkconn.ErrSessionLost) {
			t.Errorf("error = %v", err)
		}
		if err := look.Sync(t.Context(), "/"); !errors.Is(err, zkconn.ErrSessionLost) {
			t.Errorf("sync: %v", err)
		}
	}
	m.changes(m.mirror.Look())
}

// TestWhatNobodyUsesIsForgotten: some is kept for the next Look, and no more than some.
func TestWhatNobodyUsesIsForgotten(t *testing.T) {
	t.Parallel()
	m := newMirrored(t)
	m.create(m.root+"/kept", []byte("x"))
	kept := m.mirror.Look()
	get(t, kept, m.root+"/kept")
	for round := range 3 {
		l := m.mirror.Look()
		var all sync.WaitGroup
		for worker := range 20 {
			all.Go(func() {
				for i := worker; i < zkstate.MaxIdle; i += 20 {
					if got := get(t, l, fmt.Sprintf("%s/%d-%d", m.root, round, i)); got != "none" {
						t.Error(got)
					}
				}
			})
		}
		all.Wait()
		l.Close()
	}
	if n := m.mirror.Remembered(); n > zkstate.MaxIdle+1 {
		t.Errorf("%d answers are remembered, and one is used", n)
	}
	before := m.reads()
	if get(t, m.mirror.Look(), m.root+"/kept"); m.reads() != before {
		t.Error("what is used was forgotten")
	}
}

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
