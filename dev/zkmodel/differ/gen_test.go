package differ

import (
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"math/rand/v2"
	"strings"

	"muster/dev/zkmodel"
)

// generator invents a trace, line by line. It looks at the model, so that many lines fit: existing paths, right
// versions. The seed decides all.
type generator struct {
	random  *rand.Rand
	pair    *pair
	servers int
	expires int // how many sessions may still expire: each takes up to a second
	slot    int
}

func newGenerator(p *pair, seed uint64) *generator {
	g := &generator{random: rand.New(rand.NewPCG(seed, 11)), pair: p, servers: len(p.servers.addrs)}
	if g.chance(0.2) {
		g.expires = 1
	}
	return g
}

func (g *generator) chance(p float64) bool { return g.random.Float64() < p }

func pick[T any](g *generator, list ...T) T { return list[g.random.IntN(len(list))] }

// next is the next line.
func (g *generator) next() op {
	if g.pair.busy == nil {
		g.slot = g.random.IntN(slots)
	}
	s := g.pair.slots[g.slot]
	switch {
	case !s.alive && (s.ids[byModel] == 0 || g.chance(0.8)):
		return g.connection(opConnect)
	case s.link == nil && s.alive && g.expires > 0 && g.chance(0.3):
		return g.expiry()
	case s.link == nil:
		return g.connection(opResume)
	case g.chance(0.015):
		return op{slot: g.slot, code: opCut}
	case g.chance(0.005):
		return g.connection(opResume)
	case g.chance(0.005):
		return op{slot: g.slot, code: opClose}
	case g.expires > 0 && g.chance(0.01):
		return g.expiry()
	}
	o := g.request()
	o.slot, o.more = g.slot, g.chance(0.7)
	if o.code != opMulti && g.chance(0.01) {
		o.short = 1 + g.random.IntN(20)
	}
	return o
}

func (g *generator) connection(code int32) op {
	o := op{slot: g.slot, code: code, server: g.random.IntN(g.servers), readOnly: g.chance(0.5)}
	o.timeout = pick[int32](g, 400_000, 500_001, 600_000, 600_001, 1<<31-1)
	o.wrong = code == opResume && g.chance(0.15)
	switch last := g.pair.last() - g.pair.model.base; {
	case g.chance(0.05):
		o.zxid = 1_000_000 // what no server has seen
	case g.servers == 1 && g.chance(0.5): // one of three may not have applied the last
		o.zxid = last - 1 + g.random.Int64N(3)
	}
	return o
}

func (g *generator) expiry() op {
	g.expires--
	o := g.connection(opExpire)
	o.timeout, o.wrong, o.zxid, o.watch = pick[int32](g, -1, 0, 1, 299, 300, 310), false, 0, g.chance(0.5)
	if l := g.pair.slots[g.slot].link; l != nil {
		o.server = l.server
	}
	return o
}

// request is one in a session.
func (g *generator) request() op {
	switch n := g.random.IntN(100); {
	case n < 24:
		return g.create()
	case n < 32:
		return op{code: opDelete, path: g.inside(g.old())}.anyVersion(g)
	case n < 44:
		return op{code: opSetData, path: g.inside(g.old()), data: g.data()}.anyVersion(g)
	case n < 52:
		return op{code: opExists, path: g.any(), watch: g.chance(0.6)}
	case n < 61:
		return op{code: opGetData, path: g.old(), watch: g.chance(0.6)}
	case n < 71:
		return op{code: pick(g, opGetChildren, opGetChildren2), path: g.old(), watch: g.chance(0.6)}
	case n < 75:
		return op{code: opGetACL, path: g.old()}
	case n < 79:
		return g.setACL()
	case n < 82:
		return op{code: opSync, path: g.any()}
	case n < 84:
		return op{code: opPing}
	case n < 87:
		return g.setWatches()
	case n < 89:
		return op{code: opAuth, scheme: pick(g, "digest", "digest", "digest", "digest", "digest", "nonsense"),
			data: []byte(pick(g, alice, alice, bob, bob, "nobody", ""))}
	}
	return g.multi()
}

// paths are the znodes below the run's root, and the root itself, as in a trace.
func (g *generator) paths() []string {
	list := []string{"~"}
	g.pair.server.Walk(func(path string, _ []byte, _ zkmodel.Stat) {
		if rest, ok := strings.CutPrefix(path, g.pair.root+"/"); ok {
			list = append(list, "~/"+rest)
		}
	})
	return list
}

// old is mostly the path of a znode that exists.
func (g *generator) old() string {
	if g.chance(0.93) {
		return pick(g, g.paths()...)
	}
	return g.any()
}

// fresh is a path below a znode that exists. Names are few, so the path often exists.
func (g *generator) fresh() string {
	parent := pick(g, g.paths()...)
	for strings.Count(parent, "/") > 2 {
		parent = parent[:strings.LastIndexByte(parent, '/')]
	}
	return parent + "/" + pick(g, "a", "b", "c", "d", "é", "a-")
}

// any is a path of every kind, also of those that cannot be.
func (g *generator) any() string {
	switch n := g.random.IntN(20); {
	case n < 9:
		return pick(g, g.paths()...)
	case n < 15:
		return g.fresh()
	case n < 17:
		return g.fresh() + "/x"
	case n < 18:
		return pick(g, "/zookeeper", "/zookeeper/quota", "/nowhere", "/nowhere/at/all")
	}
	return pick(g, odd...)
}

// odd are paths that no znode may have, and their neighbours.
var odd = []string{
	"a", "~/", "~//a", "~/a/", "~/.", "~/..", "~/../b", "~/./a", "~/a\x00b", "~/\x01", "~/\x1f",
	"~/\x7f", "~/\u0080", "~/\u009f", "~/\u00a0", "~/\ud7ff", "~/\ue000", "~/\uf8ff", "~/\uf900", "~/\uffef",
	"~/\ufff0", "~/\uffff", "~/\U00010000", "~/...", "~/ ", "//", "/zookeeper/", "~a", "~/\t",
}

// oddPaths is a trace of all requests with all odd paths.
func oddPaths() []op {
	trace := []op{{code: opConnect, timeout: 600_000}}
	for _, path := range odd {
		if path != "~a" && path[0] != '/' { // below the run's root, if anywhere
			trace = append(trace,
				op{code: opCreate, path: path, acl: openACL}, op{code: opCreate2, path: path, acl: openACL, flags: 2},
				op{code: opSetData, path: path, version: -1}, op{code: opSetACL, path: path, acl: openACL, version: -1},
				op{code: opMulti, ops: []op{{code: opCheck, path: path, version: -1}}},
				op{code: opMulti, ops: []op{{code: opCreate, path: path, acl: openACL, flags: 3}}})
		}
		for _, code := range []int32{opExists, opGetData, opGetChildren2, opGetACL, opSync, opDelete} {
			trace = append(trace, op{code: code, path: path, version: -1})
		}
	}
	return trace
}

func (g *generator) data() []byte {
	switch g.random.IntN(8) {
	case 0:
		return nil
	case 1:
		return []byte{}
	case 2:
		return bytes.Repeat([]byte{byte(g.random.IntN(256))}, 1+g.random.IntN(2000))
	}
	return []byte(pick(g, "one", "two", "three", "\x00\xff"))
}

// inside is a path for a write: not the run's root, nor what belongs to the servers. "" names the tree's root, which
// nobody writes; its Stat tells of earlier traces, so nobody reads it.
func (g *generator) inside(path string) string {
	if strings.HasPrefix(path, "/") || path == "~" || path == "~a" {
		return pick(g, "~/a", "")
	}
	return path
}

// anyVersion chooses a version: mostly the right one.
func (o op) anyVersion(g *generator) op {
	_, stat, _ := g.pair.server.Get(under(g.pair.root, o.path))
	right := stat.Version
	if o.code == opSetACL {
		right = stat.Aversion
	}
	o.version = pick(g, -1, -1, right, right, right, right, right+1, right-1, -2)
	return o
}

func (g *generator) create() op {
	o := op{code: pick(g, opCreate, opCreate2), path: g.fresh(), data: g.data(), acl: g.acl()}
	switch {
	case g.chance(0.06):
		o.path = g.inside(g.any())
	case g.chance(0.04):
		o.path += "/" // a sequential znode may be named by its number alone
		o.flags = 2
	}
	if g.chance(0.5) {
		o.flags = g.random.Int32N(4)
	}
	if g.chance(0.01) {
		o.flags = pick[int32](g, 7, -1, 100)
	}
	if g.chance(0.003) { // a request of the largest size, one byte less, and one more
		o.path, o.data = "~/large", []byte{}
		size := 1<<20 - 1 - len(o.frame(0, g.pair.root, 0)) + g.random.IntN(3) - 1
		o.data = bytes.Repeat([]byte{'x'}, size)
	}
	return o
}

const (
	alice = "alice:secret"
	bob   = "bob:hidden"
)

// digest is the id of a credential in the scheme digest.
func digest(credential string) string {
	user, _, _ := strings.Cut(credential, ":")
	sum := sha1.Sum([]byte(credential))
	return user + ":" + base64.StdEncoding.EncodeToString(sum[:])
}

var openACL = []acl{{31, "world", "anyone"}}

// acl is mostly open, since others can end what a trace does. The invalid ones are in it too.
func (g *generator) acl() []acl {
	if g.chance(0.88) {
		return openACL
	}
	var list []acl
	for range 1 + g.random.IntN(3) {
		perms := pick[int32](g, 0, 1, 2, 4, 8, 16, 15, 30, 31, 31, 31, 17)
		list = append(list, pick(g, acl{perms, "world", "anyone"}, acl{perms, "digest", digest(alice)},
			acl{perms, "digest", digest(bob)}, acl{perms, "auth", ""}, acl{perms, "auth", "ignored"}))
	}
	if g.chance(0.15) {
		// A real server compares null only in lists of one as it ought to.
		list = pick(g, nil, []acl{}, []acl{{31, "auth", null}}, []acl{{31, null, null}},
			append(list, acl{31, "world", "nobody"}), append(list, acl{31, "nonsense", "x"}),
			append(list, acl{31, "digest", "no colon"}), append(list, acl{31, "digest", "a:b:c"}),
			append(list, acl{31, "", ""}), append(list, acl{31, "digest", ""}), append(list, acl{31, "digest", "a:"}),
			append(list, acl{31, "digest", "a:b:"}), append(list, acl{31, "digest", ":b"}),
			append(list, acl{32, "world", "anyone"}), append(list, acl{-1, "world", "anyone"}))
	}
	return list
}

func (g *generator) setACL() op {
	return op{code: opSetACL, path: g.inside(g.old()), acl: g.acl()}.anyVersion(g)
}

func (g *generator) setWatches() op {
	o := op{code: opSetWatches, zxid: g.random.Int64N(g.pair.last() - g.pair.model.base + 1)}
	for i := range o.watches {
		for range g.random.IntN(4) {
			o.watches[i] = append(o.watches[i], g.any())
		}
	}
	return o
}

// multi is a transaction. Half of them are refused, by an operation anywhere.
func (g *generator) multi() op {
	o := op{code: opMulti}
	for range pick(g, 0, 1, 2, 2, 3, 3, 4, 6) {
		o.ops = append(o.ops, g.part(o.ops))
	}
	return o
}

// part is an operation of a multi, perhaps about what an earlier one did.
func (g *generator) part(earlier []op) op {
	path := g.old
	if len(earlier) > 0 && g.chance(0.4) {
		path = func() string { return pick(g, earlier...).path }
	}
	switch g.random.IntN(10) {
	case 0, 1, 2, 3:
		o := g.create()
		if len(o.data) > 100_000 {
			o.data = nil
		}
		if len(earlier) > 0 && g.chance(0.3) {
			o.path = g.inside(path() + pick(g, "", "/n"))
		}
		return o
	case 4, 5:
		return op{code: opSetData, path: g.inside(path()), data: g.data()}.anyVersion(g)
	case 6, 7:
		return op{code: opDelete, path: g.inside(path())}.anyVersion(g)
	}
	return op{code: opCheck, path: path()}.anyVersion(g)
}
