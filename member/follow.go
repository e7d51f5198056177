package member

import (
	"context"
	"errors"
	"iter"
	"time"

	"muster/group"
	"muster/resource"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Leader is who holds a duty, as followers see it. The zero Leader is nobody.
type Leader struct {
	Identity string    `json:"identity"`
	Address  string    `json:"address,omitempty"`
	Version  string    `json:"version"`
	Epoch    int64     `json:"epoch"` // see Hold
	Since    time.Time `json:"since"` // by ZooKeeper's clock
}

// Follow yields who holds a duty now, and again whenever that has changed; nobody between two holders. Changes that
// follow each other closely may come as one. It writes nothing and needs no membership. It ends when the loop does, or
// with an error: ctx's, why the session ended, ErrNoGroup, or at the beginning ErrNoDuty. A duty that is taken out of
// the group later has nobody.
func Follow(ctx context.Context, s *zkconn.Session, root, name, duty string) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		f := following{s: s, root: root, name: name, duty: duty}
		first, last := true, Leader{}
		for {
			l, err := f.read(ctx)
			if err != nil && (first || !errors.Is(err, ErrNoDuty)) {
				yield(Leader{}, err)
				return
			}
			if (first || l != last) && !yield(l, nil) {
				return
			}
			first, last = false, l
			select {
			case <-f.recordChanged:
			case <-f.heldChanged:
			case <-ctx.Done():
				yield(Leader{}, context.Cause(ctx))
				return
			case <-s.Context().Done():
				yield(Leader{}, context.Cause(s.Context()))
				return
			}
		}
	}
}

// following is a Follow under way. It reads again only what has changed: see happened.
type following struct {
	s                *zkconn.Session
	root, name, duty string

	generation    string
	declared      bool // the duty
	recordChanged <-chan struct{}
	leader        Leader
	heldChanged   <-chan struct{}
}

// read returns who holds the duty now.
func (f *following) read(ctx context.Context) (Leader, error) {
	if happened(f.recordChanged) {
		if err := f.readRecord(ctx); err != nil {
			return Leader{}, err
		}
	}
	if happened(f.heldChanged) {
		if err := f.readHeld(ctx); err != nil {
			return Leader{}, err
		}
	}
	if f.leader == (Leader{}) && !f.declared {
		return Leader{}, ErrNoDuty
	}
	return f.leader, nil
}

func (f *following) readRecord(ctx context.Context) error {
	body, _, changed, err := f.s.GetW(ctx, znode.Record(group.KindName, f.root, f.name))
	if errors.Is(err, zkconn.ErrNoNode) {
		return ErrNoGroup
	}
	if err != nil {
		return err
	}
	f.recordChanged = changed
	rec, err := znode.DecodeRecordAt(group.Kind(), resource.Join(f.root, f.name), body)
	if err != nil {
		return err
	}
	_, f.declared = group.Of(&rec).Duty(f.duty)
	if rec.Generation != f.generation {
		f.generation, f.heldChanged = rec.Generation, nil
	}
	return nil
}

func (f *following) readHeld(ctx context.Context) error {
	at := znode.Held(f.root, f.generation, f.duty)
	text, stat, changed, err := f.s.GetW(ctx, at)
	for errors.Is(err, zkconn.ErrNoNode) {
		var there bool
		_, there, changed, err = f.s.ExistsW(ctx, at)
		if err == nil && !there {
			f.leader, f.heldChanged = Leader{}, changed
			return nil
		}
		if err == nil {
			text, stat, changed, err = f.s.GetW(ctx, at)
		}
	}
	if err != nil {
		return err
	}
	holder, err := znode.Decode[znode.Holder](text)
	if err != nil {
		return err
	}
	// held was made in the transaction that set the duty, whose zxid is the epoch.
	f.leader = Leader{holder.Identity, holder.Address, holder.Version, stat.Czxid, stat.Ctime}
	f.heldChanged = changed
	return nil
}
