package zkstate

import (
	"context"
	"slices"
	"sync"

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

// Tracker keeps the State of some roots current. Its first Update reads everything, and each later one only what has
// changed. There is a Look for each resource and a few for each root. It ends with the session of its Mirror. State and
// Changed may be called at any time, Update and Close by one caller.
type Tracker struct {
	mirror *Mirror
	cfg    TrackerConfig

	// Used by Update.
	ensemble *Look
	roots    map[string]*trackedRoot
	searched []string // the roots of the last Update, sorted
	tracked  map[string]*tracked
	changed  map[string]bool // paths, since the State was published
	id       string          // of the ensemble

	mu    sync.Mutex
	found map[string]*resource.Observed // by path
	state plan.State                    // its Found is nil while nobody has asked for it since a change
	dirty map[trackedPart]bool          // what is to be read again
	told  chan struct{}                 // closed when something is dirty
}

// trackedPart is something that has a Look.
type trackedPart struct {
	what trackedKind
	path string // of a root, or of a resource
}

type trackedKind int

const (
	theEnsemble trackedKind = iota
	aListing                // of a root
	theLost                 // what is lost in a root
	aResource
)

// trackedRoot is what is known of a root.
type trackedRoot struct {
	look, lostLook *Look
	listing        listing
	unlisted       bool
	// differs is what findLost has found otherwise than the resources of the listing say, by path; nil: it is missing.
	differs map[string]*resource.Observed
}

// tracked is what is known of a resource of a listing.
type tracked struct {
	look *Look
	o    *resource.Observed // nil: missing
}

// generation is that of the Record; empty if there is none, or if it is not its own.
func (t *tracked) generation() string {
	if t == nil || !hasOwn(t.o) {
		return ""
	}
	return t.o.Record.Generation
}

// NewTracker returns a Tracker that has read nothing yet.
func NewTracker(m *Mirror, c TrackerConfig) *Tracker {
	t := &Tracker{
		mirror: m, cfg: c, roots: map[string]*trackedRoot{}, tracked: map[string]*tracked{}, changed: map[string]bool{},
		found: map[string]*resource.Observed{}, dirty: map[trackedPart]bool{}, told: make(chan struct{}),
	}
	t.mark(trackedPart{what: theEnsemble})
	return t
}

// State is what the last Update found: as Reader.Read would have. Found must not be changed.
func (t *Tracker) State() plan.State {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state.Found == nil {
		t.state.Found = make(map[string]resource.Observed, len(t.found))
		for path, o := range t.found {
			t.state.Found[path] = *o
		}
	}
	return t.state
}

// Changed returns a channel that is closed when there is something to Update, or the session has ended.
func (t *Tracker) Changed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.told
}

// Close forgets all Looks. The State stays.
func (t *Tracker) Close() {
	for path := range t.tracked {
		t.closeResource(path)
	}
	for root := range t.roots {
		t.closeRoot(root)
	}
	if t.ensemble != nil {
		t.ensemble.Close()
	}
}

// mark notes that something is to be read again. It is called by the Mirror.
func (t *Tracker) mark(p trackedPart) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.dirty) == 0 {
		close(t.told)
	}
	t.dirty[p] = true
}

// take returns what is to be read again, and begins to note what changes from now on.
func (t *Tracker) take() map[trackedPart]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	dirty := t.dirty
	t.dirty = map[trackedPart]bool{}
	select {
	case <-t.told:
		t.told = make(chan struct{})
	default:
	}
	return dirty
}

// look returns a reader through a new Look for p.
func (t *Tracker) look(p trackedPart) (*Look, *Reader) {
	l := t.mirror.look(func() { t.mark(p) })
	return l, NewReader(l, t.cfg.Home, t.cfg.Kinds...)
}

// Update reads what has changed below roots since the last Update, which may have been for other roots. After an error
// the State is as before, and the next Update reads what is left: wait a moment before that.
func (t *Tracker) Update(ctx context.Context, roots []string) error {
	u := update{t, t.take(), slices.Compact(slices.Sorted(slices.Values(roots)))}
	for _, step := range []func(context.Context) error{u.readEnsemble, u.listRoots, u.observe, u.findLost} {
		if err := step(ctx); err != nil {
			for p := range u.dirty {
				t.mark(p)
			}
			return err
		}
	}
	u.publish()
	return nil
}

func (t *Tracker) closeResource(path string) {
	if one := t.tracked[path]; one != nil {
		one.look.Close()
	}
	delete(t.tracked, path)
}

func (t *Tracker) closeRoot(root string) {
	r := t.roots[root]
	for _, l := range []*Look{r.look, r.lostLook} {
		if l != nil {
			l.Close()
		}
	}
	delete(t.roots, root)
}
