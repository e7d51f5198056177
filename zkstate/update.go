package zkstate

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"

	"muster/resource"
	"muster/zkstate/zkconn"
)

// update is one Update of a Tracker. Each step takes out of dirty what it has read.
type update struct {
	t     *Tracker
	dirty map[trackedPart]bool
	roots []string
}

func (u update) readEnsemble(ctx context.Context) error {
	part := trackedPart{what: theEnsemble}
	if !u.dirty[part] {
		return nil
	}
	l, r := u.t.look(part)
	id, err := r.Ensemble(ctx)
	if err != nil {
		l.Close()
		return err
	}
	if u.t.ensemble != nil {
		u.t.ensemble.Close()
	}
	u.t.ensemble, u.t.id = l, id
	delete(u.dirty, part)
	return nil
}

// listRoots lists the roots whose listing has changed, or all if they are other roots than before: what leads to
// another root is no resource.
func (u update) listRoots(ctx context.Context) error {
	t := u.t
	others := !slices.Equal(u.roots, t.searched)
	for root := range t.roots {
		if !slices.Contains(u.roots, root) {
			u.listed(root, listing{})
			t.closeRoot(root)
		}
	}
	for _, root := range u.roots {
		part := trackedPart{aListing, root}
		if t.roots[root] == nil {
			t.roots[root] = &trackedRoot{}
			u.dirty[part] = true
		}
		if others {
			u.dirty[part] = true
		}
	}
	t.searched = u.roots
	for _, root := range u.roots {
		part := trackedPart{aListing, root}
		if !u.dirty[part] {
			continue
		}
		look, r := t.look(part)
		l, err := r.list(ctx, root, u.roots, nil)
		unlisted := errors.Is(err, zkconn.ErrNoAuth)
		if err != nil && !unlisted {
			look.Close()
			return err
		}
		if unlisted {
			l = listing{}
		}
		at := t.roots[root]
		if at.look != nil {
			at.look.Close()
		}
		at.look, at.unlisted = look, unlisted
		u.listed(root, l)
		delete(u.dirty, part)
	}
	return nil
}

// listed notes a new listing of a root. What it says of resources that differs from before makes these dirty.
func (u update) listed(root string, l listing) {
	at := u.t.roots[root]
	for path := range at.listing.found {
		if _, still := l.found[path]; !still {
			if u.t.tracked[path].generation() != "" {
				u.dirty[trackedPart{theLost, root}] = true
			}
			u.t.closeResource(path)
			u.t.changed[path] = true
		}
	}
	for path, f := range l.found {
		was, there := at.listing.found[path]
		if !there || was.kind != f.kind || !slices.Equal(was.companions, f.companions) {
			u.dirty[trackedPart{aResource, path}] = true
		}
	}
	if !slices.Equal(at.listing.generations, l.generations) {
		u.dirty[trackedPart{theLost, root}] = true
	}
	if len(l.found) == 0 { // perhaps the root is left
		for path := range at.differs {
			u.t.changed[path] = true
		}
	}
	at.listing = l
}

// observe observes the resources that are dirty, several at a time.
func (u update) observe(ctx context.Context) error {
	var paths []string
	for part := range u.dirty {
		if root, _ := split(part.path); part.what != aResource {
			continue
		} else if at := u.t.roots[root]; at != nil {
			if _, listed := at.listing.found[part.path]; listed {
				paths = append(paths, part.path)
				continue
			}
		}
		delete(u.dirty, part)
	}
	found, err := ForEach(ctx, paths, u.observeOne)
	for i, path := range paths {
		if found[i] == nil {
			continue
		}
		root, _ := split(path)
		was, now := u.t.tracked[path], found[i]
		if was.generation() != now.generation() || now.generation() == "" || len(u.t.roots[root].differs) > 0 {
			u.dirty[trackedPart{theLost, root}] = true
		}
		if was != nil {
			was.look.Close()
		}
		u.t.tracked[path], u.t.changed[path] = now, true
		delete(u.dirty, trackedPart{aResource, path})
	}
	return err
}

func (u update) observeOne(ctx context.Context, path string) (*tracked, error) {
	root, _ := split(path)
	l, r := u.t.look(trackedPart{aResource, path})
	o, err := r.observe(ctx, path, u.t.roots[root].listing.found[path])
	if err == nil {
		err = u.more(ctx, r, path, o)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return &tracked{l, o}, nil
}

func (u update) more(ctx context.Context, r *Reader, path string, o *resource.Observed) error {
	if u.t.cfg.More == nil || o == nil {
		return nil
	}
	return u.t.cfg.More(ctx, r, path, o)
}

// findLost looks for resources without a Record in the roots where generations have come or gone. If every generation
// belongs to a Record, as nearly always, nothing is read.
func (u update) findLost(ctx context.Context) error {
	for _, root := range u.roots {
		part := trackedPart{theLost, root}
		if !u.dirty[part] {
			continue
		}
		look, r := u.t.look(part)
		differs, err := u.lostBelow(ctx, r, root)
		if err != nil {
			look.Close()
			return err
		}
		at := u.t.roots[root]
		for path := range at.differs {
			u.t.changed[path] = true
		}
		for path := range differs {
			u.t.changed[path] = true
		}
		if at.lostLook != nil {
			at.lostLook.Close()
		}
		at.lostLook, at.differs = look, differs
		delete(u.dirty, part)
	}
	return nil
}

// lostBelow returns what findLost finds otherwise than the resources of the listing say, by path; nil is missing.
func (u update) lostBelow(ctx context.Context, r *Reader, root string) (map[string]*resource.Observed, error) {
	l := u.t.roots[root].listing
	orphans := map[string]bool{}
	for _, g := range l.generations {
		orphans[g] = true
	}
	for path := range l.found {
		delete(orphans, u.t.tracked[path].generation())
	}
	if len(orphans) == 0 {
		return nil, nil
	}
	before := map[string]resource.Observed{}
	for path := range l.found {
		if o := u.t.tracked[path].o; o != nil {
			before[path] = *o
		}
	}
	after := maps.Clone(before)
	if err := r.findLost(ctx, root, l, after); err != nil {
		return nil, err
	}
	differs := map[string]*resource.Observed{}
	for path := range before {
		if _, there := after[path]; !there {
			differs[path] = nil
		}
	}
	for path, o := range after {
		if was, there := before[path]; there && reflect.DeepEqual(was, o) {
			continue
		}
		if err := u.more(ctx, r, path, &o); err != nil {
			return nil, err
		}
		differs[path] = &o
	}
	return differs, nil
}

// publish makes known what was read.
func (u update) publish() {
	t := u.t
	t.mu.Lock()
	defer t.mu.Unlock()
	for path := range t.changed {
		if o := u.now(path); o != nil {
			t.found[path] = o
		} else {
			delete(t.found, path)
		}
	}
	if len(t.changed) > 0 {
		t.state.Found = nil
		t.changed = map[string]bool{}
	}
	t.state.Ensemble, t.state.Unlisted = t.id, nil
	for _, root := range u.roots {
		if t.roots[root].unlisted {
			t.state.Unlisted = append(t.state.Unlisted, root)
		}
	}
}

// now is what is known of a resource; nil: it is missing.
func (u update) now(path string) *resource.Observed {
	root, _ := split(path)
	if at := u.t.roots[root]; at != nil {
		if o, differs := at.differs[path]; differs {
			return o
		}
	}
	if one := u.t.tracked[path]; one != nil {
		return one.o
	}
	return nil
}
