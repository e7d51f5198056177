// Package fault puts a proxy between clients and a server, which causes faults on demand: it cuts connections, holds
// back what is sent, and loses one request or its reply. It knows ZooKeeper's frames, and forwards all else as bytes,
// so that it may stand before a Redis too. Only tests import it.
package fault

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"time"
)

// Opcodes of requests, as in ZooKeeper's ZooDefs.OpCode.
const (
	OpCreate       int32 = 1
	OpDelete       int32 = 2
	OpExists       int32 = 3
	OpGetData      int32 = 4
	OpSetData      int32 = 5
	OpGetACL       int32 = 6
	OpSync         int32 = 9
	OpPing         int32 = 11
	OpGetChildren2 int32 = 12
	OpMulti        int32 = 14
	OpAuth         int32 = 100
	OpSetWatches   int32 = 101
	OpCloseSession int32 = -11
)

// Proxy forwards connections to one server and causes faults on demand. It reads ZooKeeper's frames to find the request
// for a fault; it forwards TLS and four-letter words without reading them. Faults apply to all connections, present and
// future. Its methods may be called concurrently.
type Proxy struct {
	target   string
	listener *net.TCPListener
	running  sync.WaitGroup

	mu       sync.Mutex
	linked   context.Context // of all connections, until Cut
	cut      context.CancelFunc
	open     *sync.WaitGroup // the clients' connections of linked
	refuse   bool
	delay    time.Duration
	hung     chan struct{} // closed by the end of Hang; nil while bytes flow
	muted    chan struct{} // likewise of Mute, for what servers send
	faults   []*fault
	requests map[int32]int
}

// NewProxy returns a Proxy that listens on a free port of 127.0.0.1 and forwards to target, which need not be reachable
// yet. The caller closes it.
func NewProxy(target string) (*Proxy, error) {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: target, listener: l, requests: map[int32]int{}}
	p.link()
	p.running.Go(p.accept)
	return p, nil
}

// Addr is the host:port for clients.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close cuts all connections and stops listening. It returns when all goroutines of the proxy have ended.
func (p *Proxy) Close() error {
	err := p.listener.Close()
	p.Refuse(true)
	p.Cut()
	p.running.Wait()
	return err
}

// Cut closes all connections, on both sides. Bytes that Delay or Hang holds back are lost. When it returns, no client
// can send anything on a connection of before.
func (p *Proxy) Cut() {
	p.mu.Lock()
	p.cut()
	open := p.open
	p.link()
	p.mu.Unlock()
	open.Wait()
}

// link begins the time until the next Cut.
func (p *Proxy) link() {
	p.linked, p.cut = context.WithCancel(context.Background())
	p.open = new(sync.WaitGroup)
}

// Refuse(true) resets new connections as soon as they are accepted. It keeps existing connections: to make the server
// unreachable, call Refuse and then Cut.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
}

// Delay delays every message by d in each direction, so a round trip takes 2d longer. Messages keep their order, and
// several can be delayed at once.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Hang(true) holds back all bytes in both directions; connections, also new ones, stay open. Hang(false) sends what was
// held back, so a request whose caller has given up may still be executed.
func (p *Proxy) Hang(on bool) { p.hold(&p.hung, on) }

// Mute(true) holds back what the server sends: it executes requests, and nobody hears of it. Mute(false) sends what was
// held back; Cut before that loses it.
func (p *Proxy) Mute(on bool) { p.hold(&p.muted, on) }

func (p *Proxy) hold(held *chan struct{}, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case on && *held == nil:
		*held = make(chan struct{})
	case !on && *held != nil:
		close(*held)
		*held = nil
	}
}

// DropReply arms a fault for the next request that matches: the server executes it, its reply is dropped, and its
// connection is cut. Earlier replies arrive. The channel is closed when the connection of the request is closed. match
// gets the opcode and the bytes of the request after its header. Several faults can be armed; each happens once.
func (p *Proxy) DropReply(match func(op int32, req []byte) bool) <-chan struct{} {
	return p.arm(dropReply, match)
}

// BeforeSend is like DropReply, but the request does not reach the server.
func (p *Proxy) BeforeSend(match func(op int32, req []byte) bool) <-chan struct{} {
	return p.arm(beforeSend, match)
}

// AfterReply is like DropReply, but the connection is cut just after the reply was delivered.
func (p *Proxy) AfterReply(match func(op int32, req []byte) bool) <-chan struct{} {
	return p.arm(afterReply, match)
}

// Requests counts the requests that clients sent, by opcode, with or without a fault. Handshakes are not requests.
func (p *Proxy) Requests() map[int32]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.requests)
}

const (
	dialTimeout = 5 * time.Second
	maxFrame    = 64 << 20 // larger than any frame of a server
	maxQueue    = 256      // messages that are delayed in one direction
)

// link is one client's connection and the connection to the server that belongs to it.
type link struct {
	client *net.TCPConn
	ctx    context.Context // ends when it is cut
	cut    context.CancelFunc

	mu      sync.Mutex
	pending map[int32]*fault // by the xid of its request
	fired   []*fault
}

// message is one frame, or some bytes of a stream without frames.
type message struct {
	bytes []byte
	due   time.Time
	last  bool // the link is cut after it is written
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.AcceptTCP()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // too many open files, most likely
			time.Sleep(10 * time.Millisecond)
			continue
		}
		p.add(client)
	}
}

// add serves a connection, or resets it if connections are refused. It holds the lock, so that Cut ends every
// connection that is not refused.
func (p *Proxy) add(client *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse {
		client.SetLinger(0)
		client.Close()
		return
	}
	l := &link{client: client, pending: map[int32]*fault{}}
	l.ctx, l.cut = context.WithCancel(p.linked)
	open := p.open
	open.Add(1)
	context.AfterFunc(l.ctx, func() {
		client.Close()
		open.Done()
	})
	p.running.Go(func() { p.serve(l) })
}

func (p *Proxy) serve(l *link) {
	defer func() {
		l.cut()
		l.client.Close()
		for _, f := range l.fired {
			close(f.done)
		}
	}()
	dialer := net.Dialer{Timeout: dialTimeout}
	c, err := dialer.DialContext(l.ctx, "tcp", p.target)
	if err != nil {
		return
	}
	defer c.Close()
	defer context.AfterFunc(l.ctx, func() { c.Close() })()
	server := c.(*net.TCPConn)
	var both sync.WaitGroup
	both.Go(func() { p.pump(l, server, l.client, p.request) })
	both.Go(func() { p.pump(l, l.client, server, p.reply) })
	both.Wait()
}

// pump copies one direction until src ends or the link is cut. inspect gets every frame after the handshake and may
// replace it.
func (p *Proxy) pump(l *link, dst, src *net.TCPConn, inspect func(*link, []byte) message) {
	queue := make(chan message, maxQueue)
	var writing sync.WaitGroup
	writing.Go(func() {
		if err := p.write(l, dst, queue); err != nil {
			l.cut()
		}
	})
	err := p.read(l, src, queue, inspect)
	close(queue)
	if !errors.Is(err, io.EOF) {
		l.cut()
	}
	writing.Wait()
}

// read reads messages from src into the queue. Its error is never nil.
func (p *Proxy) read(l *link, src io.Reader, queue chan<- message, inspect func(*link, []byte) message) error {
	r := bufio.NewReader(src)
	first, err := r.Peek(1)
	if err != nil {
		return err
	}
	next := readFrame
	if first[0] != 0 { // not the length of a frame: TLS, or a four-letter word
		next, inspect = readSome, passThrough
	}
	inspect, later := passThrough, inspect // the first frame is the handshake
	for {
		b, err := next(r)
		if err != nil {
			return err
		}
		m := inspect(l, b)
		inspect = later
		m.due = p.dueTime()
		select {
		case queue <- m:
		case <-l.ctx.Done():
			return net.ErrClosed
		}
	}
}

func passThrough(_ *link, b []byte) message { return message{bytes: b} }

func readFrame(r *bufio.Reader) ([]byte, error) {
	header, err := r.Peek(4)
	if err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(header)
	if n > maxFrame {
		return nil, fmt.Errorf("frame of %d bytes", n)
	}
	frame := make([]byte, 4+n)
	_, err = io.ReadFull(r, frame)
	return frame, err
}

func readSome(r *bufio.Reader) ([]byte, error) {
	b := make([]byte, 16<<10)
	n, err := r.Read(b)
	return b[:n], err
}

// write writes the messages of the queue to dst. When the queue is closed, it closes dst for writing.
func (p *Proxy) write(l *link, dst *net.TCPConn, queue <-chan message) error {
	w := bufio.NewWriter(dst)
	for m := range queue {
		if err := p.wait(l, dst == l.client, m.due, w); err != nil {
			return err
		}
		if _, err := w.Write(m.bytes); err != nil {
			return err
		}
		if len(queue) > 0 && !m.last {
			continue
		}
		if err := w.Flush(); err != nil {
			return err
		}
		if m.last {
			l.cut()
			return nil
		}
	}
	return dst.CloseWrite()
}

// wait waits until the message is due and bytes flow. Before that it sends what was written.
func (p *Proxy) wait(l *link, toClient bool, due time.Time, w *bufio.Writer) error {
	for {
		held := p.held(toClient)
		var isDue <-chan time.Time
		if early := time.Until(due); early > 0 {
			isDue = time.After(early)
		} else if held == nil {
			return nil
		}
		if err := w.Flush(); err != nil {
			return err
		}
		select {
		case <-isDue:
		case <-held:
		case <-l.ctx.Done():
			return net.ErrClosed
		}
	}
}

// held is closed when bytes may flow in a direction again; nil while they do.
func (p *Proxy) held(toClient bool) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if toClient && p.muted != nil {
		return p.muted
	}
	return p.hung
}

type faultKind int

const (
	dropReply faultKind = iota
	beforeSend
	afterReply
)

// fault is a fault that happens to the first request that matches.
type fault struct {
	kind  faultKind
	match func(op int32, req []byte) bool
	done  chan struct{}
}

func (p *Proxy) arm(kind faultKind, match func(op int32, req []byte) bool) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := &fault{kind, match, make(chan struct{})}
	p.faults = append(p.faults, f)
	return f.done
}

// fire disarms and returns the first fault that matches; nil if none does. The match function of a fault may call the
// proxy, so it runs without the lock.
func (p *Proxy) fire(op int32, req []byte) *fault {
	p.mu.Lock()
	p.requests[op]++
	armed := slices.Clone(p.faults)
	p.mu.Unlock()
	for _, f := range armed {
		if !f.match(op, req) {
			continue
		}
		p.mu.Lock()
		i := slices.Index(p.faults, f)
		if i >= 0 {
			p.faults = slices.Delete(p.faults, i, i+1)
		}
		p.mu.Unlock()
		if i >= 0 { // else a request of another connection was first
			return f
		}
	}
	return nil
}

// request handles a client's frame: length, xid, opcode, record.
func (p *Proxy) request(l *link, frame []byte) message {
	if len(frame) < 12 {
		return message{bytes: frame}
	}
	xid, op := int32(binary.BigEndian.Uint32(frame[4:])), int32(binary.BigEndian.Uint32(frame[8:]))
	f := p.fire(op, frame[12:])
	if f == nil {
		return message{bytes: frame}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fired = append(l.fired, f)
	if f.kind == beforeSend {
		return message{last: true}
	}
	l.pending[xid] = f
	return message{bytes: frame}
}

// reply handles a server's frame: length, xid, zxid, error, record.
func (p *Proxy) reply(l *link, frame []byte) message {
	if len(frame) < 8 {
		return message{bytes: frame}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.pending[int32(binary.BigEndian.Uint32(frame[4:]))]
	switch {
	case f == nil:
		return message{bytes: frame}
	case f.kind == dropReply:
		return message{last: true}
	default:
		return message{bytes: frame, last: true}
	}
}

// dueTime is the time at which a message that arrives now is sent; zero if there is no delay.
func (p *Proxy) dueTime() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.delay == 0 {
		return time.Time{}
	}
	return time.Now().Add(p.delay)
}
