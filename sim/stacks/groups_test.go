package stacks_test

import (
	"context"
	"fmt"
	"path"

	"muster/member"
	"muster/plan"
	"muster/resource"
	"muster/resource/group"
	"muster/sim"
	"muster/zkstate/zkconn"
)

// groupScenes are those of groups and their members.
func groupScenes() map[string]scene {
	all := map[string]scene{
		"group-duty": {
			declare: dutyGoes, must: []string{"saved", "mutable_differs applied", "mutable_differs refused"},
		},
		"group-duty-again": {
			declare: dutyGoesAgain, must: []string{"saved", "mutable_differs applied", "mutable_differs refused"},
		},
		"group-opens": {
			declare: dutyOpens, must: []string{"opened", "mutable_differs applied", "mutable_differs refused"},
		},
		"group-delete": {declare: groupGoes, must: []string{"saved", "undeclared applied", "undeclared refused"}},
		"group-delete-again": {
			declare: groupGoesAgain, must: []string{"saved", "undeclared applied", "undeclared refused"},
		},
		"group-owners": {declare: groupOwners, must: []string{"mutable_differs applied", "mutable_differs refused"}},
	}
	for name, d := range map[string]damage{
		"record": {resource.PartRecord}, "gate": {resource.PartGate}, "assigner": {"assigner"},
		"znode": {resource.PartZnode},
	} {
		all["group-repair-"+name] = scene{declare: d.repairGroup, must: []string{"damaged applied"}}
	}
	return all
}

// aGroup is a group with these leaders.
func aGroup(name string, duties ...string) group.Group {
	g := group.Default()
	g.Root, g.Name, g.Address = root, name, "group."+name
	g.Settle = 1
	g.Timeouts.Session = resource.Duration(session)
	g.Timeouts.Stale = resource.Duration(grace)
	for _, d := range duties {
		g.Add(group.NewDuty(group.Leader, d))
	}
	return g
}

// dutyGoes: a duty is taken out while its holder saves something.
func dutyGoes(w *world) {
	w.given(declares(aGroup("g", "main", "other")))
	c := declares(aGroup("g", "other"))
	w.apply("apply", 1, c)
	w.member("m", "g", 1, w.saves(2))
	w.last(c)
}

// dutyGoesAgain: the same, and something was saved before.
func dutyGoesAgain(w *world) {
	w.given(declares(aGroup("g", "main", "other")))
	w.was("g", w.saves(1))
	c := declares(aGroup("g", "other"))
	w.apply("apply", 1, c)
	w.member("m", "g", 1, w.saves(2))
	w.last(c)
}

// dutyOpens: a duty is taken out while its holder opens an operation, as it has before.
func dutyOpens(w *world) {
	w.given(declares(aGroup("g", "main", "other")))
	w.was("g", w.opens(true))
	c := declares(aGroup("g", "other"))
	w.apply("apply", 1, c)
	w.member("m", "g", 1, w.opens(false))
	w.last(c)
}

// groupGoesAgain is groupGoes, and something was saved before.
func groupGoesAgain(w *world) {
	w.given(declares(aGroup("g", "main")))
	w.was("g", w.saves(1))
	c := declares()
	begin := shift{after: w.sends("apply")}
	w.apply("apply", 1, c)
	w.memberAfter(begin, "m", "g", 1, w.saves(1))
	w.last(c)
}

// groupGoes: a group is deleted while a member joins, saves something and leaves. What was saved goes only with a plan
// that shows it.
func groupGoes(w *world) {
	w.given(declares(aGroup("g", "main")))
	c := declares()
	w.apply("apply", 1, c)
	w.member("m", "g", 1, w.saves(1))
	w.last(c)
}

// groupOwners: two stacks take a group from each other, and a member joins.
func groupOwners(w *world) {
	w.given(declares(aGroup("g", "main", "other")))
	s := config{stack: "s", takeOver: []string{"t"}, declared: []resource.Declaration{aGroup("g", "main")}}
	t := config{stack: "t", takeOver: []string{"s"}, declared: []resource.Declaration{aGroup("g", "main", "third")}}
	w.apply("apply", 1, s)
	w.apply("else", 1, t)
	w.member("m", "g", 1, w.saves(1))
	w.last(s)
}

// repairGroup: a part of a group with a member is put back while another stack changes it.
func (d damage) repairGroup(w *world) {
	s := config{stack: "s", takeOver: []string{"t"}, declared: []resource.Declaration{aGroup("g", "main")}}
	t := config{stack: "t", takeOver: []string{"s"}, declared: []resource.Declaration{aGroup("g", "main", "third")}}
	w.given(s)
	w.was("g", nil)
	d.deletes(w, "hand", root+"/g")
	w.apply("apply", 1, s)
	w.apply("else", 1, t)
	w.last(s)
}

func joinGroup(ctx context.Context, s *zkconn.Session, name, identity string) (*member.Member, error) {
	return member.Join(ctx, s, member.Config{
		Root: root, Group: name, Identity: identity, Version: "1.0.0", Can: []string{"main"},
	})
}

// work is what the holder of the duty main does.
type work func(ctx context.Context, h *member.Hold) error

// was lets a member join before everything else, take its duty main and do this with it, and leave; nil: only join.
func (w *world) was(group string, do work) {
	w.Setup(func(ctx context.Context, s *zkconn.Session) error {
		m, err := joinGroup(ctx, s, group, "first")
		if err == nil && do != nil {
			err = w.holds(ctx, m, do)
		} else if err == nil {
			err = m.Leave()
		}
		return err
	})
}

// member declares a process that joins a group, takes its duty main, and does this with it before it leaves.
func (w *world) member(name, group string, lives int, do work) {
	w.memberAfter(shift{}, name, group, lives, do)
}

// memberAfter is member, which begins so.
func (w *world) memberAfter(begin shift, name, group string, lives int, do work) {
	w.session(name, lives, begin, actor{}, func(p *sim.Process, s *zkconn.Session) error {
		ctx, cancel := context.WithTimeout(p.Context(), patience)
		defer cancel()
		m, err := joinGroup(ctx, s, group, name)
		if err == nil {
			w.seen.add("joined")
			err = w.holds(ctx, m, do)
		}
		if p.Alive() {
			err = sim.Unless(err, member.ErrNoGroup, member.ErrNotOpen, member.ErrHeld, member.ErrNotHeld,
				context.DeadlineExceeded)
		}
		return err
	})
}

func (w *world) holds(ctx context.Context, m *member.Member, do work) error {
	h, err := m.Take(ctx, "main")
	if err == nil {
		err = do(ctx, h)
	}
	_ = m.Leave() // if no server answers, the member goes with its session
	return err
}

// saves saves so many values.
func (w *world) saves(values int) work {
	return func(ctx context.Context, h *member.Hold) error {
		for n := range values {
			if err := h.Put(ctx, fmt.Sprint("key", h.Epoch, "-", n), []byte("value")); err != nil {
				return err
			}
			w.seen.add("saved")
		}
		return nil
	}
}

// opens opens an operation.
func (w *world) opens(andCloses bool) work {
	return func(ctx context.Context, h *member.Hold) error {
		o, err := h.Open(ctx, fmt.Sprint("op", h.Epoch), "script", false)
		if err == nil {
			w.seen.add("opened")
			if andCloses {
				err = o.Close(ctx)
			}
		}
		return err
	}
}

// loses: the row deletes what members have saved and the operations that they have open, and only what the plan shows.
func (t tree) loses(r plan.Row, run string) error {
	keys, open := map[string]int{}, map[string]int{}
	for _, s := range r.Loss() {
		keys[s.Section], open[s.Section] = s.Keys, len(s.Open)
	}
	was := group.Of(r.Old.Record)
	stays, _ := r.New.(group.Group)
	for _, d := range was.Duties {
		if _, kept := stays.Duty(d.Name); kept {
			continue
		}
		if n := t.written(path.Join(run, "duty", d.Name, "state")); n != keys[d.Section()] {
			return fmt.Errorf("%d keys of %s are deleted, and the plan shows %d", n, d.Name, keys[d.Section()])
		}
		if n := t.written(path.Join(run, "duty", d.Name, "op")); n != open[d.Section()] {
			return fmt.Errorf("%d operations of %s are deleted, and the plan shows %d", n, d.Name, open[d.Section()])
		}
	}
	return nil
}

// written counts the children of dir that are not empty.
func (t tree) written(dir string) int {
	n := 0
	for _, name := range t.below(dir) {
		if len(t[dir+"/"+name].data) > 0 {
			n++
		}
	}
	return n
}
