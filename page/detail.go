package page

import (
	"context"
	"errors"
	"time"

	"muster/report"
	"muster/resource"
	"muster/status"
	"muster/zkstate"
	"muster/zkstate/zkconn"
)

// watchedDetail is a resource that somebody looks at.
type watchedDetail struct {
	path   string
	shown  feed[*Detail] // nil: it is not there
	users  int           // by keeper.mu
	cancel context.CancelFunc
}

// detail returns what is known of the resource at path, and keeps it current until it is released.
func (k *keeper) detail(path string) (*watchedDetail, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	d := k.details[path]
	if d == nil {
		if len(k.details) >= MaxDetails {
			return nil, errBusy
		}
		ctx, cancel := context.WithCancel(k.ctx)
		d = &watchedDetail{path: path, cancel: cancel}
		k.details[path] = d
		k.running.Go(func() { k.runDetail(ctx, d) })
	}
	d.users++
	return d, nil
}

// releaseDetail gives a detail back.
func (k *keeper) releaseDetail(d *watchedDetail) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if d.users--; d.users == 0 {
		delete(k.details, d.path)
		d.cancel()
	}
}

// countDetails counts what is looked at.
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

// followDetail keeps a detail current until ctx or the session ends.
func (k *keeper) followDetail(ctx context.Context, d *watchedDetail, l *link, ended <-chan struct{}) {
	var look *look
	defer func() {
		if look != nil {
			look.Close()
		}
	}()
	var last *resource.Observed
	for {
		state, ready, stateChanged := l.state.now()
		var lookChanged <-chan struct{}
		if look != nil {
			lookChanged = look.Changed()
		}
		o, there := state.Found[d.path]
		start := time.Now()
		switch {
		case !ready:
		case !there:
			d.shown.put(nil)
			last = nil
		case last == nil || !last.Equal(o) || isClosed(lookChanged):
			next := l.mirror.Look()
			one, err := k.readDetail(ctx, next, d.path, o)
			if look != nil {
				look.Close()
			}
			look, lookChanged, last = next, next.Changed(), &o
			switch {
			case ctx.Err() != nil || errors.Is(err, zkconn.ErrSessionLost):
				return
			case err != nil:
				one.Problem = err.Error()
			}
			d.shown.put(one)
		}
		if !pause(ctx, max(readEvery, 3*time.Since(start))) {
			return
		}
		select {
		case <-stateChanged:
		case <-lookChanged:
		case <-ended:
			return
		case <-ctx.Done():
			return
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// readDetail reads everything that is shown of one resource.
func (k *keeper) readDetail(
	ctx context.Context, src zkstate.Source, path string, o resource.Observed,
) (*Detail, error) {
	r := zkstate.NewReader(src, k.cfg.Home, k.cfg.Kinds...)
	one := &Detail{JobStatus: report.JobStatus{Path: path, Observed: o}}
	var err error
	one.Workers, err = status.Detail(ctx, r, src, &one.JobStatus, false, status.RunsInJSON)
	return one, err
}
