package zkstate

import (
	"context"
	"errors"
	"slices"

	"muster/resource"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// A Record that somebody deleted is found by its generation: run/<g> holds a copy of it, and the gate shows that the
// generation has not ended. muster itself deletes Record and gate in one transaction.

// findLost finds the generations below root that have a gate and no Record, and puts their resources into all. They
// replace what was observed at their paths.
func (r *Reader) findLost(ctx context.Context, root string, l listing, all map[string]resource.Observed) error {
	recorded := map[string]bool{}
	for path, o := range all {
		if dir, _ := split(path); dir == root && hasOwn(&o) {
			recorded[o.Record.Generation] = true
		}
	}
	orphans := slices.DeleteFunc(slices.Clone(l.generations), func(g string) bool { return recorded[g] })
	copies, err := ForEach(ctx, orphans, func(ctx context.Context, g string) (*recordCopy, error) {
		return r.readCopy(ctx, root, g)
	})
	if err != nil {
		return err
	}
	byPath := map[string][]*recordCopy{}
	for _, c := range copies {
		if c != nil && c.record != nil {
			path := c.record.Declaration.ID().Path()
			byPath[path] = append(byPath[path], c)
		}
	}
	for path, cs := range byPath {
		if o := all[path]; hasOwn(&o) {
			continue // a transaction has just created or is about to delete this generation
		}
		o, err := r.observeLost(ctx, path, cs, found{kind: l.found[path].kind, companions: l.found[path].companions})
		if err != nil {
			return err
		}
		if o != nil {
			all[path] = *o
		} else {
			delete(all, path)
		}
	}
	return nil
}

// hasOwn reports whether o has a Record that names a generation of its own.
func hasOwn(o *resource.Observed) bool {
	return o != nil && o.Record != nil && o.Has(resource.PartGeneration)
}

// misled reports whether o has a Record, which names a generation that is not its own or does not exist.
func misled(o *resource.Observed) bool {
	return o != nil && !(o.Has(resource.PartReference) && o.Has(resource.PartGeneration))
}

// recordCopy is a generation and the copy of its Record.
type recordCopy struct {
	generation string
	kind       Kind
	record     *resource.Record // nil: no copy can be read
}

// readCopy reads the copy in generation g; nil if there is no gate.
func (r *Reader) readCopy(ctx context.Context, root, g string) (*recordCopy, error) {
	if znode.CheckToken(g) != nil {
		return nil, nil // not a generation
	}
	_, open, err := r.source.Exists(ctx, znode.Gate(root, g))
	if err != nil || !open {
		return nil, err
	}
	return r.readRunCopy(ctx, root, g)
}

// readRunCopy is readCopy whether or not there is a gate; nil if there is no such generation.
func (r *Reader) readRunCopy(ctx context.Context, root, g string) (*recordCopy, error) {
	body, _, err := r.source.Get(ctx, znode.Run(root, g))
	switch {
	case errors.Is(err, zkconn.ErrNoNode):
		return nil, nil
	case errors.Is(err, zkconn.ErrNoAuth):
		return &recordCopy{generation: g}, nil
	case err != nil:
		return nil, err
	}
	k, rec := r.owner(root, g, body)
	return &recordCopy{g, k, rec}, nil
}

// observeLost observes a resource without a Record, or whose Record is misled. cs are its generations that have a gate.
func (r *Reader) observeLost(ctx context.Context, path string, cs []*recordCopy, f found) (*resource.Observed, error) {
	if len(cs) == 1 {
		return r.observeCopy(ctx, path, cs[0].generation, f)
	}
	o, err := r.observe(ctx, path, f)
	if err != nil || o == nil || hasOwn(o) { // nothing is there: whoever may write in two generations can name it in both
		return o, err
	}
	part := resource.PartRecord
	if misled(o) {
		part = resource.PartReference
	} else if there, err := r.exists(recordPath(*cs[0].record))(ctx); err != nil {
		return nil, err
	} else if there { // it is not lost, only unreadable; or somebody has put it back since o was read
		return r.observe(ctx, path, f)
	}
	return &resource.Observed{
		Companions: f.companions, Version: o.Version, Pzxid: o.Pzxid, Live: o.Live,
		RecordVersion: o.RecordVersion, Lost: []resource.Part{part}, BeyondRepair: "two of its generations are open",
	}, nil
}

// observeCopy observes a resource whose Record is lost or misled, with the copy in generation g. It uses the Record if
// there is one again, and ignores a generation without a gate.
func (r *Reader) observeCopy(ctx context.Context, path, g string, f found) (*resource.Observed, error) {
	root, _ := split(path)
	return r.untilStable(ctx, path, found{}, func() (*resource.Observed, error) {
		o, err := r.observeOnce(ctx, path, f)
		if err != nil || hasOwn(o) {
			return o, err
		}
		c, err := r.readCopy(ctx, root, g)
		if err != nil {
			return nil, err
		}
		if c == nil || c.record == nil || c.record.Declaration.ID().Path() != path {
			return r.observeOnce(ctx, path, f) // the generation may have ended since o was read
		}
		lost := &resource.Observed{
			Record: c.record, Companions: f.companions, Lost: []resource.Part{resource.PartRecord},
		}
		if misled(o) {
			lost.RecordVersion, lost.Lost = o.RecordVersion, []resource.Part{resource.PartReference}
		} else if there, err := r.exists(recordPath(*c.record))(ctx); err != nil {
			return nil, err
		} else if there { // as in observeLost
			return r.observeOnce(ctx, path, f)
		}
		return lost, r.observeGeneration(ctx, c.kind, path, nil, found{}, lost)
	})
}
