package zkconn

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

type kinds uint8

const (
	onData kinds = 1 << iota
	onExistence
	onChildren
)

type watchKey struct {
	path string
	kind kinds // one
}

// watches holds who waits for events, and the watches that the server has. An event closes channels. The caller reads
// again to learn what has changed.
//
// The library knows of no watch. It reads without one, and conn asks for the watch in the request. At the start of each
// connection conn sets all watches again. The library keeps a channel for each watch; and if there are too many for one
// request and the connection breaks between two, it loses events.
type watches struct {
	mu       sync.Mutex
	ended    bool // with the session
	chans    map[watchKey][]*waiter
	reading  map[watchKey]int // reads in flight of a Watcher
	watchers []*Watcher
	armed    map[string]kinds // watches that the server has, by path

	conns   int   // number of connections so far
	resets  int   // requests to set watches again that the newest connection has not answered
	arrived int64 // the events of all transactions up to this zxid have arrived
}

type waiter struct {
	ch    chan struct{}
	users int          // calls of add that returned it, less those of remove
	conn  int          // number of the connection at the time of add
	event zk.EventType // set before ch is closed; 0 if events may have been missed
}

// changed is nil if there is no watch.
func (w *waiter) changed() <-chan struct{} {
	if w == nil {
		return nil
	}
	return w.ch
}

func (w *watches) init() {
	w.chans, w.reading, w.armed = map[watchKey][]*waiter{}, map[watchKey]int{}, map[string]kinds{}
}

// add returns a channel that the next event on key closes. It is called before the read that sets the watch, so that no
// event is missed; an event of an older watch may close the channel early. All callers of a connection get the same
// channel, so that those who gave up do not leave one each.
func (w *watches) add(key watchKey) *waiter {
	w.mu.Lock()
	defer w.mu.Unlock()
	if all := w.chans[key]; len(all) > 0 && all[len(all)-1].conn == w.conns {
		all[len(all)-1].users++
		return all[len(all)-1]
	}
	one := &waiter{ch: make(chan struct{}), users: 1, conn: w.conns}
	if w.ended {
		close(one.ch)
		return one
	}
	w.chans[key] = append(w.chans[key], one)
	return one
}

// wants reports whether a read is to set this watch: somebody waits for its event. Whether the server has it already
// does not count. It keeps only one, and nobody here can be certain of it: a server forgets a watch, and says nothing,
// when an event is about what this session may not read.
func (w *watches) wants(key watchKey) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reading[key] > 0 || len(w.chans[key]) > 0
}

// remove undoes add after its read has failed.
func (w *watches) remove(key watchKey, one *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.Index(w.chans[key], one)
	if one.users--; i < 0 || one.users > 0 {
		return
	}
	if w.chans[key] = slices.Delete(w.chans[key], i, i+1); len(w.chans[key]) == 0 {
		delete(w.chans, key)
	}
}

// read counts a read of a Watcher in flight, or with -1 one that has ended.
func (w *watches) read(key watchKey, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reading[key] += n; w.reading[key] == 0 {
		delete(w.reading, key)
	}
}

// fire closes the channels of an event, and tells the Watchers.
func (w *watches) fire(e zk.Event) {
	var gone kinds
	switch e.Type {
	case zk.EventNodeCreated:
		gone = onExistence
	case zk.EventNodeDataChanged:
		gone = onExistence | onData
	case zk.EventNodeChildrenChanged:
		gone = onChildren
	case zk.EventNodeDeleted:
		gone = onExistence | onData | onChildren
	}
	w.mu.Lock()
	if left := w.armed[e.Path] &^ gone; left != 0 {
		w.armed[e.Path] = left
	} else {
		delete(w.armed, e.Path)
	}
	for _, kind := range []kinds{onData, onExistence, onChildren} {
		if key := (watchKey{e.Path, kind}); gone&kind != 0 {
			for _, one := range w.chans[key] {
				if one.conn == w.conns && w.resets == 0 {
					one.event = e.Type
				}
			}
			w.closeAll(key)
		}
	}
	watchers := w.watchers
	w.mu.Unlock()
	for _, one := range watchers {
		one.event(Event{
			Path: e.Path, Data: e.Type != zk.EventNodeChildrenChanged, Children: e.Type != zk.EventNodeDataChanged,
		})
	}
}

func (w *watches) closeAll(key watchKey) {
	for _, one := range w.chans[key] {
		close(one.ch)
	}
	delete(w.chans, key)
}

func (w *watches) end() {
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	w.lose()
}

// lose closes all channels, and tells the Watchers, because no event will come.
func (w *watches) lose() {
	w.mu.Lock()
	clear(w.armed)
	for key := range w.chans {
		w.closeAll(key)
	}
	watchers := w.watchers
	w.mu.Unlock()
	for _, one := range watchers {
		one.event(Event{Data: true, Children: true})
	}
}

// answered notes what an answer says about watches: the server has one once the read that sets it has succeeded.
func (w *watches) answered(r request, zxid int64, code int32) {
	if r.op == opSetWatches && code != 0 {
		w.lose()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.op == opSetWatches {
		w.resets--
	}
	if r.xid >= 0 && w.resets == 0 {
		w.arrived = max(w.arrived, zxid)
	}
	switch {
	case r.watch == "":
	case r.op == opGetData && code == 0, r.op == opExists && code == 0:
		w.armed[r.watch] |= onData
	case r.op == opExists && code == codeNoNode:
		w.armed[r.watch] |= onExistence
	case r.op == opChildren && code == 0:
		w.armed[r.watch] |= onChildren
	}
}

// Watcher reads through a session and leaves a watch at each read, without a channel for each: all events go to one
// function. A watch stays until its event, also over connections.
type Watcher struct {
	reads
	event func(Event)
}

// Event says that a znode may have changed.
type Event struct {
	Path     string // empty: every watch is lost, because the session has ended or the server refused to set them again
	Data     bool   // its data or its existence
	Children bool   // its children or its existence
}

// Watcher returns a Watcher that calls event with every event of the session, before any call of the session returns
// what a server has read after that event. event must neither block nor call the session.
func (s *Session) Watcher(event func(Event)) *Watcher {
	w := &Watcher{reads{s, true}, event}
	s.watches.mu.Lock()
	s.watches.watchers = append(s.watches.watchers, w)
	ended := s.watches.ended
	s.watches.mu.Unlock()
	if ended {
		event(Event{Data: true, Children: true})
	}
	return w
}

// Close ends the calls of its function. The Watcher must not read any more.
func (w *Watcher) Close() {
	all := &w.s.watches
	all.mu.Lock()
	defer all.mu.Unlock()
	all.watchers = slices.DeleteFunc(slices.Clone(all.watchers), func(one *Watcher) bool { return one == w })
}

// Follow calls read with a znode, now and after each of its changes, until read returns an error. While the znode does
// not exist, there is false, and read either creates it or returns an error: no watch waits for another to create it.
// Follow returns the error of read, or why ctx or the session has ended.
func (s *Session) Follow(
	ctx context.Context, path string, read func(body []byte, stat Stat, there bool) error,
) error {
	for {
		body, stat, changed, err := s.GetW(ctx, path)
		there := !errors.Is(err, ErrNoNode)
		if err == nil || !there {
			err = read(body, stat, there)
		}
		switch {
		case err != nil:
			return err
		case !there:
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// probes is how many times in a session timeout Probe asks. The library asks three times in a session timeout, so a
// server that hangs would end a healthy session's duties before another one could be asked. Asking more often makes the
// take-over after a crash later, because the session expires a timeout after the last request.
const probes = 5

// leaveAfter is how many tenths of a session timeout a server may take to answer before it is left for another. With
// the time between two probes that is four tenths, before those who depend on Answered stop at five.
const leaveAfter = 2

// Probe keeps Answered recent until ctx or the session ends: it asks the leader about path, again and again.
func (s *Session) Probe(ctx context.Context, path string) {
	s.LeaveAfter(s.Timeout() * leaveAfter / 10)
	tick := time.NewTicker(max(s.Timeout()/probes, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		case <-s.Context().Done():
			return
		}
		_ = s.Sync(ctx, path) // it fails only when the session or ctx ends
	}
}
