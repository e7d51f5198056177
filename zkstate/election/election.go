// Package election elects a leader with the recipe of ZooKeeper's documentation: the first place of a queue leads. A
// queue is a folder, and a place in it is a znode:
//
//	<dir>/<prefix><10 digits>   ephemeral, sequential; one for each session; the caller gives its body
//
// The caller creates the folder; this package never deletes it. Join creates a place. Leave deletes it, and ZooKeeper
// deletes it when its session ends. The place with the smallest number leads. Every other place watches only the place
// before it, so one that goes wakes only one. After an event the queue is read again.
//
// After a crash these places remain:
//
//	in Join      none, or a place for which nobody waits
//	in Await     a place for which nobody waits
//	as leader    its place, so nobody leads
//	in Leave     none, or that place
//
// Each of them is gone when the session times out; then the next place continues. A lost reply to a create is no crash:
// Join finds its place by the session that owns it.
//
// The package does not know what the leader does, and does not fence it. The session of a leader without a connection
// ends by its own deadline before the server ends it, but a process that was frozen may still run for a moment. So
// every write of a leader needs its own precondition.
package election

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/zkstate/zkconn"
)

var (
	// ErrNotLeading means that another place led for the whole timeout. The place still exists: call Await again, or
	// Leave.
	ErrNotLeading = errors.New("another place leads")
	// ErrRemoved means that somebody deleted the place although its session has not ended. Call Join for a new place.
	ErrRemoved = errors.New("our place in the queue was removed")
)

// Queue names the places of one election.
type Queue struct {
	Dir    string // the folder
	Prefix string // of a place's name, before the number
}

// Place is one session's place in a queue, from Join to Leave. Its methods must not be called concurrently.
type Place struct {
	session      *zkconn.Session
	queue        Queue
	name         string
	stopWatching func() // ends the context that Await returned; nil before that
}

// Join creates the last place. A session has at most one place in a queue. After the create was sent, Join waits for
// the server even if ctx ends, so that no unknown place is left.
func (q Queue) Join(ctx context.Context, s *zkconn.Session, body []byte, acl []zkconn.ACL) (*Place, error) {
	var name string
	err := s.Once(s.Context(), func() error {
		path, err := s.Create(ctx, q.Dir+"/"+q.Prefix, body, zkconn.EphemeralSequential, acl)
		name = path[strings.LastIndexByte(path, '/')+1:]
		return err
	}, func() (found bool, err error) {
		name, err = q.find(s)
		return name != "", err
	})
	if err != nil {
		return nil, err
	}
	return &Place{session: s, queue: q, name: name}, nil
}

// find is the name of the session's place after a create with an unknown outcome; "" if the create was not executed and
// will not be.
func (q Queue) find(s *zkconn.Session) (string, error) {
	ctx := s.Context()
	names, _, err := s.Children(ctx, q.Dir)
	if err != nil {
		return "", err
	}
	for _, name := range slices.Backward(q.InOrder(names)) {
		stat, exists, err := s.Exists(ctx, q.Dir+"/"+name)
		if err != nil && !exists { // one that may not be read is somebody else's
			return "", err
		}
		if exists && stat.EphemeralOwner == s.ID() {
			return name, nil
		}
	}
	return "", nil
}

// InOrder returns the places among names, the children of Dir, the leader first. It leaves out names that are no
// places.
func (q Queue) InOrder(names []string) []string {
	queue := slices.DeleteFunc(slices.Clone(names), func(name string) bool { _, ok := q.number(name); return !ok })
	slices.SortFunc(queue, func(a, b string) int {
		x, _ := q.number(a)
		y, _ := q.number(b)
		return int(x - y) // overflows as the numbers do
	})
	return queue
}

// number is the number that ZooKeeper appended to a place's name: the folder's counter, an int32 written with %010d. It
// overflows to negative numbers after 2147483647.
func (q Queue) number(name string) (n int32, ok bool) {
	digits, ok := strings.CutPrefix(name, q.Prefix)
	wide, err := strconv.ParseInt(digits, 10, 32)
	return int32(wide), ok && err == nil && fmt.Sprintf("%010d", wide) == digits
}

// Await waits until the place leads, at most for timeout; with timeout 0 it checks once. It calls waiting, unless that
// is nil, with the path of each leader. The returned context ends, with a cause, when the place or its session is gone.
// After an error the place still exists: the caller decides whether to call Leave.
func (p *Place) Await(
	ctx context.Context, timeout time.Duration, waiting func(leader string),
) (held context.Context, err error) {
	late := time.After(timeout)
	leader := p.name
	for {
		names, _, err := p.session.Children(ctx, p.queue.Dir)
		if err != nil {
			return nil, err
		}
		queue := p.queue.InOrder(names)
		at := slices.Index(queue, p.name)
		switch {
		case at < 0:
			return nil, p.removed()
		case at == 0:
			return p.hold(), nil
		}
		if queue[0] != leader {
			leader = queue[0]
			if waiting != nil {
				waiting(p.queue.Dir + "/" + leader)
			}
		}
		_, exists, changed, err := p.session.ExistsW(ctx, p.queue.Dir+"/"+queue[at-1])
		if err != nil {
			return nil, err
		}
		if !exists {
			continue
		}
		select {
		case <-changed:
		case <-late:
			return nil, ErrNotLeading
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-p.session.Context().Done():
			return nil, context.Cause(p.session.Context())
		}
	}
}

// hold returns a context that ends with the place. Leave waits for the goroutine that watches the place.
func (p *Place) hold() context.Context {
	held, end := context.WithCancelCause(p.session.Context())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		end(p.session.Follow(held, p.path(), func(_ []byte, stat zkconn.Stat, there bool) error {
			if !p.isOwn(stat, there) {
				return p.removed()
			}
			return nil
		}))
	}()
	p.stopWatching = func() {
		end(context.Canceled)
		<-watched
	}
	return held
}

// isOwn reports whether this session owns the znode. A znode of the same name in a new folder has another owner.
func (p *Place) isOwn(stat zkconn.Stat, exists bool) bool {
	return exists && stat.EphemeralOwner == p.session.ID()
}

func (p *Place) path() string   { return p.queue.Dir + "/" + p.name }
func (p *Place) removed() error { return fmt.Errorf("%s: %w", p.path(), ErrRemoved) }

// Leave deletes the place and ends the context that Await returned. It takes no context, since a place must be deleted
// even if the caller's context has ended. If the session ends, ZooKeeper deletes the place.
func (p *Place) Leave() error {
	if p.stopWatching != nil {
		p.stopWatching()
	}
	ctx := p.session.Context()
	for {
		stat, exists, err := p.session.Exists(ctx, p.path())
		if err == nil && !p.isOwn(stat, exists) {
			return nil
		}
		if err == nil {
			err = p.session.Delete(ctx, p.path(), stat.Version)
		}
		switch {
		case err == nil, errors.Is(err, zkconn.ErrNoNode), ctx.Err() != nil:
			return nil
		case !errors.Is(err, zkconn.ErrUnknown) && !errors.Is(err, zkconn.ErrBadVersion):
			return err
		}
	}
}
