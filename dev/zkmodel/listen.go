package zkmodel

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// ErrClosed is what Serve returns after Close.
var ErrClosed = errors.New("zookeeper model closed")

// Serve accepts connections until Close. It owns the listener, and expires sessions by itself. When this process has no
// file left for a connection, it waits until there is one.
func (s *Server) Serve(l net.Listener) error {
	defer l.Close()
	if !s.keepOpen(l) {
		return ErrClosed
	}
	defer s.forget(l)
	wait := firstWait
	for {
		c, err := l.Accept()
		var passing interface{ Temporary() bool }
		switch {
		case err == nil:
			wait = firstWait
			go s.ServeConn(c)
		case s.isClosed():
			return ErrClosed
		case errors.As(err, &passing) && passing.Temporary():
			select {
			case <-time.After(wait):
			case <-s.open.done:
			}
			wait = min(2*wait, time.Second)
		default:
			return err
		}
	}
}

// firstWait is how long Serve first waits when it cannot accept a connection now.
const firstWait = 5 * time.Millisecond

// ServeConn serves one connection until it ends, and closes it. It expires sessions by itself.
func (s *Server) ServeConn(c net.Conn) {
	defer c.Close()
	if !s.keepOpen(c) {
		return
	}
	defer s.forget(c)
	out := newSender(c)
	defer out.stop()
	var p *Peer
	s.Do(func() { p = s.Open(out.add) })
	defer s.Do(p.Lost)
	in := bufio.NewReader(c)
	var head [4]byte
	var frame []byte
	for {
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return
		}
		n := binary.BigEndian.Uint32(head[:])
		if n > maxFrame {
			return
		}
		frame = slices.Grow(frame[:0], int(n))[:n]
		if _, err := io.ReadFull(in, frame); err != nil {
			return
		}
		open := false
		s.Do(func() { open = p.Handle(frame) })
		if !open {
			return
		}
	}
}

// Close ends Serve and all connections, and returns when nothing of them runs. The sessions and the znodes stay.
func (s *Server) Close() error {
	s.open.Lock()
	if !s.open.closed {
		s.open.closed = true
		close(s.open.done)
	}
	for c := range s.open.all {
		_ = c.Close()
	}
	s.open.Unlock()
	s.open.running.Wait()
	return nil
}

// opened is what Close closes.
type opened struct {
	sync.Mutex
	closed   bool
	all      map[io.Closer]struct{}
	running  sync.WaitGroup // Serve, ServeConn and expire
	done     chan struct{}  // closed by Close
	expiring bool
}

// keepOpen registers what Close must close. It returns false after Close.
func (s *Server) keepOpen(c io.Closer) bool {
	s.open.Lock()
	defer s.open.Unlock()
	if s.open.closed {
		return false
	}
	s.open.all[c] = struct{}{}
	s.open.running.Add(1)
	if !s.open.expiring {
		s.open.expiring = true
		s.open.running.Go(s.expire)
	}
	return true
}

func (s *Server) forget(c io.Closer) {
	s.open.Lock()
	defer s.open.Unlock()
	delete(s.open.all, c)
	s.open.running.Done()
}

func (s *Server) isClosed() bool {
	s.open.Lock()
	defer s.open.Unlock()
	return s.open.closed
}

// expiryTick is how often Serve looks for sessions that were silent for too long.
const expiryTick = 100 * time.Millisecond

func (s *Server) expire() {
	t := time.NewTicker(expiryTick)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			s.Do(func() { s.ExpireDue(s.o.Now()) })
		case <-s.open.done:
			return
		}
	}
}

// lastWords is how long a client may take for what was sent before its connection ended.
const lastWords = time.Second

// sender writes frames to a connection, in order. The server never waits for a slow client.
type sender struct {
	conn   net.Conn
	mu     sync.Mutex
	filled sync.Cond
	queue  [][]byte
	end    bool
	ended  chan struct{}
}

func newSender(c net.Conn) *sender {
	w := &sender{conn: c, ended: make(chan struct{})}
	w.filled.L = &w.mu
	go w.run()
	return w
}

// add queues a frame; nil ends the connection after the frames before it.
func (w *sender) add(frame []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if frame == nil {
		w.end = true
	} else if !w.end {
		w.queue = append(w.queue, frame)
	}
	w.filled.Signal()
}

// stop sends what is queued, if the client takes it soon, and waits for the end of it.
func (w *sender) stop() {
	w.add(nil)
	w.conn.SetWriteDeadline(time.Now().Add(lastWords))
	<-w.ended
}

func (w *sender) run() {
	defer close(w.ended)
	defer w.conn.Close()
	for {
		w.mu.Lock()
		for len(w.queue) == 0 && !w.end {
			w.filled.Wait()
		}
		frames, end := w.queue, w.end
		w.queue = nil
		w.mu.Unlock()
		var all []byte
		for _, f := range frames {
			all = binary.BigEndian.AppendUint32(all, uint32(len(f)))
			all = append(all, f...)
		}
		if _, err := w.conn.Write(all); err != nil {
			return
		}
		if end {
			return
		}
	}
}
