package sim

import (
	"encoding/binary"
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"time"

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
	xid, code, ops := zkmodel.ReadRequest(frame[4:])
	label := labelOf(ops)
	if len(ops) == 0 {
		label = opName(code)
	}
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
	if !f.shaken { // the version of the protocol, the session's timeout and id
		f.shaken, m.label = true, "connect"
		f.c.session = int64(binary.BigEndian.Uint64(frame[8:]))
		f.c.push(m)
		return
	}
	switch xid := int32(binary.BigEndian.Uint32(frame)); xid {
	case xidEvent: // after the header of 16 bytes: kind, state, and the path with its length
		kind := binary.BigEndian.Uint32(frame[16:])
		m.label = "event " + eventName(kind) + " " + readable(string(frame[28:]))
	case xidPing:
		m.label, m.ping = "ping", true
	default:
		m.label = f.sent[xid]
		delete(f.sent, xid)
	}
	f.c.push(m)
}

func eventName(kind uint32) string {
	names := []string{1: "created", 2: "deleted", 3: "changed", 4: "children"}
	if int(kind) < len(names) {
		return names[kind]
	}
	return fmt.Sprintf("kind %d", kind)
}

// Foreign is a server besides ZooKeeper, whose messages the scheduler moves as it does ZooKeeper's. All its functions
// are called one after the other.
type Foreign struct {
	Name string
	// Frame is the length of the first whole request in b; 0 if it is not whole yet.
	Frame func(b []byte) int
	// Open begins a connection. handle gets its requests. It sends each reply by out, now or later. lost is called once,
	// when the connection is gone.
	Open func(out func(reply []byte)) (handle func(request []byte), lost func())
	// Label describes a request in a trace, without what differs from run to run.
	Label func(request []byte) string
	// Due does what is due at a time, and returns when something will be due next; zero: never. May be nil.
	Due func(now time.Time) time.Time
	// Restart is called when the server comes up again after an outage: it forgets what a restart loses. May be nil.
	Restart func()
}

// foreign is a Foreign in a world.
type foreign struct {
	Foreign
	down atomic.Bool
}

// Foreign adds a server that processes reach by Process.Conn.
func (w *World) Foreign(f Foreign) { w.foreign = append(w.foreign, &foreign{Foreign: f}) }

// Conn connects to the Foreign of this name. It is refused during an outage.
func (p *Process) Conn(name string) (net.Conn, error) {
	for _, f := range p.world.foreign {
		if f.Name != name {
			continue
		}
		if f.down.Load() {
			return nil, fmt.Errorf("%s: %w", name, syscall.ECONNREFUSED)
		}
		return p.connect(":"+name, func(c *conn) serverEnd { return &foreignEnd{c: c, foreign: f} })
	}
	return nil, fmt.Errorf("the world has no server %q", name)
}

// foreignEnd is a connection to a Foreign.
type foreignEnd struct {
	c       *conn
	foreign *foreign
	handler func([]byte)
	closer  func()
	asked   []string // labels of requests without a reply
}

func (f *foreignEnd) split(b []byte) int { return f.foreign.Frame(b) }

func (f *foreignEnd) label(request []byte) (string, bool) {
	return readable(f.foreign.Label(request)), false
}

func (f *foreignEnd) handle(m message) bool {
	if f.handler == nil {
		f.handler, f.closer = f.foreign.Open(f.reply)
	}
	f.asked = append(f.asked, m.label)
	f.handler(m.bytes)
	return true
}

func (f *foreignEnd) reply(b []byte) {
	m := message{bytes: append([]byte(nil), b...), label: "message"}
	if len(f.asked) > 0 {
		m.label, f.asked = f.asked[0], f.asked[1:]
	}
	f.c.push(m)
}

func (f *foreignEnd) lost() {
	if f.closer != nil {
		f.closer()
	}
}

// setDown begins or ends an outage. It breaks all connections.
func (w *World) setDown(f *foreign, down bool) {
	f.down.Store(down)
	if !down {
		if f.Restart != nil {
			f.Restart()
		}
		return
	}
	for _, c := range w.conns {
		if e, ok := c.server.(*foreignEnd); ok && e.foreign == f {
			c.end()
			c.sever()
		}
	}
}

// readable replaces in a path what differs from run to run: ids of at least 16 hexadecimal digits, and UUIDs.
func readable(path string) string {
	for i := 0; i < len(path); i++ {
		n := idLength(path[i:])
		if n > 0 {
			path = path[:i] + "<id>" + path[i+n:]
			i += len("<id>")
			continue
		}
		for i < len(path) && isHex(path[i]) {
			i++
		}
	}
	return path
}

// idLength is the length of the id with which s begins; 0 if it begins with none.
func idLength(s string) int {
	digits := 0
	for digits < len(s) && isHex(s[digits]) {
		digits++
	}
	if digits >= 16 {
		return digits
	}
	const uuid = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"
	if digits != 8 || len(s) < len(uuid) {
		return 0
	}
	for i := range len(uuid) {
		if uuid[i] == 'x' && !isHex(s[i]) || uuid[i] == '-' && s[i] != '-' {
			return 0
		}
	}
	return len(uuid)
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' }
