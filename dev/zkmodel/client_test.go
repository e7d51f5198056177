package zkmodel

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

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
		if done || r.body.err != nil {
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
