package zkconn

import (
	"context"
	"slices"

	"github.com/go-zookeeper/zk"
)

// found is the answer to a read: what was asked for and the znode's Stat.
type found[T any] struct {
	what T
	stat Stat
}

// Get returns the data of a znode; nil if it has none.
func (s *Session) Get(ctx context.Context, path string) ([]byte, Stat, error) {
	r, err := read(ctx, s, "get", path, func(c *zk.Conn) (found[[]byte], error) {
		data, stat, err := c.Get(path)
		return found[[]byte]{some(data), statOf(stat)}, err
	})
	return r.what, r.stat, err
}

// Exists says whether there is a znode, whoever may read it.
func (s *Session) Exists(ctx context.Context, path string) (Stat, bool, error) {
	r, err := read(ctx, s, "exists", path, func(c *zk.Conn) (found[bool], error) {
		exists, stat, err := c.Exists(path)
		return found[bool]{exists, statOf(stat)}, err
	})
	return r.stat, r.what, err
}

// Children returns the names of a znode's children, sorted.
func (s *Session) Children(ctx context.Context, path string) ([]string, Stat, error) {
	r, err := read(ctx, s, "children", path, func(c *zk.Conn) (found[[]string], error) {
		names, stat, err := c.Children(path)
		slices.Sort(names)
		return found[[]string]{names, statOf(stat)}, err
	})
	return r.what, r.stat, err
}

// ACL returns who may do what with a znode.
func (s *Session) ACL(ctx context.Context, path string) ([]ACL, Stat, error) {
	r, err := read(ctx, s, "acl", path, func(c *zk.Conn) (found[[]ACL], error) {
		acl, stat, err := c.GetACL(path)
		return found[[]ACL]{ourACL(acl), statOf(stat)}, err
	})
	return r.what, r.stat, err
}

// Sync makes the reads that follow see everything that was committed before.
func (s *Session) Sync(ctx context.Context, path string) error {
	_, err := read(ctx, s, "sync", path, func(c *zk.Conn) (string, error) { return c.Sync(path) })
	return err
}

// GetW is Get with a channel that is closed when the znode has changed or is gone, or when the session has ended: look
// again then. A watch cannot be taken back: a channel that nobody waits for any more stays until its event.
func (s *Session) GetW(ctx context.Context, path string) ([]byte, Stat, <-chan struct{}, error) {
	r, w, err := watched(ctx, s, "get", watchKey{path, onData}, func(c *zk.Conn) (found[[]byte], error) {
		data, stat, _, err := c.GetW(path)
		return found[[]byte]{some(data), statOf(stat)}, err
	})
	return r.what, r.stat, w.changed(), err
}

// ExistsW is Exists with a channel like that of GetW, which is also closed when the znode has been created.
func (s *Session) ExistsW(ctx context.Context, path string) (Stat, bool, <-chan struct{}, error) {
	r, w, err := watched(ctx, s, "exists", watchKey{path, onExistence}, func(c *zk.Conn) (found[bool], error) {
		exists, stat, _, err := c.ExistsW(path)
		return found[bool]{exists, statOf(stat)}, err
	})
	return r.stat, r.what, w.changed(), err
}

// CreatedW is ExistsW for who waits for a znode to be created. Once the channel is closed, created reports whether the server
// said that it was, on the connection on which the watch was set: then it has also told whatever other watches of this
// session had to tell before. If not, look again.
func (s *Session) CreatedW(ctx context.Context, path string) (stat Stat, exists bool, changed <-chan struct{}, created func() bool, err error) {
	r, w, err := watched(ctx, s, "exists", watchKey{path, onExistence}, func(c *zk.Conn) (found[bool], error) {
		exists, stat, _, err := c.ExistsW(path)
		return found[bool]{exists, statOf(stat)}, err
	})
	return r.stat, r.what, w.changed(), func() bool { return w.created }, err
}

// ChildrenW is Children with a channel like that of GetW, closed when a child has come or gone.
func (s *Session) ChildrenW(ctx context.Context, path string) ([]string, Stat, <-chan struct{}, error) {
	r, w, err := watched(ctx, s, "children", watchKey{path, onChildren}, func(c *zk.Conn) (found[[]string], error) {
		names, stat, _, err := c.ChildrenW(path)
		slices.Sort(names)
		return found[[]string]{names, statOf(stat)}, err
	})
	return r.what, r.stat, w.changed(), err
}

func watched[T any](ctx context.Context, s *Session, op string, key watchKey, f func(*zk.Conn) (T, error)) (v T, w *watcher, err error) {
	w, err = s.watches.add(key)
	if err != nil {
		return v, nil, &Error{op, key.path, err}
	}
	if v, err = read(ctx, s, op, key.path, f); err != nil {
		s.watches.remove(key, w)
		return v, nil, err
	}
	return v, w, nil
}

// some makes one of the two ways in which ZooKeeper can hold no data.
func some(data []byte) []byte {
	if len(data) == 0 {
		return nil
	}
	return data
}
