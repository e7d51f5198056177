package hostile_test

import (
	"crypto/sha1"
	"iter"
	"math/rand/v2"
	"path"
	"slices"
	"strings"

	"muster/resource"
	"muster/resource/job"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// arms is what one attacker may do to the estate, by the ACLs of its znodes.
type arms struct {
	e         *estate
	stack     stack
	pools     map[string][][]byte // bodies by shape
	names     map[string][]string // of the children of znodes of a shape
	ruins     []body
	writable  []node
	removable []node
	parents   []node // in which it may create
}

func (e *estate) arm(s stack) *arms {
	a := &arms{e: e, stack: s, ruins: ruins(), pools: map[string][][]byte{}, names: map[string][]string{}}
	acls := map[string][]zkconn.ACL{}
	for _, n := range e.picture {
		acls[n.path] = n.acl
		k, parent := shape(n.path), shape(path.Dir(n.path))
		if !slices.ContainsFunc(a.pools[k], func(b []byte) bool { return string(b) == string(n.data) }) {
			a.pools[k] = append(a.pools[k], n.data)
		}
		if name := path.Base(n.path); !slices.Contains(a.names[parent], name) {
			a.names[parent] = append(a.names[parent], name)
		}
	}
	for _, of := range e.stacks {
		at := znode.Record(job.KindName, root, of.name+"-ready")
		i := slices.IndexFunc(e.picture, func(n node) bool { return n.path == at })
		missing := edited(e.picture[i].data, renamed(of.aJob("new", 9))) // a record of what is not there yet
		a.pools["record"] = append(a.pools["record"], missing)
	}
	for _, n := range e.picture {
		if allows(n.acl, s.user(), zkconn.PermWrite) {
			a.writable = append(a.writable, n)
		}
		if allows(acls[path.Dir(n.path)], s.user(), zkconn.PermDelete) {
			a.removable = append(a.removable, n)
		}
		if allows(n.acl, s.user(), zkconn.PermCreate) && n.owner == 0 {
			a.parents = append(a.parents, n)
		}
	}
	return a
}

// all are all steps: every znode is removed, gets every child, and every other body. They come in groups: each step of
// a group concerns another resource, so none hides what another one does.
func (a *arms) all() iter.Seq[attack] {
	return func(yield func(attack) bool) {
		var next []func() (step, bool)
		for _, of := range a.resources() {
			one, stop := iter.Pull(a.steps(of))
			defer stop()
			next = append(next, one)
		}
		for {
			var group attack
			for _, one := range next {
				if s, more := one(); more {
					group = append(group, s)
				}
			}
			if len(group) == 0 || !yield(group) {
				return
			}
		}
	}
}

// resource is the name of the resource to which a znode belongs; of others it is the path.
func (a *arms) resource(at string) string {
	_, rest, ok := strings.Cut(a.e.names.name(at), a.stack.name+"-")
	if !ok {
		return at
	}
	name, _, _ := strings.Cut(rest, "/")
	return name
}

func (a *arms) resources() []string {
	var all []string
	for _, n := range slices.Concat(a.writable, a.removable, a.parents) {
		if name := a.resource(n.path); !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// steps are all steps on one resource.
func (a *arms) steps(of string) iter.Seq[step] {
	return func(yield func(step) bool) {
		each := func(nodes []node, steps func(node) []step) bool {
			for _, n := range nodes {
				if a.resource(n.path) != of {
					continue
				}
				for _, one := range steps(n) {
					if !yield(one) {
						return false
					}
				}
			}
			return true
		}
		_ = each(a.removable, func(n node) []step { return []step{{do: remove, path: n.path}} }) &&
			each(a.parents, a.creates) && each(a.writable, a.writes)
	}
}

// writes are all other bodies for n: each of its shape, mixtures of its own and those, damaged ones, and none at all.
func (a *arms) writes(n node) []step {
	seen := map[[sha1.Size]byte]bool{sha1.Sum(n.data): true}
	var all []step
	for _, b := range slices.Concat(a.mixed(n, a.pools[shape(n.path)]), a.ruins, mutations(n.data, a.e.trap.addr)) {
		for _, b := range b.withSignature() {
			if sum := sha1.Sum(b.body); !seen[sum] {
				seen[sum] = true
				all = append(all, step{do: write, path: n.path, body: b.body, why: b.why})
			}
		}
	}
	return all
}

// mixed are others, and mixtures of the body of n with them.
func (a *arms) mixed(n node, others [][]byte) []body {
	var all []body
	for _, other := range others {
		all = append(all, body{"another's", other})
		all = append(all, mixtures(n.data, other)...)
	}
	return all
}

// creates are children for n: with each name that a child of such a znode has, and with names that none has.
func (a *arms) creates(n node) []step {
	strange := []string{"x", "..x", "\u202e", strings.Repeat("n", 300), "n-9999999999", "n--000000001", "s-2147483647"}
	var all []step
	for _, name := range slices.Concat(a.names[shape(n.path)], strange) {
		child := below(n.path, name)
		if slices.ContainsFunc(a.e.picture, func(z node) bool { return z.path == child }) {
			continue
		}
		bodies := a.pools[shape(child)]
		for i := range min(3, len(bodies)) {
			all = append(all, step{do: create, path: child, body: bodies[i], why: "a new child"})
		}
		all = append(all, step{do: create, path: child, why: "an empty child"})
	}
	return all
}

// random is an attack of one to three steps. They often concern what says whose a generation is.
func (a *arms) random(r *rand.Rand) attack {
	all := attack{a.step(r, pick(r, a.writable))}
	for range r.IntN(3) {
		n := pick(r, a.writable)
		if r.IntN(2) == 0 {
			n = pick(r, slices.DeleteFunc(slices.Clone(a.writable), func(n node) bool {
				return shape(n.path) != "record" && shape(n.path) != "gate"
			}))
		}
		all = append(all, a.step(r, n))
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// step is one at random: mostly another body for n.
func (a *arms) step(r *rand.Rand, n node) step {
	var b body
	switch r.IntN(10) {
	case 0:
		return step{do: remove, path: pick(r, a.removable).path}
	case 1:
		return pick(r, a.creates(pick(r, a.parents)))
	case 2:
		b = pick(r, a.ruins)
	case 3:
		b = pick(r, append(mutations(n.data, a.e.trap.addr), a.ruins...))
	default:
		if shape(n.path) == "gate" {
			return step{do: remove, path: n.path}
		}
		b = pick(r, a.mixed(n, [][]byte{pick(r, a.pools[shape(n.path)])}))
	}
	if r.IntN(4) == 0 {
		if more := mutations(b.body, a.e.trap.addr); len(more) > 0 {
			m := pick(r, more)
			b = body{b.why + ", " + m.why, m.body}
		}
	}
	b = pick(r, b.withSignature())
	return step{do: write, path: n.path, body: b.body, why: b.why}
}

// known are those by which participants have harmed others. Each was found by a person or by this search.
func (a *arms) known(other stack) map[string]attack {
	generation := func(s stack, name string) string {
		for g, of := range a.e.names.generations {
			if of == "generation-of-"+s.name+"-"+name {
				return g
			}
		}
		panic("no generation of " + name)
	}
	record := func(s stack, kind, name string) []byte {
		i := slices.IndexFunc(a.e.picture, func(n node) bool { return n.path == znode.Record(kind, root, s.name+"-"+name) })
		return a.e.picture[i].data
	}
	to := func(path string, from []byte, edits ...func(*resource.Record)) step {
		return step{do: write, path: path, body: edited(from, edits...), why: "forged"}
	}
	own := func(kind, name string) string { return znode.Record(kind, root, a.stack.name+"-"+name) }
	run := func(name string) string { return znode.Run(root, generation(a.stack, name)) }
	belonging := func(g string) func(*resource.Record) { return func(r *resource.Record) { r.Generation = g } }
	theirs := belonging(generation(other, "run"))
	return map[string]attack{
		"its record names another's generation": {to(own("job", "wider"), record(a.stack, "job", "wider"), theirs)},
		"and nobody declares it":                {to(own("job", "gone"), record(a.stack, "job", "gone"), theirs)},
		"its generation is a copy of another's queue": {
			{do: remove, path: below(run("gone"), "gate")}, to(run("gone"), record(other, "queue", "queue")),
			to(own("job", "gone"), record(a.stack, "job", "gone"), belonging(generation(a.stack, "ready"))),
		},
		"what it leaves behind is in a Redis of its own": {
			to(own("queue", "old"), record(a.stack, "queue", "old"), moved(a.e.trap.addr)),
			to(run("old"), record(a.stack, "queue", "old"), moved(a.e.trap.addr)),
		},
		"its generation is a copy of what another will create": {
			to(run("ready"), record(other, "job", "ready"), belonging(generation(a.stack, "ready")),
				renamed(other.aJob("new", 9))),
			{do: write, path: own("job", "ready"), body: []byte("{"), why: "no record"},
		},
		"its generation is a copy of its own of what another will create": {
			to(run("ready"), record(a.stack, "job", "ready"), renamed(other.aJob("new", 9))),
			{do: write, path: own("job", "ready"), body: []byte("{"), why: "no record"},
		},
		"two of its generations are copies of what another will create": {
			to(run("ready"), record(other, "job", "ready"), belonging(generation(a.stack, "ready")),
				renamed(other.aJob("new", 9))),
			to(run("idle"), record(other, "job", "ready"), belonging(generation(a.stack, "idle")),
				renamed(other.aJob("new", 9))),
		},
		"its record is none": {{do: write, path: own("job", "ready"), body: []byte("{"), why: "no record"}},
	}
}
