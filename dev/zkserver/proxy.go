package zkserver

import (
	"bufio"
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
	OpSetACL       int32 = 7
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
	links    map[*link]bool
	refuse   bool
	delay    time.Duration
	flow     chan struct{} // closed while bytes flow, open during Hang
	answers  chan struct{} // likewise for what servers send, open during Mute
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
	p := &Proxy{
		target: target, listener: l, links: map[*link]bool{}, flow: make(chan struct{}),
		answers: make(chan struct{}), requests: map[int32]int{},
	}
	close(p.flow)
	close(p.answers)
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

// Cut closes all connections, on both sides. Bytes that Delay or Hang holds back are lost.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.cut()
	}
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
func (p *Proxy) Hang(on bool) { p.hold(&p.flow, on) }

// Mute(true) holds back what the server sends: it executes requests, and nobody hears of it. Mute(false) sends what was
// held back; Cut before that loses it.
func (p *Proxy) Mute(on bool) { p.hold(&p.answers, on) }

// hold opens or closes a channel that is closed while bytes flow.
func (p *Proxy) hold(flow *chan struct{}, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-*flow:
		if on {
			*flow = make(chan struct{})
		}
	default:
		if !on {
			close(*flow)
		}
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

// Throttle is like BeforeSend, but the connection is not cut: the client gets the error of an overloaded server. The
// channel is closed when that reply is sent.
func (p *Proxy) Throttle(match func(op int32, req []byte) bool) <-chan struct{} {
	return p.arm(throttle, match)
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
	ended  chan struct{} // closed by cut

	mu      sync.Mutex
	server  *net.TCPConn     // nil until it is connected
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
			time.Sleep(pollEvery)
			continue
		}
		if !p.add(&link{client: client, ended: make(chan struct{}), pending: map[int32]*fault{}}) {
			client.SetLinger(0)
			client.Close()
		}
	}
}

// add adds a link and serves it, unless connections are refused. It holds the lock, so that Cut finds every connection
// that is not refused.
func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse {
		return false
	}
	p.links[l] = true
	p.running.Go(func() { p.serve(l) })
	return true
}

func (p *Proxy) serve(l *link) {
	defer p.remove(l)
	server, err := net.DialTimeout("tcp", p.target, dialTimeout)
	if err != nil || !l.setServer(server.(*net.TCPConn)) {
		l.cut()
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.pump(l, l.server, l.client, p.request) })
	both.Go(func() { p.pump(l, l.client, l.server, p.reply) })
	both.Wait()
	l.cut()
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
	for _, f := range l.fired {
		close(f.done)
	}
}

// setServer returns false if the link was cut meanwhile.
func (l *link) setServer(server *net.TCPConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.ended:
		server.Close()
		return false
	default:
		l.server = server
		return true
	}
}

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.ended:
		return
	default:
	}
	close(l.ended)
	l.client.Close()
	if l.server != nil {
		l.server.Close()
	}
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
		case <-l.ended:
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

// wait waits until the message is due and bytes flow. It first flushes what was written before.
func (p *Proxy) wait(l *link, toClient bool, due time.Time, w *bufio.Writer) error {
	if early := time.Until(due); early > 0 {
		if err := w.Flush(); err != nil {
			return err
		}
		timer := time.NewTimer(early)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-l.ended:
			return net.ErrClosed
		}
	}
	for {
		flows := p.flowing(toClient)
		held := slices.IndexFunc(flows, func(flow chan struct{}) bool { return !closed(flow) })
		if held < 0 {
			return nil
		}
		if err := w.Flush(); err != nil {
			return err
		}
		select {
		case <-flows[held]:
		case <-l.ended:
			return net.ErrClosed
		}
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

type faultKind int

const (
	dropReply faultKind = iota
	beforeSend
	afterReply
	throttle
)

// throttled is the error code of an overloaded server.
const throttled = -127

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
		if f.match(op, req) && p.disarm(f) {
			return f
		}
	}
	return nil
}

// disarm removes f. It returns false if a request of another connection was first.
func (p *Proxy) disarm(f *fault) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.faults, f)
	if i < 0 {
		return false
	}
	p.faults = slices.Delete(p.faults, i, i+1)
	return true
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
	if f.kind == throttle { // send another request instead, and replace its reply
		l.pending[xid] = f
		return message{bytes: existsRoot(xid)}
	}
	l.fired = append(l.fired, f)
	if f.kind == beforeSend {
		return message{last: true}
	}
	l.pending[xid] = f
	return message{bytes: frame}
}

// existsRoot is a request that reads whether "/" exists, without a watch.
func existsRoot(xid int32) []byte {
	frame := binary.BigEndian.AppendUint32(nil, 4+4+4+1+1)
	frame = binary.BigEndian.AppendUint32(frame, uint32(xid))
	frame = binary.BigEndian.AppendUint32(frame, uint32(OpExists))
	frame = binary.BigEndian.AppendUint32(frame, 1)
	return append(frame, '/', 0)
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
	case f.kind == throttle:
		close(f.done)
		code := int32(throttled)
		binary.BigEndian.PutUint32(frame, 16) // only the header
		binary.BigEndian.PutUint32(frame[16:], uint32(code))
		return message{bytes: frame[:20]}
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

// flowing are the channels that are closed while bytes flow in a direction.
func (p *Proxy) flowing(toClient bool) []chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if toClient {
		return []chan struct{}{p.flow, p.answers}
	}
	return []chan struct{}{p.flow}
}
