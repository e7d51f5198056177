// Package zkstate reads resources from ZooKeeper as a plan.State, and commits each change of a plan in one transaction.
//
// A Reader has no method that writes; plan, status and drift use one. A Store adds Commit, the apply lock, the marks of
// applied plans and the removal of old generations. A transaction is based only on what was read, and checks that it
// still holds. After a lost connection the Store reads again before it returns a result.
package zkstate

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"muster/plan"
	"muster/resource"
	"muster/view"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// reads is how many resources are read at a time. It is as large as the session's number of calls in flight.
const reads = 128

// always is the Folders of a kind whose generations all have the same.
func always(folders []string) func(resource.Declaration) []string {
	return func(resource.Declaration) []string { return folders }
}

// folders are the Folders of what d declares.
func (k Kind) folders(d resource.Declaration) []string {
	if k.Folders == nil {
		return nil
	}
	return k.Folders(d)
}

// Kind describes how ZooKeeper holds resources of one kind.
type Kind struct {
	resource.Kind
	// Folders are the folders of a generation of what d declares. The first member creates them in one transaction. What
	// was in a folder that is lost is not known. Nil: there are none.
	Folders func(d resource.Declaration) []string
	// Count reads the counts of the kind into o.Counts. o has a Record, and its Folders exist.
	Count func(ctx context.Context, r *Reader, o *resource.Observed) error
	// Detail reads who is in a resource and what they do, for who looks at it alone. Nil: there is nothing to read.
	Detail func(ctx context.Context, r *Reader, v *view.Resource, now time.Time) error
	// Saved reads what members have saved for those sections of o that left does not have, or for all if left is nil.
	// The guards check that nothing of it was written since. It is nil for a kind whose members save nothing.
	Saved func(ctx context.Context, r *Reader, o *resource.Observed, left resource.Declaration) (
		saved []resource.Saved, guards []zkconn.Op, err error)
	// Outside: members keep something outside ZooKeeper, under the name of the generation. What is left of a generation
	// that they have joined stays until Unlink has deleted that.
	Outside bool
	// Unlink deletes what the members of a generation that has ended keep outside ZooKeeper. rec is the copy of its
	// Record. It may be called again after it was done. Nil: nobody here can do so.
	Unlink func(ctx context.Context, rec *resource.Record) error
}

// Source is what a Reader reads from: a session, or a Look, which remembers.
type Source interface {
	// Get returns the data of a znode; nil if it has none.
	Get(ctx context.Context, path string) ([]byte, zkconn.Stat, error)
	// Exists reports whether the znode exists.
	Exists(ctx context.Context, path string) (zkconn.Stat, bool, error)
	// Children returns the names of a znode's children, sorted.
	Children(ctx context.Context, path string) ([]string, zkconn.Stat, error)
	// Sync makes sure that later reads see everything that was committed before.
	Sync(ctx context.Context, path string) error
}

// ToBeCreated stands in what a join waits for, between the kind and the path, if there is no Record yet.
const ToBeCreated = " to be created: "

// Reader reads resources. It never writes.
type Reader struct {
	source Source
	home   string
	kinds  []Kind
	// known observes a resource of a listing; nil: observe does.
	known func(ctx context.Context, path string, f found) (*resource.Observed, error)
}

// NewReader returns a Reader for resources of these kinds. home is the znode below which the ensemble's id and the
// index of stacks are; "" means resource.DefaultHome.
func NewReader(s Source, home string, kinds ...Kind) *Reader {
	return &Reader{source: s, home: cmp.Or(home, resource.DefaultHome), kinds: kinds}
}

// Read observes everything below the roots, and each of paths even if its root cannot be listed. The State says what
// could not be read. After an error it is not usable.
//
// Read needs three to five pipelined requests for each resource, whatever the number of its members. The result is not
// a snapshot: each resource was so at some time during the call.
func (r *Reader) Read(ctx context.Context, roots []string, paths ...string) (plan.State, error) {
	return r.ReadFor(ctx, roots, paths, nil)
}

// ReadFor is Read for a plan. settled, if it is not nil, reports whether nothing will be done about a resource that is
// as observed, whether or not its znode has children. Such a resource that no member has ever joined needs two
// requests: the Record, and its generation, which has only its gate. So nobody is live, and the listing of the root
// shows that the resource's own znode was not deleted by hand. Its version and its pzxid are then what they were when
// it was created; a commit never uses them.
func (r *Reader) ReadFor(
	ctx context.Context, roots, paths []string, settled func(path string, o *resource.Observed) bool,
) (plan.State, error) {
	if err := r.source.Sync(ctx, "/"); err != nil {
		return plan.State{}, err
	}
	state := plan.State{Found: map[string]resource.Observed{}}
	var err error
	if state.Ensemble, err = r.Ensemble(ctx); err != nil {
		return plan.State{}, err
	}
	todo := map[string]found{}
	for _, p := range paths {
		todo[p] = found{}
	}
	listed := map[string]listing{}
	for _, root := range slices.Compact(slices.Sorted(slices.Values(roots))) {
		l, err := r.list(ctx, root, roots, paths)
		if errors.Is(err, zkconn.ErrNoAuth) {
			state.Unlisted = append(state.Unlisted, root)
			continue
		}
		if err != nil {
			return plan.State{}, err
		}
		listed[root] = l
		for _, p := range paths {
			if dir, name := split(p); dir == root && !l.names[name] {
				delete(todo, p)
			}
		}
		for p, f := range l.found {
			f.settled = settled
			todo[p] = f
		}
	}
	if err := r.observeAll(ctx, todo, state.Found); err != nil {
		return state, err
	}
	for root, l := range listed {
		if err := r.findLost(ctx, root, l, state.Found); err != nil {
			return state, err
		}
	}
	return state, nil
}

// listing holds the names below a root, before the znodes are read.
type listing struct {
	found       map[string]found // by path
	names       map[string]bool  // every name that has a znode or a Record
	generations []string
}

// found is what the listing of a root says about one resource.
type found struct {
	kind       string   // the kind that has a Record of this name; empty if there is none
	companions []string // full paths of classic companions
	exists     bool     // it has a znode of its own
	// settled: see ReadFor; nil: observe everything.
	settled func(path string, o *resource.Observed) bool
}

// list lists the possible resources below root: its children, and the names of Records. Classic companions are listed
// with their job. It leaves out folders that lead to another root or to home.
func (r *Reader) list(ctx context.Context, root string, roots, paths []string) (listing, error) {
	l := listing{found: map[string]found{}, names: map[string]bool{}}
	names, err := r.children(ctx, root)
	if err != nil {
		return l, err
	}
	recorded := map[string]string{} // kind by name
	for _, k := range r.kinds {
		ofKind, err := r.children(ctx, znode.RecordDir(k.Name, root))
		if err != nil {
			return l, err
		}
		for _, name := range ofKind {
			recorded[name] = k.Name
		}
	}
	if l.generations, err = r.children(ctx, znode.RunDir(root)); err != nil {
		return l, err
	}
	exists, declared := map[string]bool{}, map[string]bool{}
	for _, name := range names {
		exists[name], l.names[name] = true, true
	}
	for name := range recorded {
		l.names[name] = true
	}
	for _, p := range paths {
		declared[p] = true
	}
	isOurs := func(name string) bool { return recorded[name] != "" || declared[resource.Join(root, name)] }
	names = slices.DeleteFunc(names, func(name string) bool {
		return name == resource.Reserved || r.folder(resource.Join(root, name), roots)
	})
	companions := znode.Companions(names, isOurs)
	isCompanion := map[string]bool{}
	for _, name := range slices.Concat(names, slices.Collect(maps.Keys(recorded))) {
		f := found{kind: recorded[name], exists: exists[name]}
		for _, c := range companions[name] {
			isCompanion[resource.Join(root, c)] = true
			f.companions = append(f.companions, resource.Join(root, c))
		}
		l.found[resource.Join(root, name)] = f
	}
	maps.DeleteFunc(l.found, func(p string, _ found) bool { return isCompanion[p] })
	return l, nil
}

// ReadRecord reads the Record of the resource at path. Its Stat is that of the Record.
func ReadRecord(ctx context.Context, s Source, kind resource.Kind, path string) (resource.Record, zkconn.Stat, error) {
	root, name := split(path)
	body, stat, err := s.Get(ctx, znode.Record(kind.Name, root, name))
	if err != nil {
		return resource.Record{}, stat, err
	}
	rec, err := znode.DecodeRecordAt(kind, path, body)
	return rec, stat, err
}

// children lists the children of a znode; none if it does not exist.
func (r *Reader) children(ctx context.Context, path string) ([]string, error) {
	names, _, _, err := zkconn.IfThere(r.source.Children(ctx, path))
	return names, err
}

// folder reports whether p leads to a searched root or to home.
func (r *Reader) folder(p string, roots []string) bool {
	return slices.ContainsFunc(append([]string{r.home}, roots...), func(other string) bool {
		return other == p || strings.HasPrefix(other, p+"/")
	})
}

// observeAll observes everything in todo and puts it into all, except what is missing.
func (r *Reader) observeAll(ctx context.Context, todo map[string]found, all map[string]resource.Observed) error {
	observe := r.observe
	if r.known != nil {
		observe = r.known
	}
	paths := slices.Collect(maps.Keys(todo))
	found, err := ForEach(ctx, paths, func(ctx context.Context, p string) (*resource.Observed, error) {
		return observe(ctx, p, todo[p])
	})
	for i, o := range found {
		if o != nil {
			all[paths[i]] = *o
		}
	}
	return err
}

// Look observes one resource; nil is missing. Unlike Read, it does not find classic companions, and it calls a resource
// missing of which both Record and znode were deleted by hand. Many workers may look for a job that is not there yet,
// and a search for its generation reads all generations in the root: use Find for that.
func (r *Reader) Look(ctx context.Context, path string) (*resource.Observed, error) {
	if err := r.source.Sync(ctx, path); err != nil {
		return nil, err
	}
	o, err := r.observe(ctx, path, found{})
	if err != nil || o == nil || hasOwn(o) {
		return o, err
	}
	return r.searchGenerations(ctx, path, o)
}

// Find is Look that also finds a resource of which both Record and znode were deleted by hand.
func (r *Reader) Find(ctx context.Context, path string) (*resource.Observed, error) {
	o, err := r.Look(ctx, path)
	if err != nil || o != nil {
		return o, err
	}
	return r.searchGenerations(ctx, path, nil)
}

// searchGenerations observes a resource without a Record that names a generation of its own, by that generation. o is
// what was observed of it, if anything. It costs two reads for each generation in the root.
func (r *Reader) searchGenerations(
	ctx context.Context, path string, o *resource.Observed,
) (*resource.Observed, error) {
	root, _ := split(path)
	generations, err := r.children(ctx, znode.RunDir(root))
	if err != nil {
		return nil, err
	}
	seen := map[string]resource.Observed{}
	if o != nil {
		seen[path] = *o
	}
	if err := r.findLost(ctx, root, listing{generations: generations}, seen); err != nil {
		return nil, err
	}
	if lost, ok := seen[path]; ok {
		return &lost, nil
	}
	return nil, nil
}

// observeAgain observes a resource again, with the companions of the old observation, so that the two can be compared.
//
// If its Record names a generation that is not there, the old observation may have listed the generations before its
// own was made. So that is searched for once more. Whoever makes a generation also writes the Record, in the same
// transaction: as long as the Record keeps its version, nobody has made another one.
func (r *Reader) observeAgain(ctx context.Context, path string, old *resource.Observed) (*resource.Observed, error) {
	if err := r.source.Sync(ctx, path); err != nil {
		return nil, err
	}
	var f found
	if old != nil {
		f.companions = old.Companions
	}
	o, err := r.observe(ctx, path, f)
	byCopy := old != nil && old.Record != nil && !(old.Has(resource.PartRecord) && old.Has(resource.PartReference))
	switch {
	case err != nil || hasOwn(o):
		return o, err
	case byCopy:
		return r.observeCopy(ctx, path, old.Record.Generation, f)
	case o != nil && !o.Has(resource.PartGeneration):
		return r.searchGenerations(ctx, path, o)
	}
	return o, nil
}

func split(at string) (root, name string) { return path.Dir(at), path.Base(at) }

func (r *Reader) kind(name string) (Kind, bool) {
	i := slices.IndexFunc(r.kinds, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{}, false
	}
	return r.kinds[i], true
}

// Follower is a Reader that also waits for changes.
type Follower struct {
	*Reader
	session *zkconn.Session
}

// NewFollower returns a Follower that reads from s; home and kinds are as for NewReader.
func NewFollower(s *zkconn.Session, home string, kinds ...Kind) *Follower {
	return &Follower{NewReader(s, home, kinds...), s}
}

// Follow calls each with what is at path, nil while nothing is: now, after each change of anything that was read of it,
// and at least once in every interval. It returns the error of each, or why ctx or the session has ended.
func (r *Follower) Follow(
	ctx context.Context, path string, interval time.Duration, each func(*resource.Observed) error,
) error {
	if err := r.session.Sync(ctx, path); err != nil { // a new session may see less than the one before
		return err
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	mirror := NewMirror(r.session)
	for {
		look := mirror.Look()
		o, err := NewReader(look, r.home, r.kinds...).Look(ctx, path)
		if err == nil {
			err = each(o)
		}
		if err != nil {
			return err
		}
		select {
		case <-look.Changed():
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		look.Close()
	}
}

// WaitUnlocked waits until nobody holds or waits for the apply lock of a stack. It calls waiting with each holder. If
// the deadline of ctx passes, the error is ErrLocked.
//
// It returns a number that changes whenever an apply takes the lock. If two calls return the same number, no apply of
// the stack wrote anything between them.
func (r *Follower) WaitUnlocked(ctx context.Context, stack string, waiting func(holder string)) (int64, error) {
	queue := r.lockQueue(stack)
	var holder znode.Mark
	for {
		names, stat, event, err := r.session.ChildrenW(ctx, queue.Dir)
		late := errors.Is(context.Cause(ctx), context.DeadlineExceeded)
		switch {
		case errors.Is(err, zkconn.ErrNoNode): // no apply yet
			return 0, nil
		case err != nil && holder.Who != "" && late && !errors.Is(err, zkconn.ErrUnreachable):
			return 0, lockedBy(holder)
		case err != nil:
			return 0, err
		}
		places := queue.InOrder(names)
		if len(places) == 0 {
			return stat.Pzxid, nil
		}
		if now, ok := r.holder(ctx, queue.Dir+"/"+places[0]); ok && now != holder {
			holder = now
			if waiting != nil {
				waiting(holder.String())
			}
		}
		select {
		case <-event:
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				return 0, lockedBy(holder)
			}
			return 0, context.Cause(ctx)
		case <-r.session.Context().Done():
			return 0, context.Cause(r.session.Context())
		}
	}
}
