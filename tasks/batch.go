package tasks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"muster/resource"
	"muster/tasks/store"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Manifest is an unfinished batch as ZooKeeper has it.
type Manifest struct {
	znode.BatchManifest
	Version  int32     // of its znode
	Life     string    // of the batch in Redis: the hex czxid of its znode
	Modified time.Time // when it was last written, by ZooKeeper's clock
}

func readManifest(body []byte, stat zkconn.Stat) (Manifest, error) {
	b, err := znode.Decode[znode.BatchManifest](body)
	return Manifest{b, stat.Version, hex(stat.Czxid), stat.Mtime}, err
}

// tell tells Redis the weight and the state. It knows the version, and does nothing if it has a newer one.
func (m Manifest) tell(ctx context.Context, st *store.Queue, id string) error {
	return st.Set(ctx, id, m.Life, int64(m.Version), m.Weight, string(m.State))
}

type followed struct {
	read, over context.Context    // end when it was read at least once; when it is cancelled, or has ended
	noteRead   context.CancelFunc // ends read
	noteOver   context.CancelFunc // ends over

	mu       sync.Mutex
	manifest Manifest
	err      error
	changed  chan struct{} // closed when it was written again
}

// Manifest is an unfinished batch. It is watched from the first time on, so it may be a moment old. ErrNoBatch: there
// is none of this name.
func (p *Process) Manifest(ctx context.Context, id string) (Manifest, error) {
	for {
		f, begun := p.followBatch(id)
		select {
		case <-f.read.Done():
		case <-ctx.Done():
			return Manifest{}, context.Cause(ctx)
		case <-p.ctx.Done():
			return Manifest{}, context.Cause(p.ctx)
		}
		f.mu.Lock()
		m, err := f.manifest, f.err
		f.mu.Unlock()
		if begun || !errors.Is(err, ErrNoBatch) {
			return m, err
		} // it was read for somebody else: the batch may have been submitted since
	}
}

// followBatch watches a batch until it has ended. begun reports whether this call has begun that.
func (p *Process) followBatch(id string) (f *followed, begun bool) {
	p.following.Lock()
	defer p.following.Unlock()
	if f := p.followed[id]; f != nil {
		return f, false
	}
	f = &followed{changed: make(chan struct{})}
	f.read, f.noteRead = context.WithCancel(context.Background())
	f.over, f.noteOver = context.WithCancel(context.Background())
	p.followed[id] = f
	begun = p.seat.Go(func() {
		at := znode.Batch(p.config.Root, p.Generation, id)
		err := p.session.Sync(p.ctx, at) // a server that lags may not have it yet
		if err == nil {
			err = p.session.Follow(p.ctx, at, f.update)
		}
		p.following.Lock()
		delete(p.followed, id)
		p.following.Unlock()
		f.finish(err)
	})
	if !begun {
		f.finish(context.Cause(p.ctx))
	}
	return f, begun
}

// update notes what a batch is now. It returns an error when the batch has ended.
func (f *followed) update(body []byte, stat zkconn.Stat, there bool) error {
	if !there {
		return ErrNoBatch
	}
	m, err := readManifest(body, stat)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.manifest.Life != "" && m.Life != f.manifest.Life {
		return fmt.Errorf("%w: another one has this name now", ErrNoBatch)
	}
	f.note(m, err, err == nil && m.State == znode.BatchCancelled)
	return nil
}

// note notes what is known now. The caller holds mu.
func (f *followed) note(m Manifest, err error, over bool) {
	f.manifest, f.err = m, err
	f.noteRead()
	if over {
		f.noteOver()
	}
	close(f.changed)
	f.changed = make(chan struct{})
}

// next is closed when the batch was written again.
func (f *followed) next() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

// finish notes that the batch is followed no more.
func (f *followed) finish(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.note(f.manifest, err, true)
}

// Ending a batch writes, in this order:
//
//	run/<g>/ended              set to nothing: its mtime then is the time
//	run/<g>/batch/<id>         deleted, at the version read
//	run/<g>/ended/<day>        persistent   created in the same transaction, by the first batch that ends on a day
//	run/<g>/ended/<day>/<id>   persistent   created in the same transaction
//	Redis                      remove
//
// A batch is ended only as long as all its tasks have ended, unless it is cancelled or was never submitted in full: a
// retry may come in between. It sets Retrying in the manifest before it moves the first task, and unsets it after the
// last one. So an end that reads Redis after the manifest, and deletes the manifest at that version, has seen all of a
// retry or is refused. While a watcher has the batch, Redis refuses the retry.
//
// A process that dies after the transaction leaves keys in Redis that no manifest names. The process with the smallest
// seat removes those. The Record is not checked: a queue that was asked to stop may lose a batch, but not get one. Nor
// is the gate: as long as there is a manifest, the queue is not deleted.

// end ends a batch, of which m is the manifest as it was read: in ZooKeeper, and then in Redis. by says who does it.
// Calling it again does no harm, also after any error, and also if another process has ended the batch before.
//
// A manifest that was changed since is read again, unless how is EndUnattended: somebody attends to the batch then, and
// the error wraps zkconn.ErrBadVersion. ErrGoesOn: dead tasks of it are tried again. After an error of Redis the batch
// has ended, and its keys are still there.
func (l ledger) end(
	ctx context.Context, st *store.Queue, id string, m Manifest, how znode.EndState, by string,
) (err error) {
	defer resource.Wrapf(&err, "end batch %s", id)
	e := ending{ledger: l, st: st, id: id, m: m, how: how, by: by}
	for {
		err := e.attempt(ctx)
		switch {
		case err == nil:
			return removeLife(ctx, st, id, e.m.Life)
		case !errors.Is(err, errAgain) || ctx.Err() != nil:
			return err
		}
	}
}

// ErrGoesOn means that a batch was not ended, because somebody retries its dead tasks. Wait for these.
var ErrGoesOn = errors.New("dead tasks of the batch are tried again")

type ending struct {
	ledger
	st         *store.Queue
	id         string
	m          Manifest
	how        znode.EndState
	by         string
	now        time.Time // by ZooKeeper's clock, which also tells when this is forgotten
	firstOfDay bool      // no batch has ended on this day before
	replace    bool      // one of this name has
}

// attempt ends the batch in ZooKeeper. nil: it has ended. errAgain: nothing was written, because something has changed.
func (e *ending) attempt(ctx context.Context) error {
	acl, _, err := e.s.ACL(ctx, e.batch(e.id))
	if errors.Is(err, zkconn.ErrNoNode) {
		return nil
	}
	if err != nil {
		return err
	}
	if e.now.IsZero() {
		if e.now, err = e.time(ctx); err != nil {
			return err
		}
	}
	body, err := e.body(ctx)
	if err != nil {
		return err
	}
	day, at := znode.EndedDay(e.root, e.g, e.now), znode.EndedBatch(e.root, e.g, e.now, e.id)
	ops := []zkconn.Op{zkconn.DeleteOp(e.batch(e.id), e.m.Version)}
	if e.firstOfDay {
		ops = append(ops, zkconn.CreateOp(day, nil, zkconn.Persistent, acl))
	}
	end := zkconn.CreateOp(at, body, zkconn.Persistent, acl)
	if e.replace {
		end = zkconn.SetOp(at, body, -1)
	}
	_, err = e.s.Multi(ctx, append(ops, end)...)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, zkconn.ErrUnknown):
		return settled(ctx, e.s, err)
	case zkconn.RefusedAt(err, e.batch(e.id), zkconn.ErrNoNode):
		return nil
	case zkconn.RefusedAt(err, e.batch(e.id), zkconn.ErrBadVersion):
		return e.readAgain(ctx, err)
	case zkconn.RefusedAt(err, at, zkconn.ErrNodeExists):
		e.replace = true
		return errAgain
	case zkconn.RefusedAt(err, at, zkconn.ErrNoNode): // the day, or one of this name, is not there, or is not any more
		e.firstOfDay, e.replace = true, false
		return errAgain
	case zkconn.RefusedAt(err, day, zkconn.ErrNodeExists):
		e.firstOfDay = false
		return errAgain
	}
	return err
}

func (e *ending) time(ctx context.Context) (time.Time, error) {
	days := znode.EndedDays(e.root, e.g)
	stat, err := e.s.Set(ctx, days, nil, -1)
	switch {
	case errors.Is(err, zkconn.ErrUnknown):
		return time.Time{}, settled(ctx, e.s, err)
	case zkconn.RefusedAt(err, days, zkconn.ErrNoNode):
		return time.Time{}, fmt.Errorf("%w: muster apply to put back %s: %w", ErrNotOpen, days, err)
	case err != nil:
		return time.Time{}, err
	}
	return stat.Mtime, nil
}

// body is what remains of the batch.
func (e *ending) body(ctx context.Context) ([]byte, error) {
	end := znode.BatchEnd{BatchManifest: e.m.BatchManifest, How: e.how, EndedBy: e.by, Ended: e.now.UTC()}
	b, err := e.st.Batch(ctx, e.id)
	switch {
	case errors.Is(err, store.ErrNoBatch): // lost, or nothing was written
	case err != nil:
		return nil, err
	case e.mayGoOn(b):
		return nil, ErrGoesOn
	case b.Life == e.m.Life: // of a broken one nothing is known
		end.Done, end.Dead = min(b.Done, e.m.Tasks), min(b.Dead, e.m.Tasks)
	}
	return znode.Encode(end)
}

// mayGoOn reports whether a retry keeps the batch, of which b is what Redis has, from being ended.
func (e *ending) mayGoOn(b store.Batch) bool {
	if e.how == znode.EndCancelled || e.m.State == znode.BatchSubmitting || b.Life != e.m.Life || b.Holder != "" {
		return false
	}
	return e.m.Retrying || !completed(b)
}

func (e *ending) readAgain(ctx context.Context, changed error) error {
	if e.how == znode.EndUnattended {
		return changed
	}
	m, err := e.Manifest(ctx, e.id)
	switch {
	case errors.Is(err, ErrNoBatch):
		return errAgain
	case err != nil:
		return err
	case m.Life != e.m.Life: // ended, and submitted again
		return nil
	}
	e.m = m
	return errAgain
}

// removeLife removes a batch from Redis, unless another one has its name there.
func removeLife(ctx context.Context, st *store.Queue, id, life string) error {
	err := st.Remove(ctx, id, life)
	if errors.Is(err, store.ErrLife) {
		return nil
	}
	return err
}

// ledger is what ZooKeeper knows of the batches of a queue's generation.
type ledger struct {
	s       *zkconn.Session
	root, g string
}

func (l ledger) batch(id string) string { return znode.Batch(l.root, l.g, id) }

// Manifest reads an unfinished batch as the leader of ZooKeeper has it. ErrNoBatch: there is none of this name.
func (l ledger) Manifest(ctx context.Context, id string) (Manifest, error) {
	at := l.batch(id)
	if err := l.s.Sync(ctx, at); err != nil {
		return Manifest{}, err
	}
	body, stat, err := l.s.Get(ctx, at)
	if errors.Is(err, zkconn.ErrNoNode) {
		return Manifest{}, ErrNoBatch
	}
	if err != nil {
		return Manifest{}, err
	}
	m, err := readManifest(body, stat)
	if err != nil {
		return Manifest{}, fmt.Errorf("%w: %s: %w", ErrManifest, at, err)
	}
	return m, nil
}

// set writes a manifest at the version read. errAgain: it may have been written, or somebody else was faster.
func (l ledger) set(ctx context.Context, id string, m *Manifest, next znode.BatchManifest) error {
	body, err := znode.Encode(next)
	if err != nil {
		return err
	}
	stat, err := l.s.Set(ctx, l.batch(id), body, m.Version)
	switch {
	case err == nil:
		m.BatchManifest, m.Version, m.Modified = next, stat.Version, stat.Mtime
		return nil
	case errors.Is(err, zkconn.ErrUnknown):
		return settled(ctx, l.s, err)
	case errors.Is(err, zkconn.ErrBadVersion), errors.Is(err, zkconn.ErrNoNode):
		return errAgain
	}
	return err
}

// Ended is zkstate.EndedBatch.
func (l ledger) Ended(ctx context.Context, id string) (*znode.BatchEnd, error) {
	return zkstate.EndedBatch(ctx, l.s, l.root, l.g, id)
}

// settled returns errAgain when what is read next shows whether a write happened whose answer was lost.
func settled(ctx context.Context, s *zkconn.Session, lost error) error {
	if err := s.Settled(ctx); err != nil {
		return fmt.Errorf("%w: %w", lost, err)
	}
	return errAgain
}
