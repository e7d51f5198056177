package page

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// errBusy means that a limit of the server is reached. Try again later.
var errBusy = errors.New("too many different pages are open at once: close some, or try again in a moment")

// hub holds the views. All who look at the same URL share one, which is drawn once.
type hub struct {
	keeper *keeper
	views  *views
	ctx    context.Context // of the server

	version atomic.Uint64 // of the view that was drawn last; no two drawings have the same
	drawing chan struct{} // one view is drawn at a time: the rest of the machine is for others

	mu      sync.Mutex
	open    map[string]*scene // by canonical URL
	running sync.WaitGroup
}

func newHub(ctx context.Context, k *keeper) *hub {
	h := &hub{keeper: k, views: newViews(), ctx: ctx, drawing: make(chan struct{}, 1), open: map[string]*scene{}}
	// A page that was loaded from an earlier process must not take this one's versions for its own. The number is
	// below 2^53, as JavaScript wants it.
	h.version.Store(uint64(time.Now().UnixMilli()) * 1000)
	return h
}

// scene is one page that somebody looks at.
type scene struct {
	request Request
	shown   feed[*drawn]
	cancel  context.CancelFunc

	users int       // by hub.mu
	idle  time.Time // since when users is 0
}

// drawn is a view at one time. It does not change.
type drawn struct {
	Rendered
	behind []patch // the newest last: what brought it here
}

// acquire returns the view of a request. Whoever got it releases it.
func (h *hub) acquire(r Request) (*scene, error) {
	key := r.URL()
	h.mu.Lock()
	defer h.mu.Unlock()
	v := h.open[key]
	if v == nil {
		if len(h.open) >= MaxViews && !h.evict() {
			return nil, errBusy
		}
		ctx, cancel := context.WithCancel(h.ctx)
		v = &scene{request: r, cancel: cancel}
		var d *watchedDetail
		if r.View == Resource {
			var err error
			if d, err = h.keeper.detail(r.Path); err != nil {
				cancel()
				return nil, err
			}
		}
		h.open[key] = v
		h.running.Go(func() { h.run(ctx, v, d) })
	}
	v.users++
	return v, nil
}

// release gives a view back. It is kept for a while.
func (h *hub) release(v *scene) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if v.users--; v.users > 0 {
		return
	}
	v.idle = time.Now()
	time.AfterFunc(viewLinger, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if v.users == 0 && time.Since(v.idle) >= viewLinger {
			h.drop(v)
		}
	})
}

// evict drops the view that nobody has looked at for the longest time.
func (h *hub) evict() bool {
	var oldest *scene
	for _, v := range h.open {
		if v.users == 0 && (oldest == nil || v.idle.Before(oldest.idle)) {
			oldest = v
		}
	}
	if oldest != nil {
		h.drop(oldest)
	}
	return oldest != nil
}

func (h *hub) drop(v *scene) {
	if h.open[v.request.URL()] == v {
		delete(h.open, v.request.URL())
	}
	v.cancel()
}

// count returns how many views are open.
func (h *hub) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.open)
}

// run draws a view whenever something changes, until ctx ends.
func (h *hub) run(ctx context.Context, v *scene, d *watchedDetail) {
	if d != nil {
		defer h.keeper.releaseDetail(d)
	}
	for {
		board, ready, changed := h.keeper.board.now()
		var detail *Detail
		var detailChanged <-chan struct{}
		if d != nil {
			var there bool
			detail, there, detailChanged = d.shown.now()
			ready = ready && there && !h.keeper.outdated(board, detail)
		}
		if ready {
			took, ok := h.draw(ctx, v, board, detail)
			if !ok || !pause(ctx, min(max(renderEvery, 2*took), renderLatest)) {
				return
			}
		}
		select { // what changed meanwhile is drawn at once
		case <-changed:
		case <-detailChanged:
		case <-ctx.Done():
			return
		}
	}
}

// pause waits; it reports whether ctx goes on.
func pause(ctx context.Context, long time.Duration) bool {
	t := time.NewTimer(long)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// draw draws a view, and keeps what changed for its streams.
func (h *hub) draw(ctx context.Context, v *scene, b *Board, d *Detail) (took time.Duration, ok bool) {
	select {
	case h.drawing <- struct{}{}:
		defer func() { <-h.drawing }()
	case <-ctx.Done():
		return 0, false
	}
	start := time.Now()
	next := h.views.render(v.request, b, d)
	next.At, next.Version = b.At, h.version.Add(1)
	old, drawnBefore, _ := v.shown.now()
	if !drawnBefore {
		v.shown.put(&drawn{Rendered: next})
		return time.Since(start), true
	}
	event := patchEvent(old.Rendered, next)
	if event == nil {
		return time.Since(start), true
	}
	behind := append(slices.Clip(old.behind), patch{old.Version, event})
	v.shown.put(&drawn{next, newest(behind)})
	return time.Since(start), true
}

// newest returns the patches that are kept: the last one, and as many before it as the limits allow.
func newest(all []patch) []patch {
	size := 0
	for i := len(all) - 1; i >= 0; i-- {
		size += len(all[i].event)
		if i < len(all)-1 && (size > maxBehindBytes || len(all)-i > maxBehind) {
			return slices.Clone(all[i+1:])
		}
	}
	return all
}

// since returns the events that bring a page of version to what is shown. ok is false if they are not known: the page
// must be loaded again.
func (d *drawn) since(version uint64) (events [][]byte, ok bool) {
	if version == d.Version {
		return nil, true
	}
	for i, p := range d.behind {
		if p.from != version {
			continue
		}
		for _, p := range d.behind[i:] {
			events = append(events, p.event)
		}
		return events, true
	}
	return nil, false
}
