package zkconn

import "sync"

// gate is open while the session has a connection. Every call waits for it before it calls the library, so that the
// library queues nothing during an outage: a call that waits here was certainly not sent.
type gate struct {
	mu sync.Mutex
	ch chan struct{} // closed while the gate is open
}

func newGate() *gate { return &gate{ch: make(chan struct{})} }

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.ch:
	default:
		close(g.ch)
	}
}

// shut closes the gate, and reports whether it was open.
func (g *gate) shut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.ch:
		g.ch = make(chan struct{})
		return true
	default:
		return false
	}
}

func (g *gate) isOpen() bool {
	select {
	case <-g.opened():
		return true
	default:
		return false
	}
}

// opened is a channel that is closed while the gate is open.
func (g *gate) opened() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ch
}

// abandoned are the writes whose caller no longer waits. The library may still send them.
type abandoned struct {
	mu   sync.Mutex
	done []<-chan struct{}
}

func (s *abandoned) add(done <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = append(s.unfinished(), done)
}

func (s *abandoned) list() []<-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unfinished()
}

// unfinished returns a new slice of those that are not done. The caller holds the lock.
func (s *abandoned) unfinished() []<-chan struct{} {
	var open []<-chan struct{}
	for _, done := range s.done {
		select {
		case <-done:
		default:
			open = append(open, done)
		}
	}
	return open
}
