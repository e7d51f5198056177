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
