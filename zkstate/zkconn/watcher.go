package zkconn

import (
	"context"

	"github.com/go-zookeeper/zk"
)

// Watcher reads through a session and leaves a watch at each read, without a channel for each: all events go to one
// function. A watch stays until its event, also over connections.
type Watcher struct {
	s     *Session
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
	w := &Watcher{s, event}
	s.watches.mu.Lock()
	s.watches.watchers = append(s.watches.watchers, w)
	ended := s.watches.ended
	s.watches.mu.Unlock()
	if ended {
		event(Event{Data: true, Children: true})
	}
	return w
}

// Get is Session.Get with a watch on the data, if it succeeds.
func (w *Watcher) Get(ctx context.Context, path string) ([]byte, Stat, error) {
	defer w.reads(watchKey{path, onData})()
	r, err := read(ctx, w.s, "get", path, func(c *zk.Conn) (found[[]byte], error) { return get(c, path) })
	return r.what, r.stat, err
}

// Exists is Session.Exists with a watch on the data, or on the creation of a znode that does not exist.
func (w *Watcher) Exists(ctx context.Context, path string) (Stat, bool, error) {
	defer w.reads(watchKey{path, onExistence})()
	r, err := read(ctx, w.s, "exists", path, func(c *zk.Conn) (found[bool], error) { return exists(c, path) })
	return r.stat, r.what, err
}

// Children is Session.Children with a watch on the list of children, if it succeeds.
func (w *Watcher) Children(ctx context.Context, path string) ([]string, Stat, error) {
	defer w.reads(watchKey{path, onChildren})()
	r, err := read(ctx, w.s, "children", path, func(c *zk.Conn) (found[[]string], error) { return children(c, path) })
	return r.what, r.stat, err
}

// reads notes that a read in flight is to set a watch, until the result is called.
func (w *Watcher) reads(key watchKey) (done func()) {
	w.s.watches.read(key, 1)
	return func() { w.s.watches.read(key, -1) }
}
