package hostile_test

import (
	"bytes"
	"crypto/sha1"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"path"
	"reflect"
	"slices"
	"strings"

	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/resource/queue"
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

// body is a body that somebody could write, and what it is.
type body struct {
	why  string
	body []byte
}

// parse is a JSON object; nil if data is none.
func parse(data []byte) map[string]any {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v map[string]any
	if d.Decode(&v) != nil {
		return nil
	}
	return v
}

// encode is v as JSON. It sorts the keys.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // what was decoded can be encoded
	}
	return b
}

// leaves lists where there are values in an object, also those that are objects.
func leaves(v map[string]any, at ...string) [][]string {
	var all [][]string
	for _, key := range slices.Sorted(maps.Keys(v)) {
		here := append(slices.Clone(at), key)
		all = append(all, here)
		if inner, ok := v[key].(map[string]any); ok {
			all = append(all, leaves(inner, here...)...)
		}
	}
	return all
}

func lookup(v map[string]any, at []string) any {
	for _, key := range at[:len(at)-1] {
		inner, ok := v[key].(map[string]any)
		if !ok {
			return nil
		}
		v = inner
	}
	return v[at[len(at)-1]]
}

// with is v with another value at a place; without one if it is nil.
func with(v map[string]any, at []string, value any) map[string]any {
	v = maps.Clone(v)
	if v == nil {
		v = map[string]any{}
	}
	if len(at) > 1 {
		inner, _ := v[at[0]].(map[string]any)
		v[at[0]] = with(inner, at[1:], value)
	} else if value == nil {
		delete(v, at[0])
	} else {
		v[at[0]] = value
	}
	return v
}

// mixtures are own with each value of other in its place, and other with each value of own.
func mixtures(own, other []byte) []body {
	a, b := parse(own), parse(other)
	if a == nil || b == nil {
		return nil
	}
	var all []body
	add := func(what string, v map[string]any, at []string, value any) {
		if !reflect.DeepEqual(lookup(v, at), value) {
			all = append(all, body{what + " " + strings.Join(at, "."), encode(with(v, at, value))})
		}
	}
	for _, at := range leaves(b) {
		add("its own with another's", a, at, lookup(b, at))
	}
	for _, at := range leaves(a) {
		add("another's with its own", b, at, lookup(a, at))
	}
	return all
}

// ruins are bodies of no kind.
func ruins() []body {
	deep := strings.Repeat(`{"a":`, 20_000) + "1" + strings.Repeat("}", 20_000)
	return []body{
		{"empty", []byte{}}, {"null", []byte("null")}, {"a list", []byte("[]")}, {"an object", []byte("{}")},
		{"a number", []byte("-1")}, {"a huge number", []byte(strings.Repeat("9", 400))}, {"a string", []byte(`"x"`)},
		{"no text", []byte{0xff, 0xfe, 0, 1}}, {"deep", []byte(deep)},
		{"deep lists", []byte(strings.Repeat("[", 100_000))}, {"large", bytes.Repeat([]byte("x"), 900_000)},
		{"large JSON", encode(map[string]string{"x": strings.Repeat("x", 250_000)})},
		{"rows of nothing", make([]byte, 4_000)}, {"a long row", []byte{0x7f, 0xff, 0xff, 0xff, 1}},
	}
}

// mutations are own damaged in every way that decoders have to expect. trap is an address of the attacker.
func mutations(own []byte, trap string) []body {
	var all []body
	for i := 1; i < 8 && len(own) > 8; i++ {
		all = append(all, body{"cut", own[:len(own)*i/8]})
		flipped := bytes.Clone(own)
		flipped[len(own)*i/8] ^= 1 << i
		all = append(all, body{"a bit flipped", flipped})
	}
	v := parse(own)
	if v == nil {
		return all
	}
	twice := append(bytes.TrimSuffix(encode(v), []byte("}")), ',')
	all = append(all, body{"every key twice", append(twice, encode(v)[1:]...)})
	strange := []any{
		json.Number("-1"), json.Number("0"), json.Number("2147483648"), json.Number("9223372036854775807"),
		json.Number("1e400"), "", "x", "/", "/../..", "..", "/zookeeper", "\x00\x1b[2J\u202e", strings.Repeat("x", 5_000),
		"redis://" + trap + "/0", "99999999h", "-1s", []any{}, []any{"x", map[string]any{}}, map[string]any{"x": "y"}, true,
		strings.Repeat("0", 32), []any{"/", "/jobs/.muster", "//", "/zookeeper", "x"},
	}
	for _, at := range leaves(v) {
		all = append(all, body{"without " + strings.Join(at, "."), encode(with(v, at, nil))})
		for _, s := range strange {
			all = append(all, body{fmt.Sprintf("%.40q as %s", s, strings.Join(at, ".")), encode(with(v, at, s))})
		}
	}
	return all
}

// withSignature is b, and if it is a record whose digest does not fit, b with one that fits.
func (b body) withSignature() []body {
	if signed := sign(b.body); signed != nil {
		return []body{b, {b.why + ", signed", signed}}
	}
	return []body{b}
}

// sign is a record with a digest that fits, as whoever writes one would compute it; nil if it is no record.
func sign(data []byte) []byte {
	if rec := recordIn(data); rec != nil && rec.Edited() {
		return edited(data)
	}
	return nil
}

// recordIn is the record that data holds; nil if it holds none.
func recordIn(data []byte) *resource.Record {
	for _, k := range []resource.Kind{job.Kind(), group.Kind(), queue.Kind()} {
		if rec, err := znode.DecodeRecord(k, data); err == nil {
			return &rec
		}
	}
	return nil
}

// edited is a record with changes and a digest that fits; nil if it cannot be encoded.
func edited(data []byte, edits ...func(*resource.Record)) []byte {
	rec := recordIn(data)
	for _, edit := range edits {
		edit(rec)
	}
	rec.Sign()
	body, err := znode.EncodeRecord(*rec)
	if err != nil {
		return nil
	}
	return body
}

// renamed declares something else.
func renamed(d resource.Declaration) func(*resource.Record) {
	return func(r *resource.Record) {
		if err := r.Declare(d); err != nil {
			panic(err)
		}
	}
}

// moved names another Redis.
func moved(addr string) func(*resource.Record) {
	return func(r *resource.Record) {
		q := queue.Of(r)
		q.Redis = "redis://" + addr + "/0"
		renamed(q)(r)
	}
}
