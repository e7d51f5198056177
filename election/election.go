// Package election lets the smallest place of a queue lead. A queue is a folder, and a place in it is a znode:
//
//	<dir>/<prefix><10 digits>   ephemeral, sequential; one a session; the body is the caller's
//
// The caller makes the folder, and nobody here deletes it. Join creates a place. Leave deletes it, and ZooKeeper does
// when the session that created it ends. The place with the smallest number leads. Every other one watches the place
// before it and no other, so that one that goes wakes one. An event is a reason to look: the queue is read again then.
//
// What a crash leaves:
//
//	in Join      nothing, or a place that nobody waits at
//	in Await     a place that nobody waits at
//	as leader    a place that nobody works at: nobody leads
//	in Leave     that place, or nothing
//
// Each of these places is gone when the session times out, and the next in order goes on. A create whose reply was lost
// is no crash: Join finds its place again by the session that owns it.
//
// The package knows nothing of what the leader does, and it is no fence. The session of a leader that is cut off ends
// by its own deadline before the server ends it, but a process that was frozen may still run a moment after that. What
// a leader writes must carry its own precondition.
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
	// ErrNotLeading means that another place led until the caller's patience ended. The place stands: Await again, or
	// Leave.
	ErrNotLeading = errors.New("another place leads")
	// ErrRemoved means that somebody removed the place while its session lived. It is lost for good: Join again, if at
	// all.
	ErrRemoved = errors.New("our place in the queue was removed")
)

// Queue says where places stand.
type Queue struct {
	Dir    string // the folder
	Prefix string // of a place's name, before the number
}

// Place is one session's place in a queue, from Join to Leave. Its methods are called one after another.
type Place struct {
	session *zkconn.Session
	queue   Queue
	name    string
	letGo   func() // ends what Await returned; nil before that
}

// Join takes the last place. A session has at most one place in a queue. Once the create was sent, Join answers late
// rather than leave a place behind that nobody knows of: it waits for the server although ctx is over.
func (q Queue) Join(ctx context.Context, s *zkconn.Session, body []byte, acl []zkconn.ACL) (*Place, error) {
	for {
		path, err := s.Create(ctx, q.Dir+"/"+q.Prefix, body, zkconn.EphemeralSequential, acl)
		name := path[strings.LastIndexByte(path, '/')+1:]
		if errors.Is(err, zkconn.ErrUnknown) {
			name, err = q.find(s)
		}
		if err != nil {
			return nil, err
		}
		if name != "" {
			return &Place{session: s, queue: q, name: name}, nil
		}
	}
}

// find is the name of the session's place after an unknown create; "" if it was not executed and never will be.
func (q Queue) find(s *zkconn.Session) (string, error) {
	ctx := s.Context()
	if err := s.Settled(ctx); err != nil {
		return "", err
	}
	names, _, err := s.Children(ctx, q.Dir)
	if err != nil {
		return "", err
	}
	for _, name := range slices.Backward(q.InOrder(names)) {
		stat, exists, err := s.Exists(ctx, q.Dir+"/"+name)
		if err != nil {
			return "", err
		}
		if exists && stat.EphemeralOwner == s.ID() {
			return name, nil
		}
	}
	return "", nil
}

// InOrder returns the places among the names of Dir's children, the leader first. What is no place is left out.
func (q Queue) InOrder(names []string) []string {
	queue := slices.DeleteFunc(slices.Clone(names), func(name string) bool { _, ok := q.number(name); return !ok })
	slices.SortFunc(queue, func(a, b string) int {
		x, _ := q.number(a)
		y, _ := q.number(b)
		return int(x - y) // wraps as the numbers do
	})
	return queue
}

// number is what ZooKeeper appended to a place's name: how many znodes the folder had seen, an int32 written with
// %010d, which turns negative after 2147483647.
func (q Queue) number(name string) (n int32, ok bool) {
	digits, ok := strings.CutPrefix(name, q.Prefix)
	wide, err := strconv.ParseInt(digits, 10, 32)
	return int32(wide), ok && err == nil && fmt.Sprintf("%010d", wide) == digits
}

// Await waits until the place leads, as long as patience; with none it looks once. It tells waiting the path of the
// leader, again whenever another leads; waiting may be nil. The returned context ends, with a cause, when the place or
// its session is gone. After an error the place stands where it stood: the caller decides whether to Leave.
func (p *Place) Await(
	ctx context.Context, patience time.Duration, waiting func(leader string),
) (held context.Context, err error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
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
			return p.hold(ctx)
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
		case <-timer.C:
			return nil, ErrNotLeading
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-p.session.Context().Done():
			return nil, context.Cause(p.session.Context())
		}
	}
}

// hold returns a context that lasts as long as the place. Leave waits for what watches it.
func (p *Place) hold(ctx context.Context) (context.Context, error) {
	changed, err := p.look(ctx)
	if err != nil {
		return nil, err
	}
	held, end := context.WithCancelCause(p.session.Context())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for err == nil {
			select {
			case <-changed:
				changed, err = p.look(held)
			case <-held.Done():
				return
			}
		}
		end(err)
	}()
	p.letGo = func() {
		end(context.Canceled)
		<-watched
	}
	return held, nil
}

// look fails when the place is gone; changed is closed when it is time to look again.
func (p *Place) look(ctx context.Context) (changed <-chan struct{}, err error) {
	stat, exists, changed, err := p.session.ExistsW(ctx, p.path())
	if err == nil && !p.ours(stat, exists) {
		err = p.removed()
	}
	return changed, err
}

// ours is false also for a znode of the same name in a folder that was made anew.
func (p *Place) ours(stat zkconn.Stat, exists bool) bool {
	return exists && stat.EphemeralOwner == p.session.ID()
}

func (p *Place) path() string   { return p.queue.Dir + "/" + p.name }
func (p *Place) removed() error { return fmt.Errorf("%s: %w", p.path(), ErrRemoved) }

// Leave gives the place up, whoever leads, and ends the context that Await returned. It takes no context: a place must
// be left although its caller's context is over. The end of the session is as good.
func (p *Place) Leave() error {
	if p.letGo != nil {
		p.letGo()
	}
	ctx := p.session.Context()
	for {
		stat, exists, err := p.session.Exists(ctx, p.path())
		if err == nil && !p.ours(stat, exists) {
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
