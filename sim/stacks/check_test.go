package stacks_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"muster/dev/zkmodel"
	"muster/plan"
	"muster/resource"
	"muster/resource/group"
	"muster/sim"
	"muster/zkstate/znode"
)

// checker holds what the transactions of a world must not do against the tree.
type checker struct {
	w      *sim.World
	now    tree
	broken map[string]bool  // the problems of now
	actors map[int64]*actor // by session
	zxid   int64            // of the last transaction that changed something
	wrote  map[int64]int64  // the last zxid of each session
	saved  map[string]int64 // the session that has applied a saved plan, by its id
	// noLock: somebody deletes places in the queue for the lock by hand, so two may hold it.
	noLock bool
	// unseen are generations that an apply could not see which then created a resource: if somebody deletes their Record
	// by hand in between, they stay open.
	unseen  map[string]bool
	deleted map[string]bool // what somebody has deleted by hand
	// classic are the znodes of classic workers; true: a companion.
	classic map[string]bool
	garbled bool // somebody writes into copies of records, so nobody can tell whose some generations are: they stay
	// hostile tells which znodes a hostile participant may write: nothing of them is checked. nil: there is none.
	hostile map[string]bool
}

// actor is who has a session.
type actor struct {
	name   string
	user   string // whose credentials it has; empty: those of its configuration
	byHand bool   // a person, who deletes and changes what they like
	config *config
	plan   *plan.Plan // that it was shown
	seen   tree       // when it was
	saved  bool       // the plan
	noLock bool       // it needs no lock
	zxid   int64      // the last one before it began to read
	sent   int64      // the last one before it sent its latest multi; 0: not known
	entry  string     // the znode of its entry in the history of its stack
}

func newChecker(w *sim.World) *checker {
	c := &checker{
		w: w, now: tree{}, actors: map[int64]*actor{}, wrote: map[int64]int64{}, saved: map[string]int64{},
		classic: map[string]bool{}, unseen: map[string]bool{}, deleted: map[string]bool{},
	}
	w.OnTxn(c.transaction)
	return c
}

// transaction checks one committed transaction.
func (c *checker) transaction(t *zkmodel.Txn) error {
	if t.Err != 0 {
		return nil
	}
	before, was, who := c.now, c.broken, c.actors[t.Session]
	c.now = treeOf(c.w.Server(), before)
	t = c.others(t)
	if who != nil && who.config != nil {
		c.noteUnseen(before, t, who)
	}
	c.broken = c.problems()
	c.zxid, c.wrote[t.Session] = t.Zxid, t.Zxid
	if who == nil {
		who = &actor{name: "setup"}
	}
	if err := c.keepsOut(before, t, who); err != nil {
		return fmt.Errorf("%s: %w", who.name, err)
	}
	if c.noteDeleted(t, who); who.byHand {
		return nil
	}
	if at := znode.Ensemble(home); before.has(at) && string(before[at].data) != string(c.now[at].data) {
		return fmt.Errorf("%s: the id of the ensemble was changed", who.name)
	}
	err := errors.Join(
		c.breaksNothing(was), c.fenced(before, t), c.noneLive(before, t), c.forgetsNoRun(before, t),
		c.deletesNothingNew(before, t, who), c.planned(before, t, who), c.history(before, t, who))
	if err != nil {
		return fmt.Errorf("%s: %w", who.name, err)
	}
	return nil
}

// noteDeleted notes what a person has deleted, until somebody writes it.
func (c *checker) noteDeleted(t *zkmodel.Txn, who *actor) {
	for _, o := range t.Ops {
		if o.Type != zkmodel.OpCheck {
			c.deleted[o.Path] = who.byHand && o.Type == zkmodel.OpDelete
		}
	}
}

// noteUnseen notes, when an apply creates a resource, the open generations that were made after it began to read.
func (c *checker) noteUnseen(before tree, t *zkmodel.Txn, who *actor) {
	for _, o := range t.Ops {
		if _, _, ok := recordOf(o.Path); !ok || o.Type != zkmodel.OpCreate {
			continue
		}
		for p := range before {
			if run, rest, _ := generationOf(p); rest == "gate" && before[run].stat.Czxid > who.zxid {
				c.unseen[run] = true
			}
		}
	}
}

// problems are those of the tree, without what classic workers made, and what no apply could see.
func (c *checker) problems() map[string]bool {
	bad := c.now.problems()
	for run := range c.unseen {
		delete(bad, run+unnamed)
	}
	for p := range c.classic {
		delete(bad, p+noRecord)
	}
	return bad
}

// breaksNothing: nothing is half-written that was not before. A repair puts back what it has seen to be missing; what
// somebody deletes by hand meanwhile is for the next one.
func (c *checker) breaksNothing(was map[string]bool) error {
	for p := range c.broken {
		if at, _, _ := strings.Cut(p, noZnode); !was[p] && !c.deleted[at] {
			return errors.New(p)
		}
	}
	return nil
}

// fenced: nobody writes in a generation without a gate, and nobody deletes anything of one that has one.
func (c *checker) fenced(before tree, t *zkmodel.Txn) error {
	for _, o := range t.Ops {
		run, rest, ok := generationOf(o.Path)
		if !ok {
			continue
		}
		open := before.has(run+"/gate") || c.now.has(run+"/gate")
		switch o.Type {
		case zkmodel.OpCreate, zkmodel.OpSetData:
			if !open && c.now.has(o.Path) {
				return fmt.Errorf("%s was written after its generation ended", o.Path)
			}
		case zkmodel.OpDelete:
			if rest == "" && c.now.has(run+"/gate") {
				return fmt.Errorf("%s is open and was deleted", run)
			}
		}
	}
	return nil
}

// noneLive: nobody deletes a part of a resource with a live member.
func (c *checker) noneLive(before tree, t *zkmodel.Txn) error {
	for p, e := range before {
		if e.stat.EphemeralOwner != 0 || c.now.has(p) && c.now[p].stat.Czxid == e.stat.Czxid {
			continue
		}
		at := p
		if _, resource, ok := recordOf(p); ok {
			at = resource
		} else if run, rest, ok := generationOf(p); ok && rest == "gate" {
			at = before.resourceOf(run)
		} else if !isResource(p) {
			continue
		}
		for _, name := range before.live(at) {
			if live := at + "/" + name; c.now.has(live) || before[live].stat.EphemeralOwner != t.Session {
				return fmt.Errorf("%s was deleted, and %s is live", p, live)
			}
		}
	}
	return nil
}

// resourceOf is the path of the resource of a generation.
func (t tree) resourceOf(run string) string {
	records, _ := t.records()
	for _, r := range records {
		if r.run() == run {
			return r.path
		}
	}
	return ""
}

// planned: an apply changes what its plan says, while it holds the lock, and only what has not changed since.
func (c *checker) planned(before tree, t *zkmodel.Txn, who *actor) error {
	if who.config == nil {
		return nil
	}
	for _, o := range t.Ops {
		at := c.touches(before, o)
		if at == "" {
			continue
		}
		if who.plan == nil {
			return fmt.Errorf("%s was changed without a plan", at)
		}
		i := slices.IndexFunc(who.plan.Rows, func(r plan.Row) bool { return r.Path == at })
		if i < 0 || !who.plan.Rows[i].Action().Changes() {
			return fmt.Errorf("%s was changed, and the plan does not say so", at)
		}
		if err := errors.Join(before.fits(who.plan.Rows[i]), before.changed(who.seen, who.plan.Rows[i])); err != nil {
			return fmt.Errorf("%s %s: %w", who.plan.Rows[i].Action(), at, err)
		}
		if err := c.alone(before, t, who); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
	}
	return nil
}

// touches is the resource of which o changes a part that apply writes; empty if there is none.
func (c *checker) touches(before tree, o zkmodel.Op) string {
	if o.Type == zkmodel.OpCheck {
		return ""
	}
	if _, at, ok := recordOf(o.Path); ok {
		return at
	}
	if isResource(o.Path) && !c.classic[o.Path] {
		return o.Path
	}
	run, rest, ok := generationOf(o.Path)
	if !ok || rest != "" && rest != "gate" {
		return ""
	}
	if at := before.resourceOf(run); at != "" {
		return at
	}
	return c.now.resourceOf(run)
}

// alone: the apply holds the lock, and no other one has applied its saved plan.
func (c *checker) alone(before tree, t *zkmodel.Txn, who *actor) error {
	dir := znode.Lock(home, who.config.stack)
	places := before.below(dir)
	if !c.noLock && !who.noLock && (len(places) == 0 || before[dir+"/"+places[0]].stat.EphemeralOwner != t.Session) {
		return errors.New("changed without the lock")
	}
	if !who.saved {
		return nil
	}
	if s := c.saved[who.plan.ID]; s != 0 && s != t.Session {
		return errors.New("the saved plan was applied twice")
	}
	c.saved[who.plan.ID] = t.Session
	return nil
}

// fits: what the row is based on is unchanged.
func (t tree) fits(r plan.Row) error {
	at := znode.Record(r.Kind().Name, path.Dir(r.Path), path.Base(r.Path))
	if r.Old == nil || r.Old.Record == nil || !r.Old.Has(resource.PartRecord) {
		switch {
		case t.has(at):
			return errors.New("it has a record, which the plan did not know")
		case r.Old != nil && r.Old.Classic && t[r.Path].stat.Version != r.Old.Version:
			return errors.New("its roll is not as the plan says")
		}
		return nil
	}
	now, err := t.record(at)
	switch {
	case err != nil:
		return err
	case !r.Old.Has(resource.PartReference) && now.version == r.Old.RecordVersion: // what it names is put right
	case now.Generation != r.Old.Record.Generation,
		now.version != r.Old.RecordVersion && r.Reason != plan.IsDamaged: // which changes no field
		return errors.New("its record is not as the plan says")
	}
	if r.Kind().Name == group.KindName && r.Reason != plan.IsDamaged {
		if err := t.loses(r, now.run()); err != nil {
			return err
		}
	}
	deletes := r.Action() == plan.Replace || r.Action() == plan.Delete
	if deletes && r.Old.Has(resource.PartZnode) && t[r.Path].stat.Version != r.Old.Version {
		return errors.New("its znode is not as the plan says")
	}
	return nil
}

// converged: an apply of this configuration ended with 0, and nobody else wrote anything since it began. So the next
// plan is empty.
func (c *checker) converged(who *actor) error {
	for s, zxid := range c.wrote {
		if zxid > who.zxid && c.actors[s] != who {
			return nil
		}
	}
	return c.as(*who.config, who.plan)
}

// as checks that the tree is as a configuration declares it, and that nothing else of its stack is there, unless the
// plan leaves it alone.
func (c *checker) as(cfg config, p *plan.Plan) error {
	left := map[string]bool{}
	for _, r := range p.Rows {
		left[r.Path] = !r.Action().Changes()
	}
	declared := map[string]resource.Declaration{}
	for _, d := range cfg.declared {
		declared[d.ID().Path()] = d
	}
	records, err := c.now.records()
	if err != nil {
		return err
	}
	for _, r := range records {
		if r.Stack != cfg.stack {
			continue
		}
		d := declared[r.path]
		if d == nil && !left[r.path] {
			return fmt.Errorf("applied, and %s is still there", r.path)
		}
		if d != nil && len(resource.Changes(r.Declaration, d)) > 0 {
			return fmt.Errorf("applied, and %s differs", r.path)
		}
		delete(declared, r.path)
	}
	for _, p := range slices.Sorted(maps.Keys(declared)) {
		return fmt.Errorf("applied, and %s is not there", p)
	}
	return nil
}

// clean: after everything ended and a last apply, nothing is half-written and nothing is left behind.
func (c *checker) clean() error {
	for _, p := range slices.Sorted(maps.Keys(c.problems())) {
		return errors.New(p)
	}
	if c.garbled {
		return nil
	}
	g := slices.DeleteFunc(c.now.garbage(), func(run string) bool { return c.unseen[run] || c.namedByHostile(run) })
	if len(g) > 0 {
		return fmt.Errorf("left behind: %s", strings.Join(g, ", "))
	}
	return nil
}

// tree is every znode at one moment, by path.
type tree map[string]entry

type entry struct {
	data []byte
	stat zkmodel.Stat
	*decoded
}

// decoded is the Record in a znode; nil in other znodes.
type decoded struct {
	record
	err error
}

// treeOf reads the server. It decodes the Records that differ from those of an earlier tree.
func treeOf(s *zkmodel.Server, before tree) tree {
	t := make(tree, len(before))
	s.Walk(func(path string, data []byte, stat zkmodel.Stat) {
		e := entry{data: data, stat: stat}
		if was := before[path]; was.decoded != nil && was.stat.Mzxid == stat.Mzxid {
			e.decoded = was.decoded
		} else if _, _, ok := recordOf(path); ok {
			e.decoded = decode(path, data, stat.Version)
		}
		t[path] = e
	})
	return t
}

// has reports whether there is a znode at p.
func (t tree) has(p string) bool { _, ok := t[p]; return ok }

// below lists the names of the children of dir, sorted.
func (t tree) below(dir string) []string {
	var names []string
	for p := range t {
		if path.Dir(p) == dir && p != dir {
			names = append(names, path.Base(p))
		}
	}
	slices.Sort(names)
	return names
}

// live lists the members that are live in the resource at p.
func (t tree) live(p string) []string {
	return slices.DeleteFunc(t.below(p), func(name string) bool { return t[p+"/"+name].stat.EphemeralOwner == 0 })
}

// record is a Record in the tree.
type record struct {
	at   string // its znode
	kind string
	path string // of the resource
	resource.Record
	version int32
}

// recordOf tells of which resource at is the Record's znode.
func recordOf(at string) (kind, path string, ok bool) {
	top, rest, _ := strings.Cut(at, "/"+resource.Reserved+"/")
	kind, name, _ := strings.Cut(rest, "/")
	known := slices.Contains([]string{"job", "group", "queue"}, kind)
	return kind, top + "/" + name, known && top != "" && name != "" && !strings.Contains(name, "/")
}

// generationOf tells in which generation at is, and what below it.
func generationOf(at string) (run, rest string, ok bool) {
	top, below, found := strings.Cut(at, "/"+resource.Reserved+"/run/")
	if !found || top == "" {
		return "", "", false
	}
	g, rest, _ := strings.Cut(below, "/")
	return top + "/" + resource.Reserved + "/run/" + g, rest, true
}

// decode decodes the Record in a znode.
func decode(at string, data []byte, version int32) *decoded {
	d := &decoded{record: record{at: at, version: version}}
	d.kind, d.path, _ = recordOf(at)
	for _, k := range kinds() {
		if k.Name == d.kind {
			d.Record, d.err = znode.DecodeRecordAt(k.Kind, d.path, data)
			return d
		}
	}
	d.err = fmt.Errorf("%s is of no kind", at)
	return d
}

// record is the Record at this znode.
func (t tree) record(at string) (record, error) {
	if d := t[at].decoded; d != nil {
		return d.record, d.err
	}
	return record{}, fmt.Errorf("%s is no record", at)
}

// records lists the Records, sorted by path.
func (t tree) records() ([]record, error) {
	var found []*decoded
	for _, e := range t {
		if e.decoded != nil {
			found = append(found, e.decoded)
		}
	}
	slices.SortFunc(found, func(a, b *decoded) int { return strings.Compare(a.at, b.at) })
	var all []record
	for _, d := range found {
		if d.err != nil {
			return nil, d.err
		}
		all = append(all, d.record)
	}
	return all, nil
}

// run is the folder of the Record's generation.
func (r record) run() string { return znode.Run(path.Dir(r.path), r.Generation) }

// What problems says of a znode that nothing declares, of a Record, and of an open generation.
const (
	noRecord = " has no record"
	noZnode  = " has no znode in generation "
	unnamed  = " is open, and no record names it"
)

// problems says what is half-written: every Record has its znode, its generation with a gate, and the same bytes as its
// copy there, and is in the index of its stack; every gate and every znode of a resource has a Record. The words of a
// problem stay the same while it does.
func (t tree) problems() map[string]bool {
	bad := map[string]bool{}
	add := func(format string, args ...any) { bad[fmt.Sprintf(format, args...)] = true }
	records, err := t.records()
	if err != nil {
		add("%v", err)
	}
	named, paths := map[string]bool{}, map[string]bool{}
	for _, r := range records {
		named[r.run()], paths[r.path] = true, true
		g := r.Generation
		if !t.has(r.path) {
			add("%s%s%s", r.path, noZnode, g)
		}
		if !t.has(r.run() + "/gate") {
			add("%s has no gate in generation %s", r.path, g)
		}
		if !bytes.Equal(t[r.run()].data, t[r.at].data) {
			add("%s differs from its copy in generation %s", r.at, g)
		}
		if !t.listed(r) {
			add("%s is in no root that the index of %s lists", r.path, r.Stack)
		}
	}
	for p := range t {
		run, rest, ok := generationOf(p)
		if ok && rest == "gate" && !named[run] {
			add("%s%s", run, unnamed)
		}
		if isResource(p) && !paths[p] && t.has(path.Dir(p)+"/"+resource.Reserved) {
			add("%s%s", p, noRecord)
		}
	}
	return bad
}

// listed reports whether the index of the stack lists the root of r.
func (t tree) listed(r record) bool {
	index, err := znode.Decode[znode.Index](t[znode.Stack(r.Home, r.Stack)].data)
	return err == nil && slices.Contains(index.Roots, path.Dir(r.path))
}

// isResource reports whether p is at the level of the znodes of resources. All roots are at the top.
func isResource(p string) bool {
	return strings.Count(p, "/") == 2 && path.Base(p) != resource.Reserved && !strings.HasPrefix(p, home+"/") &&
		!strings.HasPrefix(p, "/zookeeper/")
}

// garbage lists the generations that no Record names.
func (t tree) garbage() []string {
	records, _ := t.records()
	var all []string
	for p := range t {
		run, rest, ok := generationOf(p)
		isNamed := func(r record) bool { return r.run() == run }
		if ok && rest == "" && !slices.ContainsFunc(records, isNamed) {
			all = append(all, run)
		}
	}
	slices.Sort(all)
	return all
}
