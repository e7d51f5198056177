package stacks_test

import (
	"context"
	"strings"
	"time"

	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/sim"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

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
