package zkstate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"muster/resource"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// secondLooks bounds how often something that keeps changing under the reads is read again.
const secondLooks = 5

// observe reads one thing; nil is missing. What a commit would act upon destructively, and what looks damaged, is read
// until it reads the same twice: a thing read in the middle of somebody's transaction looks like either. One that changes
// under every look is given as last read; no commit can act on it, since its facts have moved again.
func (r *Reader) observe(ctx context.Context, path string, f found) (*resource.Observed, error) {
	return r.untilTwice(ctx, path, func() (*resource.Observed, error) { return r.observeOnce(ctx, path, f) })
}

func (r *Reader) untilTwice(ctx context.Context, path string, look func() (*resource.Observed, error)) (*resource.Observed, error) {
	o, err := look()
	for range secondLooks {
		if err != nil || !doubtful(o) {
			return o, err
		}
		var next *resource.Observed
		if err = r.session.Sync(ctx, path); err != nil {
			return nil, err
		}
		next, err = look()
		if err == nil && next != nil && next.Equal(*o) {
			return next, nil
		}
		o = next
	}
	return o, err
}

// doubtful reports whether o must be seen twice.
func doubtful(o *resource.Observed) bool {
	return slices.Contains([]resource.Class{
		resource.Stale, resource.Done, resource.Unreadable, resource.Foreign, resource.Damaged,
	}, o.Class())
}

// observeOnce reads the facts of one thing in the order of the design: the Record, its generation, what is counted there,
// and its own znode last, so that a member that joins or completes in between can only make it look more alive than it is
// counted.
func (r *Reader) observeOnce(ctx context.Context, path string, f found) (*resource.Observed, error) {
	for _, k := range r.kinds {
		if f.kind != "" && f.kind != k.Name {
			continue
		}
		root, name := split(path)
		at := znode.Record(k.Name, root, name)
		body, stat, err := r.session.Get(ctx, at)
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
		return o, r.observeGeneration(ctx, k, path, o)
	}
	return r.observeLoose(ctx, path, f.companions)
}

// observeGeneration reads what there is of a thing besides its Record.
func (r *Reader) observeGeneration(ctx context.Context, k Kind, path string, o *resource.Observed) error {
	begun, err := r.observeFolders(ctx, k, path, o)
	if err != nil {
		return err
	}
	if begun && k.Count != nil {
		if err := k.Count(ctx, r, o); err != nil {
			return err
		}
	}
	stat, exists, err := r.session.Exists(ctx, path)
	switch {
	case err != nil:
		return err
	case !exists:
		o.Lost = append(o.Lost, resource.PartObject)
	}
	o.Version, o.Pzxid, o.Live = stat.Version, stat.Pzxid, int(stat.NumChildren)
	return nil
}

// observeFolders reads what there is of the generation, and reports whether somebody has joined it. A generation starts
// with its gate alone; the first member adds the folders of its kind in one transaction. Any other number of children
// means that somebody else was here, or that a newer muster keeps more there.
func (r *Reader) observeFolders(ctx context.Context, k Kind, path string, o *resource.Observed) (begun bool, err error) {
	root, _ := split(path)
	dir := znode.Run(root, o.Record.Generation)
	run, exists, err := r.session.Exists(ctx, dir)
	switch {
	case err != nil:
		return false, err
	case !exists:
		o.Lost = append(o.Lost, resource.PartGeneration)
		o.BeyondRepair = "who had joined is not known"
		return false, nil
	case run.NumChildren == 1:
		return false, nil
	case int(run.NumChildren) == 1+len(k.Folders):
		return true, nil
	}
	names, err := r.children(ctx, dir)
	if err != nil {
		return false, err
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
		return false, nil
	}
	if len(gone) > 0 {
		o.Lost = append(o.Lost, gone...)
		o.BeyondRepair = "what was in it is not known"
	}
	return true, nil
}

// gateName is that of a generation's gate in its folder.
const gateName = "gate"
