package zkstate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"muster/resource"
	"muster/view"
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
		if err != nil {
			o.Problem = err.Error()
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
		o.Lost = append(o.Lost, resource.PartZnode)
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
	folders := k.folders(o.Record.Declaration)
	switch {
	case run.NumChildren == 1:
		return false, &run, nil
	case int(run.NumChildren) == 1+len(folders):
		return true, nil, nil
	}
	names, err := r.children(ctx, dir)
	if err != nil {
		return false, nil, err
	}
	if _, gate := split(znode.Gate(root, o.Record.Generation)); !slices.Contains(names, gate) {
		o.Lost = append(o.Lost, resource.PartGate)
	}
	var gone []resource.Part
	for _, folder := range folders {
		if !slices.Contains(names, folder) {
			gone = append(gone, resource.Part(folder))
		}
	}
	if len(gone) == len(folders) { // nobody has joined
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
	held, _, there, err := zkconn.IfThere(s.Get(ctx, znode.Run(id.Root, rec.Generation)))
	if err != nil || !there {
		return err
	}
	r := Reader{kinds: []Kind{k}}
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

// unknownContent says what cannot be put back of a folder.
const unknownContent = "what was in it is not known"

// observeWithoutRecord reads a znode without a Record: classic, foreign or missing.
func (r *Reader) observeWithoutRecord(
	ctx context.Context, path string, companions []string,
) (*resource.Observed, error) {
	do, children := "read", []string(nil)
	body, stat, err := r.source.Get(ctx, path)
	if err == nil {
		do = "list"
		children, stat, err = r.source.Children(ctx, path)
	}
	switch {
	case errors.Is(err, zkconn.ErrNoNode):
		return nil, nil
	case errors.Is(err, zkconn.ErrNoAuth):
		return &resource.Observed{Companions: companions, Problem: "no permission to " + do + " " + path}, nil
	case err != nil:
		return nil, err
	}
	o := &resource.Observed{
		Companions: companions, Version: stat.Version, Pzxid: stat.Pzxid, Live: len(children), Created: stat.Ctime,
	}
	joined, problems := znode.DecodeRoll(body)
	classic := znode.LooksClassic(body, children)
	if !classic && len(body) == 0 {
		if classic, err = r.hasCounter(ctx, companions); err != nil {
			return nil, err
		}
	}
	switch {
	case classic:
		o.Classic, o.Counts = true, map[string]int{resource.CountJoined: len(joined)}
	case znode.LooksClassic(nil, children):
		o.Problem = "its roll is damaged: " + strings.Join(problems, "; ")
	default:
		o.Foreign, o.Problem = true, "it has no record and holds no roll"
	}
	return o, nil
}

// hasCounter reports whether a companion is a counter of ids: four bytes, which a classic worker creates before it
// joins. An empty znode with such a counter is a classic job whose first worker is about to join.
func (r *Reader) hasCounter(ctx context.Context, companions []string) (bool, error) {
	for _, c := range companions {
		if !strings.HasSuffix(c, "-dai-for-worker-id") && !strings.HasSuffix(c, "-dai") {
			continue
		}
		_, stat, err := r.source.Get(ctx, c)
		switch {
		case errors.Is(err, zkconn.ErrNoNode), errors.Is(err, zkconn.ErrNoAuth):
		case err != nil:
			return false, err
		case stat.DataLength == 4:
			return true, nil
		}
	}
	return false, nil
}

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
	byPath, err := r.copies(ctx, root, orphans)
	if err != nil {
		return err
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

// copies reads the copies of Records in those generations that have a gate, by the paths of their resources.
func (r *Reader) copies(ctx context.Context, root string, generations []string) (map[string][]*recordCopy, error) {
	all, err := ForEach(ctx, generations, func(ctx context.Context, g string) (*recordCopy, error) {
		return r.readCopy(ctx, root, g)
	})
	byPath := map[string][]*recordCopy{}
	for _, c := range all {
		if c != nil && c.record != nil {
			path := c.record.Declaration.ID().Path()
			byPath[path] = append(byPath[path], c)
		}
	}
	return byPath, err
}

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
	open, err := r.exists(znode.Gate(root, g))(ctx)
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

// Parts reads each znode of a damaged or unreadable resource, and says how to repair it. The generation is the one of
// its Record, or else of o, which may have a copy.
func (r *Reader) Parts(
	ctx context.Context, kind resource.Kind, path string, o *resource.Observed,
) (parts []view.Part, repair string, err error) {
	root, name := split(path)
	noPermission, newer := false, false
	readPart := func(what, path string) (body []byte, there bool, err error) {
		body, stat, err := r.source.Get(ctx, path)
		p := view.Part{Name: what, Path: path}
		p.State = fmt.Sprintf("present, %d bytes, %d children", stat.DataLength, stat.NumChildren)
		switch {
		case errors.Is(err, zkconn.ErrNoNode):
			p.State = "missing"
		case errors.Is(err, zkconn.ErrNoAuth):
			p.State, noPermission = "present, and there is no permission to read it", true
		case err != nil:
			return nil, false, err
		}
		parts = append(parts, p)
		return body, err == nil, nil
	}
	record := znode.Record(kind.Name, root, name)
	body, there, err := readPart("record", record)
	if err != nil {
		return nil, "", err
	}
	generation, damaged := "", ""
	if o != nil && o.Record != nil {
		generation = o.Record.Generation
	}
	if there {
		rec, bad := znode.DecodeRecordAt(kind, path, body)
		newer = errors.Is(bad, znode.ErrFormat)
		if bad != nil {
			parts[0].State += ", " + errors.Unwrap(bad).Error()
			damaged = record
		} else {
			generation = rec.Generation
		}
	}
	if o != nil && !o.Has(resource.PartReference) {
		parts[0].State += fmt.Sprintf(", it names generation %s, which is not its own", generation)
		if generation = ""; o.Record != nil {
			generation = o.Record.Generation
		}
	}
	if generation != "" {
		for _, part := range r.generationParts(kind, root, generation, o) {
			if _, _, err := readPart(part[0], part[1]); err != nil {
				return nil, "", err
			}
		}
	}
	if _, _, err = readPart(kind.Name+" znode", path); err != nil {
		return nil, "", err
	}
	copied := false
	if damaged != "" {
		generations, err := r.children(ctx, znode.RunDir(root))
		if err != nil {
			return nil, "", err
		}
		byPath, err := r.copies(ctx, root, generations)
		if err != nil {
			return nil, "", err
		}
		copied = len(byPath[path]) == 1
	}
	return parts, howToRepair(kind.Name, o, newer, noPermission, damaged, copied), nil
}

// howToRepair says what to do about a resource of this kind. damaged is its record, if that is there and no record;
// copied: apply would put it back from the copy in its generation.
func howToRepair(kind string, o *resource.Observed, newer, noPermission bool, damaged string, copied bool) string {
	const anew = " znode (zkCli.sh: delete PATH); the next apply makes it anew if it is declared"
	switch {
	case o.Class() == resource.Damaged && o.Repairable():
		return "muster apply puts it back"
	case o.Class() == resource.Damaged && o.Record != nil:
		return "" // the row says it
	case !o.Has(resource.PartReference):
		return "touch nothing in the generation that its record names: that may be another's. Once nobody is live in it, " +
			"delete the record, then the " + kind + anew
	case newer:
		return "leave it alone, and use the muster that wrote it"
	case noPermission:
		return "name credentials that may read it in MUSTER_ZK_AUTH"
	case damaged != "" && copied:
		return "delete the record, and nothing else (zkCli.sh: delete " + damaged +
			"); the next apply puts it back from its copy"
	}
	return "once nobody is live in it, delete what is present of it, the gate first, then the record, then the " +
		kind + anew
}

// generationParts returns name and path of the generation, of its gate, and of its folders if some of them are lost.
func (r *Reader) generationParts(kind resource.Kind, root, g string, o *resource.Observed) [][2]string {
	parts := [][2]string{{"generation", znode.Run(root, g)}, {"gate", znode.Gate(root, g)}}
	if k, ok := r.kind(kind.Name); ok && o != nil && o.Record != nil && o.BeyondRepair != "" {
		for _, folder := range k.folders(o.Record.Declaration) {
			parts = append(parts, [2]string{folder, resource.Join(znode.Run(root, g), folder)})
		}
	}
	return parts
}
