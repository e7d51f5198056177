package zkconn

import (
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"
)

// kind of a watch, as the library keeps them.
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

// watches are the channels that callers wait on, and a mirror of the watches that the library will set again when it
// reconnects. An event closes channels; what happened is for the reader to find out.
type watches struct {
	limit int // bytes of watched paths

	mu    sync.Mutex
	over  bool
	bytes int
	chans map[watchKey][]*watcher
	armed map[watchKey]bool
	conns int // connections so far
}

// watcher is one channel.
type watcher struct {
	ch      chan struct{}
	users   int  // who got it from add, and did not remove it
	conn    int  // the connection at the time of add
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

// add returns a channel that the next event on key closes. It comes before the read that sets the watch, so that no
// event falls between; an event of an older watch may close it early, which costs the caller one look. Where the server
// keeps the watch already, whoever waits for it gets the same channel: nobody knows which of them have given up.
func (w *watches) add(key watchKey) (*watcher, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if all := w.chans[key]; len(all) > 0 && all[len(all)-1].conn == w.conns && w.kept(key) {
		all[len(all)-1].users++
		return all[len(all)-1], nil
	}
	one := &watcher{ch: make(chan struct{}), users: 1, conn: w.conns}
	if w.over {
		close(one.ch)
		return one, nil
	}
	if w.bytes+4+len(key.path) > w.limit {
		return nil, ErrTooLarge
	}
	w.bytes += 4 + len(key.path)
	w.chans[key] = append(w.chans[key], one)
	return one, nil
}

// kept says that the server keeps this watch. That on the existence of a znode that is there is one on its data.
func (w *watches) kept(key watchKey) bool {
	return w.armed[key] || key.kind == onExistence && w.armed[watchKey{key.path, onData}]
}

// remove takes back a channel whose read has failed.
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

// fire closes what an event concerns. It knows the same kinds for each event as the library does.
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

// end closes everything: the session is gone.
func (w *watches) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.tellAll()
}

func (w *watches) tellAll() {
	for key := range w.chans {
		w.closeAll(key)
	}
}

// answered mirrors the library, which keeps a watch once the read that sets it has succeeded. A server that refuses to
// set watches again leaves them silent: then everybody looks.
func (w *watches) answered(r request, code int32) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case r.op == opSetWatches && code != 0:
		w.tellAll()
	case r.watch == "":
	case r.op == opGetData && code == 0, r.op == opExists && code == 0:
		w.armed[watchKey{r.watch, onData}] = true
	case r.op == opExists && code == codeNoNode:
		w.armed[watchKey{r.watch, onExistence}] = true
	case r.op == opChildren && code == 0:
		w.armed[watchKey{r.watch, onChildren}] = true
	}
}

// connected notes a new connection, and says whether the library will send its watches on it.
func (w *watches) connected() (armed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns++
	return len(w.armed) > 0
}

// forget is for when the library did not send the watches that the mirror says it has: everybody looks.
func (w *watches) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.armed)
	w.tellAll()
}
