package zkstate

import (
	"cmp"
	"context"
	"errors"
	"math"
	"path"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/resource"
	"muster/resource/job"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Worker is one worker of a job, as its znodes describe it.
type Worker struct {
	Identity string       `json:"identity"`
	ID       int          `json:"id"` // -1: it has no id yet, or the roll of a classic job does not name it
	Live     bool         `json:"live"`
	Info     znode.Worker `json:"info"`
	Claim    znode.Claim  `json:"claim"`

	// Joined is when it joined this run for the first time. Since is when it joined last or, of one that is not live, when
	// its claim was written last: when it left or completed, unless it was lost. Both are zero if not known.
	Joined, Since time.Time
}

// FillMembers fills o.Members and o.Strangers from the children of the job znode. It reads nothing if o.Live is 0.
func (r *Reader) FillMembers(ctx context.Context, jobPath string, o *resource.Observed) error {
	if o == nil || o.Live == 0 {
		return nil
	}
	names, _, err := r.source.Children(ctx, jobPath)
	if errors.Is(err, zkconn.ErrNoNode) || errors.Is(err, zkconn.ErrNoAuth) {
		return nil // the znode is gone, or may not be listed; o.Live remains
	}
	if err != nil {
		return err
	}
	stats, err := ForEach(ctx, names, func(ctx context.Context, name string) (zkconn.Stat, error) {
		stat, _, err := r.source.Exists(ctx, jobPath+"/"+name)
		return stat, err
	})
	if err != nil {
		return err
	}
	o.Members, o.Strangers = nil, nil
	for i, name := range names {
		switch stat := stats[i]; {
		case stat.EphemeralOwner != 0:
			worker, _ := znode.StripProtected(name)
			o.Members = append(o.Members, worker)
		case stat.Czxid != 0: // otherwise the child is gone
			o.Strangers = append(o.Strangers, name)
		}
	}
	slices.Sort(o.Members)
	slices.Sort(o.Strangers)
	return nil
}

// spareWorkers is how many more znodes of workers are read than a job can have workers.
const spareWorkers = 1000

// Workers is MostWorkers without what was left out.
func (r *Reader) Workers(ctx context.Context, jobPath string) ([]Worker, error) {
	all, _, err := r.MostWorkers(ctx, jobPath)
	return all, err
}

// MostWorkers lists all workers that joined the present generation of a job, sorted by id, then those without an id. It
// needs three reads for each worker. For a job without a Record it lists only the live workers. If somebody made far
// more claims by hand than the job can have workers, it reads those of live workers and some others; more is how many
// it left out.
func (r *Reader) MostWorkers(ctx context.Context, jobPath string) (all []Worker, more int, err error) {
	if err := r.source.Sync(ctx, jobPath); err != nil {
		return nil, 0, err
	}
	live, more, err := r.readMost(ctx, jobPath, job.MaxWorkers, nil)
	if err != nil {
		return nil, 0, err
	}
	byIdentity := map[string]Worker{}
	for _, l := range live {
		if l.stat.EphemeralOwner == 0 {
			continue
		}
		info, err := decode(l, znode.DecodeWorker)
		if err != nil {
			info = znode.Worker{ID: -1}
		}
		name, _ := znode.StripProtected(l.name)
		byIdentity[name] = Worker{Identity: name, ID: info.ID, Live: true, Info: info, Since: l.stat.Ctime}
	}
	o, err := r.Look(ctx, jobPath)
	if err != nil {
		return nil, 0, err
	}
	if o != nil && o.Record != nil && job.Joined(o) > 0 {
		left, err := r.joined(ctx, o, byIdentity)
		if err == nil {
			err = r.recheckLive(ctx, jobPath, byIdentity)
		}
		if err != nil {
			return nil, 0, err
		}
		more += left
	}
	workers := make([]Worker, 0, len(byIdentity))
	for _, w := range byIdentity {
		workers = append(workers, w)
	}
	slices.SortFunc(workers, func(a, b Worker) int {
		return cmp.Or(cmp.Compare(uint(a.ID), uint(b.ID)), cmp.Compare(a.Identity, b.Identity)) // -1 sorts last
	})
	return workers, more, nil
}

// recheckLive reads the live workers again: some may have joined after they were read first.
func (r *Reader) recheckLive(ctx context.Context, jobPath string, workers map[string]Worker) error {
	now, _, err := r.source.Children(ctx, jobPath)
	if err != nil && !errors.Is(err, zkconn.ErrNoNode) {
		return err
	}
	for _, name := range now {
		if w := workers[name]; w.Claim.State == znode.In {
			w.Live = true
			workers[name] = w
		}
	}
	return nil
}

// joined adds claims and ids to workers, and returns how many claims it left out. One transaction created a claim and
// its id, so both have the same czxid.
func (r *Reader) joined(ctx context.Context, o *resource.Observed, workers map[string]Worker) (more int, err error) {
	j, g := job.Of(o.Record), o.Record.Generation
	claims, more, err := r.readMost(ctx, znode.By(j.Root, g), j.Workers,
		func(name string) bool { return workers[name].Live })
	if err != nil {
		return 0, err
	}
	ids, _, err := r.readMost(ctx, znode.IDs(j.Root, g), j.Workers, nil)
	if err != nil {
		return 0, err
	}
	byCzxid := map[int64]entry{}
	for _, e := range ids {
		byCzxid[e.stat.Czxid] = e
	}
	for _, c := range claims {
		w := workers[c.name]
		w.Identity, w.ID, w.Joined = c.name, -1, c.stat.Ctime
		if !w.Live {
			w.Since = c.stat.Mtime
		}
		if w.Claim, err = decode(c, znode.Decode[znode.Claim]); err != nil {
			w.Claim = znode.Claim{}
		}
		if e, ok := byCzxid[c.stat.Czxid]; ok {
			if info, err := decode(e, znode.DecodeWorker); err == nil {
				w.Info = info
			}
			if n, err := znode.IDNumber(e.name); err == nil {
				w.ID, w.Info.ID = n, n
			}
		}
		workers[c.name] = w
	}
	return more, nil
}

// entry is one child of a znode, with its body.
type entry struct {
	name string
	body []byte
	stat zkconn.Stat
	from *answer // that remembers it; nil: a session
}

// decode returns what f makes of the body of e: remembered with it if it comes from memory. The caller must not change
// what it points to.
func decode[T any](e entry, f func(body []byte) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	if e.from == nil {
		return f(e.body)
	}
	if kept := e.from.decoded.Load(); kept != nil {
		if r, ok := (*kept).(result); ok {
			return r.value, r.err
		}
	}
	value, err := f(e.body)
	var kept any = result{value, err}
	e.from.decoded.Store(&kept)
	return value, err
}

// readChildren reads every child of dir; none if dir does not exist.
func (r *Reader) readChildren(ctx context.Context, dir string) ([]entry, error) {
	all, _, err := r.readMost(ctx, dir, math.MaxInt-spareWorkers, nil)
	return all, err
}

// readMost reads n children of dir and a few more, those that are wanted before others, and returns how many it left
// out.
func (r *Reader) readMost(ctx context.Context, dir string, n int, wanted func(string) bool) ([]entry, int, error) {
	names, _, err := r.source.Children(ctx, dir)
	if errors.Is(err, zkconn.ErrNoNode) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	more := max(0, len(names)-n-spareWorkers)
	if more > 0 && wanted != nil {
		others := slices.DeleteFunc(slices.Clone(names), wanted)
		names = append(slices.DeleteFunc(names, func(name string) bool { return !wanted(name) }), others...)
	}
	names = names[:len(names)-more]
	var entries []entry
	if look, ok := r.source.(*Look); ok {
		entries, names = look.remembered(dir, names)
	}
	read, err := ForEach(ctx, names, func(ctx context.Context, name string) (entry, error) {
		body, stat, err := r.source.Get(ctx, path.Join(dir, name))
		if errors.Is(err, zkconn.ErrNoNode) {
			return entry{}, nil
		}
		return entry{name: name, body: body, stat: stat}, err
	})
	entries = append(entries, read...)
	if len(read) > 0 && len(read) < len(entries) {
		slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.name, b.name) })
	}
	return slices.DeleteFunc(entries, func(e entry) bool { return e.name == "" }), more, err
}

// ForEach calls f for every name, several at a time, and returns the results in the order of names.
func ForEach[T any](ctx context.Context, names []string, f func(context.Context, string) (T, error)) ([]T, error) {
	answers := make([]T, len(names))
	g, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range min(reads, len(names)) { // not a goroutine for each name: each would have to grow its stack
		g.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				switch {
				case i >= len(names):
					return nil
				case ctx.Err() != nil:
					return context.Cause(ctx)
				}
				var err error
				if answers[i], err = f(ctx, names[i]); err != nil {
					return err
				}
			}
		})
	}
	return answers, g.Wait()
}
