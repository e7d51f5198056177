package zkserver

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

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
