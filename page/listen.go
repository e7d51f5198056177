package page

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// bounded limits the connections of a listener, and those of each address. One too many closes the one that has waited
// longest for a request: so nobody shuts others out with connections that ask nothing. If all are being answered, it is
// told so and closed. It would otherwise wait in the kernel's queue, as with netutil.LimitListener, and nobody would
// know why.
type bounded struct {
	net.Listener
	refused atomic.Int64

	mu   sync.Mutex
	open map[*boundedConn]bool
	from map[netip.Addr]int // how many each address has
}

func bound(l net.Listener) *bounded {
	return &bounded{Listener: l, open: map[*boundedConn]bool{}, from: map[netip.Addr]int{}}
}

const tooMany = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nRetry-After: 5\r\n" +
	"Connection: close\r\nContent-Length: 48\r\n\r\ntoo many connections: try again in some seconds\n"

func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if one := b.add(c); one != nil {
			if t, ok := c.(*net.TCPConn); ok {
				_ = t.SetWriteBuffer(socketBuffer) // a hint
			}
			return one, nil
		}
		b.refused.Add(1)
		_ = c.SetWriteDeadline(time.Now().Add(time.Second)) // it fits into the kernel's buffer
		_, _ = c.Write([]byte(tooMany))
		_ = c.Close()
	}
}

// add counts a connection; nil: there is no room.
func (b *bounded) add(c net.Conn) *boundedConn {
	one := &boundedConn{Conn: c, in: b, from: addressOf(c.RemoteAddr().String()), waits: time.Now()}
	b.mu.Lock()
	defer b.mu.Unlock()
	full := b.from[one.from] >= MaxFromAddress
	if full || len(b.open) >= MaxConnections {
		var longest *boundedConn
		for o := range b.open {
			if !o.waits.IsZero() && (!full || o.from == one.from) && (longest == nil || o.waits.Before(longest.waits)) {
				longest = o
			}
		}
		if longest == nil {
			return nil
		}
		b.remove(longest)
		_ = longest.Conn.Close()
	}
	b.open[one] = true
	b.from[one.from]++
	return one
}

// remove forgets a connection. The caller holds mu.
func (b *bounded) remove(c *boundedConn) {
	if b.open[c] {
		delete(b.open, c)
		if b.from[c.from]--; b.from[c.from] == 0 {
			delete(b.from, c.from)
		}
	}
}

// count is how many connections are open.
func (b *bounded) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.open)
}

// state notes whether a connection waits for a request. It is the ConnState of the server.
func (b *bounded) state(c net.Conn, s http.ConnState) {
	if over, ok := c.(interface{ NetConn() net.Conn }); ok { // TLS
		c = over.NetConn()
	}
	one, ok := c.(*boundedConn)
	if !ok {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch s {
	case http.StateActive:
		one.waits = time.Time{}
	case http.StateIdle:
		one.waits = time.Now()
	}
}

// addressOf is the address of a remote end; of IPv6 its network, since one machine may use all of that.
func addressOf(remote string) netip.Addr {
	at, _ := netip.ParseAddrPort(remote) // what is no address counts as one
	a := at.Addr().Unmap()
	if a.Is6() {
		return netip.PrefixFrom(a.WithZone(""), 64).Masked().Addr()
	}
	return a
}

// boundedConn is a connection that counts.
type boundedConn struct {
	net.Conn
	in   *bounded
	from netip.Addr

	waits time.Time // since when, for a request; zero: it is being answered. in.mu guards it
}

func (c *boundedConn) Close() error {
	c.in.mu.Lock()
	c.in.remove(c)
	c.in.mu.Unlock()
	return c.Conn.Close()
}
