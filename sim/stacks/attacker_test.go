package stacks_test

import (
	"errors"
	"fmt"
	"hash/fnv"
	"path"
	"strings"
	"time"

	"muster/resource"
	"muster/resource/job"
	"muster/resource/queue"
	"muster/sim"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

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
	for _, refused := range []error{
		zkconn.ErrNoNode, zkconn.ErrNodeExists, zkconn.ErrNoAuth, zkconn.ErrNotEmpty, zkconn.ErrBadVersion,
	} {
		if errors.Is(err, refused) {
			return nil
		}
	}
	return err
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
