package zkmodel

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// clock is a time that a test sets.
type clock struct{ now time.Time }

func newClock() *clock                 { return &clock{time.UnixMilli(1_000_000)} }
func (c *clock) read() time.Time       { return c.now }
func (c *clock) pass(by time.Duration) { c.now = c.now.Add(by) }

// TestClose: a closed session is answered, and ends with its ephemeral znodes in one transaction.
func TestClose(t *testing.T) {
	var ends []*Txn
	s := New(Options{Applied: func(t *Txn) {
		if t.Ops[0].Type == OpClose {
			ends = append(ends, t)
		}
	}})
	a, b := begin(t, s), begin(t, s)
	b.create("/e", Ephemeral)
	b.create("/d", Ephemeral)
	b.create("/f", 0)
	a.must(OpGetChildren, "/", true)
	a.must(OpGetData, "/e", true)
	b.must(OpGetData, "/e", true)
	zxid := s.zxid
	b.send(OpClose)
	if own, r := b.next(), b.next(); event(&own) != "deleted /e" || r.code != OK || r.zxid != zxid+1 || !b.gone {
		t.Errorf("own event %+v, reply %+v, closed: %v", own, r, b.gone)
	}
	if got := a.events(); !slices.Equal(got, []string{"children /", "deleted /e"}) {
		t.Errorf("events %q", got)
	}
	if got := s.Children("/"); !slices.Equal(got, []string{"f", "zookeeper"}) || s.zxid != zxid+1 {
		t.Errorf("left: %q, zxid +%d", got, s.zxid-zxid)
	}
	if _, root, _ := s.Get("/"); root.Pzxid != zxid+1 {
		t.Errorf("pzxid %d", root.Pzxid)
	}
	want := []Op{{Type: OpClose, Version: -1}, {Type: OpDelete, Path: "/d", Version: -1},
		{Type: OpDelete, Path: "/e", Version: -1}}
	if len(ends) != 1 || ends[0].Session != b.id || ends[0].Zxid != zxid+1 || len(ends[0].Ops) != len(want) {
		t.Fatalf("Applied gets %+v", ends)
	}
	for i, o := range ends[0].Ops {
		if o.Type != want[i].Type || o.Path != want[i].Path || o.Version != want[i].Version {
			t.Errorf("operation %d: %+v, want %+v", i, o, want[i])
		}
	}
	if again := connect(t, s, time.Second, b.id, b.key); again.id != 0 || len(s.tree.ownedBy(b.id)) > 0 {
		t.Error("a closed session can be resumed")
	}
}

// TestExpiry: a session ends when it was silent for its timeout. Everything but a credential is a sign of life.
func TestExpiry(t *testing.T) {
	now := newClock()
	s := New(Options{Now: now.read})
	c := connect(t, s, 4*time.Second, 0, nil)
	c.create("/e", Ephemeral)
	signs := []func(){
		func() { c.must(OpPing) },
		func() { c.must(OpSync, "/") },
		func() { c.do(OpGetData, "/none", false) },
		func() { c = connect(t, s, 4*time.Second, c.id, c.key) },
	}
	for i, sign := range signs {
		now.pass(4*time.Second - 1)
		s.ExpireDue(now.now)
		if len(s.Sessions()) != 1 {
			t.Fatalf("expired too early after sign %d", i)
		}
		sign()
	}
	now.pass(3 * time.Second)
	c.must(OpAuth, 0, "digest", []byte("a:b"))
	now.pass(time.Second)
	zxid := s.zxid
	s.ExpireDue(now.now)
	if _, _, ok := s.Get("/e"); ok || len(s.Sessions()) > 0 || !c.gone || s.zxid != zxid+1 {
		t.Errorf("not expired: %+v, closed: %v, zxid +%d", s.Sessions(), c.gone, s.zxid-zxid)
	}
	s.Expire(c.id) // is no session any more
	if s.zxid != zxid+1 {
		t.Error("a session expires twice")
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
	const aclSize = 4 + 4 + 4 + len("world") + 4 + len("anyone")
	data := make([]byte, 1<<20-1-8-4-len("/a")-4-aclSize-4)
	if k.create("/a", 0); k.do(OpCreate, "/b", data, worldAll, 0).code != OK {
		t.Error("a frame of one byte less than 1 MiB is refused")
	}
}

// TestApplied gets each transaction in order, with what came of it.
func TestApplied(t *testing.T) {
	var got []string
	var s *Server
	s = New(Options{Applied: func(t *Txn) {
		text := fmt.Sprintf("%d %v %s:", t.Zxid, t.Multi, t.Err)
		for _, o := range t.Ops {
			_, _, there := s.Get(o.Path) // the hook sees the state after the transaction
			text += fmt.Sprintf(" %s %s %q %d %d %s %v", o.Type, o.Path, o.Data, o.Version, o.Flags, o.Err, there)
		}
		got = append(got, text)
	}})
	c := begin(t, s) // 1
	c.must(OpCreate, "/s-", []byte("x"), worldAll, Sequential|Ephemeral)
	c.do(OpDelete, "/s-0000000000", 3)
	c.multi(set("/s-0000000000", "y", 0), create("/n", 0), check("/none", 2), remove("/n", 0))
	c.multi(check("/s-0000000000", 0))
	c.must(OpGetData, "/", false)
	c.do(OpDelete)
	want := []string{
		`2 false ok: create /s-0000000000 "x" -1 3 ok true`,
		`3 false bad version: delete /s-0000000000 "" 3 0 bad version true`,
		`4 true no node: set /s-0000000000 "y" 0 0 ok true create /n "" -1 0 ok false` +
			` check /none "" 2 0 no node false delete /n "" 0 0 another operation was refused false`,
		`5 true ok: check /s-0000000000 "" 0 0 ok true`,
		`6 false marshalling error:`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
}

// TestIgnore: a mutant does not look at the guard, and only at that one.
func TestIgnore(t *testing.T) {
	var ignored string
	var asked []string
	s := New(Options{Ignore: func(t *Txn, op int) bool {
		guard := t.Ops[op].Type.String() + " " + t.Ops[op].Path
		asked = append(asked, guard)
		return guard == ignored
	}})
	c := begin(t, s)
	c.create("/a", 0)
	guards := map[string]operation{
		"check /a": check("/a", 9), "check /none": check("/none", -1), "set /a": set("/a", "", 9),
		"delete /b": remove("/b", 9),
	}
	for guard, o := range guards {
		for _, ignored = range []string{guard, "check /other"} {
			c.do(OpCreate, "/b", []byte{}, worldAll, 0)
			want := OK
			if ignored != guard {
				want = map[string]Code{"check /none": NoNode}[guard]
				if want == OK {
					want = BadVersion
				}
			}
			if codes, _ := c.multi(o); codes[0] != want {
				t.Errorf("%s with %s ignored: %s, want %s", guard, ignored, codes[0], want)
			}
		}
	}
	asked = nil
	c.multi(set("/a", "", -1), create("/c", 0), remove("/c", -1), check("/a", -1))
	if !slices.Equal(asked, []string{"check /a"}) {
		t.Errorf("guards asked for: %q", asked)
	}
	ignored = "delete /none"
	if code := c.do(OpDelete, "/none", 3).code; code != NoNode {
		t.Errorf("a delete without its version of what does not exist: %s", code)
	}
}

// client is a client whose frames the test owns. It encodes with the model's own encoder: that the format is
// ZooKeeper's is shown against real servers and with real client libraries.
type client struct {
	t    *testing.T
	p    *Peer
	got  [][]byte
	gone bool // the server has closed the connection
	id   int64
	key  []byte
}

// reply is a reply or an event.
type reply struct {
	xid  int32
	zxid int64
	code Code
	body decoder
}

// connect opens a connection and begins a session, or resumes the one with the id.
func connect(t *testing.T, s *Server, timeout time.Duration, id int64, key []byte) *client {
	t.Helper()
	c := &client{t: t}
	c.p = s.Open(func(frame []byte) {
		if c.gone {
			t.Error("the server sends something after it closed the connection")
		}
		if frame == nil {
			c.gone = true
			return
		}
		c.got = append(c.got, frame)
	})
	var e encoder
	e.int32(0)
	e.int64(0)
	e.int32(int32(timeout / time.Millisecond))
	e.int64(id)
	e.buffer(key)
	c.p.Handle(e)
	if len(c.got) > 0 {
		d := decoder{b: c.got[0]}
		d.take(8)
		c.id, c.key, c.got = d.int64(), d.buffer(), nil
	}
	return c
}

func begin(t *testing.T, s *Server) *client {
	t.Helper()
	return connect(t, s, 10*time.Second, 0, make([]byte, 16))
}

// send sends a request without waiting for anything.
func (c *client) send(op OpType, body ...any) {
	var e encoder
	e.int32(7)
	e.int32(int32(op))
	e.values(body...)
	if open := c.p.Handle(e); open == c.gone {
		c.t.Errorf("Handle returns %v, but the connection is closed: %v", open, c.gone)
	}
}

// values appends each value in its form on the wire.
func (e *encoder) values(values ...any) {
	for _, v := range values {
		switch v := v.(type) {
		case string:
			e.string(v)
		case []byte:
			e.buffer(v)
		case int:
			e.int32(int32(v))
		case int64:
			e.int64(v)
		case bool:
			e.bool(v)
		case []ACL:
			e.acl(v)
		case []string:
			e.strings(v)
		case Flags:
			e.int32(int32(v))
		default:
			panic(fmt.Sprintf("no form for a %T", v))
		}
	}
}

// next returns what came next from the server.
func (c *client) next() reply {
	c.t.Helper()
	if len(c.got) == 0 {
		c.t.Fatal("no reply")
	}
	d := decoder{b: c.got[0]}
	c.got = c.got[1:]
	return reply{d.int32(), d.int64(), Code(d.int32()), d}
}

// do sends a request and returns its reply. Events before it must have been taken.
func (c *client) do(op OpType, body ...any) reply {
	c.t.Helper()
	c.send(op, body...)
	return c.next()
}

// must is do for a request that succeeds.
func (c *client) must(op OpType, body ...any) reply {
	c.t.Helper()
	r := c.do(op, body...)
	if r.code != OK {
		c.t.Fatalf("%s %v: %s", op, body, r.code)
	}
	return r
}

// create creates a znode that everybody may use and returns its path.
func (c *client) create(path string, flags Flags) string {
	c.t.Helper()
	r := c.must(OpCreate, path, []byte{}, worldAll, flags)
	return r.body.string()
}

// events takes all that came and returns the events as text; something else fails the test.
func (c *client) events() []string {
	c.t.Helper()
	var list []string
	for len(c.got) > 0 {
		r := c.next()
		if r.xid != eventXid || r.zxid != -1 {
			c.t.Fatalf("not an event: %+v", r)
		}
		list = append(list, event(&r))
	}
	return list
}

func event(r *reply) string {
	kind := eventType(r.body.int32())
	if state := r.body.int32(); state != syncConnected {
		return fmt.Sprintf("state %d", state)
	}
	names := map[eventType]string{
		nodeCreated: "created", nodeDeleted: "deleted", nodeDataChanged: "changed", nodeChildrenChanged: "children",
	}
	return names[kind] + " " + r.body.string()
}

// stat reads a Stat from a reply.
func (d *decoder) stat() Stat {
	var s Stat
	s.Czxid, s.Mzxid, s.Ctime, s.Mtime = d.int64(), d.int64(), d.int64(), d.int64()
	s.Version, s.Cversion, s.Aversion = d.int32(), d.int32(), d.int32()
	s.EphemeralOwner, s.DataLength, s.NumChildren, s.Pzxid = d.int64(), d.int32(), d.int32(), d.int64()
	return s
}

// operation is one operation of a transaction.
type operation struct {
	op   OpType
	body []any
}

func check(path string, version int) operation { return operation{OpCheck, []any{path, version}} }
func remove(path string, version int) operation {
	return operation{OpDelete, []any{path, version}}
}

func set(path, data string, version int) operation {
	return operation{OpSetData, []any{path, []byte(data), version}}
}

func create(path string, flags Flags) operation {
	return operation{OpCreate, []any{path, []byte{}, worldAll, flags}}
}

// multi sends a transaction and returns the code of each operation, and the paths of those that were created.
func (c *client) multi(ops ...operation) (codes []Code, paths []string) {
	c.t.Helper()
	var e encoder
	for _, o := range ops {
		e.opHeader(o.op, false, -1)
		e.values(o.body...)
	}
	e.opHeader(opError, true, -1)
	c.p.Handle(slices.Concat(header(OpMulti), e))
	r := c.next()
	for {
		op, done, code := OpType(r.body.int32()), r.body.bool(), Code(r.body.int32())
		if done || r.body.bad {
			return codes, paths
		}
		codes = append(codes, code)
		switch op {
		case opError:
			if again := Code(r.body.int32()); again != code {
				c.t.Errorf("an operation failed with %s and %s", code, again)
			}
		case OpCreate:
			paths = append(paths, r.body.string())
		case OpSetData:
			r.body.stat()
		}
	}
}

func header(op OpType) []byte {
	var e encoder
	e.int32(7)
	e.int32(int32(op))
	return e
}
