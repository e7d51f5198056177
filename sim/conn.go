package sim

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"muster/dev/zkmodel"
)

// conn is a process's end of a connection in memory. Writes never block: whole messages go to the scheduler, which
// decides when the server gets them. Reads wait for what the scheduler delivers.
type conn struct {
	world *World
	life  *Process
	to    *foreign
	name  string // of the connection among those of its life

	mu       sync.Mutex
	in       []byte // delivered and not yet read
	partial  []byte // written, not yet a whole message
	closed   bool   // by the process
	broken   error  // what reads and writes say once the connection is gone
	deadline time.Time
	changed  chan struct{} // holds an element when a waiting Read must look again

	// The scheduler's side. The process's goroutines only append to requests, under mu.
	requests []message // on the way to the server
	replies  []message // on the way to the process
	gone     bool      // the process no longer has it: replies are lost, requests may still arrive
	over     bool      // the server no longer has it
	session  int64
	handler  func(request []byte) // nil before the first request
	closer   func()
	asked    []string // labels of requests without a reply
}

// message is one request, reply or event on its way.
type message struct {
	bytes []byte // as on the wire; nil: the end of the connection
	label string
	ping  bool
}

func newConn(w *World, life *Process, name string, to *foreign) *conn {
	return &conn{world: w, life: life, name: name, to: to, changed: make(chan struct{}, 1)}
}

func (c *conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return 0, net.ErrClosed
	case c.broken != nil:
		return 0, c.broken
	}
	rest := b
	if len(c.partial) > 0 {
		c.partial = append(c.partial, b...)
		rest = c.partial
	}
	for n := c.to.Frame(rest); n > 0; n = c.to.Frame(rest) {
		m := message{bytes: slices.Clone(rest[:n])}
		m.label = readable(c.to.Label(m.bytes))
		m.ping = m.label == labelPing && c.to == c.world.zk
		c.requests = append(c.requests, m)
		rest = rest[n:]
		c.world.wake()
	}
	c.partial = append(c.partial[:0], rest...)
	return len(b), nil
}

// Read waits for what the scheduler delivers, for the end of the connection or for the deadline.
func (c *conn) Read(b []byte) (int, error) {
	for {
		n, deadline, err := c.take(b)
		if n > 0 || err != nil {
			return n, err
		}
		if deadline.IsZero() {
			<-c.changed
			continue
		}
		left := time.Until(deadline)
		if left <= 0 {
			return 0, os.ErrDeadlineExceeded
		}
		select {
		case <-c.changed:
		case <-time.After(left):
		}
	}
}

func (c *conn) take(b []byte) (int, time.Time, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, c.deadline, net.ErrClosed
	}
	if len(c.in) == 0 {
		return 0, c.deadline, c.broken
	}
	n := copy(b, c.in)
	if c.in = c.in[n:]; len(c.in) == 0 {
		c.in = nil
	}
	return n, c.deadline, nil
}

func (c *conn) Close() error {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	c.mu.Unlock()
	notify(c.changed)
	if first {
		c.world.wake()
	}
	return nil
}

// deliver hands bytes to the process, which then owns them.
func (c *conn) deliver(b []byte) {
	c.mu.Lock()
	if len(c.in) == 0 {
		c.in = b
	} else {
		c.in = append(c.in, b...)
	}
	c.mu.Unlock()
	notify(c.changed)
}

// lost tells the server that the connection is gone.
func (c *conn) lost() {
	if c.closer != nil {
		c.closer()
	}
}

// reply takes what the server sends: an event, or the answer to the oldest request. nil is the end.
func (c *conn) reply(b []byte) {
	if b == nil {
		c.end()
		return
	}
	m := message{bytes: b}
	if c.to.event != nil {
		m.label = c.to.event(b)
	}
	if m.label == "" && len(c.asked) > 0 {
		m.label, c.asked = c.asked[0], c.asked[1:]
	}
	m.label = cmp.Or(m.label, "message")
	m.ping = m.label == labelPing && c.to == c.world.zk
	if m.label == labelConnect && c.to == c.world.zk { // length, version of the protocol, the session's timeout and id
		c.session = int64(binary.BigEndian.Uint64(b[12:]))
	}
	c.push(m)
}

func (c *conn) push(m message) {
	if !c.gone {
		c.replies = append(c.replies, m)
	}
}

// end is the server's end of the connection: the process sees it after what was sent before.
func (c *conn) end() {
	if !c.over {
		c.over = true
		c.lost()
		c.push(message{label: "end"})
	}
	c.forget()
}

// request is the oldest request that the server does not have.
func (c *conn) request() (message, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.requests) == 0 || c.over {
		return message{}, false
	}
	return c.requests[0], true
}

func (c *conn) takeRequest() (message, bool) {
	m, ok := c.request()
	if ok {
		c.mu.Lock()
		c.requests = c.requests[1:]
		c.mu.Unlock()
	}
	return m, ok
}

// forget loses the requests on their way.
func (c *conn) forget() {
	c.mu.Lock()
	c.requests = nil
	c.mu.Unlock()
}

// sever ends the process's side of the connection. What was delivered can still be read.
func (c *conn) sever() {
	c.mu.Lock()
	if c.broken == nil {
		c.broken = syscall.ECONNRESET
	}
	c.mu.Unlock()
	c.gone, c.replies = true, nil
	notify(c.changed)
}

func (c *conn) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// SetDeadline sets the deadline of reads: writes never wait.
func (c *conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetReadDeadline sets the deadline of reads that begin after it; zero is none.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	c.deadline = t
	c.mu.Unlock()
	return nil
}

// SetWriteDeadline does nothing: writes never wait.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

func (c *conn) LocalAddr() net.Addr  { return addr(c.life.String()) }
func (c *conn) RemoteAddr() net.Addr { return addr(c.name) }

type addr string

func (a addr) Network() string { return "sim" }
func (a addr) String() string  { return string(a) }

// zooKeeper is the model of ZooKeeper as a server of a world.
func zooKeeper(s *zkmodel.Server) *foreign {
	return &foreign{Foreign: Foreign{Frame: wholeFrame, Label: requestLabel, Open: func(out func([]byte)) (
		func([]byte), func(),
	) {
		p := s.Open(func(frame []byte) {
			if frame != nil {
				length := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(frame)), uint32(len(frame)))
				frame = append(length, frame...)
			}
			out(frame)
		})
		return func(request []byte) { p.Handle(request[4:]) }, p.Lost
	}}, event: eventLabel}
}

func wholeFrame(b []byte) int {
	if len(b) < 4 {
		return 0
	}
	if n := 4 + int(binary.BigEndian.Uint32(b)); n <= len(b) {
		return n
	}
	return 0
}

// The labels of what the scheduler knows of ZooKeeper.
const (
	labelConnect = "connect"
	labelPing    = "ping"
)

func requestLabel(request []byte) string {
	xid, code, ops := zkmodel.ReadRequest(request[4:])
	switch {
	case xid == 0: // of no request: it is the version of the protocol, with which a handshake begins
		return labelConnect
	case len(ops) == 0:
		return code.String()
	}
	return labelOf(ops)
}

// eventLabel is the label of an event; "" for a reply. After the length and a header of 16 bytes it has its kind, the
// state, and the path with its length.
func eventLabel(frame []byte) string {
	const xidEvent = -1
	if int32(binary.BigEndian.Uint32(frame[4:])) != xidEvent {
		return ""
	}
	kind := binary.BigEndian.Uint32(frame[20:])
	name := fmt.Sprintf("kind %d", kind)
	if names := []string{1: "created", 2: "deleted", 3: "changed", 4: "children"}; int(kind) < len(names) {
		name = names[kind]
	}
	return "event " + name + " " + readable(string(frame[32:]))
}

// Foreign is a server besides ZooKeeper, whose messages the scheduler moves as it does ZooKeeper's. All its functions
// are called one after the other.
type Foreign struct {
	Name string
	// Frame is the length of the first whole request in b; 0 if it is not whole yet.
	Frame func(b []byte) int
	// Open begins a connection. handle gets its requests. It sends each reply by out, now or later, which owns it then;
	// nil ends the connection. lost is called once, when the connection is gone.
	Open func(out func(reply []byte)) (handle func(request []byte), lost func())
	// Label describes a request in a trace, without what differs from run to run.
	Label func(request []byte) string
	// Due does what is due at a time, and returns when something will be due next; zero: never. May be nil.
	Due func(now time.Time) time.Time
	// Restart is called when the server comes up again after an outage: it forgets what a restart loses. May be nil.
	Restart func()
}

type foreign struct {
	Foreign
	down  atomic.Bool
	event func(frame []byte) string // label of what nobody has asked for; nil: there is no such thing
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
		return p.connect(":"+name, f)
	}
	return nil, fmt.Errorf("the world has no server %q", name)
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
		if c.to == f {
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
