package zkstate

import (
	"context"
	"slices"

	"muster/zkstate/zkconn"
)

// Look is a Source that reads through a Mirror, and tells when something that was read through it has changed. Then
// make a new Look, read again, and close the old one after that: what has not changed is not read again.
type Look struct {
	mirror *Mirror
	fired  func() // called once when it has changed; nil: nothing

	// Guarded by the Mirror's mutex.
	uses    []*answer
	changed bool
	closed  bool
	told    chan struct{} // closed when it has changed; nil: nobody has asked
}

var _ Source = (*Look)(nil)

// Changed returns a channel that is closed when something that was read through l has changed, or may have; or when the
// session has ended: reads return its error then.
func (l *Look) Changed() <-chan struct{} {
	l.mirror.mu.Lock()
	defer l.mirror.mu.Unlock()
	if l.told == nil {
		l.told = make(chan struct{})
		if l.changed {
			close(l.told)
		}
	}
	return l.told
}

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
	if l.changed || l.closed {
		return
	}
	l.changed = true
	if l.told != nil {
		close(l.told)
	}
	if l.fired != nil {
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
	if err != nil {
		return nil, zkconn.Stat{}, err
	}
	return a.data, a.stat, nil
}

// Exists reports whether the znode exists. All of its Stat is current.
func (l *Look) Exists(ctx context.Context, path string) (zkconn.Stat, bool, error) {
	a, err := l.mirror.ask(ctx, l, question{path, itsExistence})
	if err != nil {
		return zkconn.Stat{}, false, err
	}
	return a.stat, a.exists, nil
}

// Children returns the names of a znode's children, sorted. The Stat is that of the list: its version and its mzxid may
// have changed since.
func (l *Look) Children(ctx context.Context, path string) ([]string, zkconn.Stat, error) {
	a, err := l.mirror.ask(ctx, l, question{path, itsChildren})
	if err != nil {
		return nil, zkconn.Stat{}, err
	}
	return slices.Clone(a.names), a.stat, nil
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
