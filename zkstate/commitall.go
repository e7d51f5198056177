package zkstate

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"

	"muster/plan"
	"muster/resource"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Limits of a transaction that several changes share. ZooKeeper executes a hundred operations many times faster in one
// transaction than in twenty-five. A larger one gains nothing, and more must be read again if its reply is lost.
const (
	sharedOps   = 150
	sharedBytes = 256 << 10
)

// CommitAll commits rows of different paths, and returns for each what Commit would.
//
// Rows share a transaction if it holds every fact on which they depend, so that nothing need be read before it:
// creates; updates of a resource that keeps nothing for its members; deletes and replaces of one that nobody has
// joined. If a shared transaction is refused, nothing of it was written. Each of its rows is then committed alone, so
// that a row which has moved does not keep the others.
func (s *Store) CommitAll(ctx context.Context, rows []plan.Row) []error {
	errs := make([]error, len(rows))
	var alone []int
	var b shared
	send := func() {
		alone = append(alone, s.commitShared(ctx, rows, b, errs)...)
		b = shared{}
	}
	for i, r := range rows {
		t, ok := s.selfContained(ctx, r)
		if !ok {
			alone = append(alone, i)
			continue
		}
		if !b.fits(t) {
			send()
		}
		b.add(i, t)
	}
	send()
	var g errgroup.Group
	g.SetLimit(reads)
	for _, i := range alone {
		g.Go(func() error {
			errs[i] = s.Commit(ctx, rows[i])
			return nil
		})
	}
	_ = g.Wait() // the errors are in errs
	return errs
}

// selfContained builds the transaction of a row if it needs no read before it.
func (s *Store) selfContained(ctx context.Context, r plan.Row) (t transaction, ok bool) {
	deletes := false
	switch r.Action() {
	case plan.Create:
	case plan.Update:
		if r.Reason == plan.IsDamaged || !s.isWhole(r) {
			return t, false
		}
	case plan.Delete, plan.Replace:
		if deletes = true; r.Old.Class() != resource.Ready || r.Old.Live > 0 || !s.isWhole(r) {
			return t, false
		}
	}
	t, err := s.transaction(ctx, r)
	if deletes { // with its folder: ZooKeeper refuses that if anybody has ever joined the generation
		rec := r.Old.Record
		t.ops = append(t.ops, zkconn.DeleteOp(znode.Run(rec.Declaration.ID().Root, rec.Generation), -1))
	}
	return t, err == nil
}

// isWhole reports whether the row has the whole Record of its resource, which one in a saved plan has not, and members
// save nothing in resources of that kind.
func (s *Store) isWhole(r plan.Row) bool {
	o := r.Old
	if o == nil || o.Classic || len(o.Lost) > 0 || o.Record == nil || o.Record.Body == nil ||
		o.Record.Declaration.ID().Path() != r.Path {
		return false
	}
	k, ok := s.kind(o.Record.Declaration.Kind().Name)
	return ok && k.Saved == nil
}

// shared is a transaction of several rows.
type shared struct {
	rows  []int // their indexes
	parts []transaction
	ops   []zkconn.Op
	bytes int
}

// fits reports whether there is room for t, or nothing yet.
func (b *shared) fits(t transaction) bool {
	bytes := b.bytes
	for _, o := range t.ops {
		bytes += o.Size()
	}
	return len(b.rows) == 0 || len(b.ops)+len(t.ops) < sharedOps && bytes < sharedBytes
}

func (b *shared) add(row int, t transaction) {
	b.rows, b.parts, b.ops = append(b.rows, row), append(b.parts, t), append(b.ops, t.ops...)
	for _, o := range t.ops {
		b.bytes += o.Size()
	}
}

// commitShared sends b, and puts into errs what became of its rows. It returns those that are certainly not committed
// and can be committed alone.
func (s *Store) commitShared(ctx context.Context, rows []plan.Row, b shared, errs []error) (alone []int) {
	if len(b.rows) < 2 {
		return b.rows
	}
	_, err := s.session.Multi(ctx, b.ops...)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, zkconn.ErrUnknown):
		for k, i := range b.rows {
			var again bool
			if again, errs[i] = s.resolve(ctx, b.parts[k], err); again {
				alone = append(alone, i)
			} else {
				errs[i] = rowError(rows[i], errs[i])
			}
		}
		return alone
	case preconditionFailed(err):
		s.forgetFolders()
	}
	return b.rows
}
