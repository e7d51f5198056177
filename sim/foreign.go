package sim

import (
	"fmt"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

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
