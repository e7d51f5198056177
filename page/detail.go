package page

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"muster/member"
	"muster/plan"
	"muster/resource"
	"muster/view"
	"muster/zkstate"
	"muster/zkstate/zkconn"
)

// watchedDetail is a resource that somebody looks at.
type watchedDetail struct {
	path   string
	batch  string        // of a queue: besides this batch, which may have ended; empty: none
	shown  feed[*Detail] // nil: it is not there
	users  int           // by keeper.mu
	cancel context.CancelFunc
}

// detail returns what is known of the resource at path, and of a batch of it unless that is empty. It keeps it current
// until it is released.
func (k *keeper) detail(path, batch string) (*watchedDetail, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := k.details[[2]string{path, batch}]
	if d == nil {
		if len(k.details) >= MaxDetails {
			return nil, errBusy
		}
		ctx, cancel := context.WithCancel(k.ctx)
		d = &watchedDetail{path: path, batch: batch, cancel: cancel}
		k.details[[2]string{path, batch}] = d
		k.running.Go(func() { k.runDetail(ctx, d) })
	}
	d.users++
	return d, nil
}

func (k *keeper) releaseDetail(d *watchedDetail) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if d.users--; d.users == 0 {
		delete(k.details, [2]string{d.path, d.batch})
		d.cancel()
	}
}

func (k *keeper) countDetails() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.details)
}

// runDetail keeps a detail current in one session after the other, until ctx ends.
func (k *keeper) runDetail(ctx context.Context, d *watchedDetail) {
	for ctx.Err() == nil {
		l, _, changed := k.link.now()
		if l != nil {
			k.followDetail(ctx, d, l, changed)
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// detailWatch is how a detail is kept current in one session.
type detailWatch struct {
	keeper *keeper
	link   *link
	look   *zkstate.Look
	last   *resource.Observed // what look was taken of; nil: nothing
	one    *Detail            // as ZooKeeper has it
	redis  *redisWatch        // of a queue
	stop   func()             // ends redis
	asking sync.WaitGroup
}

// followDetail keeps a detail current until ctx or the session ends.
func (k *keeper) followDetail(ctx context.Context, d *watchedDetail, l *link, ended <-chan struct{}) {
	w := &detailWatch{keeper: k, link: l, stop: func() {}}
	defer func() {
		w.stop()
		w.asking.Wait()
		if w.look != nil {
			w.look.Close()
		}
	}()
	for {
		start := time.Now()
		state, ready, stateChanged := l.state.now()
		if ready {
			if err := w.read(ctx, d, state); err != nil {
				return
			}
		}
		var answer *asked
		var redisChanged <-chan struct{}
		if w.redis != nil {
			answer, _, redisChanged = w.redis.shown.now()
		}
		_, _, ticked := k.hour.ticked.now()
		if ready && (w.redis == nil || answer != nil) {
			d.shown.put(w.shown(answer))
		}
		var lookChanged <-chan struct{}
		if w.look != nil {
			lookChanged = w.look.Changed()
		}
		zkconn.Pause(ctx, readPause(time.Since(start)))
		select {
		case <-stateChanged:
		case <-lookChanged:
		case <-redisChanged:
		case <-ticked:
		case <-ended:
			return
		case <-ctx.Done():
			return
		}
	}
}

// outdated reports whether a detail was read in an earlier session than the board.
func (k *keeper) outdated(b *Board, d *Detail) bool {
	l, _, _ := k.link.now()
	return b != nil && b.Connected && d != nil && d.link != l
}

// read reads a resource if it has changed. The error is that of a session that has ended.
func (w *detailWatch) read(ctx context.Context, d *watchedDetail, state plan.State) error {
	o, there := state.Found[d.path]
	if !there {
		w.stop()
		w.one, w.last, w.redis = nil, nil, nil
		return nil
	}
	if w.last != nil && w.last.Equal(o) && !zkconn.Closed(w.look.Changed()) {
		return nil
	}
	next := w.link.mirror.Look()
	one, err := w.keeper.readDetail(ctx, next, d, o)
	if w.look != nil {
		w.look.Close()
	}
	w.look, w.last = next, &o
	switch {
	case ctx.Err() != nil || errors.Is(err, zkconn.ErrSessionLost):
		return err
	case err != nil:
		one.Problem = err.Error()
	}
	one.link = w.link
	w.one = one
	w.ask(ctx, one)
	return nil
}

// ask begins to ask Redis about a queue, or tells who asks what the queue is now.
func (w *detailWatch) ask(ctx context.Context, one *Detail) {
	if one.Queue == nil || w.keeper.cfg.Redis == nil {
		w.stop()
		w.redis = nil
		return
	}
	if rec := one.Observed.Record; w.redis == nil || w.redis.rec.Generation != rec.Generation {
		w.stop()
		ctx, stop := context.WithCancel(ctx)
		asking := &redisWatch{open: w.keeper.cfg.Redis, rec: rec}
		w.redis, w.stop = asking, stop
		w.asking.Go(func() { asking.run(ctx) })
	}
	w.redis.queue.put(one)
}

// shown is the detail with what Redis knows, and its last hour; nil if there is nothing.
func (w *detailWatch) shown(a *asked) *Detail {
	if w.one == nil {
		return nil
	}
	one := *w.one
	if a != nil {
		one.asked = *a
	}
	one.charts = w.keeper.hour.charts(one.Path, &one.Observed, time.Now())
	return &one
}

// readDetail reads everything that is shown of one resource.
func (k *keeper) readDetail(
	ctx context.Context, src zkstate.Source, d *watchedDetail, o resource.Observed,
) (*Detail, error) {
	r := zkstate.NewReader(src, k.cfg.Home, k.cfg.Kinds...)
	one := &Detail{Resource: view.Resource{Path: d.path, Observed: o}}
	err := r.FillDetail(ctx, &one.Resource, time.Now())
	if err == nil && one.Group != nil {
		err = member.FillRuns(ctx, src, o.Record, one.Group.Duties, member.AllRuns)
	}
	if err == nil && one.Queue != nil && d.batch != "" {
		one.Batch, err = r.Batch(ctx, o.Record, d.batch)
	}
	return one, err
}

// Lookout reads what Redis holds of one queue, and changes nothing.
type Lookout interface {
	// Progress says how far the batches of a queue are. It may be called again and again.
	Progress(ctx context.Context, d *Detail) (Progress, error)
	// Sample says how much was done so far. It may be called again and again.
	Sample(ctx context.Context) (QueueSample, error)
	Close()
}

// Progress is what Redis knows of a queue.
type Progress struct {
	Batches []BatchProgress // those that were asked for, the oldest first
	Hands   []Hand
	Dead    []DeadTask // the newest first; not all, if many
}

// redisWatch asks Redis about a queue while somebody looks at it: nothing tells when it changes.
type redisWatch struct {
	open  func(ctx context.Context, rec *resource.Record) (Lookout, error)
	rec   *resource.Record
	queue feed[*Detail] // as ZooKeeper has it
	shown feed[*asked]

	lookout Lookout // nil: there is no connection
}

// asked is what Redis answered last.
type asked struct {
	Progress
	Told  time.Time // when it answered so; zero: never
	Redis string    // why it does not answer now; empty: it did
}

// as is what it told last of the batches that d has, without rates, while it does not answer because of err.
func (a asked) as(d *Detail, err error) *asked {
	a.Redis = err.Error()
	if a.Told.IsZero() {
		return &a
	}
	known, there := a.Batches, d.Queue.Batches
	if d.Batch != nil && !slices.ContainsFunc(there, func(b view.Batch) bool { return b.ID == d.Batch.ID }) {
		there = append(slices.Clip(there), d.Batch.BatchRow.Batch)
	}
	a.Batches = nil
	for _, b := range there {
		row := BatchProgress{BatchRow: view.BatchRow{Batch: b}}
		if i := slices.IndexFunc(known, func(k BatchProgress) bool { return k.ID == b.ID }); i >= 0 {
			row = known[i]
			row.PerSecond = 0
		}
		a.Batches = append(a.Batches, row)
	}
	return &a
}

func (w *redisWatch) run(ctx context.Context) {
	defer func() {
		if w.lookout != nil {
			w.lookout.Close()
		}
	}()
	ends := map[string][]endedAt{}
	var told asked
	for ctx.Err() == nil {
		d, ok := await(ctx, &w.queue)
		if !ok {
			return
		}
		if p, err := w.ask(ctx, d); err != nil { // p may be a part
			w.shown.put(told.as(d, err))
		} else {
			told = asked{Progress: p, Told: time.Now()}
			addRates(ends, p.Batches, told.Told)
			w.shown.put(new(told))
		}
		zkconn.Pause(ctx, redisEvery)
	}
}

// ask asks once, on a new connection if there is none.
func (w *redisWatch) ask(ctx context.Context, d *Detail) (p Progress, err error) {
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	if w.lookout == nil {
		if w.lookout, err = w.open(ctx, w.rec); err != nil {
			return p, err
		}
	}
	return w.lookout.Progress(ctx, d)
}

// endedAt is how many tasks of a batch had ended at a time.
type endedAt struct {
	at    time.Time
	ended int64
}

// addRates notes how many tasks have ended, and adds how many do in a second.
func addRates(ends map[string][]endedAt, batches []BatchProgress, now time.Time) {
	there := map[string]bool{}
	for i := range batches {
		b := &batches[i]
		if b.BatchCounts == nil {
			continue
		}
		there[b.ID] = true
		all := append(ends[b.ID], endedAt{now, b.Done + b.Dead})
		for len(all) > 2 && now.Sub(all[1].at) >= rateOver {
			all = all[1:]
		}
		ends[b.ID] = all
		first, last := all[0], all[len(all)-1]
		if long := last.at.Sub(first.at).Seconds(); long > 0 && last.ended > first.ended {
			b.PerSecond = float64(last.ended-first.ended) / long
		}
	}
	maps.DeleteFunc(ends, func(id string, _ []endedAt) bool { return !there[id] })
}
