package zkstate

import (
	"context"
	"errors"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"muster/plan"
	"muster/resource"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// reads is how many things are read at a time: enough to fill the session's pipeline.
const reads = 128

// Kind is one kind of thing as it is kept in ZooKeeper.
type Kind struct {
	resource.Kind
	// Folders of a generation are made by the first member, all in one transaction. What is lost of them cannot be made
	// again.
	Folders []string
	// Count reads what the kind counts of o, which has a Record whose Folders exist, into o.Counts.
	Count func(ctx context.Context, r *Reader, o *resource.Observed) error
}

// Reader reads what is there.
type Reader struct {
	session *zkconn.Session
	home    string
	kinds   []Kind
}

// NewReader reads things of some kinds through s. Home is the znode of the ensemble's id and of the index of stacks; ""
// means resource.DefaultHome.
func NewReader(s *zkconn.Session, home string, kinds ...Kind) *Reader {
	if home == "" {
		home = resource.DefaultHome
	}
	return &Reader{session: s, home: home, kinds: kinds}
}

// Read observes everything below the roots, and every one of paths even where its root cannot be listed. What it cannot
// read is in the State as such; an error means that nothing useful was read.
//
// It costs three to five pipelined reads a thing, however many members work for it. The result is not a snapshot: each
// thing was so at one moment between the call and its return.
func (r *Reader) Read(ctx context.Context, roots []string, paths ...string) (plan.State, error) {
	if err := r.session.Sync(ctx, "/"); err != nil {
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
		maps.Copy(todo, l.found)
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

// listing is what is seen of a root before anything in it is read.
type listing struct {
	found       map[string]found // by path
	generations []string
}

// found is what the listing of a root tells about one thing.
type found struct {
	kind       string   // whose Records it stands among; empty if it has none
	companions []string // full paths of classic siblings
}

// list names what may be declared things below root: its children, and what is recorded there. Classic companions stand
// with their job; folders that lead to another root, or to home, are nothing of that sort.
func (r *Reader) list(ctx context.Context, root string, roots, paths []string) (listing, error) {
	l := listing{found: map[string]found{}}
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
	isOurs := func(name string) bool {
		return recorded[name] != "" || slices.Contains(paths, resource.Join(root, name))
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		return name == resource.Reserved || r.folder(resource.Join(root, name), roots)
	})
	companions := znode.Companions(names, isOurs)
	someones := map[string]bool{}
	for _, name := range slices.Concat(names, slices.Collect(maps.Keys(recorded))) {
		f := found{kind: recorded[name]}
		for _, c := range companions[name] {
			someones[resource.Join(root, c)] = true
			f.companions = append(f.companions, resource.Join(root, c))
		}
		l.found[resource.Join(root, name)] = f
	}
	maps.DeleteFunc(l.found, func(p string, _ found) bool { return someones[p] })
	return l, nil
}

// children lists the names below a znode; a znode that does not exist has none.
func (r *Reader) children(ctx context.Context, path string) ([]string, error) {
	names, _, err := r.session.Children(ctx, path)
	if errors.Is(err, zkconn.ErrNoNode) {
		return nil, nil
	}
	return names, err
}

// folder reports whether p leads to a searched root or to home.
func (r *Reader) folder(p string, roots []string) bool {
	for _, other := range append([]string{r.home}, roots...) {
		if other == p || strings.HasPrefix(other, p+"/") {
			return true
		}
	}
	return false
}

// observeAll observes everything of todo into all; what is missing gets no entry.
func (r *Reader) observeAll(ctx context.Context, todo map[string]found, all map[string]resource.Observed) error {
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(reads)
	for p, f := range todo {
		g.Go(func() error {
			o, err := r.observe(ctx, p, f)
			if err != nil || o == nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			all[p] = *o
			return nil
		})
	}
	return g.Wait()
}

// Look observes one thing; nil is missing. Unlike Read it knows no classic companions.
func (r *Reader) Look(ctx context.Context, path string) (*resource.Observed, error) {
	if err := r.session.Sync(ctx, path); err != nil {
		return nil, err
	}
	o, err := r.observe(ctx, path, found{})
	if err != nil || o != nil && o.Record != nil {
		return o, err
	}
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

// again observes something whose earlier observation is old: with the same companions, so that the two compare.
func (r *Reader) again(ctx context.Context, path string, old *resource.Observed) (*resource.Observed, error) {
	if err := r.session.Sync(ctx, path); err != nil {
		return nil, err
	}
	var f found
	if old != nil {
		f.companions = old.Companions
	}
	o, err := r.observe(ctx, path, f)
	if err == nil && old != nil && old.Record != nil && !old.Has(resource.PartRecord) && (o == nil || o.Record == nil) {
		return r.observeCopy(ctx, path, old.Record.Generation, f)
	}
	return o, err
}

func split(at string) (root, name string) { return path.Dir(at), path.Base(at) }

// kind finds a kind by its name.
func (r *Reader) kind(name string) (Kind, bool) {
	i := slices.IndexFunc(r.kinds, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{}, false
	}
	return r.kinds[i], true
}
