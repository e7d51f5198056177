package zkmodel

import (
	"slices"
	"testing"
	"time"
)

// clock is a time that a test sets.
type clock struct{ now time.Time }

func newClock() *clock                 { return &clock{time.UnixMilli(1_000_000)} }
func (c *clock) read() time.Time       { return c.now }
func (c *clock) pass(by time.Duration) { c.now = c.now.Add(by) }

// TestResume: a session goes on after its connection, for the client that knows its password.
func TestResume(t *testing.T) {
	s := New(Options{})
	a := begin(t, s)
	a.create("/e", Ephemeral)
	if a.id == 0 || s.zxid != 2 {
		t.Errorf("session %d, zxid %d", a.id, s.zxid)
	}
	a.p.Lost()
	b := connect(t, s, time.Second, a.id, a.key)
	if b.id != a.id || b.gone || s.zxid != 2 {
		t.Fatalf("resumed session %d as %d, closed: %v, zxid %d", a.id, b.id, b.gone, s.zxid)
	}
	if info := s.Sessions(); len(info) != 1 || info[0].Timeout != time.Second || !info[0].Connected {
		t.Errorf("sessions %+v", info)
	}
	c := connect(t, s, time.Second, a.id, b.key)
	if !b.gone || c.gone {
		t.Error("a second connection does not take the session over")
	}
	if b.p.Handle(header(OpPing)) {
		t.Error("the first connection is still served")
	}
	b.p.Lost()
	if r := c.must(OpPing); r.xid != pingXid {
		t.Errorf("a ping is answered as request %d", r.xid)
	}
	if d := connect(t, s, time.Second, a.id, make([]byte, 16)); d.id != 0 || !d.gone || !c.gone {
		t.Errorf("wrong password: session %d, closed: %v; the connection before: %v", d.id, d.gone, c.gone)
	}
	if d := connect(t, s, time.Second, 99, a.key); d.id != 0 || !d.gone {
		t.Errorf("unknown session: %d, closed: %v", d.id, d.gone)
	}
	if _, _, ok := s.Get("/e"); !ok {
		t.Error("the ephemeral znode is gone")
	}
}

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
	if again := connect(t, s, time.Second, b.id, b.key); again.id != 0 || len(s.tree.ephemerals) > 0 {
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

// TestLostSessionExpires, and a connection that is lost after another took over changes nothing.
func TestLostSessionExpires(t *testing.T) {
	now := newClock()
	s := New(Options{Now: now.read})
	a := begin(t, s)
	b := connect(t, s, time.Second, a.id, a.key)
	a.p.Lost()
	if info := s.Sessions(); !info[0].Connected || info[0].Heard != now.now {
		t.Errorf("sessions %+v", info)
	}
	b.p.Lost()
	if info := s.Sessions(); info[0].Connected {
		t.Errorf("sessions %+v", info)
	}
	now.pass(time.Second)
	s.ExpireDue(now.now)
	if len(s.Sessions()) > 0 {
		t.Error("the session goes on")
	}
}

// TestTimeouts: the server grants what lies within its bounds.
func TestTimeouts(t *testing.T) {
	for _, c := range []struct{ least, most, asked, granted time.Duration }{
		{0, 0, time.Hour, time.Hour},
		{0, 0, -time.Hour, time.Millisecond},
		{2 * time.Second, 8 * time.Second, time.Second, 2 * time.Second},
		{2 * time.Second, 8 * time.Second, time.Minute, 8 * time.Second},
		{2 * time.Second, 8 * time.Second, 3 * time.Second, 3 * time.Second},
	} {
		s := New(Options{MinTimeout: c.least, MaxTimeout: c.most})
		connect(t, s, c.asked, 0, nil)
		if got := s.Sessions()[0].Timeout; got != c.granted {
			t.Errorf("asked %s: granted %s, want %s", c.asked, got, c.granted)
		}
	}
}

// TestHandshake: a client that has seen a later zxid is not served, nor one whose handshake is cut off. Older clients
// do not send a flag, and get none.
func TestHandshake(t *testing.T) {
	s := New(Options{})
	for _, c := range []struct {
		body   []any
		answer int // bytes; 0: closed
	}{
		{[]any{0, int64(0), 1000, int64(0), []byte{}}, 36},
		{[]any{0, int64(0), 1000, int64(0), []byte{}, true}, 37},
		{[]any{0, int64(99), 1000, int64(0), []byte{}}, 0},
		{[]any{0, int64(0), 1000, int64(0)}, 0},
	} {
		var e encoder
		e.values(c.body...)
		var got []byte
		if open := s.Open(func(b []byte) { got = b }).Handle(e); len(got) != c.answer || open != (c.answer > 0) {
			t.Errorf("%v: %d bytes, open: %v", c.body, len(got), open)
		}
	}
}
