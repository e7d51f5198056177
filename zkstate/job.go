package zkstate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/resource"
	"muster/resource/job"
	"muster/text"
	"muster/view"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Job describes how ZooKeeper holds jobs.
func Job() Kind {
	return Kind{
		Kind: job.Kind(), Count: countJob,
		Folders: func(d resource.Declaration) []string {
			j, _ := d.(job.Job)
			return znode.JobFolders(j)
		},
		Detail: func(ctx context.Context, r *Reader, v *view.Resource, _ time.Time) (err error) {
			v.Barriers, err = r.Rounds(ctx, &v.Observed)
			return err
		},
	}
}

// countJob reads how many workers have joined, and how many have completed. If two workers join at once and only one id
// is free, there is one id too many for a moment.
func countJob(ctx context.Context, r *Reader, o *resource.Observed) error {
	j, g := job.Of(o.Record), o.Record.Generation
	ids, _, err := r.source.Exists(ctx, znode.IDs(j.Root, g))
	if err != nil {
		return err
	}
	haveJoined := min(j.Workers, int(ids.NumChildren))
	if j.Gang != nil {
		return r.countGang(ctx, o, haveJoined)
	}
	end, _, err := r.source.Exists(ctx, znode.End(j.Root, g))
	if err != nil {
		return err
	}
	o.Counts = job.Counts(haveJoined, min(j.Workers, int(end.NumChildren)))
	return nil
}

// Finish does what on_complete says once all workers of generation g have completed: it makes the job ready again in a
// new generation, deletes it, or leaves it. This is one transaction, so only one of several callers does it. Finish
// does nothing before all have completed, or if the workers were asked to stop. A job of which a part was deleted by
// hand is an error.
func (s *Store) Finish(ctx context.Context, path, g string) error {
	err := s.change(ctx, path, func(o *resource.Observed) (transaction, error) {
		switch {
		case o.Class() == resource.Damaged && (o.Record == nil || o.Record.Generation == g):
			return transaction{}, errors.New("a part of it was deleted by hand")
		case o.Class() != resource.Done || o.Record.Generation != g:
			return transaction{}, nil
		case job.Of(o.Record).Lifecycle.OnComplete == job.Reset:
			return s.reset(ctx, o)
		case job.Of(o.Record).Lifecycle.OnComplete == job.Remove:
			return s.delete(o), nil
		}
		return transaction{}, nil
	})
	if err == nil {
		s.removeGeneration(ctx, job.Kind(), path, g)
	}
	return err
}

// reset makes a completed job ready again with the recorded declaration.
func (s *Store) reset(ctx context.Context, o *resource.Observed) (transaction, error) {
	rec := *o.Record
	if err := s.recordRun(ctx, o, &rec, s.cfg.At.UTC().Format(time.RFC3339)); err != nil {
		return transaction{}, err
	}
	rec.Generation, rec.Op = NewID(), NewID()
	acl, err := ParseACL(rec.ACL)
	if err != nil {
		return transaction{}, err
	}
	return s.newGeneration(rec, o, acl)
}

// recordRun writes the run of old into rec as the last run, if old is a completed job.
func (s *Store) recordRun(ctx context.Context, old *resource.Observed, rec *resource.Record, completed string) error {
	if _, ok := old.Record.Declaration.(job.Job); !ok || old.Class() != resource.Done {
		return nil
	}
	run, err := s.RunName(ctx, old.Record)
	if err != nil {
		return err
	}
	return job.SetLastRun(rec, job.Run{ID: run, Generation: old.Record.Generation, Completed: completed})
}

// CompletedW watches whether all workers of the run in a job's record complete. The function that it returns reports
// whether they have: true is certain, also when the job is gone afterwards. After a lost connection it may stay false.
func (r *Follower) CompletedW(ctx context.Context, rec *resource.Record) (completed func() bool, err error) {
	last, err := LastCompletion(ctx, r.session, job.Of(rec), rec.Generation)
	if err != nil {
		return nil, fmt.Errorf("whether the run completes: %w", err)
	}
	// In a gang another attempt creates the same znode, and sets the state of its round before: that event is then here.
	aborted := func() bool { return false }
	if job.Of(rec).Gang != nil {
		var set <-chan struct{}
		var deleted func() bool
		_, _, set, deleted, err = r.session.DeletedW(ctx, znode.RoundState(path.Dir(path.Dir(last))))
		aborted = func() bool { return zkconn.Closed(set) && !deleted() }
	}
	stat, exists, changed, created, e := r.session.CreatedW(ctx, last)
	if err = cmp.Or(err, e); err != nil {
		return nil, fmt.Errorf("whether the run completes: %w", err)
	}
	return func() bool {
		return exists && stat.DataLength == 0 || zkconn.Closed(changed) && created() && !aborted()
	}, nil
}

// RunName is the name of the run in the generation of a job's record, which its first worker wrote; empty if it has
// none or nobody has joined.
func (r *Reader) RunName(ctx context.Context, rec *resource.Record) (string, error) {
	at := znode.IDs(rec.Declaration.ID().Root, rec.Generation)
	// Without the znode the generation may be gone too: a transaction will fail then.
	name, _, _, err := zkconn.IfThere(r.source.Get(ctx, at))
	if err != nil {
		return "", fmt.Errorf("the name of the run: %w", err)
	}
	return string(name), nil
}

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
	return nil
}

// spareWorkers is how many more znodes of workers are read than a job can have workers.
const spareWorkers = 1000

// Workers lists all workers that joined the present generation of a job, sorted by id, then those without an id. It
// needs three reads for each worker. For a job without a Record it lists only the live workers. If somebody made far
// more claims by hand than the job can have workers, it reads those of live workers and some others; more is how many
// it left out.
func (r *Reader) Workers(ctx context.Context, jobPath string) (all []Worker, more int, err error) {
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
	now, err := r.children(ctx, jobPath)
	if err != nil {
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

// joined adds claims and ids to workers, and returns how many claims it left out. A claim says its id if the worker
// brought that. Else one transaction created the claim and its id, so both have the same czxid.
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
	byCzxid, byName := map[int64]entry{}, map[string]entry{}
	for _, e := range ids {
		byCzxid[e.stat.Czxid], byName[e.name] = e, e
	}
	for _, c := range claims {
		w := workers[c.name]
		w.Identity, w.ID, w.Joined = c.name, -1, c.stat.Ctime
		if !w.Live {
			w.Since = c.stat.Mtime
		}
		w.Claim, _ = decode(c, znode.Decode[znode.Claim])
		e, ok := byCzxid[c.stat.Czxid]
		if w.Claim.ID != nil {
			e, ok = byName[path.Base(znode.ID(j.Root, g, *w.Claim.ID))]
		}
		if ok {
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
	names, err := r.children(ctx, dir)
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
		body, stat, there, err := zkconn.IfThere(r.source.Get(ctx, path.Join(dir, name)))
		if !there {
			return entry{}, err
		}
		return entry{name: name, body: body, stat: stat}, err
	})
	entries = append(entries, read...)
	if len(read) > 0 && len(read) < len(entries) {
		slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.name, b.name) })
	}
	return slices.DeleteFunc(entries, func(e entry) bool { return e.name == "" }), more, err
}

// ForEach calls f for every key, several at a time, and returns the results in the order of keys.
func ForEach[K, T any](ctx context.Context, keys []K, f func(context.Context, K) (T, error)) ([]T, error) {
	answers := make([]T, len(keys))
	g, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range min(reads, len(keys)) { // not a goroutine for each key: each would have to grow its stack
		g.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				switch {
				case i >= len(keys):
					return nil
				case ctx.Err() != nil:
					return context.Cause(ctx)
				}
				var err error
				if answers[i], err = f(ctx, keys[i]); err != nil {
					return err
				}
			}
		})
	}
	return answers, g.Wait()
}

// Filter returns those keys for which f is true, in their order. It calls f as ForEach does.
func Filter[K any](ctx context.Context, keys []K, f func(context.Context, K) (bool, error)) ([]K, error) {
	is, err := ForEach(ctx, keys, f)
	var some []K
	for i, key := range keys {
		if is[i] {
			some = append(some, key)
		}
	}
	return some, err
}

// Rounds lists the rounds of barriers that are under way in a job, sorted by name and round. It costs one read if no
// worker has been at a barrier, else about seven for each barrier and one for each aborted round that is kept; live
// rounds cost one more for each arrival. Rounds that cannot be understood are left out, as are those that end while
// they are read. o is the job as it was observed; one that is not being worked for has none.
func (r *Reader) Rounds(ctx context.Context, o *resource.Observed) ([]view.Barrier, error) {
	if o == nil || o.Record == nil || o.Live == 0 || o.Class() == resource.Unreadable || job.Joined(o) == 0 {
		return nil, nil
	}
	j, g := job.Of(o.Record), o.Record.Generation
	root := j.Root
	names, err := r.children(ctx, znode.Barriers(root, g))
	if err != nil {
		return nil, err
	}
	if j.Gang != nil {
		a, _, _, err := ReadAttempt(ctx, r.source, j, g)
		if err != nil {
			return nil, err
		}
		names = slices.DeleteFunc(names, func(name string) bool { return !a.Meets(name) })
	}
	byName, err := ForEach(ctx, names, func(ctx context.Context, name string) ([]view.Barrier, error) {
		return r.roundsOf(ctx, root, g, name)
	})
	return slices.Concat(byName...), err
}

// roundsOf lists the rounds of one barrier that are under way.
func (r *Reader) roundsOf(ctx context.Context, root, g, name string) ([]view.Barrier, error) {
	kept, err := r.children(ctx, znode.BarrierFloor(root, g, name))
	if err != nil {
		return nil, err
	}
	var rounds []view.Barrier
	for round, attempt := range znode.LatestAttempts(kept) {
		one := view.Barrier{Name: znode.PlainBarrier(name), Start: name == znode.StartBarrier, Round: round, Attempt: attempt}
		under, err := r.readRound(ctx, znode.Attempt(root, g, name, round, attempt), &one)
		if err != nil {
			return nil, err
		}
		if under {
			rounds = append(rounds, one)
		}
	}
	slices.SortFunc(rounds, func(a, b view.Barrier) int { return cmp.Compare(a.Round, b.Round) })
	return rounds, nil
}

// readRound fills what dir says of a round, and reports whether it is under way. It reads the outcome last: so a round
// that it reports had at most the arrivals that it names.
func (r *Reader) readRound(ctx context.Context, dir string, one *view.Barrier) (under bool, err error) {
	body, made, _, err := zkconn.IfThere(r.source.Get(ctx, znode.RoundState(dir)))
	st, bad := znode.Decode[znode.Round](body)
	if err != nil || bad != nil || st.Aborted != "" {
		return false, err
	}
	names, err := r.children(ctx, znode.Arrivals(dir))
	if err != nil || len(names) == 0 {
		return false, err
	}
	one.Mode, one.Workers = string(st.Mode), st.Workers
	one.Arrived, one.Missing = znode.Arrived(names, st.Workers)
	if len(one.Arrived) == 0 {
		return false, nil // what is there are no arrivals
	}
	if one.Since, err = r.firstArrival(ctx, dir, one); err != nil {
		return false, err
	}
	if one.Since.IsZero() {
		one.Since = made.Ctime
	}
	_, decided, err := r.source.Exists(ctx, znode.Counted(dir, st.Workers-1))
	return !decided, err
}

// firstArrival is when the first worker arrived; zero if nobody has any more. A round is made before that: by whoever
// arrives first at the round before it.
func (r *Reader) firstArrival(ctx context.Context, dir string, one *view.Barrier) (time.Time, error) {
	paths := []string{znode.Counted(dir, 0)}
	if znode.BarrierMode(one.Mode).Live() {
		paths = text.Each(one.Arrived, func(id int) string { return znode.Arrival(dir, id) })
	}
	stats, err := ForEach(ctx, paths, func(ctx context.Context, path string) (zkconn.Stat, error) {
		stat, there, err := r.source.Exists(ctx, path)
		if !there {
			return zkconn.Stat{}, err // it may have left meanwhile
		}
		return stat, err
	})
	var first time.Time
	for _, stat := range stats {
		if at := stat.Ctime; !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first, err
}
