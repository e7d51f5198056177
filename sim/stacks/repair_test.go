package stacks_test

import (
	"context"
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
