package zkconn

import "sync"

// gate is open while the session has a connection. A call enters the library only through it, so that nothing piles up
// inside during an outage: what waits here is certainly not sent.
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

// shut says whether the gate was open.
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

// opened is closed while the gate is open.
func (g *gate) opened() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ch
}

// strays are writes whose caller has left while the library still holds them: they may be sent yet.
type strays struct {
	mu   sync.Mutex
	done []<-chan struct{}
}

func (s *strays) add(done <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = append(s.unfinished(), done)
}

func (s *strays) list() []<-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unfinished()
}

// unfinished is called with the lock held; it returns a new slice.
func (s *strays) unfinished() []<-chan struct{} {
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
