package zkconn

import (
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"
)

// kind is the kind of a watch. The library has the same kinds.
type kind int

const (
	onData kind = iota
	onExistence
	onChildren
)

type watchKey struct {
	path string
	kind kind
}

// watches holds the channels on which callers wait, and the watches that the library sets again when it reconnects. An
// event closes channels. The caller reads again to learn what has changed.
type watches struct {
	limit int // bytes of watched paths

	mu    sync.Mutex
	ended bool // with the session
	bytes int  // of watched paths
	chans map[watchKey][]*watcher
	armed map[watchKey]bool // watches that the library has
	conns int               // number of connections so far
}

// watcher is one channel.
type watcher struct {
	ch      chan struct{}
	users   int  // calls of add that returned it, less those of remove
	conn    int  // number of the connection at the time of add
	created bool // set before ch is closed
}

// changed is nil if there is no watch.
func (w *watcher) changed() <-chan struct{} {
	if w == nil {
		return nil
	}
	return w.ch
}

func (w *watches) init(c Config) {
	w.chans, w.armed = map[watchKey][]*watcher{}, map[watchKey]bool{}
	w.limit = int(^uint(0) >> 1)
	if c.Small { // the library drops watches that do not fit into its buffer when it reconnects
		w.limit = smallBuffer / 2
	}
}

// add returns a channel that the next event on key closes. It is called before the read that sets the watch, so that no
// event is missed; an event of an older watch may close the channel early. If the server has the watch already, add
// returns the same channel to every caller, so that callers who gave up do not leave a channel each. The watch
// is there then, and need not be set.
func (w *watches) add(key watchKey) (one *watcher, there bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if all := w.chans[key]; len(all) > 0 && all[len(all)-1].conn == w.conns && w.kept(key) {
		all[len(all)-1].users++
		return all[len(all)-1], true, nil
	}
	one = &watcher{ch: make(chan struct{}), users: 1, conn: w.conns}
	if w.ended {
		close(one.ch)
		return one, false, nil
	}
	if w.bytes+4+len(key.path) > w.limit {
		return nil, false, ErrTooLarge
	}
	w.bytes += 4 + len(key.path)
	w.chans[key] = append(w.chans[key], one)
	return one, false, nil
}

// kept reports whether the server has this watch. A watch on the existence of a znode that exists is one on its data.
func (w *watches) kept(key watchKey) bool {
	return w.armed[key] || key.kind == onExistence && w.armed[watchKey{key.path, onData}]
}

// remove undoes add after its read has failed.
func (w *watches) remove(key watchKey, one *watcher) {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.Index(w.chans[key], one)
	if one.users--; i < 0 || one.users > 0 {
		return
	}
	w.bytes -= 4 + len(key.path)
	if w.chans[key] = slices.Delete(w.chans[key], i, i+1); len(w.chans[key]) == 0 {
		delete(w.chans, key)
	}
}

// fire closes the channels of an event. It maps events to kinds as the library does.
func (w *watches) fire(e zk.Event) {
	var kinds []kind
	switch e.Type {
	case zk.EventNodeCreated:
		kinds = []kind{onExistence}
	case zk.EventNodeDataChanged:
		kinds = []kind{onExistence, onData}
	case zk.EventNodeChildrenChanged:
		kinds = []kind{onChildren}
	case zk.EventNodeDeleted:
		kinds = []kind{onExistence, onData, onChildren}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range kinds {
		key := watchKey{e.Path, k}
		for _, one := range w.chans[key] {
			one.created = e.Type == zk.EventNodeCreated && one.conn == w.conns
		}
		delete(w.armed, key)
		w.closeAll(key)
	}
}

func (w *watches) closeAll(key watchKey) {
	for _, one := range w.chans[key] {
		close(one.ch)
		w.bytes -= 4 + len(key.path)
	}
	delete(w.chans, key)
}

// end closes all channels when the session is gone.
func (w *watches) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.closeAllChannels()
}

func (w *watches) closeAllChannels() {
	for key := range w.chans {
		w.closeAll(key)
	}
}

// answered updates armed as the library does: it has a watch once the read that sets it has succeeded. If the server
// refuses to set watches again, no event will come, so all channels are closed.
func (w *watches) answered(r request, code int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case r.op == opSetWatches && code != 0:
		w.closeAllChannels()
	case r.watch == "":
	case r.op == opGetData && code == 0, r.op == opExists && code == 0:
		w.armed[watchKey{r.watch, onData}] = true
	case r.op == opExists && code == codeNoNode:
		w.armed[watchKey{r.watch, onExistence}] = true
	case r.op == opChildren && code == 0:
		w.armed[watchKey{r.watch, onChildren}] = true
	}
}

// connected counts a new connection. It reports whether the library will send watches on it.
func (w *watches) connected() (armed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns++
	return len(w.armed) > 0
}

// forget closes all channels. It is called if the library did not send the watches that armed holds.
func (w *watches) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.armed)
	w.closeAllChannels()
}
