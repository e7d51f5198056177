package zkmodel

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestSequence: the number in a name is how many children the parent has had.
func TestSequence(t *testing.T) {
	c := begin(t, New(Options{}))
	c.create("/p", 0)
	got := []string{c.create("/p/s-", Sequential), c.create("/p/plain", 0), c.create("/p/s-", Sequential|Ephemeral)}
	c.must(OpDelete, "/p/s-0000000000", 0)
	got = append(got, c.create("/p/", Sequential))
	want := []string{"/p/s-0000000000", "/p/plain", "/p/s-0000000002", "/p/0000000003"}
	if !slices.Equal(got, want) {
		t.Errorf("created %q, want %q", got, want)
	}
}

// TestRefusals: each refused request has the code of the first check that fails, and uses up a zxid.
func TestRefusals(t *testing.T) {
	s := New(Options{})
	c := begin(t, s)
	c.create("/a", 0)
	c.create("/a/b", 0)
	c.create("/a/e", Ephemeral)
	c.create("/locked", 0)
	c.must(OpSetACL, "/locked", []ACL{{permAdmin, "world", "anyone"}}, -1)
	create := func(path string, acl []ACL, flags int) []any { return []any{path, []byte{}, acl, flags} }
	for _, r := range []struct {
		why  string
		op   OpType
		body []any
		want Code
	}{
		{"no slash", OpCreate, create("a", worldAll, 0), BadArguments},
		{"nothing", OpCreate, create("", worldAll, 0), BadArguments},
		{"zero byte", OpCreate, create("/\x00", worldAll, 0), BadArguments},
		{"control character", OpCreate, create("/\x1f", worldAll, 0), BadArguments},
		{"beyond 65536", OpCreate, create("/😀", worldAll, 0), BadArguments},
		{"not UTF-8", OpCreate, create("/\xff", worldAll, 0), BadArguments},
		{"empty name", OpCreate, create("/a//b", worldAll, 0), NoNode},
		{"slash at the end", OpCreate, create("/a/", worldAll, 0), BadArguments},
		{"dots", OpCreate, create("/a/..", worldAll, 0), BadArguments},
		{"unknown mode", OpCreate, create("/c", worldAll, 7), BadArguments},
		{"container", OpCreate, create("/c", worldAll, 4), Unimplemented},
		{"no ACL, no parent", OpCreate, create("/c/d", nil, 0), InvalidACL},
		{"no parent", OpCreate, create("/c/d", worldAll, 0), NoNode},
		{"no permission, exists", OpCreate, create("/locked/c", worldAll, 0), NoAuth},
		{"exists", OpCreate, create("/a", worldAll, 0), NodeExists},
		{"root", OpCreate, create("/", worldAll, 0), NodeExists},
		{"below ephemeral", OpCreate2, create("/a/e/f", worldAll, 0), NoChildrenForEphemerals},
		{"quota", OpCreate, create("/zookeeper/quota/a", worldAll, 0), Unimplemented},
		{"root", OpDelete, []any{"/", -1}, BadArguments},
		{"zookeeper", OpDelete, []any{"/zookeeper/quota", -1}, BadArguments},
		{"no parent", OpDelete, []any{"/c/d", -1}, NoNode},
		{"no permission, no node", OpDelete, []any{"/locked/c", -1}, NoAuth},
		{"no node", OpDelete, []any{"/c", -1}, NoNode},
		{"version, children", OpDelete, []any{"/a", 1}, BadVersion},
		{"children", OpDelete, []any{"/a", 0}, NotEmpty},
		{"bad path", OpSetData, []any{"/a/", []byte{}, -1}, BadArguments},
		{"no node", OpSetData, []any{"/c", []byte{}, -1}, NoNode},
		{"no permission, version", OpSetData, []any{"/locked", []byte{}, 5}, NoAuth},
		{"version", OpSetData, []any{"/a", []byte{}, 1}, BadVersion},
		{"version below -1", OpSetData, []any{"/a", []byte{}, -2}, BadVersion},
		{"no ACL, no node", OpSetACL, []any{"/c", []ACL{}, -1}, InvalidACL},
		{"no node", OpSetACL, []any{"/c", worldAll, -1}, NoNode},
		{"version", OpSetACL, []any{"/locked", worldAll, 0}, BadVersion},
		{"cut off", OpCreate, []any{"/c", []byte{}}, MarshallingError},
		{"negative length", OpSetData, []any{"/a", -5}, MarshallingError},
		{"negative list", OpSetACL, []any{"/a", -5}, MarshallingError},
		{"endless list", OpSetACL, []any{"/a", 1<<31 - 1}, MarshallingError},
	} {
		before := s.zxid
		if got := c.do(r.op, r.body...); got.code != r.want || got.zxid != before+1 || got.xid != 7 {
			t.Errorf("%s, %s: %s, zxid +%d, want %s, +1", r.op, r.why, got.code, got.zxid-before, r.want)
		}
	}
}

// TestStat follows all fields of a Stat.
func TestStat(t *testing.T) {
	now := time.UnixMilli(1000)
	s := New(Options{Now: func() time.Time { return now }})
	c := begin(t, s) // zxid 1
	c.statIs("/", Stat{Cversion: -1, NumChildren: 1})
	c.statIs("/zookeeper", Stat{Cversion: -2, NumChildren: 2})
	c.statIs("/zookeeper/config", Stat{Aversion: -1})
	c.must(OpCreate, "/a", []byte("abc"), worldAll, Ephemeral) // 2
	now = now.Add(time.Second)
	want := Stat{2, 2, 2, 1000, 1000, 0, 0, 0, c.id, 3, 0}
	c.statIs("/a", want)
	c.must(OpSetData, "/a", []byte("de"), 0)   // 3
	c.must(OpSetACL, "/a", worldAll, 0)        // 4
	c.do(OpSetData, "/a", []byte("no"), 0)     // 5, refused
	c.create("/b", 0)                          // 6
	c.create("/b/c", 0)                        // 7
	c.create("/b/d", 0)                        // 8
	c.must(OpDelete, "/b/c", -1)               // 9
	c.must(OpSetData, "/b/d", []byte(nil), -1) // 10
	want.Mzxid, want.Mtime, want.Version, want.Aversion, want.DataLength = 3, 2000, 1, 1, 2
	c.statIs("/a", want)
	c.statIs("/b", Stat{6, 6, 9, 2000, 2000, 0, 3, 0, 0, 0, 1})
	c.statIs("/b/d", Stat{8, 10, 8, 2000, 2000, 1, 0, 0, 0, 0, 0})
	if r := c.must(OpGetData, "/b/d", false); r.body.buffer() != nil || r.body.stat().Mzxid != 10 {
		t.Error("null data is not read back as null")
	}
	if r := c.must(OpGetData, "/b", false); r.body.buffer() == nil {
		t.Error("empty data is read back as null")
	}
}

func (c *client) statIs(path string, want Stat) {
	c.t.Helper()
	if _, got, ok := c.p.server.Get(path); !ok || got != want {
		c.t.Errorf("Stat of %s: %+v, want %+v", path, got, want)
	}
	r := c.must(OpExists, path, false)
	if got := r.body.stat(); got != want || r.body.err != nil || len(r.body.b) > 0 {
		c.t.Errorf("Stat of %s on the wire: %+v, want %+v", path, got, want)
	}
}

// TestWhatCheckersRead: the znodes in order, without ZooKeeper's own, also after changes.
func TestWhatCheckersRead(t *testing.T) {
	s := New(Options{})
	c := begin(t, s)
	var got []string
	look := func() {
		got = append(got, strings.Join(s.Children("/"), " "))
		s.Walk(func(path string, data []byte, _ Stat) { got = append(got, path+"="+string(data)) })
	}
	look()
	c.create("/b", 0)
	c.must(OpCreate, "/a", []byte("x"), worldAll, 0)
	c.create("/b/c", 0)
	look()
	c.must(OpDelete, "/a", -1)
	c.must(OpDelete, "/b/c", -1)
	look()
	want := []string{"zookeeper", "a b zookeeper", "/a=x", "/b=", "/b/c=", "b zookeeper", "/b="}
	if !slices.Equal(got, want) {
		t.Errorf("seen %q, want %q", got, want)
	}
	if _, _, ok := s.Get("/a"); ok || s.Children("/a") != nil {
		t.Error("a deleted znode is found")
	}
}

// TestMultiRollsBack: a refused transaction leaves nothing but a used zxid, wherever it fails.
func TestMultiRollsBack(t *testing.T) {
	s := New(Options{})
	c := begin(t, s)
	c.create("/p", 0)
	c.create("/p/s-", Sequential)
	c.create("/p/e", Ephemeral)
	c.create("/q", 0)
	good := []operation{
		check("/p", 0), create("/p/s-", Sequential), create("/p/s-", Sequential|Ephemeral), remove("/p/e", 0),
		set("/p", "x", 0), set("/p", "y", 1), create("/p/n", 0), create("/p/n/m", 0), remove("/p/n/m", 0), remove("/q", 0),
		{OpCreate2, []any{"/q", []byte("again"), worldAll, 0}}, remove("/p/s-0000000000", 0),
	}
	watcher := begin(t, s)
	watcher.must(OpGetChildren, "/p", true)
	watcher.must(OpGetData, "/q", true)
	before, owned := snapshot(s), paths(s.tree.ownedBy(c.id))
	for i := range len(good) + 1 {
		ops := slices.Insert(slices.Clone(good), i, check("/p/none", -1))
		zxid := s.zxid
		codes, _ := c.multi(ops...)
		for j, code := range codes {
			if want := []Code{OK, NoNode, RuntimeInconsistency}[min(max(j-i, -1), 1)+1]; code != want {
				t.Errorf("failure at %d: operation %d has %s, want %s", i, j, code, want)
			}
		}
		if s.zxid != zxid+1 || len(codes) != len(ops) {
			t.Errorf("failure at %d: %d zxids used, %d codes", i, s.zxid-zxid, len(codes))
		}
		if now := snapshot(s); now != before {
			t.Fatalf("failure at %d: it left\n%s\nnot\n%s", i, now, before)
		}
		if now := paths(s.tree.ownedBy(c.id)); !slices.Equal(now, owned) {
			t.Fatalf("failure at %d: the session owns %q, not %q", i, now, owned)
		}
	}
	if events := watcher.events(); events != nil {
		t.Errorf("refused transactions send %q", events)
	}
	made := []string{"/p/s-0000000002", "/p/s-0000000003", "/p/n", "/p/n/m", "/q"} // a create2 is answered as a create
	if codes, got := c.multi(good...); !slices.Equal(got, made) {
		t.Errorf("the transaction creates %q: %v", got, codes)
	}
	if got := paths(s.tree.ownedBy(c.id)); !slices.Equal(got, []string{"/p/s-0000000003"}) {
		t.Errorf("the session owns %q", got)
	}
	if events := watcher.events(); !slices.Equal(events, []string{"children /p", "deleted /q"}) {
		t.Errorf("the transaction sends %q", events)
	}
}

// snapshot is all that the server holds besides sessions and zxid.
func snapshot(s *Server) string {
	var b strings.Builder
	add := func(path string, data []byte, stat Stat) {
		b.WriteString(path + "=" + string(data) + " ")
		var e encoder
		e.stat(stat)
		e.acl(s.tree.nodes[path].acl)
		b.Write(e)
	}
	data, stat, _ := s.Get("/")
	add("/", data, stat)
	s.Walk(add)
	return b.String()
}

func paths(nodes []*node) []string {
	var list []string
	for _, n := range nodes {
		list = append(list, n.path)
	}
	return list
}

// TestMultiThatCannotBeRead is refused as a whole.
func TestMultiThatCannotBeRead(t *testing.T) {
	s := New(Options{})
	c := begin(t, s)
	for _, bad := range []operation{
		{OpSetACL, []any{"/", worldAll, -1}}, {OpGetData, []any{"/", false}}, {OpCheck, []any{"/"}},
	} {
		var e encoder
		for _, o := range []operation{create("/a", 0), bad} {
			e.opHeader(o.op, false, -1)
			e.values(o.body...)
		}
		zxid := s.zxid
		c.p.Handle(slices.Concat(header(OpMulti), e))
		if r := c.next(); r.code != MarshallingError || len(r.body.b) > 0 || r.zxid != zxid+1 {
			t.Errorf("%s: %s, %d bytes, zxid +%d", bad.op, r.code, len(r.body.b), r.zxid-zxid)
		}
		if _, _, ok := s.Get("/a"); ok {
			t.Errorf("%s: the operation before it was executed", bad.op)
		}
	}
	if codes, _ := c.multi(); codes != nil {
		t.Errorf("an empty transaction has codes %v", codes)
	}
}

// TestFrames: a frame of 1 MiB, an unknown operation or half a header ends the connection, but not the session.
func TestFrames(t *testing.T) {
	s := New(Options{})
	for _, c := range []struct {
		why   string
		frame []byte
		code  Code // of a reply before the end, with zxid -1
	}{
		{"too long", make([]byte, 1<<20), OK},
		{"too short", make([]byte, 7), OK},
		{"empty", nil, OK},
		{"unknown operation", header(77), Unimplemented},
		{"check alone", header(OpCheck), Unimplemented},
	} {
		k := begin(t, s)
		k.p.Handle(c.frame)
		if c.code != OK {
			if r := k.next(); r.code != c.code || r.zxid != -1 {
				t.Errorf("%s: %s, zxid %d", c.why, r.code, r.zxid)
			}
		}
		if !k.gone || len(k.got) > 0 || s.sessions[k.id] == nil {
			t.Errorf("%s: closed: %v, frames: %d, session: %v", c.why, k.gone, len(k.got), s.sessions[k.id] != nil)
		}
	}
	k := begin(t, s)
	data := make([]byte, 1<<20-1-8-4-len("/a")-4-len(worldAllOnWire)-4)
	if k.create("/a", 0); k.do(OpCreate, "/b", data, worldAll, 0).code != OK {
		t.Error("a frame of one byte less than 1 MiB is refused")
	}
}

// TestTextOnTheWire: what is not UTF-8 is replaced, and a character beyond 65536 is two surrogates, as in Java.
func TestTextOnTheWire(t *testing.T) {
	c := begin(t, New(Options{}))
	for sent, want := range map[string]string{
		"/é": "/é", "/\xff": "/\ufffd", "/😀": "/\xed\xa0\xbd\xed\xb8\x80",
	} {
		r := c.must(OpSync, []byte(sent)) // which, unlike a string here, goes out as it is
		if got := string(r.body.buffer()); got != want {
			t.Errorf("%q comes back as %q, want %q", sent, got, want)
		}
	}
}
