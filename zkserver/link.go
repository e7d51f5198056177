package zkserver

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

const (
	dialLimit  = 5 * time.Second
	frameLimit = 64 << 20 // no server takes or sends more
	queueLimit = 256      // messages on their way in one direction: what a delayed connection can have in flight
)

// A link is one client's connection and its continuation to the server.
type link struct {
	client *net.TCPConn
	ended  chan struct{} // closed by cut

	mu      sync.Mutex
	server  *net.TCPConn     // nil before it was reached
	pending map[int32]*fault // by the xid of the request that it caught
	caught  []*fault
}

// A message is a frame, or bytes of a stream that has none, on its way.
type message struct {
	bytes []byte
	due   time.Time
	last  bool // the link is cut when it was written
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
		if !p.admit(&link{client: client, ended: make(chan struct{}), pending: map[int32]*fault{}}) {
			client.SetLinger(0)
			client.Close()
		}
	}
}

// admit is one step under the lock, so that a connection is either refused or found by Cut.
func (p *Proxy) admit(l *link) bool {
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
	defer p.forget(l)
	server, err := net.DialTimeout("tcp", p.target, dialLimit)
	if err != nil || !l.reached(server.(*net.TCPConn)) {
		l.cut()
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.pump(l, l.server, l.client, p.request) })
	both.Go(func() { p.pump(l, l.client, l.server, p.reply) })
	both.Wait()
	l.cut()
}

func (p *Proxy) forget(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
	for _, f := range l.caught {
		close(f.done)
	}
}

// reached is false if the link was cut meanwhile.
func (l *link) reached(server *net.TCPConn) bool {
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

// pump moves one direction until its source ends or the link is cut. look sees every frame after the handshake and may replace it.
func (p *Proxy) pump(l *link, dst, src *net.TCPConn, look func(*link, []byte) message) {
	queue := make(chan message, queueLimit)
	var writing sync.WaitGroup
	writing.Go(func() {
		if err := p.write(l, dst, queue); err != nil {
			l.cut()
		}
	})
	err := p.read(l, src, queue, look)
	close(queue)
	if !errors.Is(err, io.EOF) {
		l.cut()
	}
	writing.Wait()
}

// read never returns nil.
func (p *Proxy) read(l *link, src io.Reader, queue chan<- message, look func(*link, []byte) message) error {
	r := bufio.NewReader(src)
	first, err := r.Peek(1)
	if err != nil {
		return err
	}
	next := readFrame
	if first[0] != 0 { // no frame is as long as that: TLS, or a four-letter word
		next, look = readSome, asItIs
	}
	look, then := asItIs, look // the first frame is the handshake
	for {
		b, err := next(r)
		if err != nil {
			return err
		}
		m := look(l, b)
		look = then
		m.due = p.due()
		select {
		case queue <- m:
		case <-l.ended:
			return net.ErrClosed
		}
	}
}

func asItIs(_ *link, b []byte) message { return message{bytes: b} }

func readFrame(r *bufio.Reader) ([]byte, error) {
	header, err := r.Peek(4)
	if err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(header)
	if n > frameLimit {
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

// write passes the end of the source on when the queue is closed.
func (p *Proxy) write(l *link, dst *net.TCPConn, queue <-chan message) error {
	w := bufio.NewWriter(dst)
	for m := range queue {
		if err := p.wait(l, m.due, w); err != nil {
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

// wait returns when the message is due and bytes flow. What was written before goes out first.
func (p *Proxy) wait(l *link, due time.Time, w *bufio.Writer) error {
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
		flow := p.flowing()
		select {
		case <-flow:
			return nil
		default:
		}
		if err := w.Flush(); err != nil {
			return err
		}
		select {
		case <-flow:
		case <-l.ended:
			return net.ErrClosed
		}
	}
}
