package zkstate

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"muster/plan"
	"muster/resource"
)

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
	all   *tracked // what is no resource's own; nil before the first Read
	reads int

	mu      sync.Mutex
	tracked map[string]*tracked // by path
	told    chan struct{}       // closed when something has changed
}

// tracked is something that was read through a Look.
type tracked struct {
	look    *Look
	changed atomic.Bool

	// Of a resource.
	found found
	o     *resource.Observed // nil: missing
	read  int                // the last Read of all that has found it
}

// generation is that of the Record; empty if there is none, or if it is not its own.
func (t *tracked) generation() string {
	if !hasOwn(t.o) {
		return ""
	}
	return t.o.Record.Generation
}

// NewTracker returns a Tracker that has read nothing yet.
func NewTracker(m *Mirror, c TrackerConfig) *Tracker {
	told := make(chan struct{})
	close(told)
	return &Tracker{mirror: m, cfg: c, tracked: map[string]*tracked{}, told: told}
}

// Changed returns a channel that is closed when there is something to Read, or the session has ended.
func (t *Tracker) Changed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.told
}

// tell closes what Changed has returned. It is called by the Mirror.
func (t *Tracker) tell() {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-t.told:
	default:
		close(t.told)
	}
}

// Close forgets all Looks.
func (t *Tracker) Close() {
	for _, one := range t.tracked {
		one.look.Close()
	}
	if t.all != nil {
		t.all.look.Close()
	}
}

// Read returns what Reader.Read would. It reads what has changed since the last Read, which may have been of other
// roots. After an error the next Read reads what is left: wait a moment before that. Found must not be changed.
func (t *Tracker) Read(ctx context.Context, roots []string) (plan.State, error) {
	t.mu.Lock()
	t.told = make(chan struct{})
	t.mu.Unlock()
	roots = slices.Compact(slices.Sorted(slices.Values(roots)))
	known := t.all != nil && !t.all.changed.Load() && slices.Equal(roots, t.roots)
	if known {
		var err error
		if known, err = t.readChanged(ctx); err != nil {
			t.tell()
			return plan.State{}, err
		}
	}
	if !known {
		if err := t.readAll(ctx, roots); err != nil {
			t.tell()
			return plan.State{}, err
		}
	}
	return t.state, nil
}

// readChanged reads the resources that have changed. all is false if something else has to be read again too: if a
// generation has come or gone, others may be lost or found.
func (t *Tracker) readChanged(ctx context.Context) (all bool, err error) {
	before := map[string]*tracked{}
	for path, one := range t.tracked {
		if one.changed.Load() {
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
		if g := before[path].generation(); g == "" || g != t.tracked[path].generation() {
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
			err = t.more(ctx, r, path, &o)
			state.Found[path] = o
		}
	}
	if err != nil {
		all.look.Close()
		return err
	}
	maps.DeleteFunc(t.tracked, func(_ string, one *tracked) bool {
		if one.read != t.reads {
			one.look.Close()
		}
		return one.read != t.reads
	})
	if t.all != nil {
		t.all.look.Close()
	}
	t.all, t.roots, t.state = all, roots, state
	return nil
}

// look returns a reader through a new Look.
func (t *Tracker) look() (*tracked, *Reader) {
	one := &tracked{}
	one.look = t.mirror.look(func() {
		one.changed.Store(true)
		t.tell()
	})
	return one, NewReader(one.look, t.cfg.Home, t.cfg.Kinds...)
}

// observe returns what is known of a resource, or reads it.
func (t *Tracker) observe(ctx context.Context, path string, f found) (*resource.Observed, error) {
	t.mu.Lock()
	was := t.tracked[path]
	t.mu.Unlock()
	if was != nil && !was.changed.Load() && was.found.kind == f.kind && slices.Equal(was.found.companions, f.companions) {
		was.read = t.reads
		return was.o, nil
	}
	one, r := t.look()
	o, err := r.observe(ctx, path, f)
	if err == nil && o != nil {
		err = t.more(ctx, r, path, o)
	}
	if err != nil {
		one.look.Close()
		return nil, err
	}
	one.found, one.o, one.read = f, o, t.reads
	t.mu.Lock()
	t.tracked[path] = one
	t.mu.Unlock()
	if was != nil {
		was.look.Close()
	}
	return o, nil
}

func (t *Tracker) more(ctx context.Context, r *Reader, path string, o *resource.Observed) error {
	if t.cfg.More == nil {
		return nil
	}
	return t.cfg.More(ctx, r, path, o)
}
