package zkstate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"muster/plan"
	"muster/resource"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// transaction builds the transaction of a row. It refuses a row whose declaration has another path.
func (s *Store) transaction(ctx context.Context, r plan.Row) (transaction, error) {
	if r.New != nil && r.New.ID().Path() != r.Path {
		return transaction{}, errors.New("the row is of another path")
	}
	switch {
	case r.Action() == plan.Create:
		return s.create(ctx, r.New)
	case r.Reason == plan.IsDamaged:
		if made, err := s.madeHere(ctx, r); err != nil {
			return transaction{}, err
		} else if made {
			return s.repair(ctx, r.Old)
		}
		return s.create(ctx, r.New)
	case r.Action() == plan.Update:
		return s.update(ctx, r.New, r.Old)
	case r.Action() == plan.Replace && r.Old.Classic:
		return s.replaceClassic(ctx, r.New, r.Old)
	case r.Action() == plan.Replace:
		return s.replace(ctx, r.New, r.Old)
	case r.Action() == plan.Delete:
		return s.delete(r.Old), nil
	}
	return transaction{}, fmt.Errorf("%q is not a change", r.Action())
}

// record is a new Record of a declaration. It keeps the other fields of was, the old Record, if there is one.
func (s *Store) record(ctx context.Context, d resource.Declaration, was *resource.Record) (resource.Record, error) {
	rec := resource.Record{Generation: NewID(), State: resource.StateOpen}
	if was != nil {
		rec.Extra = was.Extra
	}
	rec.Stack, rec.Home, rec.Op = s.cfg.Stack, s.home, NewID()
	rec.By, rec.Applied = s.cfg.By, s.cfg.At.UTC().Format(time.RFC3339)
	var err error
	if rec.ACL, err = s.recordedACL(ctx); err != nil {
		return rec, err
	}
	return rec, rec.Declare(d)
}

func (s *Store) create(ctx context.Context, d resource.Declaration) (transaction, error) {
	id := d.ID()
	for _, folder := range []string{znode.RecordDir(d.Kind().Name, id.Root), znode.RunDir(id.Root)} {
		if err := s.makeFolder(ctx, folder); err != nil {
			return transaction{}, err
		}
	}
	if err := s.ListRoots(ctx, []string{id.Root}); err != nil {
		return transaction{}, err
	}
	rec, err := s.record(ctx, d, nil)
	if err != nil {
		return transaction{}, err
	}
	body, err := znode.EncodeRecord(rec)
	s.opened.Store(rec.Generation, true)
	return transaction{
		ops: append([]zkconn.Op{
			zkconn.CreateOp(id.Path(), nil, zkconn.Persistent, s.acl),
			zkconn.CreateOp(recordPath(rec), body, zkconn.Persistent, s.acl),
		}, openGeneration(id.Root, rec.Generation, body, s.acl)...),
		done: s.exists(znode.Gate(id.Root, rec.Generation)),
	}, err
}

func recordPath(rec resource.Record) string {
	id := rec.Declaration.ID()
	return znode.Record(rec.Declaration.Kind().Name, id.Root, id.Name)
}

// openGeneration creates a generation with a copy of its Record, and its gate.
func openGeneration(root, g string, record []byte, acl []zkconn.ACL) []zkconn.Op {
	return []zkconn.Op{
		zkconn.CreateOp(znode.Run(root, g), record, zkconn.Persistent, acl),
		zkconn.CreateOp(znode.Gate(root, g), nil, zkconn.Persistent, acl),
	}
}

// SetRecordOps replace the Record, if it still has this version, and its copy in the generation.
func SetRecordOps(rec resource.Record, version int32) ([]zkconn.Op, error) {
	body, err := znode.EncodeRecord(rec)
	return []zkconn.Op{
		zkconn.SetOp(recordPath(rec), body, version),
		zkconn.SetOp(znode.Run(rec.Declaration.ID().Root, rec.Generation), body, -1),
	}, err
}

func (s *Store) update(ctx context.Context, d resource.Declaration, old *resource.Observed) (transaction, error) {
	rec, err := s.record(ctx, d, old.Record)
	if err != nil {
		return transaction{}, err
	}
	rec.Generation = old.Record.Generation // it stays open, or is opened again
	rec.ACL = old.Record.ACL               // the znodes keep the ACL with which they were created
	rec.Sign()
	t := transaction{done: s.recordHas(d.ID().Path(), rec.Op, old.RecordVersion)}
	if old.Record.Stack != rec.Stack || old.Record.Home != rec.Home {
		if err := s.ListRoots(ctx, []string{d.ID().Root}); err != nil {
			return transaction{}, err
		}
	}
	set, err := SetRecordOps(rec, old.RecordVersion)
	t.ops = append([]zkconn.Op{zkconn.CheckOp(znode.Gate(d.ID().Root, rec.Generation), -1)}, set...)
	return t, err
}

// recordHas returns a function that reports whether the operation op wrote the Record at path. before is the version
// that the Record had.
func (s *Store) recordHas(path, op string, before int32) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		now, err := s.Look(ctx, path)
		switch {
		case err != nil:
			return false, err
		case now != nil && now.Record != nil && now.Record.Op == op:
			return true, nil
		case now != nil && now.RecordVersion == before:
			return false, nil
		}
		return false, errors.New("the record was changed again since")
	}
}

func (s *Store) replace(ctx context.Context, d resource.Declaration, old *resource.Observed) (transaction, error) {
	rec, err := s.record(ctx, d, old.Record)
	if err != nil {
		return transaction{}, err
	}
	// A completed job is still here if its last worker died before Finish, or if it is retained.
	if err := s.recordRun(ctx, old, &rec, rec.Applied); err != nil {
		return transaction{}, err
	}
	return s.newGeneration(rec, old, s.acl)
}

// newGeneration replaces old by the new generation that rec names. It does not delete parts that are lost.
func (s *Store) newGeneration(rec resource.Record, old *resource.Observed, acl []zkconn.ACL) (transaction, error) {
	id := rec.Declaration.ID()
	body, err := znode.EncodeRecord(rec)
	var ops []zkconn.Op
	if old.Has(resource.PartZnode) {
		ops = append(ops, zkconn.DeleteOp(id.Path(), old.Version))
	}
	ops = append(ops,
		zkconn.CreateOp(id.Path(), nil, zkconn.Persistent, acl),
		zkconn.SetOp(recordPath(rec), body, old.RecordVersion),
	)
	if old.Has(resource.PartGeneration) {
		ops = append(ops, zkconn.DeleteOp(znode.Gate(id.Root, old.Record.Generation), -1))
		s.opened.Delete(old.Record.Generation)
	}
	s.opened.Store(rec.Generation, true)
	return transaction{
		ops:  append(ops, openGeneration(id.Root, rec.Generation, body, acl)...),
		done: s.exists(znode.Gate(id.Root, rec.Generation)),
	}, err
}

// repair puts back what somebody deleted or changed: the Record from its copy or the copy from the Record, the gate,
// the resource's own znode; of a resource that is kept in place also its generation and its folders, empty. It creates
// what is lost, and sets what is changed at the version of the Record, so it fails if somebody else put that back. And
// it holds that the generation is still the one: by its gate, or if that is lost by the Record.
func (s *Store) repair(ctx context.Context, old *resource.Observed) (transaction, error) {
	rec := *old.Record
	id, g := rec.Declaration.ID(), rec.Generation
	acl, err := ParseACL(rec.ACL)
	if err != nil {
		return transaction{}, err
	}
	body, err := znode.EncodeRecord(rec)
	if err != nil {
		return transaction{}, err
	}
	gate := znode.Gate(id.Root, g)
	create := func(path string, body []byte) zkconn.Op { return zkconn.CreateOp(path, body, zkconn.Persistent, acl) }
	var ops []zkconn.Op
	switch {
	case !old.Has(resource.PartGeneration):
		ops = append(openGeneration(id.Root, g, body, acl), zkconn.CheckOp(recordPath(rec), old.RecordVersion))
	case !old.Has(resource.PartGate):
		ops = append(ops, create(gate, nil), zkconn.CheckOp(recordPath(rec), old.RecordVersion))
	default:
		ops = append(ops, zkconn.CheckOp(gate, -1))
	}
	switch {
	case !old.Has(resource.PartRecord):
		ops = append(ops, create(recordPath(rec), body))
	case !old.Has(resource.PartReference):
		ops = append(ops, zkconn.SetOp(recordPath(rec), body, old.RecordVersion))
	case !old.Has(resource.PartCopy):
		if err := s.checkOnlyOne(ctx, id.Root, g); err != nil {
			return transaction{}, err
		}
		ops = append(ops, zkconn.CheckOp(recordPath(rec), old.RecordVersion), zkconn.SetOp(znode.Run(id.Root, g), body, -1))
	}
	if !old.Has(resource.PartZnode) {
		ops = append(ops, create(id.Path(), nil))
	}
	if rec.Declaration.Policy().InPlace {
		ops = append(ops, s.lostFolders(old, acl)...)
	}
	return transaction{ops: ops, done: func(ctx context.Context) (bool, error) {
		now, err := s.Look(ctx, id.Path())
		return now != nil && now.Record != nil && now.Record.Generation == g && !now.Repairable(), err
	}}, nil
}

// madeHere reports whether r.Old may be put back: false if nothing is there but a generation of others whose copy of
// the Record names this resource. Whoever may write in a generation can make its copy name any resource, but cannot
// change its ACL. So a Record that is lost is that in a generation only if that has the ACL which this Store gives.
func (s *Store) madeHere(ctx context.Context, r plan.Row) (bool, error) {
	old := r.Old
	if old.Has(resource.PartRecord) {
		return true, nil
	}
	run := znode.Run(old.Record.Declaration.ID().Root, old.Record.Generation)
	has, _, err := s.session.ACL(ctx, run)
	if err != nil {
		return false, err
	}
	entries, err := s.recordedACL(ctx)
	if err != nil {
		return false, err
	}
	gives, err := ParseACL(entries)
	switch {
	case err != nil:
		return false, err
	case sameACL(has, gives):
		return true, nil
	case !old.Has(resource.PartZnode) && r.New != nil:
		return false, nil
	}
	return false, fmt.Errorf("%s is the only copy of its record, and has another ACL than this stack gives: "+
		"if it is no forgery, write acl as it was, and apply", run)
}

// lostFolders are the operations that create the folders of the generation which are lost.
func (s *Store) lostFolders(old *resource.Observed, acl []zkconn.ACL) []zkconn.Op {
	k, _ := s.kind(old.Record.Declaration.Kind().Name)
	run := znode.Run(old.Record.Declaration.ID().Root, old.Record.Generation)
	var ops []zkconn.Op
	for _, folder := range k.folders(old.Record.Declaration) {
		if !old.Has(resource.Part(folder)) {
			ops = append(ops, zkconn.CreateOp(resource.Join(run, folder), nil, zkconn.Persistent, acl))
		}
	}
	return ops
}

// replaceClassic replaces a classic job, and deletes its companions that have no children. There is no gate: only the
// version of the job znode, and that it has no children, guard the delete.
func (s *Store) replaceClassic(
	ctx context.Context, d resource.Declaration, old *resource.Observed,
) (transaction, error) {
	create, err := s.create(ctx, d)
	if err != nil {
		return create, err
	}
	path := d.ID().Path()
	var ops []zkconn.Op
	for _, c := range old.Companions {
		if !znode.IsCompanion(c, path) {
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
	ops = append(ops, zkconn.DeleteOp(path, old.Version))
	create.ops = append(ops, create.ops...)
	return create, nil
}

// delete deletes the znode, the Record and the gate, as far as they are not lost. If a member joined meanwhile, the
// znode has a child, and ZooKeeper refuses the transaction.
func (s *Store) delete(old *resource.Observed) transaction {
	rec := *old.Record
	d := rec.Declaration
	var ops []zkconn.Op
	if old.Has(resource.PartZnode) {
		ops = append(ops, zkconn.DeleteOp(d.ID().Path(), old.Version))
	}
	version := old.RecordVersion
	if !old.Has(resource.PartRecord) { // refused if somebody has put it back
		ops, version = append(ops, zkconn.CreateOp(recordPath(rec), nil, zkconn.Persistent, s.acl)), 0
	}
	ops = append(ops, zkconn.DeleteOp(recordPath(rec), version))
	if old.Has(resource.PartGeneration) {
		ops = append(ops, zkconn.DeleteOp(znode.Gate(d.ID().Root, rec.Generation), -1))
		s.opened.Delete(rec.Generation)
	}
	return transaction{
		ops:  ops,
		done: func(ctx context.Context) (bool, error) { return s.ended(ctx, d.Kind(), d.ID().Path(), rec.Generation) },
	}
}
