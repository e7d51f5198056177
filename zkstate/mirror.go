package zkstate

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"muster/zkstate/zkconn"
)

const (
	// maxIdle is how many answers that no Look uses are kept.
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
	idle     []*answer            // perhaps unused, the longest first
	unused   int                  // how many answers no Look uses
	doubtful []*answer            // that no event ends
}

// question is what was asked about a znode.
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
	of     question
	done   chan struct{} // closed when it is read, and nil then; guarded by the Mirror's mutex
	looks  []*Look       // that use it; likewise
	gone   bool          // it is not in answers any more; likewise
	idle   bool          // no Look uses it; likewise
	listed bool          // it is in the Mirror's list; likewise

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

// Session is the session from which m reads.
func (m *Mirror) Session() *zkconn.Session { return m.session }

// Look returns a new Look. The caller closes it.
func (m *Mirror) Look() *Look { return m.look(nil) }

// look returns a Look that calls fired at its first change, if it is not nil. fired must neither block nor call m.
func (m *Mirror) look(fired func()) *Look {
	l := &Look{mirror: m, fired: fired}
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
	m.unused++
	if !a.listed {
		a.listed = true
		m.idle = append(m.idle, a)
	}
	for m.unused > maxIdle {
		oldest := m.idle[0]
		m.idle, oldest.listed = m.idle[1:], false
		if oldest.idle {
			m.forget(oldest)
		}
	}
	if len(m.idle) > 2*maxIdle { // some were used again
		m.idle = slices.DeleteFunc(m.idle, func(a *answer) bool {
			a.listed = a.idle
			return !a.idle
		})
	}
}

// ask returns the answer to a question, from memory or by read. Only one caller at a time reads.
func (m *Mirror) ask(ctx context.Context, l *Look, q question) (*answer, error) {
	for {
		if err := m.session.Context().Err(); err != nil {
			return nil, &zkconn.Error{Op: "read", Path: q.path, Err: context.Cause(m.session.Context())}
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
				return nil, &zkconn.Error{Op: "read", Path: q.path, Err: context.Cause(ctx)}
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
		if err != nil {
			return err
		}
		if !exists {
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
