package stacks_test

import (
	"context"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"muster/dev/zkmodel"
	"muster/exitcode"
	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/resource/queue"
	"muster/sim"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// hostileScenes are those of a participant of the stack "s" who writes what it may write, as examples/guarded grants
// it, while the stack "t" in the same root goes about its business. The checker then looks at what is not of "s": it
// holds as without the participant.
func hostileScenes() map[string]scene {
	return map[string]scene{
		"hostile-replace": {
			declare: hostileReplace, must: []string{"attacked", "joined", "immutable_differs_ready applied"},
		},
		"hostile-delete": {
			declare: hostileDelete, must: []string{"attacked", "undeclared applied", "immutable_differs_ready applied"},
		},
		"hostile-terminate": {declare: hostileTerminate, must: []string{"attacked", "joined", "terminated"}},
		"hostile-queue": {
			declare: hostileQueue, must: []string{"attacked", "undeclared applied", "unlinked"},
		},
	}
}

// Users. The password of each is "secret".
const (
	deployer = "ops"
	hostile  = "hostile" // a worker of "s"
	honest   = "honest"  // a worker of "t"
)

func credentials(user string) zkconn.Auth {
	return zkconn.Auth{Scheme: "digest", Data: []byte(user + ":secret")}
}

// credentials are its own, or those of its configuration.
func (a *actor) credentials() []zkconn.Auth {
	user := a.user
	if user == "" && a.config != nil {
		user = a.config.user
	}
	if user == "" {
		return nil
	}
	return []zkconn.Auth{credentials(user)}
}

func idOf(user string) string {
	sum := sha1.Sum([]byte(user + ":secret"))
	return user + ":" + base64.StdEncoding.EncodeToString(sum[:])
}

// guarded is a configuration with the ACL of examples/guarded: for who applies, these workers, and everybody who looks.
func guarded(stack, workers string, ds ...resource.Declaration) config {
	acl := []string{"digest:" + idOf(deployer) + ":cdrwa", "world:anyone:r"}
	if workers != "" {
		acl = append(acl, "digest:"+idOf(workers)+":cdrw")
	}
	return config{stack: stack, declared: ds, user: deployer, acl: acl}
}

// shared brings about the folders that all stacks share, which no worker may write.
func (w *world) shared(ds ...resource.Declaration) {
	w.SetupAs(credentials(deployer))
	w.given(guarded("o", "", ds...))
	w.hostile = map[string]bool{}
}

// others is t without what the hostile participant may write, which is no longer in the tree either.
func (c *checker) others(t *zkmodel.Txn) *zkmodel.Txn {
	if c.hostile == nil {
		return t
	}
	rest := *t
	rest.Ops = nil
	for _, o := range t.Ops {
		if o.Type == zkmodel.OpCreate || o.Type == zkmodel.OpCreate2 {
			c.hostile[o.Path] = c.isHostile(o)
		}
		if !c.hostile[o.Path] {
			rest.Ops = append(rest.Ops, o)
		}
	}
	maps.DeleteFunc(c.now, func(p string, _ entry) bool { return c.hostile[p] })
	return &rest
}

// isHostile reports whether a znode that is created is the hostile participant's: by its ACL, or because it is made for
// what is. Its records may grant others rights.
func (c *checker) isHostile(o zkmodel.Op) bool {
	if c.hostile[o.Path] || c.hostile[path.Dir(o.Path)] ||
		slices.ContainsFunc(o.ACL, func(a zkmodel.ACL) bool { return a.ID == idOf(hostile) }) {
		return true
	}
	_, rest, inRun := generationOf(o.Path)
	rec := recordIn(o.Data)
	return inRun && rest == "" && rec != nil && c.hostile[rec.Declaration.ID().Path()]
}

// namedByHostile reports whether the hostile participant names a generation: then somebody could mean it, and it stays.
func (c *checker) namedByHostile(run string) bool {
	named := false
	c.w.Server().Walk(func(at string, data []byte, _ zkmodel.Stat) {
		named = named || c.hostile[at] && strings.Contains(string(data), path.Base(run))
	})
	return named
}

// keepsOut: the hostile participant changes nothing of others, and neither does an apply of its stack, but for what
// has ended.
func (c *checker) keepsOut(before tree, t *zkmodel.Txn, who *actor) error {
	if c.hostile == nil || who.user != hostile && (who.config == nil || who.config.stack != "s") {
		return nil
	}
	for _, o := range t.Ops {
		run, _, ok := generationOf(o.Path)
		ended := ok && !before.has(run+"/gate") && before.resourceOf(run) == ""
		if o.Type != zkmodel.OpCheck && o.Type != zkmodel.OpClose && !(ended && o.Type == zkmodel.OpDelete) {
			return fmt.Errorf("%s was changed for a stack whose it is not", o.Path)
		}
	}
	return nil
}

// ofHostile is how an apply of the stack of a hostile participant may end: it ends.
func ofHostile(r result) error {
	if r.exit() == exitcode.Unreachable {
		return errors.Join(zkconn.ErrSessionLost, r.err)
	}
	return nil
}

// settled reports whether there was nothing left to do for an apply. What a hostile participant says of its own may be,
// also as garbage.
func (w *world) settled(c config, r result) bool {
	if w.hostile == nil {
		return r.exit() == exitcode.Done && len(r.plan.Changes()) == 0 && len(r.plan.Own()) == len(c.declared) &&
			(r.garbage == nil || w.garbled)
	}
	todo := slices.ContainsFunc(r.plan.Rows, func(row plan.Row) bool {
		return !w.hostile[row.Path] && row.Action() != plan.None && row.Action() != plan.Unmanaged
	})
	return r.err == nil && !errors.Is(r.garbage, zkconn.ErrSessionLost) && !todo
}

// tellUnlinks checks what an apply deletes in Redis.
func (w *world) tellUnlinks(p *sim.Process) func(*resource.Record) error {
	if w.unlinks == nil {
		return nil
	}
	return func(rec *resource.Record) (err error) {
		if p.Saw(func() { err = w.unlinks(rec) }); err != nil {
			p.Fail(err)
		}
		return err
	}
}

// hostileReplace: the stack of the hostile worker replaces its job, while a worker of another stack is live.
func hostileReplace(w *world) {
	w.shared(aJob("o", 1))
	w.given(guarded("s", hostile, aJob("a", 1)))
	t := guarded("t", honest, aJob("b", 1))
	w.given(t)
	w.attacker("h", "job", "a", "b")
	w.apply("apply", 1, guarded("s", hostile, aJob("a", 2)))
	w.worker(shift{name: "w", job: "b", user: honest, lives: 1, works: hours})
	w.last(t)
}

// hostileDelete: both stacks apply: they replace, delete and create.
func hostileDelete(w *world) {
	w.shared(aJob("o", 1))
	w.given(guarded("s", hostile, aJob("a", 1)))
	w.given(guarded("t", honest, aJob("b", 1), aJob("c", 1)))
	t := guarded("t", honest, aJob("b", 2), aJob("d", 1))
	w.attacker("h", "job", "a", "b", "c", "d")
	w.apply("apply", 1, guarded("s", hostile))
	w.apply("else", 1, t)
	w.last(t)
}

// hostileTerminate: a job is terminated while its worker is live, or comes.
func hostileTerminate(w *world) {
	w.shared(aJob("o", 1))
	w.given(guarded("s", hostile, aJob("a", 1)))
	t := guarded("t", honest, aJob("b", 1))
	w.given(t)
	w.attacker("h", "job", "a", "b")
	w.terminate("stop", root+"/b", t)
	w.worker(shift{name: "w", job: "b", user: honest, lives: 1, works: hours})
	w.last(t)
}

// hostileQueue: the stack of the hostile participant deletes its queue, and so does the other one with one of two.
func hostileQueue(w *world) {
	w.shared(aJob("o", 1), aQueue("n", "one:1"))
	w.given(guarded("s", hostile, aQueue("p", "one:1")))
	w.given(guarded("t", honest, aQueue("q", "one:1"), aQueue("r", "one:1")))
	w.Setup(func(ctx context.Context, s *zkconn.Session) error { return beginQueues(ctx, s, "p", "q", "r") })
	t := guarded("t", honest, aQueue("q", "one:1"))
	w.unlinks = func(rec *resource.Record) error {
		w.seen.add("unlinked")
		g := rec.Generation
		if at := w.now.resourceOf(znode.Run(root, g)); at != "" || w.now.has(znode.Gate(root, g)) {
			return fmt.Errorf("what %s keeps in generation %s was unlinked", at, g)
		}
		return nil
	}
	w.attacker("h", "queue", "p", "q", "r")
	w.apply("apply", 1, guarded("s", hostile))
	w.apply("else", 1, t)
	w.last(t)
}

// beginQueues creates the folders of queues, as their first processes do.
func beginQueues(ctx context.Context, s *zkconn.Session, names ...string) error {
	for _, name := range names {
		o, err := zkstate.NewReader(s, home, kinds()...).Look(ctx, resource.Join(root, name))
		if err != nil {
			return err
		}
		acl, err := zkstate.ParseACL(o.Record.ACL)
		if err != nil {
			return err
		}
		for _, folder := range znode.QueueFolders() {
			at := resource.Join(znode.Run(root, o.Record.Generation), folder)
			if _, err := s.Create(ctx, at, nil, zkconn.Persistent, acl); err != nil {
				return err
			}
		}
	}
	return nil
}

// attacks is how often an attacker writes something.
const attacks = 8

// attacker declares a process that may write what the participants of a resource of "s" may, and does so.
func (w *world) attacker(name, kind, own string, others ...string) {
	left := attacks
	w.session(name, 1, shift{}, actor{byHand: true, user: hostile}, func(p *sim.Process, s *zkconn.Session) error {
		a := &attacker{w: w, p: p, s: s, record: znode.Record(kind, root, own)}
		for _, other := range append([]string{own}, others...) {
			body, _, err := s.Get(p.Context(), znode.Record(kind, root, other))
			if err != nil && !errors.Is(err, zkconn.ErrNoNode) {
				return err
			}
			a.bodies = append(a.bodies, body)
		}
		for ; left > 0; left-- {
			if err := a.attack(left); err != nil {
				return err
			}
		}
		return nil
	})
}

// attacker is one life of it.
type attacker struct {
	w      *world
	p      *sim.Process
	s      *zkconn.Session
	record string
	bodies [][]byte // the records of its own resource and of the others, as it has read them; nil: it was not there
}

// choose is a number below n that depends on the schedule alone.
func (a *attacker) choose(turn int, what string, n int) int {
	h := fnv.New64a()
	a.p.Saw(func() { fmt.Fprint(h, a.w.zxid, time.Now().Unix(), turn, what) })
	return int(h.Sum64() % uint64(n))
}

// attack changes one of: its record, the copy, the gate, and what its workers write.
func (a *attacker) attack(turn int) error {
	own, _, err := a.s.Get(a.p.Context(), a.record)
	if err != nil {
		return a.shrug(err)
	}
	run := znode.Run(root, a.generation(turn, own))
	object := root + "/" + path.Base(a.record)
	live := object + "/" + []string{"w", "x"}[a.choose(turn, "live", 2)]
	anyone := []zkconn.ACL{{Scheme: "world", ID: "anyone", Perms: zkconn.PermRead}, {
		Scheme: "digest", ID: idOf(hostile), Perms: zkconn.PermAll,
	}}
	create := func(at string, mode zkconn.Mode) error {
		_, err := a.s.Create(a.p.Context(), at, a.body(turn, own), mode, anyone)
		return err
	}
	set := func(at string) error {
		_, err := a.s.Set(a.p.Context(), at, a.body(turn, own), -1)
		return err
	}
	a.p.Saw(func() { a.w.seen.add("attacked") })
	switch a.choose(turn, "do", 12) {
	case 0, 1, 2:
		err = set(a.record)
	case 3, 4, 5:
		err = set(run)
	case 6, 7:
		err = a.s.Delete(a.p.Context(), run+"/gate", -1)
	case 8:
		err = create(run+"/gate", zkconn.Persistent)
	case 9:
		err = create(live, zkconn.Ephemeral)
	case 10:
		err = a.s.Delete(a.p.Context(), live, -1)
	case 11:
		err = set(object)
	}
	return a.shrug(err)
}

// shrug is nil for what a server refuses.
func (a *attacker) shrug(err error) error {
	return sim.Unless(err, zkconn.ErrNoNode, zkconn.ErrNodeExists, zkconn.ErrNoAuth, zkconn.ErrNotEmpty,
		zkconn.ErrBadVersion)
}

// generation is its own, or what its record names at the moment.
func (a *attacker) generation(turn int, now []byte) string {
	body := a.bodies[0]
	if a.choose(turn, "run", 2) == 0 {
		body = now
	}
	if rec := recordIn(body); rec != nil {
		return rec.Generation
	}
	return "none"
}

// recordIn is the record that a body holds; nil if it holds none.
func recordIn(body []byte) *resource.Record {
	for _, k := range kinds() {
		if rec, err := znode.DecodeRecord(k.Kind, body); err == nil {
			return &rec
		}
	}
	return nil
}

// body is a record: its own or another's, with something of the other one, and with a digest that fits; or it is none.
func (a *attacker) body(turn int, now []byte) []byte {
	mine := a.bodies[0]
	if a.choose(turn, "now", 2) == 0 {
		mine = now
	}
	other := a.bodies[a.choose(turn, "whose", len(a.bodies))]
	own, its := recordIn(mine), recordIn(other)
	if own == nil || its == nil {
		return a.bodies[0]
	}
	switch a.choose(turn, "body", 9) {
	case 0:
		return a.bodies[0]
	case 1:
		return other
	case 2:
		own.Generation = its.Generation
	case 3:
		own, its = its, own
		own.Generation = its.Generation
	case 4:
		own.Stack = its.Stack
	case 5:
		own.Declaration, own.Body = its.Declaration, its.Body
	case 6:
		own.State = resource.StateTerminating
	case 7:
		return []byte(strings.Repeat("{", 10))
	case 8:
		own = a.missing(own)
	}
	own.Sign()
	body, err := znode.EncodeRecord(*own)
	if err != nil {
		return mine
	}
	return body
}

// missing is a record of the other stack's resource "d", which is declared and may not be there yet.
func (a *attacker) missing(own *resource.Record) *resource.Record {
	rec := *own
	rec.Stack = "t"
	var d resource.Declaration = aJob("d", 1)
	if own.Declaration.Kind().Name == queue.KindName {
		d = aQueue("q", "one:1")
	} else if own.Declaration.Kind().Name != job.KindName {
		return own
	}
	if rec.Declare(d) != nil {
		return own
	}
	return &rec
}
