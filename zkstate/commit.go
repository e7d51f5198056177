package zkstate

import (
	"context"
	"errors"
	"fmt"

	"muster/job"
	"muster/plan"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// attempts bounds how often a transaction that certainly did not happen is sent again. Every one carries its
// preconditions, so sending it again cannot do anything twice.
const attempts = 4

// Commit makes r true in one transaction if r.Old still holds. It answers nil, plan.ErrAlreadyDone, plan.ErrMoved or
// plan.ErrUnknown, each wrapped with what happened; any other error means that nothing was written.
func (s *Store) Commit(ctx context.Context, r plan.Row) error {
	var err error
	for range attempts {
		var again bool
		if again, err = s.commitOnce(ctx, r); !again {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("job %s: %w", r.Path, err)
	}
	return nil
}

// transaction is one commit, ready to be sent.
type transaction struct {
	ops  []zkconn.Op
	done func(ctx context.Context) (bool, error) // reads whether it was committed
}

// commitOnce checks, sends once, and finds out. Again means: certainly not committed, and worth another try.
func (s *Store) commitOnce(ctx context.Context, r plan.Row) (again bool, err error) {
	if r.Action() != plan.Create { // the creates of a create are its precondition
		if err := s.Check(ctx, r); err != nil {
			return false, err
		}
	}
	t, err := s.transaction(ctx, r)
	if err != nil {
		return false, s.translate(ctx, err)
	}
	_, err = s.session.Multi(ctx, t.ops...)
	switch {
	case err == nil:
		return false, nil
	case errors.Is(err, zkconn.ErrUnknown):
		return s.resolve(ctx, t, err)
	case errors.Is(err, zkconn.ErrNodeExists), errors.Is(err, zkconn.ErrNoNode),
		errors.Is(err, zkconn.ErrBadVersion), errors.Is(err, zkconn.ErrNotEmpty):
		s.forgetFolders() // one of them may be what is missing
		return s.explain(ctx, r, err)
	}
	return false, s.translate(ctx, err)
}

// resolve learns what became of a transaction whose reply was lost.
func (s *Store) resolve(ctx context.Context, t transaction, lost error) (again bool, err error) {
	if err := s.session.Settled(ctx); err != nil {
		return false, fmt.Errorf("%w: %w", plan.ErrUnknown, lost)
	}
	done, err := t.done(ctx)
	switch {
	case err != nil:
		return false, fmt.Errorf("%w: %w", plan.ErrUnknown, err)
	case done:
		return false, nil
	}
	return true, fmt.Errorf("nothing was written: %w", lost)
}

// explain turns a refused transaction into what moved. Facts that read as before although ZooKeeper refused were read
// between two changes of somebody else: look again.
func (s *Store) explain(ctx context.Context, r plan.Row, refused error) (again bool, err error) {
	err = s.Check(ctx, r)
	if err == nil {
		return true, fmt.Errorf("%w: %w", plan.ErrMoved, refused)
	}
	return false, err
}

// translate separates what was never sent because ctx ended from an error of the world.
func (s *Store) translate(ctx context.Context, err error) error {
	if errors.Is(err, zkconn.ErrNotSent) && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// transaction builds the one transaction of a row. It refuses a row that names one job and changes another.
func (s *Store) transaction(ctx context.Context, r plan.Row) (transaction, error) {
	if r.New != nil && r.New.Path() != r.Path || r.Old != nil && r.Old.Record != nil && r.Old.Record.Job.Path() != r.Path {
		return transaction{}, errors.New("the row is of another job")
	}
	switch r.Action() {
	case plan.Create:
		return s.create(ctx, *r.New)
	case plan.Update:
		return s.update(*r.New, r.Old)
	case plan.Replace:
		if r.Old.Classic {
			return s.replaceClassic(ctx, *r.New, r.Old)
		}
		return s.replace(ctx, *r.New, r.Old)
	case plan.Delete:
		return s.delete(r.Old), nil
	}
	return transaction{}, fmt.Errorf("%q is not a change", r.Action())
}

func (s *Store) create(ctx context.Context, j job.Job) (transaction, error) {
	if err := s.makeRoot(ctx, j.Root); err != nil {
		return transaction{}, err
	}
	g := NewID()
	body, err := znode.EncodeRecord(s.record(j, g, NewID()))
	return transaction{
		ops: append([]zkconn.Op{
			zkconn.CreateOp(j.Path(), nil, zkconn.Persistent, s.acl),
			zkconn.CreateOp(znode.Record(j.Root, j.Name), body, zkconn.Persistent, s.acl),
		}, open(j.Root, g, s.acl)...),
		done: s.exists(znode.Gate(j.Root, g)),
	}, err
}

// open makes a generation.
func open(root, g string, acl []zkconn.ACL) []zkconn.Op {
	return []zkconn.Op{
		zkconn.CreateOp(znode.Run(root, g), nil, zkconn.Persistent, acl),
		zkconn.CreateOp(znode.Gate(root, g), nil, zkconn.Persistent, acl),
	}
}

func (s *Store) update(j job.Job, old *plan.Observed) (transaction, error) {
	op := NewID()
	rec := s.record(j, old.Record.Generation, op)
	rec.State, rec.Last, rec.NoRoll = old.Record.State, old.Record.Last, old.Record.NoRoll
	rec.ACL = old.Record.ACL // what exists keeps the ACL it was made with
	rec.Digest = rec.Sum()
	body, err := znode.EncodeRecord(rec)
	return transaction{
		ops: []zkconn.Op{
			zkconn.CheckOp(znode.Gate(j.Root, rec.Generation), 0),
			zkconn.SetOp(znode.Record(j.Root, j.Name), body, old.RecordVersion),
		},
		done: func(ctx context.Context) (bool, error) {
			now, err := s.Look(ctx, j.Path())
			switch {
			case err != nil:
				return false, err
			case now != nil && now.Record != nil && now.Record.Op == op:
				return true, nil
			case now != nil && now.RecordVersion == old.RecordVersion:
				return false, nil
			}
			return false, errors.New("the record was changed again since")
		},
	}, err
}

func (s *Store) replace(ctx context.Context, j job.Job, old *plan.Observed) (transaction, error) {
	rec := s.record(j, NewID(), NewID())
	rec.Last = old.Record.Last
	if old.Status() == plan.Completed { // its last worker died before it could tidy up, or the job was retained
		run, err := s.runName(ctx, old.Record)
		if err != nil {
			return transaction{}, err
		}
		rec.Last = &job.Run{ID: run, Generation: old.Record.Generation, Completed: rec.Applied}
	}
	return s.anew(rec, old, s.acl)
}

// anew puts a job into the new generation that rec names, in place of old.
func (s *Store) anew(rec job.Record, old *plan.Observed, acl []zkconn.ACL) (transaction, error) {
	j, g := rec.Job, rec.Generation
	body, err := znode.EncodeRecord(rec)
	return transaction{
		ops: append([]zkconn.Op{
			zkconn.DeleteOp(j.Path(), old.Version),
			zkconn.CreateOp(j.Path(), nil, zkconn.Persistent, acl),
			zkconn.SetOp(znode.Record(j.Root, j.Name), body, old.RecordVersion),
			zkconn.DeleteOp(znode.Gate(j.Root, old.Record.Generation), 0),
		}, open(j.Root, g, acl)...),
		done: s.exists(znode.Gate(j.Root, g)),
	}, err
}

// runName is the name that the first worker of a generation gave to its run; empty if it gave none.
func (s *Store) runName(ctx context.Context, rec *job.Record) (string, error) {
	name, _, err := s.session.Get(ctx, znode.IDs(rec.Job.Root, rec.Generation))
	if errors.Is(err, zkconn.ErrNoNode) { // swept with its generation: the transaction will tell
		return "", nil
	}
	return string(name), err
}

// replaceClassic takes a classic leftover away with its childless companions. There is no gate: the job znode's version and
// its emptiness are all that a classic job has.
func (s *Store) replaceClassic(ctx context.Context, j job.Job, old *plan.Observed) (transaction, error) {
	create, err := s.create(ctx, j)
	if err != nil {
		return create, err
	}
	var ops []zkconn.Op
	for _, c := range old.Companions {
		if !znode.IsCompanion(c, j.Path()) {
			return transaction{}, fmt.Errorf("%s is no companion of it", c)
		}
		stat, ok, err := s.session.Exists(ctx, c)
		if err != nil {
			return transaction{}, err
		}
		if ok && stat.NumChildren == 0 && stat.EphemeralOwner == 0 {
			ops = append(ops, zkconn.DeleteOp(c, stat.Version))
		}
	}
	ops = append(ops, zkconn.DeleteOp(j.Path(), old.Version))
	create.ops = append(ops, create.ops...)
	return create, nil
}

// delete is three operations whatever N is. A worker that joined meanwhile is a child of the job znode, and ZooKeeper
// refuses all three.
func (s *Store) delete(old *plan.Observed) transaction {
	j := old.Record.Job
	gate := znode.Gate(j.Root, old.Record.Generation)
	return transaction{
		ops: []zkconn.Op{
			zkconn.DeleteOp(j.Path(), old.Version),
			zkconn.DeleteOp(znode.Record(j.Root, j.Name), old.RecordVersion),
			zkconn.DeleteOp(gate, 0),
		},
		done: func(ctx context.Context) (bool, error) {
			open, err := s.exists(gate)(ctx)
			return !open, err
		},
	}
}

func (s *Store) exists(path string) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		_, ok, err := s.session.Exists(ctx, path)
		return ok, err
	}
}
