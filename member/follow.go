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
		first, last := true, Leader{}
		for {
			l, changed, err := leader(ctx, s, root, name, duty)
			switch {
			case errors.Is(err, errAgain):
				continue
			case err != nil && (first || !errors.Is(err, ErrNoDuty)):
				yield(Leader{}, err)
				return
			}
			if (first || l != last) && !yield(l, nil) {
				return
			}
			first, last = false, l
			select {
			case <-changed[0]:
			case <-changed[1]:
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

// leader reads who holds a duty. changed are events of the Record, and of held.
func leader(
	ctx context.Context, s *zkconn.Session, root, name, duty string,
) (l Leader, changed [2]<-chan struct{}, err error) {
	body, _, recordChanged, err := s.GetW(ctx, znode.Record(group.KindName, root, name))
	changed[0] = recordChanged
	if errors.Is(err, zkconn.ErrNoNode) {
		err = ErrNoGroup
	}
	if err != nil {
		return l, changed, err
	}
	rec, err := znode.DecodeRecordAt(group.Kind(), resource.Join(root, name), body)
	if err != nil {
		return l, changed, err
	}
	at := znode.Held(root, rec.Generation, duty)
	text, stat, heldChanged, err := s.GetW(ctx, at)
	changed[1] = heldChanged
	switch {
	case errors.Is(err, zkconn.ErrNoNode):
		var there bool
		_, there, changed[1], err = s.ExistsW(ctx, at)
		if _, declared := group.Of(&rec).Duty(duty); err == nil && there {
			err = errAgain
		} else if err == nil && !declared {
			err = ErrNoDuty
		}
		return l, changed, err
	case err != nil:
		return l, changed, err
	}
	holder, err := znode.DecodeHolder(text)
	if err != nil {
		return l, changed, err
	}
	// held was made in the transaction that set the duty, whose zxid is the epoch.
	return Leader{holder.Identity, holder.Address, holder.Version, stat.Czxid, stat.Ctime}, changed, nil
}
