package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"golang.org/x/sync/errgroup"

	"muster/resource"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// The live workers are exactly the children of the job znode. Each worker keeps its newest address in id/n-<id>.
// Nothing is written here.

// maxReads is how many reads of one call are under way at once.
const maxReads = 64

// ErrNoWorker means that nobody has joined under this id yet. Wait for all, or ask again later.
var ErrNoWorker = errors.New("no such worker")

// Worker is a worker as its peers see it. One that tells of itself what cannot be read, or more than is allowed, has
// its id and a Problem, and no address: see unreadable.
type Worker struct {
	Identity string `json:"identity,omitempty"` // only of a live worker
	znode.Worker
	Problem string `json:"problem,omitempty"`
}

// unreadable is a worker whose WorkerInfo is not one, or breaks its limits: a program of somebody else wrote it. The
// others go on without its address.
func unreadable(identity string, id int, err error) Worker {
	return Worker{identity, znode.Worker{ID: id}, err.Error()}
}

// Live returns the workers that are live now, in the order of their ids. It costs a read for each of them, and about
// 14 for one that has joined a few seconds ago. The error is ErrFenced or ErrSessionLost if the membership has ended.
func (m *Member) Live(ctx context.Context) ([]Worker, error) {
	names, _, err := m.session.Children(ctx, m.Job.Path())
	if err != nil {
		return nil, fmt.Errorf("the live workers: %w", m.whyMissing(err))
	}
	return m.describe(ctx, names)
}

// Changes yields the live workers now, and again whenever a worker has become live or has gone. Changes that follow
// each other closely may come as one. It ends when the loop does, or with an error: ctx's, or why the membership
// ended.
func (m *Member) Changes(ctx context.Context) iter.Seq2[[]Worker, error] {
	return func(yield func([]Worker, error) bool) {
		for {
			names, _, changed, err := m.session.ChildrenW(ctx, m.Job.Path())
			var ws []Worker
			if err == nil {
				ws, err = m.describe(ctx, names)
			}
			if err != nil {
				yield(nil, fmt.Errorf("the live workers: %w", m.whyMissing(err)))
				return
			}
			if !yield(ws, nil) {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				yield(nil, context.Cause(ctx))
				return
			case <-m.ctx.Done():
				yield(nil, context.Cause(m.ctx))
				return
			}
		}
	}
}

// Joined returns everybody who has joined, whether live or not, in the order of their ids, each with its newest
// address. It costs a read for each of them.
func (m *Member) Joined(ctx context.Context) ([]Worker, error) {
	stat, _, err := m.session.Exists(ctx, znode.IDs(m.Job.Root, m.Generation))
	if err != nil {
		return nil, fmt.Errorf("the joined workers: %w", err)
	}
	ws := make([]Worker, min(int(stat.NumChildren), m.Job.Workers))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxReads)
	for id := range ws {
		group.Go(func() error {
			var err error
			ws[id], err = m.Lookup(ctx, id)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, fmt.Errorf("the joined workers: %w", err)
	}
	return ws, nil
}

// Lookup returns the worker with this id, by its newest address. It costs one read.
func (m *Member) Lookup(ctx context.Context, id int) (Worker, error) {
	if id < 0 || id >= m.Job.Workers {
		return Worker{}, fmt.Errorf("worker %d: %w: the job has %d", id, ErrNoWorker, m.Job.Workers)
	}
	body, _, err := m.session.Get(ctx, znode.ID(m.Job.Root, m.Generation, id))
	if errors.Is(err, zkconn.ErrNoNode) {
		err = ErrNoWorker
	}
	if err != nil {
		return Worker{}, fmt.Errorf("worker %d: %w", id, err)
	}
	w, err := znode.DecodeWorker(body)
	if err != nil {
		return unreadable("", id, err), nil
	}
	w.ID = id
	return Worker{Worker: w}, nil
}

// describe reads the live znodes with these names. It leaves out those that are gone meanwhile or no worker's.
func (m *Member) describe(ctx context.Context, names []string) ([]Worker, error) {
	ws := make([]*Worker, len(names))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxReads)
	for i, name := range names {
		group.Go(func() error {
			var err error
			ws[i], err = m.readLive(ctx, name)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	live := make([]Worker, 0, len(ws))
	for _, w := range ws {
		if w != nil {
			live = append(live, *w)
		}
	}
	slices.SortFunc(live, func(a, b Worker) int {
		return cmp.Or(cmp.Compare(uint(a.ID), uint(b.ID)), cmp.Compare(a.Identity, b.Identity)) // NoID sorts last
	})
	return live, nil
}

// readLive reads one live znode. It is nil if there is none, or if it is not a member's.
func (m *Member) readLive(ctx context.Context, identity string) (*Worker, error) {
	body, stat, err := m.session.Get(ctx, znode.Live(m.Job.Root, m.Job.Name, identity))
	switch {
	case errors.Is(err, zkconn.ErrNoNode), err == nil && stat.EphemeralOwner == 0:
		return nil, nil
	case err != nil:
		return nil, err
	}
	worker := Worker{Identity: identity}
	made := stat.Czxid // the transaction that made the live znode also made the id, in the first life
	if worker.Worker, err = znode.DecodeWorker(body); err != nil {
		worker = unreadable(identity, znode.NoID, err)
		claim, _, err := m.session.Exists(ctx, znode.ByIdentity(m.Job.Root, m.Generation, identity))
		if err != nil {
			return nil, err
		}
		made = claim.Czxid
	}
	if worker.ID == znode.NoID {
		search := join{s: m.session, job: m.Job, rec: resource.Record{Generation: m.Generation}}
		id, err := search.find(ctx, made)
		if err != nil && !errors.Is(err, errAgain) {
			return nil, err
		}
		if err == nil {
			worker.ID = id
		}
	}
	if worker.ID >= m.Job.Workers { // its join came too late: it is about to withdraw
		return nil, nil
	}
	return &worker, nil
}

// whyMissing is err, or why the job znode is missing: the generation has ended.
func (m *Member) whyMissing(err error) error {
	if !errors.Is(err, zkconn.ErrNoNode) {
		return err
	}
	if m.ctx.Err() == nil {
		m.end(m.generationEnded())
	}
	return context.Cause(m.ctx)
}
