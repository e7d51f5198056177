package page

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// bounded limits the connections of a listener. One too many is told so and closed. It would otherwise wait in the
// kernel's queue, as with netutil.LimitListener, and nobody would know why.
type bounded struct {
	net.Listener
	open, refused atomic.Int64
}

func bound(l net.Listener) *bounded { return &bounded{Listener: l} }

const tooMany = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nRetry-After: 5\r\n" +
	"Connection: close\r\nContent-Length: 48\r\n\r\ntoo many connections: try again in some seconds\n"

func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if b.open.Add(1) <= MaxConnections {
			if t, ok := c.(*net.TCPConn); ok {
				_ = t.SetWriteBuffer(socketBuffer) // a hint
			}
			return &countedConn{Conn: c, open: &b.open}, nil
		}
		b.open.Add(-1)
		b.refused.Add(1)
		_ = c.SetWriteDeadline(time.Now().Add(time.Second)) // it fits into the kernel's buffer
		_, _ = c.Write([]byte(tooMany))
		_ = c.Close()
	}
}

// countedConn is a connection that counts.
type countedConn struct {
	net.Conn
	once sync.Once
	open *atomic.Int64
}

func (c *countedConn) Close() error {
	c.once.Do(func() { c.open.Add(-1) })
	return c.Conn.Close()
}
