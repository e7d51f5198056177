package zkserver

import (
	"maps"
	"net"
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

// A Proxy stands between clients and one server and misbehaves on demand. It reads ZooKeeper's frames to find the request that a fault is for; TLS and
// four-letter words pass unread. Faults concern all connections, present and future. Its methods may be called from any goroutine.
type Proxy struct {
	target   string
	listener *net.TCPListener
	running  sync.WaitGroup

	mu       sync.Mutex
	links    map[*link]bool
	refuse   bool
	delay    time.Duration
	flow     chan struct{} // closed while bytes flow, open during Hang
	faults   []*fault
	requests map[int32]int
}

// NewProxy listens on a free port of 127.0.0.1 and forwards to target, which need not be reachable yet. Close it.
func NewProxy(target string) (*Proxy, error) {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: target, listener: l, links: map[*link]bool{}, flow: make(chan struct{}), requests: map[int32]int{}}
	close(p.flow)
	p.running.Go(p.accept)
	return p, nil
}

// Addr is the host:port that clients dial instead of the server's.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close cuts all connections, stops listening and returns when nothing of the proxy runs any more.
func (p *Proxy) Close() error {
	err := p.listener.Close()
	p.Refuse(true)
	p.Cut()
	p.running.Wait()
	return err
}

// Cut ends all connections, on both sides. Bytes that Delay or Hang held back are lost.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.cut()
	}
}

// Refuse decides whether new connections are reset as soon as they are accepted. Those that exist stay: to be unreachable, Refuse and then Cut.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
}

// Delay makes every message take d longer, each way; a round trip takes 2d longer. Messages keep their order and overlap.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Hang(true) stops all bytes in both directions while connections, also new ones, stay open. Hang(false) lets them flow; what was held back
// goes on, so a request that its caller has given up may still be executed.
func (p *Proxy) Hang(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.flow:
		if on {
			p.flow = make(chan struct{})
		}
	default:
		if !on {
			close(p.flow)
		}
	}
}

// DropReply arms a fault for the next request that matches: the server executes it, its reply is lost, and its connection is cut. Earlier replies
// arrive. The channel is closed when the connection of that request is gone. match sees the opcode and the request's bytes after its header.
// Several faults may be armed; each happens once.
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

// Throttle is like BeforeSend, but instead of a cut the client is told that the server has too much to do. The channel is closed
// with that.
func (p *Proxy) Throttle(match func(op int32, req []byte) bool) <-chan struct{} {
	return p.arm(throttle, match)
}

// Requests are the numbers of requests that clients sent, by opcode, whatever became of them. Handshakes are not requests.
func (p *Proxy) Requests() map[int32]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.requests)
}
