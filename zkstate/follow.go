package zkstate

import (
	"context"
	"time"

	"muster/resource"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Follower is a Reader that also waits for changes.
type Follower struct {
	*Reader
	session *zkconn.Session
}

// NewFollower returns a Follower that reads from s; home and kinds are as for NewReader.
func NewFollower(s *zkconn.Session, home string, kinds ...Kind) *Follower {
	return &Follower{NewReader(s, home, kinds...), s}
}

// Follow calls each with what is at path, nil while nothing is: now, after each change of its record or of who is live,
// and at least once in every interval, since not everything that makes a status is watched. It returns the error of
// each, or why ctx or the session has ended.
func (r *Follower) Follow(
	ctx context.Context, path string, interval time.Duration, each func(*resource.Observed) error,
) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	kind := ""
	for {
		// The watches come before the look, so that no change is missed.
		record, members := r.changes(ctx, path, kind)
		o, err := r.Look(ctx, path)
		if err == nil {
			err = each(o)
		}
		if err != nil {
			return err
		}
		if found := kindName(o); found != kind {
			kind = found // now its record can be watched too
			continue
		}
		select {
		case <-record:
		case <-members:
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// kindName is the kind of a resource with a record; else empty.
func kindName(o *resource.Observed) string {
	if o == nil || o.Record == nil {
		return ""
	}
	return o.Record.Declaration.Kind().Name
}

// changes watches the record of a resource of this kind, and its children. What cannot be watched is nil: it may not be
// there, or nobody may read it.
func (r *Follower) changes(ctx context.Context, path, kind string) (record, members <-chan struct{}) {
	if kind == "" {
		return nil, nil
	}
	root, name := split(path)
	if _, _, changed, err := r.session.GetW(ctx, znode.Record(kind, root, name)); err == nil {
		record = changed
	}
	if _, _, changed, err := r.session.ChildrenW(ctx, path); err == nil {
		members = changed
	}
	return record, members
}
