package tasks

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

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

// readManifest decodes a manifest.
func readManifest(body []byte, stat zkconn.Stat) (Manifest, error) {
	b, err := znode.Decode[znode.BatchManifest](body)
	return Manifest{b, stat.Version, hex(stat.Czxid), stat.Mtime}, err
}

// manifests are the batches that a process has asked for, until each has ended.
type manifests struct {
	mu   sync.Mutex
	byID map[string]*followed
}

// followed is a batch that is watched.
type followed struct {
	read chan struct{} // closed when it was read at least once
	over chan struct{} // closed when it is cancelled, or has ended

	mu       sync.Mutex
	manifest Manifest
	err      error
	changed  chan struct{} // closed when it was written again
}

// Manifest is an unfinished batch. It is watched from the first time on, so it may be a moment old. ErrNoBatch: there
// is none of this name.
func (p *Process) Manifest(ctx context.Context, id string) (Manifest, error) {
	for {
		f, begun := p.tryFollow(id)
		select {
		case <-f.read:
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

// Cancelled is closed when a batch is cancelled, or has ended.
func (p *Process) Cancelled(id string) <-chan struct{} {
	return p.followBatch(id).over
}

// followBatch watches a batch until it has ended.
func (p *Process) followBatch(id string) *followed {
	f, _ := p.tryFollow(id)
	return f
}

// tryFollow is followBatch; begun reports whether this call has begun that.
func (p *Process) tryFollow(id string) (f *followed, begun bool) {
	p.manifests.mu.Lock()
	defer p.manifests.mu.Unlock()
	if f := p.manifests.byID[id]; f != nil {
		return f, false
	}
	if p.manifests.byID == nil {
		p.manifests.byID = map[string]*followed{}
	}
	f = &followed{read: make(chan struct{}), over: make(chan struct{}), changed: make(chan struct{})}
	p.manifests.byID[id] = f
	begun = p.background(func() {
		at := znode.Batch(p.config.Root, p.Generation, id)
		err := p.session.Sync(p.ctx, at) // a server that lags may not have it yet
		if err == nil {
			err = p.session.Follow(p.ctx, at, f.update)
		}
		p.manifests.mu.Lock()
		delete(p.manifests.byID, id)
		p.manifests.mu.Unlock()
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
	if f.manifest, f.err = m, err; err == nil && m.State == znode.BatchCancelled {
		closeOnce(f.over)
	}
	closeOnce(f.read)
	close(f.changed)
	f.changed = make(chan struct{})
	return nil
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
	f.err = err
	closeOnce(f.over)
	closeOnce(f.read)
}

// closeOnce closes c unless it is closed. The caller holds the lock that guards c.
func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}
