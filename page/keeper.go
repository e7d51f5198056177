package page

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"muster/apply/history"
	"muster/plan"
	"muster/resource"
	"muster/view"
	"muster/zkstate"
	"muster/zkstate/zkconn"
)

// keeper keeps the board current: it reads through one session at a time, and again what has changed.
type keeper struct {
	cfg   Config
	ctx   context.Context // of the server
	board feed[*Board]
	link  feed[*link] // nil: there is none now
	hour  lastHour

	planned feed[*Planned]
	also    feed[[]string] // roots of the configuration as it is now

	mu      sync.Mutex
	details map[[2]string]*watchedDetail // by path, and batch
	running sync.WaitGroup               // the details

	current  atomic.Pointer[time.Time] // until then what was known was certainly so; nil: not known
	sessions atomic.Int64              // that were opened
}

// link is one session, as far as details use it.
type link struct {
	mirror *zkstate.Mirror
	state  feed[plan.State] // as it was read, before strangers are taken out
}

func newKeeper(ctx context.Context, cfg Config) *keeper {
	k := &keeper{cfg: cfg, ctx: ctx, details: map[[2]string]*watchedDetail{}}
	k.hour.queues, k.hour.jobs = map[string]*queueHour{}, map[string]*jobHour{}
	return k
}

// run keeps the board current until ctx ends, in one session after the other.
func (k *keeper) run(ctx context.Context) {
	defer k.running.Wait()
	k.running.Go(func() { k.keepHour(ctx) })
	if k.cfg.Configuration != nil {
		k.running.Go(func() { k.keepPlan(ctx) })
	}
	wait := firstRedial
	for ctx.Err() == nil {
		s, err := k.cfg.Connect(ctx)
		if err == nil {
			k.sessions.Add(1)
			k.cfg.Log.Info("connected to zookeeper")
			err = k.follow(ctx, s, func() { wait = firstRedial })
			k.link.put(nil)
			_ = s.Close() // it has no ephemeral znodes
		}
		k.disconnected()
		if ctx.Err() != nil {
			return
		}
		k.cfg.Log.Warn("zookeeper does not answer; the page keeps what it knew", "reason", err, "again_in", wait)
		zkconn.Pause(ctx, wait)
		wait = min(2*wait, lastRedial)
	}
}

// disconnected notes that what is known may not be current any more.
func (k *keeper) disconnected() {
	if b, ok, _ := k.board.now(); ok && b.Connected {
		old := *b
		old.Connected = false
		if at := k.current.Load(); at != nil && at.After(old.At) {
			old.At = *at
		}
		k.board.put(&old)
	}
}

// follow keeps the board current until ctx or the session ends, and returns why. It calls read each time that it has
// read everything.
func (k *keeper) follow(ctx context.Context, s *zkconn.Session, read func()) error {
	l := &link{mirror: zkstate.NewMirror(s)}
	k.link.put(l)
	x := &index{cfg: k.cfg, also: &k.also, mirror: l.mirror, look: l.mirror.Look()}
	defer func() { x.look.Close() }()
	back, stop := k.watchConnection(ctx, s)
	defer stop()
	t := k.newTracking(l, false)
	defer func() { t.Close() }()
	for {
		start := time.Now()
		var err error
		if t, err = k.read(ctx, l, x, t); err != nil {
			return err
		}
		read()
		zkconn.Pause(ctx, readPause(time.Since(start)))
		select {
		case <-t.Changed():
		case <-x.look.Changed():
		case <-x.alsoChanged:
		case <-back: // the board says so
		case <-s.Context().Done():
			return context.Cause(s.Context())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// read reads what has changed, and shows it. It returns t, or another tracking that has replaced it.
func (k *keeper) read(ctx context.Context, l *link, x *index, t *tracking) (*tracking, error) {
	if err := x.update(ctx); err != nil {
		return t, err
	}
	show := func(t *tracking) (plan.State, error) {
		state, err := t.Read(ctx, x.roots)
		if err == nil {
			l.state.put(state)
			b := k.newBoard(t, x, state)
			old, _, _ := k.board.now()
			k.hour.compare(old, b)
			k.board.put(b)
		}
		return state, err
	}
	state, err := show(t)
	if err != nil || fewMembers(state) == t.counting {
		return t, err
	}
	next := k.newTracking(l, !t.counting) // what was read stays read
	if _, err := show(next); err != nil {
		next.Close()
		return t, err
	}
	t.Close()
	return next, nil
}

// fewMembers reports whether there are so few that their restarts are counted.
func fewMembers(state plan.State) bool {
	members := 0
	for _, o := range state.Found {
		members += view.CountMembers([]view.Resource{{Observed: o}})
	}
	return members <= view.MaxCounted
}

// readPause is how long to wait after a reading that took so long: it leaves half of the time to others.
func readPause(took time.Duration) time.Duration { return min(max(readEvery, took), readLatest) }

// watchConnection says on the board that the session has no connection, also while a reading waits for one. Once it has
// one again, it tells back. stop ends it.
func (k *keeper) watchConnection(ctx context.Context, s *zkconn.Session) (back <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	again := make(chan struct{}, 1)
	var watching sync.WaitGroup
	watching.Go(func() {
		second := time.NewTicker(time.Second)
		defer second.Stop()
		away := 0 // for so many seconds
		for last := time.Now(); ; last = time.Now() {
			select {
			case <-second.C:
			case <-ctx.Done():
				return
			}
			if !s.Connected() {
				if away++; away > 1 { // not if it only moves to another server
					k.disconnected()
				}
				continue
			}
			if time.Since(last) < s.Timeout() { // else this process was stopped
				k.current.Store(new(time.Now().Add(-s.Timeout())))
			}
			if away > 1 {
				select {
				case again <- struct{}{}:
				default:
				}
			}
			away = 0
		}
	})
	return again, func() { cancel(); watching.Wait() }
}

// tracking is a tracker, and what it counts besides.
type tracking struct {
	*zkstate.Tracker
	counting bool // restarts

	mu      sync.Mutex
	counted map[string]countedJob // by path; without counting it is empty
}

// countedJob is what was counted of a resource: as it was observed, and as it is shown.
type countedJob struct {
	observed resource.Observed
	shown    view.Resource
}

func (k *keeper) newTracking(l *link, counting bool) *tracking {
	t := &tracking{counting: counting, counted: map[string]countedJob{}}
	c := zkstate.TrackerConfig{Home: k.cfg.Home, Kinds: k.cfg.Kinds}
	if counting {
		c.More = t.count
	}
	t.Tracker = zkstate.NewTracker(l.mirror, c)
	return t
}

// count counts restarts, and takes out strangers. It leaves o as it is: who looks at it in detail does the same.
// Workers that cannot be read are not counted. The error is that of a session that has ended.
func (t *tracking) count(ctx context.Context, r *zkstate.Reader, path string, o *resource.Observed) error {
	j := view.Resource{Path: path, Observed: *o}
	err := r.FillWorkers(ctx, &j)
	j.Workers = nil // they are read again for who looks at the job
	switch {
	case ctx.Err() != nil || errors.Is(err, zkconn.ErrSessionLost) || errors.Is(err, zkconn.ErrUnreachable):
		return err
	case err != nil:
		j = view.Resource{Path: path, Observed: *o}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counted[path] = countedJob{*o, j}
	return nil
}

func (k *keeper) newBoard(t *tracking, x *index, state plan.State) *Board {
	b := &Board{
		At: time.Now(), Servers: k.cfg.Servers, Connected: true, Roots: x.roots, Unlisted: state.Unlisted,
		Unindexed: x.problem, Stacks: x.stacks, History: x.history, last: x.last,
		Resources: make([]view.Resource, 0, len(state.Found)),
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.counted, func(path string, c countedJob) bool {
		o, there := state.Found[path]
		return !there || !o.Equal(c.observed)
	})
	for _, path := range slices.Sorted(maps.Keys(state.Found)) {
		if c, ok := t.counted[path]; ok {
			b.Resources = append(b.Resources, c.shown)
		} else {
			b.Resources = append(b.Resources, view.Resource{Path: path, Observed: state.Found[path]})
		}
	}
	return b
}

// index keeps current which stacks there are, where they have something, and who applied them.
type index struct {
	cfg    Config
	also   *feed[[]string] // in place of those of cfg, once it has some
	mirror *zkstate.Mirror
	look   *zkstate.Look

	alsoChanged <-chan struct{}

	roots   []string
	stacks  []Stack
	history []history.Found
	last    map[string]history.Found // by stack, also of stacks that are not shown; nil: nothing was read
	problem string                   // why not all stacks are known
}

func (x *index) update(ctx context.Context) error {
	if x.last != nil && !zkconn.Closed(x.look.Changed()) && !zkconn.Closed(x.alsoChanged) {
		return nil
	}
	look := x.mirror.Look()
	err := x.read(ctx, zkstate.NewReader(look, x.cfg.Home, x.cfg.Kinds...))
	x.look.Close()
	x.look = look
	return err
}

// read reads the index. What is damaged or may not be read is a problem, and no error.
func (x *index) read(ctx context.Context, r *zkstate.Reader) error {
	x.stacks, x.history, x.last, x.problem = nil, nil, map[string]history.Found{}, ""
	names, err := r.Stacks(ctx)
	if err := x.note(ctx, err); err != nil {
		return err
	}
	if len(x.cfg.Stacks) > 0 {
		shown := func(name string) bool { return slices.Contains(x.cfg.Stacks, name) }
		for _, name := range names {
			if !shown(name) { // it may have something beside what is shown
				if err := x.lastOf(ctx, r, name); err != nil {
					return err
				}
			}
		}
		names = slices.DeleteFunc(names, func(name string) bool { return !shown(name) })
	}
	also, newer, changed := x.also.now()
	if x.alsoChanged = changed; !newer {
		also = x.cfg.Also
	}
	x.roots = slices.Concat(x.cfg.Roots, also)
	for _, name := range names {
		if err := x.stack(ctx, r, name, max(1, maxHistory/len(names))); err != nil {
			return err
		}
	}
	if len(x.cfg.Roots) == 0 && len(x.cfg.Stacks) == 0 {
		x.roots = append(x.roots, resource.DefaultRoot)
	}
	slices.Sort(x.roots)
	x.roots = slices.Compact(x.roots)
	history.NewestFirst(x.history)
	return nil
}

// stack reads one stack, and the newest n entries of its history. If roots are named, a stack that has nothing in any
// of them is not shown.
func (x *index) stack(ctx context.Context, r *zkstate.Reader, name string, n int) error {
	roots, err := r.Roots(ctx, name)
	if err := x.note(ctx, err); err != nil {
		return err
	}
	if len(x.cfg.Roots) > 0 {
		if !slices.ContainsFunc(roots, func(root string) bool { return slices.Contains(x.cfg.Roots, root) }) {
			return x.lastOf(ctx, r, name)
		}
	} else {
		x.roots = append(x.roots, roots...)
	}
	found, err := r.History(ctx, name, min(n, history.Kept))
	if err := x.note(ctx, err); err != nil {
		return err
	}
	s := Stack{Name: name, Roots: roots}
	if len(found) > 0 {
		s.Last, x.last[name] = &found[0], found[0]
	}
	if s.Held, err = r.Held(ctx, name, time.Now()); x.note(ctx, err) != nil {
		return err
	}
	x.history = append(x.history, found...)
	x.stacks = append(x.stacks, s)
	return nil
}

// lastOf reads the last apply of a stack that is not shown.
func (x *index) lastOf(ctx context.Context, r *zkstate.Reader, name string) error {
	found, err := r.History(ctx, name, 1)
	for _, f := range found {
		x.last[name] = f
	}
	return x.note(ctx, err)
}

// note notes why something could not be read. It returns the error of a session that has ended.
func (x *index) note(ctx context.Context, err error) error {
	switch {
	case err == nil:
	case errors.Is(err, zkconn.ErrSessionLost), errors.Is(err, zkconn.ErrUnreachable), ctx.Err() != nil:
		return err
	case x.problem == "":
		x.problem = err.Error()
	}
	return nil
}
