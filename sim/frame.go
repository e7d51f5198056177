package sim

import (
	"encoding/binary"
	"fmt"
	"strings"

	"muster/dev/zkmodel"
)

// Numbers of ZooKeeper's wire format: of all events, and of all pings.
const (
	xidEvent = -1
	xidPing  = -2
)

// opName is how a trace names an operation.
func opName(code zkmodel.OpType) string {
	switch code {
	case zkmodel.OpCreate2:
		return "create"
	case zkmodel.OpGetData:
		return "get"
	case zkmodel.OpSetData:
		return "set"
	case zkmodel.OpGetChildren, zkmodel.OpGetChildren2:
		return "children"
	case zkmodel.OpSetWatches:
		return "watches"
	}
	return code.String()
}

// zkEnd is a connection to the model of ZooKeeper.
type zkEnd struct {
	c      *conn
	server *zkmodel.Server
	peer   *zkmodel.Peer    // nil until the server has the handshake
	begun  bool             // the handshake was sent
	shaken bool             // it was answered
	sent   map[int32]string // xid → label of a request without a reply
}

func newZKEnd(c *conn, s *zkmodel.Server) *zkEnd {
	return &zkEnd{c: c, server: s, sent: map[int32]string{}}
}

func (f *zkEnd) split(b []byte) int {
	if len(b) < 4 {
		return 0
	}
	if n := 4 + int(binary.BigEndian.Uint32(b)); n <= len(b) {
		return n
	}
	return 0
}

func (f *zkEnd) label(frame []byte) (string, bool) {
	if !f.begun {
		f.begun = true
		return "connect", false
	}
	r := reader{frame[4:]}
	xid, code := r.int32(), zkmodel.OpType(r.int32())
	label := requestLabel(code, &r)
	if xid >= 0 {
		f.sent[xid] = label
	}
	return label, xid == xidPing
}

func (f *zkEnd) handle(m message) bool {
	if f.peer == nil {
		f.peer = f.server.Open(f.reply)
	}
	return f.peer.Handle(m.bytes[4:])
}

func (f *zkEnd) lost() {
	if f.peer != nil {
		f.peer.Lost()
	}
}

// reply takes a frame of the model: the answer to the handshake, an event or a reply. nil is the end.
func (f *zkEnd) reply(frame []byte) {
	if frame == nil {
		f.c.end()
		return
	}
	m := message{bytes: binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(frame)), uint32(len(frame)))}
	m.bytes = append(m.bytes, frame...)
	r := reader{frame}
	if !f.shaken {
		f.shaken, m.label = true, "connect"
		r.skip(8)
		f.c.session = r.int64()
		f.c.push(m)
		return
	}
	xid := r.int32()
	r.skip(12)
	switch xid {
	case xidEvent:
		kind := r.int32()
		r.skip(4)
		m.label = "event " + eventName(kind) + " " + readable(r.string())
	case xidPing:
		m.label, m.ping = "ping", true
	default:
		m.label = f.sent[xid]
		delete(f.sent, xid)
	}
	f.c.push(m)
}

func eventName(kind int32) string {
	switch kind {
	case 1:
		return "created"
	case 2:
		return "deleted"
	case 3:
		return "changed"
	case 4:
		return "children"
	}
	return fmt.Sprintf("kind %d", kind)
}

// operation is one operation of a request.
type operation struct {
	code       zkmodel.OpType
	path       string
	sequential bool
	version    int32 // -1: none is named
}

func (o operation) String() string {
	return opText(o.code, readable(o.path), o.sequential, o.version != -1)
}

// operations reads the body of a request; none of those without a path.
func operations(code zkmodel.OpType, r *reader) []operation {
	switch code {
	case zkmodel.OpPing, zkmodel.OpClose, zkmodel.OpAuth, zkmodel.OpSetWatches:
		return nil
	case zkmodel.OpMulti:
		var ops []operation
		for len(r.b) > 0 {
			op := zkmodel.OpType(r.int32())
			done := r.bool()
			r.skip(4)
			if done {
				break
			}
			ops = append(ops, readOperation(op, r))
		}
		return ops
	}
	return []operation{readOperation(code, r)}
}

func requestLabel(code zkmodel.OpType, r *reader) string {
	ops := operations(code, r)
	if len(ops) == 0 {
		return opName(code)
	}
	texts := make([]string, len(ops))
	for i, op := range ops {
		texts[i] = op.String()
	}
	return strings.Join(texts, ", ")
}

func readOperation(code zkmodel.OpType, r *reader) operation {
	o := operation{code: code, path: r.string(), version: -1}
	switch code {
	case zkmodel.OpCreate, zkmodel.OpCreate2:
		r.skipString()
		for n := r.int32(); n > 0 && len(r.b) > 0; n-- {
			r.skip(4)
			r.skipString()
			r.skipString()
		}
		o.sequential = zkmodel.Flags(r.int32())&zkmodel.Sequential != 0
	case zkmodel.OpSetData:
		r.skipString()
		o.version = r.int32()
	case zkmodel.OpDelete, zkmodel.OpCheck:
		o.version = r.int32()
	}
	return o
}

// opText describes an operation: # stands for the number of a new znode, and @v for a version.
func opText(code zkmodel.OpType, path string, sequential, versioned bool) string {
	var number, version string
	if sequential {
		number = "#"
	}
	if versioned {
		version = "@v"
	}
	return opName(code) + " " + path + number + version
}

// reader reads the fields of ZooKeeper's wire format. Beyond the end it reads zeros.
type reader struct{ b []byte }

func (r *reader) skip(n int) { r.b = r.b[min(max(n, 0), len(r.b)):] }

func (r *reader) int32() int32 {
	if len(r.b) < 4 {
		r.b = nil
		return 0
	}
	v := int32(binary.BigEndian.Uint32(r.b))
	r.b = r.b[4:]
	return v
}

func (r *reader) int64() int64 {
	high := r.int32()
	return int64(high)<<32 | int64(uint32(r.int32()))
}

func (r *reader) bool() bool {
	if len(r.b) == 0 {
		return false
	}
	v := r.b[0] != 0
	r.b = r.b[1:]
	return v
}

func (r *reader) skipString() { r.skip(int(r.int32())) }

func (r *reader) string() string {
	n := max(int(r.int32()), 0)
	n = min(n, len(r.b))
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}
