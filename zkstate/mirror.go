package zkstate

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"muster/plan"
	"muster/resource"
	"muster/zkstate/zkconn"
)

const (
	// maxIdle is how many answers that no Look uses are kept. All of them are forgotten when there are more.
	maxIdle = 4096
	// doubtInterval is for how long a refusal is believed: no event comes when an ACL changes.
	doubtInterval = time.Minute
)

// Mirror remembers what was read through one session, and watches it. What is read again comes from memory until it
// changes. It never writes. It ends with its session: make a new one then.
//
// What it returns is what a server had at some time, and not older than what any earlier answer of the session has
// shown: an event comes before the new data. So once a read has returned something of a transaction, later reads return
// all of it. After a lost connection the watches are set again before anything is read.
//
// ZooKeeper tells nobody of what he may not read: a znode that is created so stays missing in a Mirror that has looked
// for it.
type Mirror struct {
	session *zkconn.Session
	watcher *zkconn.Watcher

	mu       sync.Mutex
	answers  map[question]*answer // those that are current, or being read
	looks    map[*Look]bool       // open ones
	unused   int                  // how many answers no Look uses
	doubtful []*answer            // that no event ends
}

type question struct {
	path string
	kind asked
}

type asked uint8

const (
	itsData asked = iota
	itsExistence
	itsChildren
)

// answer is what ZooKeeper answered. Its fields below are set before done is closed, and do not change then.
type answer struct {
	of    question
	done  chan struct{} // closed when it is read, and nil then; guarded by the Mirror's mutex
	looks []*Look       // that use it; likewise
	gone  bool          // it is not in answers any more; likewise
	idle  bool          // no Look uses it; likewise

	data      []byte
	names     []string
	stat      zkconn.Stat
	exists    bool
	doubtful  bool // it may change without an event
	abandoned bool // whoever read it gave up
	err       error

	decoded atomic.Pointer[any] // what decode has made of data
}

// NewMirror returns a Mirror of what s reads.
func NewMirror(s *zkconn.Session) *Mirror {
	m := &Mirror{session: s, answers: map[question]*answer{}, looks: map[*Look]bool{}}
	m.watcher = s.Watcher(m.event)
	return m
}

// Close forgets everything. No Look of it is used any more.
func (m *Mirror) Close() { m.watcher.Close() }

// Look returns a new Look. The caller closes it.
func (m *Mirror) Look() *Look {
	told := make(chan struct{})
	return m.look(func() { close(told) }, told)
}

// look returns a Look that calls fired at its first change. fired must neither block nor call m.
func (m *Mirror) look(fired func(), told <-chan struct{}) *Look {
	l := &Look{mirror: m, fired: fired, told: told}
	m.mu.Lock()
	m.looks[l] = true
	m.mu.Unlock()
	if m.session.Context().Err() != nil { // its event may have come before
		m.event(zkconn.Event{})
	}
	return l
}

// event forgets what an event is about.
func (m *Mirror) event(e zkconn.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.Path == "" {
		for _, a := range m.answers {
			m.forget(a)
		}
		for l := range m.looks {
			l.change()
		}
		return
	}
	kinds := []asked{itsExistence}
	if e.Data {
		kinds = append(kinds, itsData)
	}
	if e.Children {
		kinds = append(kinds, itsChildren)
	}
	for _, kind := range kinds {
		if a := m.answers[question{e.Path, kind}]; a != nil {
			m.forget(a)
		}
	}
}

// forget makes the next read of a ask ZooKeeper, and wakes whoever has read it. The caller holds the mutex.
func (m *Mirror) forget(a *answer) {
	delete(m.answers, a.of)
	a.gone = true
	m.used(a)
	for _, l := range a.looks {
		l.change()
	}
}

// used takes a out of those that no Look uses.
func (m *Mirror) used(a *answer) {
	if a.idle {
		a.idle = false
		m.unused--
	}
}

// release takes l from those that use a. The caller holds the mutex.
func (m *Mirror) release(l *Look, a *answer) {
	if i := slices.Index(a.looks, l); i >= 0 {
		a.looks = slices.Delete(a.looks, i, i+1)
	}
	if len(a.looks) > 0 || a.gone || a.idle {
		return
	}
	a.idle = true
	if m.unused++; m.unused <= maxIdle {
		return
	}
	for _, other := range m.answers {
		if other.idle {
			m.forget(other)
		}
	}
}

// ask returns the answer to a question, from memory or by read; after an error it says nothing. Only one caller at a
// time reads.
func (m *Mirror) ask(ctx context.Context, l *Look, q question) (*answer, error) {
	for {
		if err := m.session.Context().Err(); err != nil {
			return &answer{}, &zkconn.Error{Op: "read", Path: q.path, Err: context.Cause(m.session.Context())}
		}
		m.mu.Lock()
		a := m.current(q)
		mine := a == nil
		if mine {
			a = &answer{of: q, done: make(chan struct{})}
			m.answers[q] = a
		}
		m.used(a)
		l.use(a)
		done := a.done
		m.mu.Unlock()
		if mine {
			m.read(ctx, a)
			m.answered(a)
		} else if done != nil {
			select {
			case <-done:
			case <-ctx.Done():
				return &answer{}, &zkconn.Error{Op: "read", Path: q.path, Err: context.Cause(ctx)}
			}
		}
		if mine || !a.abandoned {
			return a, a.err
		}
	}
}

// current is the answer to a question that is known or being read; else nil. The data of an ephemeral znode tell of its
// existence too, as it has no children. The caller holds the mutex.
func (m *Mirror) current(q question) *answer {
	if q.kind == itsExistence {
		a := m.answers[question{q.path, itsData}]
		if a != nil && a.done == nil && a.exists && a.stat.EphemeralOwner != 0 {
			return a
		}
	}
	return m.answers[q]
}

// answered notes that a has been read. It is not kept if whoever read it gave up.
func (m *Mirror) answered(a *answer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(a.done)
	a.done = nil
	switch {
	case a.gone:
	case a.abandoned:
		delete(m.answers, a.of)
		a.gone = true
	case a.doubtful:
		if len(m.doubtful) == 0 {
			time.AfterFunc(doubtInterval, m.doubt)
		}
		m.doubtful = append(m.doubtful, a)
	}
}

// doubt forgets what may have changed without an event.
func (m *Mirror) doubt() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.doubtful {
		if !a.gone {
			m.forget(a)
		}
	}
	m.doubtful = nil
}

// read reads what a is about, and sets the watches that a needs to stay current.
func (m *Mirror) read(ctx context.Context, a *answer) {
	switch a.of.kind {
	case itsData:
		a.err = m.unlessMissing(ctx, a, func() (err error) {
			a.data, a.stat, err = m.watcher.Get(ctx, a.of.path)
			a.exists = err == nil
			return err
		})
	case itsChildren:
		a.err = m.unlessMissing(ctx, a, func() (err error) {
			a.names, a.stat, err = m.watcher.Children(ctx, a.of.path)
			return err
		})
	case itsExistence:
		a.err = m.readExistence(ctx, a)
	}
	switch {
	case a.err == nil, errors.Is(a.err, zkconn.ErrNoNode):
	case ctx.Err() != nil, errors.Is(a.err, zkconn.ErrSessionLost), errors.Is(a.err, zkconn.ErrUnreachable):
		a.abandoned = true
	default:
		a.doubtful = true
	}
}

// unlessMissing calls read. A read of a znode that does not exist sets no watch, so it watches for its creation.
func (m *Mirror) unlessMissing(ctx context.Context, a *answer, read func() error) error {
	for {
		missing := read()
		if !errors.Is(missing, zkconn.ErrNoNode) {
			return missing
		}
		_, exists, err := m.watcher.Exists(ctx, a.of.path)
		switch {
		case exists: // also if it may not be read: then read says so
		case err != nil:
			return err
		default:
			return missing
		}
	}
}

// readExistence reads the Stat of a znode. Its number of children and its pzxid are watched with its children, which an
// ephemeral znode cannot have. Without permission to list them they are doubtful.
func (m *Mirror) readExistence(ctx context.Context, a *answer) (err error) {
	for {
		a.stat, a.exists, err = m.watcher.Exists(ctx, a.of.path)
		if err != nil || !a.exists || a.stat.EphemeralOwner != 0 || m.knowsChildren(a.of.path) {
			return err
		}
		_, stat, err := m.watcher.Children(ctx, a.of.path)
		switch {
		case err == nil:
			a.stat = stat
			return nil
		case errors.Is(err, zkconn.ErrNoAuth), errors.Is(err, zkconn.ErrTooLarge):
			a.doubtful = true
			return nil
		case !errors.Is(err, zkconn.ErrNoNode):
			return err
		}
	}
}

// knowsChildren reports whether the children of a znode are remembered: then they are watched, and have not changed.
func (m *Mirror) knowsChildren(path string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.answers[question{path, itsChildren}]
	return a != nil && a.done == nil && a.err == nil
}

// Look is a Source that reads through a Mirror, and tells when something that was read through it has changed. Then
// make a new Look, read again, and close the old one after that: what has not changed is not read again.
type Look struct {
	mirror *Mirror
	fired  func() // called once when it has changed
	told   <-chan struct{}

	changed atomic.Bool

	// Guarded by the Mirror's mutex.
	uses   []*answer
	closed bool
}

// Changed returns a channel that is closed when something that was read through l has changed, or may have; or when the
// session has ended: reads return its error then.
func (l *Look) Changed() <-chan struct{} { return l.told }

// Close forgets the Look. It must not be used after that.
func (l *Look) Close() {
	l.mirror.mu.Lock()
	defer l.mirror.mu.Unlock()
	l.closed = true
	delete(l.mirror.looks, l)
	for _, a := range l.uses {
		l.mirror.release(l, a)
	}
	l.uses = nil
}

// change notes that something has changed. The caller holds the Mirror's mutex.
func (l *Look) change() {
	if !l.closed && !l.changed.Swap(true) {
		l.fired()
	}
}

// use notes that l reads a. The caller holds the Mirror's mutex.
func (l *Look) use(a *answer) {
	if !l.closed && !slices.Contains(a.looks, l) {
		a.looks = append(a.looks, l)
		l.uses = append(l.uses, a)
	}
}

// Get returns the data of a znode; nil if it has none. The caller must not change it. The Stat is that of the data: its
// number of children and its pzxid may have changed since.
func (l *Look) Get(ctx context.Context, path string) ([]byte, zkconn.Stat, error) {
	a, err := l.mirror.ask(ctx, l, question{path, itsData})
	return a.data, a.stat, err
}

// Exists reports whether the znode exists. All of its Stat is current.
func (l *Look) Exists(ctx context.Context, path string) (zkconn.Stat, bool, error) {
	a, err := l.mirror.ask(ctx, l, question{path, itsExistence})
	return a.stat, a.exists, err
}

// Children returns the names of a znode's children, sorted. The Stat is that of the list: its version and its mzxid may
// have changed since.
func (l *Look) Children(ctx context.Context, path string) ([]string, zkconn.Stat, error) {
	a, err := l.mirror.ask(ctx, l, question{path, itsChildren})
	return slices.Clone(a.names), a.stat, err
}

// Sync only reports that the session has ended. What is remembered is as current as the events that have come, and
// these come from a server that may be behind the leader for a moment.
func (l *Look) Sync(_ context.Context, path string) error {
	if ended := l.mirror.session.Context(); ended.Err() != nil {
		return &zkconn.Error{Op: "sync", Path: path, Err: context.Cause(ended)}
	}
	return nil
}

// remembered returns the children of dir among names whose data are remembered, and the names of the others. It is what
// Get does for each of them, at a fraction of the cost: of 10,000 workers mostly one has changed.
func (l *Look) remembered(dir string, names []string) (known []entry, others []string) {
	known = make([]entry, 0, len(names))
	for names := range slices.Chunk(names, 1000) { // events wait meanwhile
		l.mirror.mu.Lock()
		for _, name := range names {
			a := l.mirror.answers[question{dir + "/" + name, itsData}]
			if a == nil || a.done != nil || a.err != nil {
				others = append(others, name)
				continue
			}
			l.mirror.used(a)
			l.use(a)
			known = append(known, entry{name, a.data, a.stat, a})
		}
		l.mirror.mu.Unlock()
	}
	return known, others
}

// TrackerConfig configures a Tracker.
type TrackerConfig struct {
	Home  string // as for NewReader
	Kinds []Kind
	// More reads more of a resource that was observed, and may fill o. r reads through the Look of that resource: More is
	// called again when anything that it has read has changed. It is called for several resources at once. It may be nil.
	More func(ctx context.Context, r *Reader, path string, o *resource.Observed) error
}

// Tracker reads the State of some roots through a Mirror, each time only what has changed. There is a Look for each
// resource and one for all else. It ends with the session of its Mirror. Changed may be called at any time, Read and
// Close by one caller.
type Tracker struct {
	mirror *Mirror
	cfg    TrackerConfig

	roots []string // of the last Read, sorted
	state plan.State
	all   *Look // what is no resource's own; nil before the first Read
	reads int

	told chan struct{} // full when something has changed

	mu      sync.Mutex
	tracked map[string]*tracked // by path
}

type tracked struct {
	look  *Look
	found found
	o     *resource.Observed // nil: missing
	read  int                // the last Read of all that has found it
}

// NewTracker returns a Tracker that has read nothing yet.
func NewTracker(m *Mirror, c TrackerConfig) *Tracker {
	if c.More == nil {
		c.More = func(context.Context, *Reader, string, *resource.Observed) error { return nil }
	}
	t := &Tracker{mirror: m, cfg: c, tracked: map[string]*tracked{}, told: make(chan struct{}, 1)}
	t.tell()
	return t
}

// Changed returns a channel from which something comes when there is something to Read, or the session has ended.
func (t *Tracker) Changed() <-chan struct{} { return t.told }

// tell makes something come from Changed, if nothing waits there. It is called by the Mirror.
func (t *Tracker) tell() {
	select {
	case t.told <- struct{}{}:
	default:
	}
}

// Close forgets all Looks.
func (t *Tracker) Close() {
	for _, one := range t.tracked {
		one.look.Close()
	}
	if t.all != nil {
		t.all.Close()
	}
}

// Read returns what Reader.Read would. It reads what has changed since the last Read, which may have been of other
// roots. After an error the next Read reads what is left: wait a moment before that. Found must not be changed.
func (t *Tracker) Read(ctx context.Context, roots []string) (plan.State, error) {
	select {
	case <-t.told: // Changed tells what changes from now on
	default:
	}
	roots = slices.Compact(slices.Sorted(slices.Values(roots)))
	known := t.all != nil && !t.all.changed.Load() && slices.Equal(roots, t.roots)
	var err error
	if known {
		known, err = t.readChanged(ctx)
	}
	if err == nil && !known {
		err = t.readAll(ctx, roots)
	}
	if err != nil {
		t.tell()
		return plan.State{}, err
	}
	return t.state, nil
}

// readChanged reads the resources that have changed. all is false if something else has to be read again too: if a
// generation has come or gone, others may be lost or found.
func (t *Tracker) readChanged(ctx context.Context) (all bool, err error) {
	before := map[string]*tracked{}
	for path, one := range t.tracked {
		if one.look.changed.Load() {
			before[path] = one
		}
	}
	paths := slices.Collect(maps.Keys(before))
	now, err := ForEach(ctx, paths, func(ctx context.Context, path string) (*resource.Observed, error) {
		return t.observe(ctx, path, before[path].found)
	})
	if err != nil || len(paths) == 0 {
		return true, err
	}
	t.state.Found = maps.Clone(t.state.Found)
	for i, path := range paths {
		was := before[path].o
		if !hasOwn(was) || !hasOwn(now[i]) || was.Record.Generation != now[i].Record.Generation {
			t.all.changed.Store(true)
			return false, nil
		}
		t.state.Found[path] = *now[i]
	}
	return true, nil
}

// readAll reads everything but the resources that have not changed.
func (t *Tracker) readAll(ctx context.Context, roots []string) error {
	t.reads++
	all, r := t.look()
	r.known = t.observe
	state, err := r.Read(ctx, roots)
	for path, o := range state.Found {
		if one := t.tracked[path]; err == nil && (one == nil || one.o == nil || !one.o.Equal(o)) { // it is lost
			err = t.cfg.More(ctx, r, path, &o)
			state.Found[path] = o
		}
	}
	if err != nil {
		all.Close()
		return err
	}
	maps.DeleteFunc(t.tracked, func(_ string, one *tracked) bool {
		if one.read != t.reads {
			one.look.Close()
		}
		return one.read != t.reads
	})
	if t.all != nil {
		t.all.Close()
	}
	t.all, t.roots, t.state = all, roots, state
	return nil
}

func (t *Tracker) look() (*Look, *Reader) {
	look := t.mirror.look(t.tell, nil)
	return look, NewReader(look, t.cfg.Home, t.cfg.Kinds...)
}

// observe returns what is known of a resource, or reads it.
func (t *Tracker) observe(ctx context.Context, path string, f found) (*resource.Observed, error) {
	t.mu.Lock()
	was := t.tracked[path]
	t.mu.Unlock()
	same := was != nil && was.found.kind == f.kind && slices.Equal(was.found.companions, f.companions)
	if same && !was.look.changed.Load() {
		was.read = t.reads
		return was.o, nil
	}
	look, r := t.look()
	o, err := r.observe(ctx, path, f)
	if err == nil && o != nil {
		err = t.cfg.More(ctx, r, path, o)
	}
	if err != nil {
		look.Close()
		return nil, err
	}
	t.mu.Lock()
	t.tracked[path] = &tracked{look, f, o, t.reads}
	t.mu.Unlock()
	if was != nil {
		was.look.Close()
	}
	return o, nil
}
