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

	"muster/job"
	"muster/plan"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// DefaultHome is where locks, the ensemble's id and the marks of applied plans live.
const DefaultHome = "/.muster"

// reads is how many jobs are read at a time: enough to fill the session's pipeline.
const reads = 128

// Reader reads jobs.
type Reader struct {
	session *zkconn.Session
	home    string
}

// NewReader reads through s. Home is the znode that holds the ensemble's id; "" means DefaultHome.
func NewReader(s *zkconn.Session, home string) *Reader {
	if home == "" {
		home = DefaultHome
	}
	return &Reader{session: s, home: home}
}

// Read observes every job below the roots, and every one of paths even where its root cannot be listed. What it cannot
// read is in the State as such; an error means that nothing useful was read.
//
// It costs three to five pipelined reads a job, however many workers a job has. The result is not a snapshot:
// each job was so at one moment between the call and its return.
func (r *Reader) Read(ctx context.Context, roots []string, paths ...string) (plan.State, error) {
	if err := r.session.Sync(ctx, "/"); err != nil {
		return plan.State{}, err
	}
	state := plan.State{Jobs: map[string]plan.Observed{}}
	var err error
	if state.Ensemble, err = r.Ensemble(ctx); err != nil {
		return plan.State{}, err
	}
	todo := map[string]found{}
	for _, p := range paths {
		todo[p] = found{}
	}
	for _, root := range slices.Compact(slices.Sorted(slices.Values(roots))) {
		listed, err := r.list(ctx, root, roots, paths)
		if errors.Is(err, zkconn.ErrNoAuth) {
			state.Unlisted = append(state.Unlisted, root)
			continue
		}
		if err != nil {
			return plan.State{}, err
		}
		maps.Copy(todo, listed)
	}
	return state, r.observeAll(ctx, todo, state.Jobs)
}

// found is what the listing of a root tells about one job.
type found struct {
	companions []string // names of classic siblings
}

// list names what may be a job below root: its children, and the jobs recorded there. Classic companions stand with
// their job; folders that lead to another root, or to home, are not jobs.
func (r *Reader) list(ctx context.Context, root string, roots, paths []string) (map[string]found, error) {
	names, _, err := r.session.Children(ctx, root)
	if err != nil && !errors.Is(err, zkconn.ErrNoNode) {
		return nil, err
	}
	recorded, _, err := r.session.Children(ctx, znode.RecordDir(root))
	if err != nil && !errors.Is(err, zkconn.ErrNoNode) {
		return nil, err
	}
	isJob := map[string]bool{}
	for _, name := range recorded {
		isJob[name] = true
	}
	for _, p := range paths {
		if dir, name := split(p); dir == root {
			isJob[name] = true
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		return name == job.Reserved || r.folder(job.Join(root, name), roots)
	})
	companions := znode.Companions(names, func(name string) bool { return isJob[name] })
	jobs, someones := map[string]found{}, map[string]bool{}
	for _, name := range slices.Concat(names, recorded) {
		f := found{}
		for _, c := range companions[name] {
			someones[job.Join(root, c)] = true
			f.companions = append(f.companions, job.Join(root, c))
		}
		jobs[job.Join(root, name)] = f
	}
	maps.DeleteFunc(jobs, func(p string, _ found) bool { return someones[p] })
	return jobs, nil
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

// observeAll observes every job of todo into jobs; missing ones get no entry.
func (r *Reader) observeAll(ctx context.Context, todo map[string]found, jobs map[string]plan.Observed) error {
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(reads)
	for p, f := range todo {
		g.Go(func() error {
			o, err := r.observe(ctx, p, f.companions)
			if err != nil || o == nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			jobs[p] = *o
			return nil
		})
	}
	return g.Wait()
}

// Look observes one job; nil is missing. Unlike Read it knows no classic companions.
func (r *Reader) Look(ctx context.Context, jobPath string) (*plan.Observed, error) {
	if err := r.session.Sync(ctx, jobPath); err != nil {
		return nil, err
	}
	return r.observe(ctx, jobPath, nil)
}

// again observes a job whose earlier observation is old: with the same companions, so that the two compare.
func (r *Reader) again(ctx context.Context, jobPath string, old *plan.Observed) (*plan.Observed, error) {
	if err := r.session.Sync(ctx, jobPath); err != nil {
		return nil, err
	}
	var companions []string
	if old != nil {
		companions = old.Companions
	}
	return r.observe(ctx, jobPath, companions)
}

func split(jobPath string) (root, name string) { return path.Dir(jobPath), path.Base(jobPath) }
