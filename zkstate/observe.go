package zkstate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"muster/resource"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// maxRereads is how often a resource is read again if it changes between the reads.
const maxRereads = 5

// observe reads one resource; nil is missing. A resource that a commit would delete, or that looks damaged, is read
// until two reads agree: between two reads of one observation somebody's transaction may have changed it. If it changes
// at every read, the last observation is returned. A commit that is based on it will fail.
func (r *Reader) observe(ctx context.Context, path string, f found) (*resource.Observed, error) {
	return r.untilStable(ctx, path, f, func() (*resource.Observed, error) { return r.observeOnce(ctx, path, f) })
}

// untilStable calls read until two results agree, if the first needs a second read.
func (r *Reader) untilStable(
	ctx context.Context, path string, f found, read func() (*resource.Observed, error),
) (*resource.Observed, error) {
	o, err := read()
	for range maxRereads {
		if err != nil || !f.needsSecondRead(path, o) {
			return o, err
		}
		var next *resource.Observed
		if err = r.source.Sync(ctx, path); err != nil {
			return nil, err
		}
		next, err = read()
		if err == nil && next != nil && next.Equal(*o) {
			return next, nil
		}
		o = next
	}
	return o, err
}

// needsSecondRead reports whether o must be read twice.
func (f found) needsSecondRead(path string, o *resource.Observed) bool {
	switch o.Class() {
	case resource.Idle, resource.Done:
		return f.settled == nil || !f.settled(path, o)
	case resource.Stale, resource.Unreadable, resource.Foreign, resource.Damaged:
		return true
	}
	return false
}

// observeOnce reads the facts of one resource in this order: the Record, its generation, the counts there, and its own
// znode last. So a member that joins or completes meanwhile can only add to the live members.
func (r *Reader) observeOnce(ctx context.Context, path string, f found) (*resource.Observed, error) {
	for _, k := range r.kinds {
		if f.kind != "" && f.kind != k.Name {
			continue
		}
		root, name := split(path)
		at := znode.Record(k.Name, root, name)
		body, stat, err := r.source.Get(ctx, at)
		switch {
		case errors.Is(err, zkconn.ErrNoNode):
			continue
		case errors.Is(err, zkconn.ErrNoAuth):
			return &resource.Observed{Companions: f.companions, Problem: "no permission to read " + at}, nil
		case err != nil:
			return nil, err
		}
		o := &resource.Observed{Companions: f.companions, RecordVersion: stat.Version}
		rec, err := znode.DecodeRecordAt(k.Kind, path, body)
		switch {
		case errors.Is(err, znode.ErrFormat):
			o.Problem = fmt.Sprintf("%s: %v", at, err)
			return o, nil
		case err != nil:
			o.Problem = fmt.Sprintf("%s is damaged: %v", at, err)
			return o, nil
		}
		o.Record = &rec
		err = r.observeGeneration(ctx, k, path, body, f, o)
		if errors.Is(err, zkconn.ErrNoAuth) || errors.Is(err, zkconn.ErrTooLarge) {
			o.Problem, err = err.Error(), nil
		}
		return o, err
	}
	return r.observeWithoutRecord(ctx, path, f.companions)
}

// observeGeneration reads everything of a resource except its Record, which has this body. See ReadFor for what it
// leaves out.
func (r *Reader) observeGeneration(
	ctx context.Context, k Kind, path string, body []byte, f found, o *resource.Observed,
) error {
	begun, unused, err := r.observeFolders(ctx, k, path, body, o)
	if err != nil {
		return err
	}
	if unused != nil && f.exists && f.settled != nil {
		o.Pzxid = unused.Czxid // one transaction created both
		if f.settled(path, o) {
			return nil
		}
	}
	if begun && k.Count != nil {
		if err := k.Count(ctx, r, o); err != nil {
			return err
		}
	}
	stat, exists, err := r.source.Exists(ctx, path)
	switch {
	case err != nil:
		return err
	case !exists:
		o.Lost = append(o.Lost, resource.PartObject)
	}
	o.Version, o.Pzxid, o.Live, o.Created = stat.Version, stat.Pzxid, int(stat.NumChildren), stat.Ctime
	return nil
}

// observeFolders reads which parts of the generation exist, and reports whether somebody has joined it. A new
// generation has only its gate: then unused is its Stat. The first member adds the folders of the kind in one
// transaction. If the number of children is neither, somebody deleted some, or a newer muster has more folders.
//
// Nothing is read of a generation that is not that of the Record, and o does not name it then: see wrongWith.
func (r *Reader) observeFolders(
	ctx context.Context, k Kind, path string, body []byte, o *resource.Observed,
) (begun bool, unused *zkconn.Stat, err error) {
	root, _ := split(path)
	dir := znode.Run(root, o.Record.Generation)
	held, run, err := r.readRun(ctx, dir)
	switch {
	case errors.Is(err, zkconn.ErrNoNode):
		o.Lost = append(o.Lost, resource.PartGeneration)
		o.BeyondRepair = "who had joined is not known"
		if o.Record.Declaration.Policy().InPlace {
			o.BeyondRepair = unknownContent
		}
		return false, nil, nil
	case err != nil:
		return false, nil, err
	}
	if !bytes.Equal(held, body) {
		lost, why := r.wrongWith(k, path, held, o.Record)
		if lost != "" {
			o.Lost = append(o.Lost, lost)
		}
		if lost == resource.PartReference {
			o.Record, o.BeyondRepair = nil, why
			return false, nil, nil
		}
	}
	switch {
	case run.NumChildren == 1:
		return false, &run, nil
	case int(run.NumChildren) == 1+len(k.Folders):
		return true, nil, nil
	}
	names, err := r.children(ctx, dir)
	if err != nil {
		return false, nil, err
	}
	if !slices.Contains(names, gateName) {
		o.Lost = append(o.Lost, resource.PartGate)
	}
	var gone []resource.Part
	for _, folder := range k.Folders {
		if !slices.Contains(names, folder) {
			gone = append(gone, resource.Part(folder))
		}
	}
	if len(gone) == len(k.Folders) { // nobody has joined
		return false, nil, nil
	}
	if len(gone) > 0 {
		o.Lost = append(o.Lost, gone...)
		o.BeyondRepair = unknownContent
	}
	return true, nil, nil
}

// readRun reads the znode of a generation. All of its Stat is current.
func (r *Reader) readRun(ctx context.Context, dir string) ([]byte, zkconn.Stat, error) {
	body, stat, err := r.source.Get(ctx, dir)
	if look, ok := r.source.(*Look); ok && err == nil { // whose Get does not watch the children
		_, stat, err = look.Children(ctx, dir)
	}
	return body, stat, err
}

// wrongWith is what is wrong with the generation that a Record names, which may be its own. held is the copy of a
// Record in it. A PartReference, with why, means that the generation is not this resource's: nothing of it may be read,
// changed or deleted for it.
//
// Everybody who may write one Record can make it name any generation. So a generation is that of the Record which its
// copy names: kind, path, and this generation. A copy that does not name the generation tells nothing; it can be
// written again, as a PartCopy.
func (r *Reader) wrongWith(k Kind, path string, held []byte, rec *resource.Record) (lost resource.Part, why string) {
	root, _ := split(path)
	g := rec.Generation
	owner, of := r.owner(root, g, held)
	switch {
	case of != nil && owner.Name == k.Name && of.Declaration.ID().Path() == path:
		return "", ""
	case of != nil:
		return resource.PartReference, fmt.Sprintf("generation %s is that of %s %s", g, owner.Name, of.Declaration.ID().Name)
	case znode.NamedGeneration(held) != g:
		return resource.PartCopy, ""
	}
	return resource.PartReference, fmt.Sprintf("nobody can tell whose generation %s is", g)
}

// ErrNotOwn means that a Record names a generation that is another's, or perhaps another's. Write nothing
// there. Apply puts the Record right, or explain says why it cannot.
var ErrNotOwn = errors.New("the record names a generation that is not its own")

// CheckOwn returns ErrNotOwn if the generation that rec names is another's. Who is about to write there asks first. A
// generation that does not exist, or whose copy of the Record was changed, is no error here.
func CheckOwn(ctx context.Context, s Source, rec *resource.Record) error {
	id, k := rec.Declaration.ID(), Kind{Kind: rec.Declaration.Kind()}
	held, _, err := s.Get(ctx, znode.Run(id.Root, rec.Generation))
	if errors.Is(err, zkconn.ErrNoNode) {
		return nil
	}
	r := Reader{kinds: []Kind{k}}
	if err != nil {
		return err
	}
	if lost, _ := r.wrongWith(k, id.Path(), held, rec); lost == resource.PartReference {
		return fmt.Errorf("%s: %w", id.Path(), ErrNotOwn)
	}
	return nil
}

// owner returns the kind and the Record whose copy is in generation g below root; nil if that is no such copy.
func (r *Reader) owner(root, g string, held []byte) (Kind, *resource.Record) {
	for _, k := range r.kinds {
		rec, err := znode.DecodeRecord(k.Kind, held)
		if err == nil && rec.Generation == g && rec.Declaration.ID().Root == root {
			return k, &rec
		}
	}
	return Kind{}, nil
}

// gateName is the name of a generation's gate.
const gateName = "gate"

// unknownContent says what cannot be put back of a folder.
const unknownContent = "what was in it is not known"
