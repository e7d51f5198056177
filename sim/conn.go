package sim

import (
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// conn is a process's end of a connection in memory. Writes never block: whole messages go to the scheduler, which
// decides when the server gets them. Reads wait for what the scheduler delivers.
type conn struct {
	world  *World
	life   *Process
	server serverEnd
	name   string // of the connection among those of its life

	mu       sync.Mutex
	in       []byte // delivered and not yet read
	partial  []byte // written, not yet a whole message
	closed   bool   // by the process
	broken   error  // what reads and writes say once the connection is gone
	deadline time.Time
	changed  chan struct{} // holds an element when a waiting Read must look again

	timer *time.Timer // of Read

	// The scheduler's side. The process's goroutines only append to requests, under mu.
	requests []message // on the way to the server
	replies  []message // on the way to the process
	gone     bool      // the process no longer has it: replies are lost, requests may still arrive
	over     bool      // the server no longer has it
	session  int64
}

// message is one request, reply or event on its way.
type message struct {
	bytes []byte // as on the wire; nil: the end of the connection
	label string
	ping  bool
}

// serverEnd is the server's end of one connection.
type serverEnd interface {
	// split is the length of the first whole message in what a process wrote; 0 if it is not whole yet.
	split(b []byte) int
	// label describes a request in a trace. It is called in order of sending.
	label(request []byte) (label string, ping bool)
	// handle gives a request to the server, which answers through what it was opened with. False ends the connection.
	handle(request message) (open bool)
	// lost tells the server that the connection is gone.
	lost()
}

func newConn(w *World, life *Process, name string) *conn {
	return &conn{world: w, life: life, name: name, changed: make(chan struct{}, 1)}
}

func (c *conn) notify() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

// Write sends b. It never blocks.
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
	for n := c.server.split(rest); n > 0; n = c.server.split(rest) {
		m := message{bytes: slices.Clone(rest[:n])}
		m.label, m.ping = c.server.label(m.bytes)
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
		if c.timer == nil {
			c.timer = time.NewTimer(left)
		} else {
			c.timer.Reset(left)
		}
		select {
		case <-c.changed:
			c.timer.Stop()
		case <-c.timer.C:
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

// Close closes the process's end.
func (c *conn) Close() error {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	c.mu.Unlock()
	c.notify()
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
	c.notify()
}

// push takes what the server sends.
func (c *conn) push(m message) {
	if !c.gone {
		c.replies = append(c.replies, m)
	}
}

// end is the server's end of the connection: the process sees it after what was sent before.
func (c *conn) end() {
	if !c.over {
		c.over = true
		c.server.lost()
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
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.requests) == 0 {
		return message{}, false
	}
	m := c.requests[0]
	c.requests = c.requests[1:]
	return m, true
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
	c.notify()
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

// LocalAddr names the process.
func (c *conn) LocalAddr() net.Addr { return addr(c.life.String()) }

// RemoteAddr names the connection.
func (c *conn) RemoteAddr() net.Addr { return addr(c.name) }

type addr string

func (a addr) Network() string { return "sim" }
func (a addr) String() string  { return string(a) }
