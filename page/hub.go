package page

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"muster/zkstate/zkconn"
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
		if r.View == Resource || r.View == Batch {
			var err error
			if d, err = h.keeper.detail(r.Path, r.Batch); err != nil {
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
	h.dropLater(v)
}

// dropLater drops a view after a while if nobody looks at it. Without ZooKeeper it is kept: it could not be read again.
func (h *hub) dropLater(v *scene) {
	time.AfterFunc(viewLinger, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if v.users > 0 || time.Since(v.idle) < viewLinger || h.open[v.request.URL()] != v {
			return
		}
		if b, _, _ := h.keeper.board.now(); b != nil && !b.Connected && h.ctx.Err() == nil {
			h.dropLater(v)
			return
		}
		h.drop(v)
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
		planned, _, plannedChanged := h.keeper.planned.now()
		var detail *Detail
		var detailChanged <-chan struct{}
		if d != nil {
			var there bool
			detail, there, detailChanged = d.shown.now()
			// Without ZooKeeper, of what nobody has looked at is shown what the board knows.
			ready = ready && (!board.Connected || there && !h.keeper.outdated(board, detail))
		}
		if ready {
			shown := *board
			shown.Planned = planned
			took := h.draw(ctx, v, &shown, detail)
			zkconn.Pause(ctx, min(max(renderEvery, 2*took), renderLatest))
		}
		select { // what changed meanwhile is drawn at once
		case <-changed:
		case <-plannedChanged:
		case <-detailChanged:
		case <-ctx.Done():
			return
		}
	}
}

// draw draws a view, and keeps what changed for its streams. It returns how long that took.
func (h *hub) draw(ctx context.Context, v *scene, b *Board, d *Detail) time.Duration {
	select {
	case h.drawing <- struct{}{}:
		defer func() { <-h.drawing }()
	case <-ctx.Done():
		return 0
	}
	start := time.Now()
	next := h.views.render(v.request, b, d)
	next.At, next.Version = b.At, h.version.Add(1)
	old, drawnBefore, _ := v.shown.now()
	if !drawnBefore {
		v.shown.put(&drawn{Rendered: next})
	} else if event := patchEvent(old.Rendered, next); event != nil {
		behind := append(slices.Clip(old.behind), patch{old.Version, event})
		v.shown.put(&drawn{next, newest(behind)})
	}
	return time.Since(start)
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
	first := slices.IndexFunc(d.behind, func(p patch) bool { return p.from == version })
	if first < 0 {
		return nil, false
	}
	for _, p := range d.behind[first:] {
		events = append(events, p.event)
	}
	return events, true
}

// feed is the newest value of something, and a way to wait for a newer one.
type feed[T any] struct {
	mu      sync.Mutex
	value   T
	set     bool
	changed chan struct{} // closed when value changes; nil before somebody has waited for that
}

// now returns the value, whether there is one yet, and a channel that is closed when there is another.
func (f *feed[T]) now() (value T, ok bool, changed <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.changed == nil {
		f.changed = make(chan struct{})
	}
	return f.value, f.set, f.changed
}

func (f *feed[T]) put(value T) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.value, f.set = value, true
	if f.changed != nil {
		close(f.changed)
		f.changed = nil
	}
}

// patch is what changed in a view between two versions, as an event of a stream.
type patch struct {
	from  uint64 // the version that it changes
	event []byte
}

type patchData struct {
	Version uint64     `json:"v"`
	Title   string     `json:"title"`
	Set     []patchSet `json:"set,omitempty"`
	Remove  []string   `json:"remove,omitempty"`
}

// patchSet puts a fragment where it belongs: into In, after the sibling After, or first if After is empty.
type patchSet struct {
	ID    string `json:"id"`
	In    string `json:"in"`
	After string `json:"after"`
	HTML  string `json:"html"`
}

// diff says what turns old into next: what to remove, and then what to set, in this order. What keeps its place among
// its siblings and its HTML is left out. What is equal at the begin and at the end, usually nearly all, costs little.
func diff(old, next Rendered) (set []patchSet, remove []string) {
	was, is := old.Fragments, next.Fragments
	last := map[string]string{} // id of the last fragment by parent
	for len(was) > 0 && len(is) > 0 && was[0] == is[0] {
		last[is[0].In] = is[0].ID
		was, is = was[1:], is[1:]
	}
	for len(was) > 0 && len(is) > 0 && was[len(was)-1] == is[len(is)-1] {
		was, is = was[:len(was)-1], is[:len(is)-1]
	}
	position := make(map[string]int, len(was))
	for i, f := range was {
		position[f.ID] = i
	}
	stay := staying(is, was, position)
	there := make(map[string]bool, len(is))
	for _, f := range is {
		there[f.ID] = true
		after := last[f.In]
		last[f.In] = f.ID
		if !stay[f.ID] || was[position[f.ID]].HTML != f.HTML {
			set = append(set, patchSet{f.ID, f.In, after, f.HTML})
		}
	}
	for _, f := range was {
		if !there[f.ID] {
			remove = append(remove, f.ID)
		}
	}
	return set, remove
}

// staying returns the fragments that need not move: for each parent as many as possible of those that were there
// before, in the same order. position says where in before.
func staying(next, before []Fragment, position map[string]int) map[string]bool {
	siblings := map[string][]int{} // by parent, the positions of those that were there before
	for _, f := range next {
		if i, ok := position[f.ID]; ok && before[i].In == f.In {
			siblings[f.In] = append(siblings[f.In], i)
		}
	}
	stay := make(map[string]bool, len(before))
	for _, positions := range siblings {
		for _, i := range longestRise(positions) {
			stay[before[i].ID] = true
		}
	}
	return stay
}

// longestRise returns a longest increasing subsequence of different numbers.
func longestRise(of []int) []int {
	var ends []int          // the smallest end of a rise, by its length - 1
	before := map[int]int{} // the number before it in its rise
	for _, value := range of {
		n, _ := slices.BinarySearch(ends, value)
		if n > 0 {
			before[value] = ends[n-1]
		}
		if n == len(ends) {
			ends = append(ends, value)
		} else {
			ends[n] = value
		}
	}
	for k := len(ends) - 2; k >= 0; k-- {
		ends[k] = before[ends[k+1]]
	}
	return ends
}

// patchEvent is the event that brings a page from old to next; nil if nothing has changed.
func patchEvent(old, next Rendered) []byte {
	set, remove := diff(old, next)
	if len(set) == 0 && len(remove) == 0 && old.Title == next.Title {
		return nil
	}
	var b bytes.Buffer
	b.WriteString("event: patch\ndata: ")
	e := json.NewEncoder(&b) // writes no line break inside, and one at the end
	e.SetEscapeHTML(false)   // it is not in HTML
	_ = e.Encode(patchData{next.Version, next.Title, set, remove})
	b.WriteString("\n") // the empty line that ends the event
	return b.Bytes()
}

// stream sends what changes in a page, as server-sent events:
//
//	event: patch   what to set and to remove
//	event: reload  the page is too old, or was made by another process: load it again
//	event: alive   nothing has changed for a while
//
// u is the path and the query of the page, v the version that it has.
func (s *server) stream(w http.ResponseWriter, r *http.Request) {
	at, err := url.Parse(r.URL.Query().Get("u"))
	if err != nil || len(at.String()) > maxURL {
		http.Error(w, "u is not a page", http.StatusBadRequest)
		return
	}
	request, ok := parseRequest(at)
	if !ok {
		http.Error(w, "u is not a page", http.StatusNotFound)
		return
	}
	from := addressOf(r.RemoteAddr)
	if !s.streams.begin(from) {
		unavailable(w, "too many pages are open")
		return
	}
	defer s.streams.end(from)
	v, err := s.hub.acquire(request)
	if err != nil {
		unavailable(w, err.Error())
		return
	}
	defer s.hub.release(v)
	version, _ := strconv.ParseUint(r.URL.Query().Get("v"), 10, 64)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy must pass each event on
	if r.Method == http.MethodHead {
		return
	}
	patient := &patientWriter{ResponseWriter: w, control: http.NewResponseController(w)}
	if err := s.follow(patient, r, v, version); err != nil && !errors.Is(err, errGone) {
		s.dropped.Add(1)
	}
}

type streams struct {
	mu   sync.Mutex
	all  int
	from map[netip.Addr]int // how many each address has
}

// begin counts one more; false: that is too many.
func (s *streams) begin(from netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= MaxStreams || s.from[from] >= MaxStreamsFromAddress {
		return false
	}
	s.all++
	s.from[from]++
	return true
}

func (s *streams) end(from netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.from[from]--; s.from[from] == 0 {
		delete(s.from, from)
	}
}

func (s *streams) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all
}

// errGone means that the reader closed the connection.
var errGone = errors.New("the reader has gone")

// follow sends events until the reader goes, is too slow, or the server ends.
func (s *server) follow(w *patientWriter, r *http.Request, v *scene, version uint64) error {
	alive := time.NewTicker(aliveEvery)
	defer alive.Stop()
	if err := w.send("retry: 2000\n\n"); err != nil {
		return err
	}
	for {
		shown, ok, changed := v.shown.now()
		if ok {
			events, known := shown.since(version)
			version = shown.Version
			if !known {
				events = [][]byte{[]byte("event: reload\ndata: {}\n\n")}
			}
			for _, e := range events {
				if err := w.send(string(e)); err != nil {
					return err
				}
			}
		}
		select {
		case <-changed:
		case <-alive.C:
			if err := w.send("event: alive\ndata: {}\n\n"); err != nil {
				return err
			}
		case <-r.Context().Done():
			return nil
		case <-s.ending:
			return nil
		}
	}
}

// send writes an event. The error is errGone, or that of a reader who is too slow.
func (p *patientWriter) send(event string) error {
	_, err := p.Write([]byte(event))
	if err == nil {
		p.wait()
		err = p.control.Flush()
	}
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return errGone
	}
	return err
}
