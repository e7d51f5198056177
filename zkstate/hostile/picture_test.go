package hostile_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"muster/zkstate/zkconn"
)

// node is a znode of a picture.
type node struct {
	path  string
	data  []byte
	acl   []zkconn.ACL // nil: not read
	czxid int64
	owner int64 // of an ephemeral one
}

// picture is every znode of a place but ZooKeeper's own, in the order in which they were created.
type picture []node

// take reads a picture. What goes meanwhile is not in it.
func take(ctx context.Context, s *zkconn.Session) (picture, error) {
	var pic picture
	level := []string{"/"}
	for len(level) > 0 {
		found, err := each(level, func(at string) ([]node, error) { return childrenOf(ctx, s, at) })
		if err != nil {
			return nil, err
		}
		level = nil
		for _, n := range slices.Concat(found...) {
			pic, level = append(pic, n), append(level, n.path)
		}
	}
	slices.SortFunc(pic, func(a, b node) int {
		return cmp.Or(cmp.Compare(a.czxid, b.czxid), strings.Compare(a.path, b.path))
	})
	return pic, nil
}

func childrenOf(ctx context.Context, s *zkconn.Session, at string) ([]node, error) {
	names, _, err := s.Children(ctx, at)
	if errors.Is(err, zkconn.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if at == "/" {
		names = slices.DeleteFunc(names, func(name string) bool { return name == "zookeeper" })
	}
	nodes, err := each(names, func(name string) (node, error) {
		n := node{path: below(at, name)}
		data, stat, err := s.Get(ctx, n.path)
		if err == nil {
			n.data, n.czxid, n.owner = data, stat.Czxid, stat.EphemeralOwner
			n.acl, _, err = s.ACL(ctx, n.path)
		}
		if errors.Is(err, zkconn.ErrNoNode) {
			return node{}, nil
		}
		return n, err
	})
	return slices.DeleteFunc(nodes, func(n node) bool { return n.path == "" }), err
}

// each calls f for all of these at once.
func each[A, B any](all []A, f func(A) (B, error)) ([]B, error) {
	results, failed := make([]B, len(all)), make([]error, len(all))
	done := make(chan struct{})
	for i, one := range all {
		go func() {
			results[i], failed[i] = f(one)
			done <- struct{}{}
		}()
	}
	for range all {
		<-done
	}
	return results, errors.Join(failed...)
}

// atOnce is how many znodes one transaction creates or deletes.
const atOnce = 300

// plant makes a place hold a picture. What one transaction has created, one transaction creates: claims and ids belong
// together by that. All ephemeral znodes are those of the session that it returns.
func (pic picture) plant(ctx context.Context, p *place) (*zkconn.Session, error) {
	s, err := p.dial(ctx, ops)
	if err != nil {
		return nil, err
	}
	var ops []zkconn.Op
	send := func() {
		if err == nil && len(ops) > 0 {
			_, err = s.Multi(ctx, ops...)
		}
		ops = nil
	}
	for i, n := range pic {
		mode := zkconn.Persistent
		if n.owner != 0 {
			mode = zkconn.Ephemeral
		}
		if len(ops) >= atOnce || i > 0 && n.czxid != pic[i-1].czxid && n.apart(pic[i-1]) {
			send()
		}
		ops = append(ops, zkconn.CreateOp(n.path, n.data, mode, n.acl))
	}
	send()
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// apart reports whether the czxid of n or of the znode before it tells something: those of claims, ids and seats do.
func (n node) apart(before node) bool { return n.numbered() || before.numbered() }

func (n node) numbered() bool {
	for _, part := range []string{"/id/", "/by/", "/seat/"} {
		if strings.Contains(n.path, part) {
			return true
		}
	}
	return false
}
