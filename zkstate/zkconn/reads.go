package zkconn

import (
	"context"
	"slices"

	"github.com/go-zookeeper/zk"
)

// found is the result of a read and the znode's Stat.
type found[T any] struct {
	what T
	stat Stat
}

// Get returns the data of a znode; nil if it has none.
func (s *Session) Get(ctx context.Context, path string) ([]byte, Stat, error) {
	r, err := read(ctx, s, "get", path, func(c *zk.Conn) (found[[]byte], error) { return get(c, path) })
	return r.what, r.stat, err
}

func get(c *zk.Conn, path string) (found[[]byte], error) {
	data, stat, err := c.Get(path)
	return found[[]byte]{nilIfEmpty(data), statOf(stat)}, err
}

// Exists reports whether the znode exists. It needs no permission.
func (s *Session) Exists(ctx context.Context, path string) (Stat, bool, error) {
	r, err := read(ctx, s, "exists", path, func(c *zk.Conn) (found[bool], error) { return exists(c, path) })
	return r.stat, r.what, err
}

func exists(c *zk.Conn, path string) (found[bool], error) {
	exists, stat, err := c.Exists(path)
	return found[bool]{exists, statOf(stat)}, err
}

// Children returns the names of a znode's children, sorted.
func (s *Session) Children(ctx context.Context, path string) ([]string, Stat, error) {
	r, err := read(ctx, s, "children", path, func(c *zk.Conn) (found[[]string], error) { return children(c, path) })
	return r.what, r.stat, err
}

func children(c *zk.Conn, path string) (found[[]string], error) {
	names, stat, err := c.Children(path)
	slices.Sort(names)
	return found[[]string]{names, statOf(stat)}, err
}

// ACL returns the ACL of a znode.
func (s *Session) ACL(ctx context.Context, path string) ([]ACL, Stat, error) {
	r, err := read(ctx, s, "acl", path, func(c *zk.Conn) (found[[]ACL], error) {
		acl, stat, err := c.GetACL(path)
		return found[[]ACL]{aclOf(acl), statOf(stat)}, err
	})
	return r.what, r.stat, err
}

// Sync makes sure that later reads see everything that was committed before.
func (s *Session) Sync(ctx context.Context, path string) error {
	_, err := read(ctx, s, "sync", path, func(c *zk.Conn) (string, error) { return c.Sync(path) })
	return err
}

// GetW is Get with a channel. The channel is closed when the znode is changed or deleted, or when the session ends:
// read again then. A watch cannot be removed: a channel that nobody waits for stays until its event.
func (s *Session) GetW(ctx context.Context, path string) ([]byte, Stat, <-chan struct{}, error) {
	r, w, err := watched(ctx, s, "get", watchKey{path, onData}, func(c *zk.Conn) (found[[]byte], error) {
		return get(c, path)
	})
	return r.what, r.stat, w.changed(), err
}

// ExistsW is Exists with a channel like that of GetW. The channel is also closed when the znode is created.
func (s *Session) ExistsW(ctx context.Context, path string) (Stat, bool, <-chan struct{}, error) {
	r, w, err := watchedExists(ctx, s, path)
	return r.stat, r.what, w.changed(), err
}

func watchedExists(ctx context.Context, s *Session, path string) (found[bool], *waiter, error) {
	return watched(ctx, s, "exists", watchKey{path, onExistence}, func(c *zk.Conn) (found[bool], error) {
		return exists(c, path)
	})
}

// CreatedW is ExistsW for a caller that waits for the znode to be created. After the channel is closed, created reports
// whether the server said so, on the connection on which the watch was set. The session then also has all earlier
// events of its other watches. If created returns false, read again.
func (s *Session) CreatedW(
	ctx context.Context, path string,
) (stat Stat, exists bool, changed <-chan struct{}, created func() bool, err error) {
	r, w, err := watchedExists(ctx, s, path)
	return r.stat, r.what, w.changed(), func() bool { return w.created }, err
}

// ChildrenW is Children with a channel like that of GetW. The channel is closed when a child is created or deleted.
func (s *Session) ChildrenW(ctx context.Context, path string) ([]string, Stat, <-chan struct{}, error) {
	r, w, err := watched(ctx, s, "children", watchKey{path, onChildren}, func(c *zk.Conn) (found[[]string], error) {
		return children(c, path)
	})
	return r.what, r.stat, w.changed(), err
}

// watched is read with a watch, which conn sets.
func watched[T any](
	ctx context.Context, s *Session, op string, key watchKey, f func(c *zk.Conn) (T, error),
) (v T, w *waiter, err error) {
	w = s.watches.add(key)
	v, err = read(ctx, s, op, key.path, f)
	if err != nil {
		s.watches.remove(key, w)
		return v, nil, err
	}
	return v, w, nil
}

// nilIfEmpty returns nil for empty data: ZooKeeper distinguishes null and empty data, callers do not.
func nilIfEmpty(data []byte) []byte {
	if len(data) == 0 {
		return nil
	}
	return data
}
