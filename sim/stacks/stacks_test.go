// Package stacks_test has worlds of apply: locks, saved plans, and changes beside workers. It has no code of its own.
package stacks_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/apply/history"
	"muster/dev/zkmodel"
	"muster/exitcode"
	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/sim"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// scene is a world of this package.
type scene struct {
	declare func(w *world) // its processes
	// must happen in some schedule, or the race that the world is about was none: reasons of rows with their results,
	// exit codes, and what the world itself says.
	must   []string
	faults sim.Faults    // default: some of each
	end    time.Duration // virtual time of the fair end, if it takes longer than most
}

// enough is the number of schedules in which everything happens that must happen in some.
const enough = 200

// schedules is how many a tally has seen.
const schedules = "schedules"

// scenes lists all worlds by name.
func scenes() map[string]scene {
	all := map[string]scene{}
	for _, some := range []map[string]scene{
		jobScenes(), repairScenes(), stackScenes(), groupScenes(), queueScenes(), rootScenes(), rivalScenes(),
		historyScenes(), hostileScenes(), reconcileScenes(),
	} {
		maps.Copy(all, some)
	}
	return all
}

// TestWorlds explores all worlds.
func TestWorlds(t *testing.T) {
	all := scenes()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) { all[name].explore(t, name) })
	}
}

func (s scene) explore(t *testing.T, name string) {
	seen := &tally{n: map[string]int{}}
	n := s.named(name, seen)
	n.Options.Name = name
	sim.Run(t, n.Options, n.World)
	t.Logf("%v", seen.n)
	for _, what := range s.must {
		if seen.n[what] == 0 && seen.n[schedules] >= enough {
			t.Errorf("%q never happened", what)
		}
	}
}

// TestMutants: every guard of a transaction of apply is needed by some world, or the table says why it stays.
func TestMutants(t *testing.T) { sim.Mutants(t, "testdata/guards.txt", worlds()...) }

func worlds() []sim.Named {
	var all []sim.Named
	for name, s := range scenes() {
		all = append(all, s.named(name, &tally{n: map[string]int{}}))
	}
	slices.SortFunc(all, func(a, b sim.Named) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func (s scene) named(name string, seen *tally) sim.Named {
	o := sim.Options{Seeds: 20, Faults: s.faults, Own: isApply, End: s.end, Path: withoutNames}
	if o.End == 0 {
		o.End = 10 * time.Minute
	}
	if o.Faults == (sim.Faults{}) {
		o.Faults = sim.Faults{Crashes: 1, Cuts: 1, LostReplies: 1, Expiries: 1, Pauses: 1}
	}
	return sim.Named{Name: name, Options: o, World: func(w *sim.World) {
		seen.add(schedules)
		s.declare(&world{World: w, checker: newChecker(w), over: make(chan struct{}), seen: seen})
	}}
}

// isApply tells the transactions of package zkstate from those of members. It leaves out shared transactions with
// changes of several kinds: the changes of each kind have their guards with others of that kind.
func isApply(kind string) bool {
	if strings.Contains(kind, " "+home+"/") && !strings.Contains(kind, " /r") {
		return true
	}
	has := func(op string) bool { return strings.Contains(kind, op) }
	const set = "set /r/.muster/KIND/NAME@v"
	created := has("check " + home + "/stack/NAME@v, create /r/NAME,")
	if created && has(set) || has("check /r/.muster/run/<id>/gate, "+set) && has("delete /r/NAME@v") {
		return false
	}
	writes := regexp.MustCompile(`(create|set|delete) /r/\.muster/KIND/NAME|create /r/NAME(,|$)|` +
		`create /r/\.muster/run/<id>/gate|^check /r/\.muster/run/<id>/gate, create /r/\.muster/run/<id>/(assigner|batch)$|` +
		`set /r/\.muster/run/<id>$`)
	return (!has("/by/") || has("delete /r/NAME@v")) && writes.MatchString(kind)
}

// withoutNames replaces the names of resources, of their kinds, of duties, and of stacks.
func withoutNames(path string) string {
	resource := regexp.MustCompile(`^/r[2-4]?(/\.muster/(job|group|queue))?/[a-z]\b`)
	path = resource.ReplaceAllStringFunc(path, func(at string) string {
		if strings.Contains(at, "/.muster/") {
			return "/r/.muster/KIND/NAME"
		}
		return "/r/NAME"
	})
	path = regexp.MustCompile(`^/r[2-4]/`).ReplaceAllString(path, "/r/")
	path = regexp.MustCompile(`/(duty|by)/[a-z]+\b`).ReplaceAllString(path, "/$1/NAME")
	return regexp.MustCompile(`^(/\.muster/(stack|lock|reconcile)/)[a-z]\b`).ReplaceAllString(path, "${1}NAME")
}

// tally counts what happened in the schedules of a world.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func (y *tally) add(what string) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.n[what]++
}

func BenchmarkWorlds(b *testing.B) { sim.Bench(b, worlds()...) }

// What an apply must not do because of what somebody did since it looked.

// planned tells who applies which plan.
func (w *world) planned(p *sim.Process, who *actor) func(plan.Plan) {
	return func(pl plan.Plan) { p.Saw(func() { who.plan, who.seen = &pl, w.now }) }
}

// changed: a row that ends a generation of a job, and since the plan was shown, somebody has joined it for the first
// time, or its run has completed.
func (t tree) changed(seen tree, r plan.Row) error {
	if a := r.Action(); a != plan.Replace && a != plan.Delete || r.Old.Record == nil {
		return nil
	}
	run := znode.Run(path.Dir(r.Path), r.Old.Record.Generation)
	workers := job.Of(r.Old.Record).Workers // 0: it is no job
	completed := func(t tree) bool { return workers > 0 && len(t.below(run+"/end")) >= workers }
	switch {
	case t.has(run+"/id") && !seen.has(run+"/id"):
		return errors.New("somebody has joined since the plan")
	case completed(t) && !completed(seen):
		return errors.New("its run has completed since the plan")
	}
	return nil
}

// forgetsNoRun: the generation of a run that has completed ends only with a record that names the run, or without one.
func (c *checker) forgetsNoRun(before tree, t *zkmodel.Txn) error {
	for _, o := range t.Ops {
		run, rest, ok := generationOf(o.Path)
		if !ok || rest != "gate" || o.Type != zkmodel.OpDelete {
			continue
		}
		at := before.resourceOf(run)
		old, err := before.record(znode.Record(job.KindName, path.Dir(at), path.Base(at)))
		if at == "" || err != nil || len(before.below(run+"/end")) < job.Of(&old.Record).Workers || !c.now.has(old.at) {
			continue
		}
		now, err := c.now.record(old.at)
		if last := job.LastRun(&now.Record); err == nil && (last == nil || last.Generation != old.Generation) {
			return fmt.Errorf("a run of %s has completed, and its record does not know it", at)
		}
	}
	return nil
}

// deletesNothingNew: a transaction deletes nothing that was written after it was sent.
func (c *checker) deletesNothingNew(before tree, t *zkmodel.Txn, who *actor) error {
	for _, o := range t.Ops {
		if o.Type == zkmodel.OpDelete && t.Multi && who.sent > 0 && before[o.Path].stat.Mzxid > who.sent {
			return fmt.Errorf("%s was deleted, and it was written meanwhile", o.Path)
		}
	}
	return nil
}

// manyEntries: so many applies were before that the next ones delete the oldest entries, two of them at once, since
// somebody deletes places in the queue for the lock by hand.
func manyEntries(w *world) {
	w.noLock = true
	w.given(declares(aJob("a", 1)))
	w.Setup(func(ctx context.Context, s *zkconn.Session) error {
		body, err := znode.Encode(znode.Entry{Op: "o", Entry: history.Entry{By: "s@here", Started: time.Now()}})
		if err != nil {
			return err
		}
		some := slices.Repeat([]zkconn.Op{
			zkconn.CreateOp(znode.NewEntry(home, "s"), body, zkconn.PersistentSequential, anyone()),
		}, 40)
		for range history.Kept / 40 { // with that of given there is one too many
			if _, err := s.Multi(ctx, some...); err != nil {
				return err
			}
		}
		return nil
	})
	c := declares(aJob("a", 1, label("1")))
	w.hand("hand", unlockOften)
	w.apply("one", 1, c)
	w.apply("two", 1, declares(aJob("a", 1, label("2")), aJob("b", 1)))
	w.last(c)
	w.AtEnd(func() error {
		entries := w.now.below(znode.History(home, "s"))
		if entries[0] != "h-0000000000" {
			w.seen.add("pruned")
		}
		if len(entries) > history.Kept {
			return fmt.Errorf("%d entries", len(entries))
		}
		return nil
	})
}

// history: an apply makes one entry, which nobody else writes but to settle it, and deletes only what is old.
func (c *checker) history(before tree, t *zkmodel.Txn, who *actor) error {
	for _, o := range t.Ops {
		dir := path.Dir(o.Path)
		if who.config == nil || dir != znode.History(home, who.config.stack) {
			continue
		}
		switch o.Type {
		case zkmodel.OpCreate:
			if who.entry != "" {
				return fmt.Errorf("%s is its second entry, after %s", o.Path, who.entry)
			}
			who.entry = o.Path
		case zkmodel.OpSetData:
			e, err := znode.Decode[znode.Entry](o.Data)
			settles := err == nil && !e.Settled.IsZero() && e.Finished.IsZero() && before[o.Path].stat.Version == 0
			if who.entry != o.Path && !settles {
				return fmt.Errorf("%s was written again, and its own is %q", o.Path, who.entry)
			}
		case zkmodel.OpDelete:
			newer := 0
			for _, name := range before.below(dir) {
				if strings.Compare(name, path.Base(o.Path)) > 0 {
					newer++
				}
			}
			if newer < history.Kept {
				return fmt.Errorf("%s was deleted, and %d are newer", o.Path, newer)
			}
		}
	}
	return nil
}

// recorded: an apply that has ended has an entry that says what became of it, and none if it changed nothing.
func (c *checker) recorded(who *actor, r result) error {
	switch {
	case len(r.outcomes) == 0 && who.entry != "":
		return fmt.Errorf("%s is of an apply that changed nothing", who.entry)
	case len(r.outcomes) == 0, r.exit() == exitcode.Unreachable:
		return nil
	case r.unrecorded != nil:
		return fmt.Errorf("it could not write its entry: %w", r.unrecorded)
	case who.entry == "":
		return errors.New("it has no entry")
	}
	e, err := znode.Decode[znode.Entry](c.now[who.entry].data)
	if err != nil {
		return err
	}
	results := map[string]int{}
	for _, o := range r.outcomes {
		results[string(o.Result)]++
	}
	if e.Finished.IsZero() || e.Plan != r.plan.ID || !maps.Equal(e.Results, results) {
		return fmt.Errorf("%s says %+v, and it ended with %v", who.entry, e, results)
	}
	return nil
}

// historyScenes are those of the history of a stack.
func historyScenes() map[string]scene {
	return map[string]scene{
		"many-entries": {declare: manyEntries, must: []string{"pruned", "exit 0"}},
	}
}

// damage lists the znodes of a job that somebody deletes by hand.
type damage []resource.Part

// deletes is a person who deletes parts of a job of this generation.
func (d damage) deletes(w *world, name, of string) {
	w.hand(name, func(p *sim.Process, s *zkconn.Session) error {
		o, err := zkstate.NewReader(s, home, kinds()...).Find(p.Context(), of)
		if err != nil || o == nil || o.Record == nil {
			return err
		}
		return remove(p.Context(), s, d.paths(o.Record)...)
	})
}

func (d damage) paths(rec *resource.Record) []string {
	id := rec.Declaration.ID()
	at := map[resource.Part]string{
		resource.PartRecord: znode.Record(rec.Declaration.Kind().Name, id.Root, id.Name),
		resource.PartZnode:  id.Path(),
		resource.PartGate:   znode.Gate(id.Root, rec.Generation),
	}
	var paths []string
	for _, part := range d {
		p := at[part]
		if p == "" {
			p = resource.Join(znode.Run(id.Root, rec.Generation), string(part))
		}
		paths = append(paths, p)
	}
	return paths
}

// repairScenes are those of jobs of which somebody deletes a part, and of jobs that are terminated.
func repairScenes() map[string]scene {
	all := map[string]scene{"terminate": {
		declare: terminated, must: []string{"joined", "terminated", "mutable_differs applied", "mutable_differs refused"},
	}}
	for name, d := range map[string]damage{
		"record":        {resource.PartRecord},
		"gate":          {resource.PartGate},
		"znode":         {resource.PartZnode},
		"record-znode":  {resource.PartRecord, resource.PartZnode},
		"record-and-id": {resource.PartRecord, "id"},
	} {
		all["repair-"+name] = scene{declare: d.repair, must: []string{"damaged applied", "joined"}}
	}
	for name, d := range map[string]damage{"record": {resource.PartRecord}, "gate": {resource.PartGate}} {
		all["repair-completed-"+name] = scene{declare: d.repairCompleted, must: []string{"damaged applied", "joined"}}
	}
	for name, c := range map[string]confusion{"copy": garbled, "reference": misleading} {
		all["repair-"+name] = scene{declare: c.repair, must: []string{"damaged applied", "joined"}}
	}
	return all
}

// confusion is what somebody writes by hand: the znode, and its body.
type confusion func(rec resource.Record) (path string, body []byte, err error)

// garbled is a copy of the record that is none.
func garbled(rec resource.Record) (string, []byte, error) {
	return znode.Run(root, rec.Generation), []byte("{"), nil
}

// misleading is a record that names a generation which is not there.
func misleading(rec resource.Record) (string, []byte, error) {
	rec.Generation = zkstate.NewID()
	body, err := znode.EncodeRecord(rec)
	return znode.Record(rec.Declaration.Kind().Name, root, rec.Declaration.ID().Name), body, err
}

// repair: it is put right while a worker joins, and while two stacks that may take the job from each other change it.
func (c confusion) repair(w *world) {
	w.garbled = true
	w.hand("hand", func(p *sim.Process, s *zkconn.Session) error {
		o, err := zkstate.NewReader(s, home, kinds()...).Find(p.Context(), root+"/a")
		if err != nil || o == nil || o.Record == nil {
			return err
		}
		path, body, err := c(*o.Record)
		if err == nil {
			_, err = s.Set(p.Context(), path, body, -1)
		}
		return sim.Unless(err, zkconn.ErrNoNode)
	})
	damage{}.repair(w)
}

// repair: a part of a job is put back while a worker joins, and while two stacks that may take the job from each other
// change it.
func (d damage) repair(w *world) {
	s := config{stack: "s", takeOver: []string{"t"}, declared: []resource.Declaration{aJob("a", 1)}}
	t := config{stack: "t", takeOver: []string{"s"}, declared: []resource.Declaration{aJob("a", 2)}}
	w.given(s)
	d.deletes(w, "hand", root+"/a")
	w.apply("apply", 1, s)
	w.apply("other", 1, t)
	w.worker(shift{name: "w", job: "a", lives: 1, works: hours})
	w.last(s)
}

// repairCompleted: a part is put back while the last worker completes, which deletes the job.
func (d damage) repairCompleted(w *world) {
	c := declares(aJob("a", 1, func(j *job.Job) { j.Lifecycle.OnComplete = job.Remove }))
	w.given(c)
	d.deletes(w, "hand", root+"/a")
	w.apply("apply", 1, c)
	w.worker(shift{name: "w", job: "a", lives: 1, completes: true})
	w.last(c)
}

// terminated: a job is terminated while it is updated, replaced, and joined.
func terminated(w *world) {
	w.given(declares(aJob("a", 1)))
	c := declares(aJob("a", 1, label("new")))
	w.apply("apply", 1, c)
	w.terminate("stop", root+"/a", c)
	w.worker(shift{name: "w", job: "a", lives: 1, works: hours})
	w.last(c)
}

// terminate declares a process that is "muster terminate".
func (w *world) terminate(name, path string, c config) {
	w.storing(name, shift{}, actor{user: c.user}, c, func(ctx context.Context, store *zkstate.Store) error {
		err := sim.Unless(store.Terminate(ctx, path, time.Minute, nil), plan.ErrAlreadyDone, plan.ErrMoved,
			zkstate.ErrStillLive, zkstate.ErrNotTerminable, zkstate.ErrOtherStack)
		if err == nil {
			w.seen.add("terminated")
		}
		return err
	})
}

// rootScenes are those of the index of a stack, and of classic jobs.
func rootScenes() map[string]scene {
	return map[string]scene{
		"roots":         {declare: roots, must: []string{"created", "undeclared applied"}},
		"roots-no-lock": {declare: rootsUnlocked, must: []string{"created", "undeclared applied"}},
		"classic": {
			declare: classicCounts, must: []string{"classic joined", "classic_leftover applied", "classic_leftover refused"},
		},
		"classic-roll": {
			declare: classicJoins, must: []string{"classic joined", "classic_leftover applied", "classic_leftover refused"},
		},
	}
}

func in(root string) func(*job.Job) { return func(j *job.Job) { j.Root = root } }

// roots: the last job in a root is deleted, while a worker creates a job in a root that is not listed yet.
func roots(w *world) {
	w.given(declares(aJob("a", 1), aJob("b", 1, in("/r2"))))
	c := declares(aJob("a", 1))
	w.apply("apply", 1, c)
	w.creator("w", aJob("c", 1, in("/r3")))
	w.last(c)
}

// rootsUnlocked: two applies declare jobs in other roots, and somebody deletes places in the queue for the lock.
func rootsUnlocked(w *world) {
	w.noLock = true
	w.hand("hand", unlockOften)
	w.apply("else", 1, declares(aJob("d", 1, in("/r4"))))
	roots(w)
}

// creator declares a process that is the start of "muster worker --file": it creates the job if it is not there,
// without the lock.
func (w *world) creator(name string, j job.Job) {
	locked := w.written(znode.Lock(home, "s"))
	c := declares(j)
	row := plan.Row{Path: j.Path(), New: j, Reason: plan.NotThere}
	who := actor{config: &c, plan: &plan.Plan{Rows: []plan.Row{row}}, noLock: true}
	w.storing(name, shift{after: locked}, who, c, func(ctx context.Context, store *zkstate.Store) error {
		o, err := store.Look(ctx, j.Path())
		if err != nil || o != nil {
			return err
		}
		if err = store.Commit(ctx, row); err == nil {
			w.seen.add("created")
		}
		return sim.Unless(err, plan.ErrMoved, plan.ErrAlreadyDone)
	})
}

// classicCounts: a classic job without live workers is replaced while a classic worker joins it: it takes an id from
// the counter, and then becomes live.
func classicCounts(w *world) { classic(w, true) }

// classicJoins: it has taken its id before.
func classicJoins(w *world) { classic(w, false) }

func classic(w *world, counts bool) {
	const counter = root + "/a-dai-for-worker-id"
	roll, err := znode.EncodeRoll(job.Text, []znode.Worker{{IP: "10.0.0.1", Port: 1}})
	w.Setup(func(ctx context.Context, s *zkconn.Session) error {
		w.actors[s.ID()] = &actor{byHand: true}
		for _, n := range []struct {
			path string
			body []byte
		}{{root, nil}, {root + "/a", roll}, {counter, []byte{0, 0, 0, 1}}, {root + "/a-lock", nil}} {
			if err != nil {
				return err
			}
			w.classic[n.path] = strings.Contains(n.path, "-")
			_, err = s.Create(ctx, n.path, n.body, zkconn.Persistent, anyone())
		}
		return err
	})
	c := declares(aJob("a", 1))
	begin := shift{after: w.sends("apply")}
	w.apply("apply", 1, c)
	w.hand("h", func(p *sim.Process, s *zkconn.Session) error {
		ctx := p.Context()
		if err := begin.wait(p); err != nil {
			return err
		}
		var err error
		if counts {
			_, err = s.Set(ctx, counter, []byte{0, 0, 0, 2}, 0)
		}
		if err == nil {
			_, err = s.Create(ctx, root+"/a/10.0.0.2:1", nil, zkconn.Ephemeral, anyone())
		}
		if err == nil {
			w.seen.add("classic joined")
			_, err = s.Set(ctx, root+"/a", append(roll, "\n10.0.0.2,1,2;null,null,null"...), 0)
		}
		if err == nil {
			err = remove(ctx, s, root+"/a/10.0.0.2:1")
		}
		return sim.Unless(err, zkconn.ErrNoNode, zkconn.ErrBadVersion, zkconn.ErrNodeExists)
	})
	w.last(c)
}
