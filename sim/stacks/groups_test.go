package stacks_test

import (
	"context"
	"errors"
	"fmt"
	"path"

	"muster/group"
	"muster/member"
	"muster/plan"
	"muster/resource"
	"muster/sim"
	"muster/zkstate/zkconn"
)

// groupScenes are those of groups and their members.
func groupScenes() map[string]scene {
	all := map[string]scene{
		"group-duty":   {declare: dutyGoes, must: []string{"saved", "mutable_differs applied", "mutable_differs refused"}},
		"group-delete": {declare: groupGoes, must: []string{"saved", "undeclared applied", "undeclared refused"}},
		"group-owners": {declare: groupOwners, must: []string{"mutable_differs applied", "mutable_differs refused"}},
	}
	for name, d := range map[string]damage{
		"record": {resource.PartRecord}, "gate": {resource.PartGate}, "clerk": {"clerk"},
		"znode": {resource.PartObject},
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
	w.member("m", "g", 1, 2)
	w.last(c)
}

// groupGoes: a group is deleted while a member joins, saves something and leaves. What was saved goes only with a plan
// that shows it.
func groupGoes(w *world) {
	w.given(declares(aGroup("g", "main")))
	c := declares()
	w.apply("apply", 1, c)
	w.member("m", "g", 1, 1)
	w.last(c)
}

// groupOwners: two stacks take a group from each other, and a member joins.
func groupOwners(w *world) {
	w.given(declares(aGroup("g", "main", "other")))
	s := config{stack: "s", takeOver: []string{"t"}, declared: []resource.Declaration{aGroup("g", "main")}}
	t := config{stack: "t", takeOver: []string{"s"}, declared: []resource.Declaration{aGroup("g", "main", "third")}}
	w.apply("apply", 1, s)
	w.apply("else", 1, t)
	w.member("m", "g", 1, 1)
	w.last(s)
}

// repairGroup: a part of a group with a member is put back while another stack changes it.
func (d damage) repairGroup(w *world) {
	s := config{stack: "s", takeOver: []string{"t"}, declared: []resource.Declaration{aGroup("g", "main")}}
	t := config{stack: "t", takeOver: []string{"s"}, declared: []resource.Declaration{aGroup("g", "main", "third")}}
	w.given(s)
	w.Setup(func(ctx context.Context, s *zkconn.Session) error {
		m, err := joinGroup(ctx, s, "g", "first")
		if err == nil {
			err = m.Leave()
		}
		return err
	})
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

// member declares a process that joins a group, takes its duty main, and saves values before it leaves.
func (w *world) member(name, group string, lives, values int) {
	w.process(name, lives, func(p *sim.Process) error {
		s, err := w.dial(p, &actor{})
		if err != nil {
			return err
		}
		defer s.Close()
		ctx, cancel := context.WithTimeout(p.Context(), patience)
		defer cancel()
		m, err := joinGroup(ctx, s, group, name)
		if err == nil {
			w.seen.add("joined")
			err = w.saves(ctx, m, values)
		}
		for _, fine := range []error{
			member.ErrNoGroup, member.ErrNotOpen, member.ErrHeld, member.ErrNotHeld, context.DeadlineExceeded,
		} {
			if errors.Is(err, fine) && p.Alive() {
				return nil
			}
		}
		return err
	})
}

// saves takes the duty main and saves values, and leaves.
func (w *world) saves(ctx context.Context, m *member.Member, values int) error {
	h, err := m.Take(ctx, "main")
	for n := range values {
		if err == nil {
			err = h.Put(ctx, fmt.Sprint("key", n), []byte("value"))
		}
		if err == nil {
			w.seen.add("saved")
		}
	}
	_ = m.Leave() // if no server answers, the member goes with its session
	return err
}

// loses: the row deletes what members have saved, and only what the plan shows.
func (t tree) loses(r plan.Row, run string) error {
	shown := map[string]int{}
	for _, s := range r.Loss() {
		shown[s.Section] = s.Keys
	}
	was := group.Of(r.Old.Record)
	stays, _ := r.New.(group.Group)
	for _, d := range was.Duties {
		if _, kept := stays.Duty(d.Name); kept {
			continue
		}
		keys := 0
		for _, key := range t.below(path.Join(run, "duty", d.Name, "state")) {
			if len(t[path.Join(run, "duty", d.Name, "state", key)].data) > 0 {
				keys++
			}
		}
		if keys != shown[d.Section()] {
			return fmt.Errorf("%d keys of %s are deleted, and the plan shows %d", keys, d.Name, shown[d.Section()])
		}
	}
	return nil
}
