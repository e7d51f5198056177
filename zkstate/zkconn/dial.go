package zkconn

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// handshakeCap is how long one server may take to accept a connection, and again to answer the handshake. The library
// would wait nearly seven session timeouts for a server that is frozen. Of the time that Dial has, no address takes more than its share. Only the library's connecting goroutine may ask.
func (s *Session) handshakeCap() time.Duration {
	limit := s.Timeout() / 4
	if s.first > 0 && s.ID() == 0 {
		limit = min(limit, (s.first / time.Duration(len(s.hosts.round))).Round(10*time.Millisecond))
	}
	return max(limit, 250*time.Millisecond)
}

// dial is called by the library, after hosts.Next and from the same goroutine.
func (s *Session) dial(string, string, time.Duration) (net.Conn, error) {
	if s.ctx.Err() != nil {
		return nil, context.Cause(s.ctx) // the fence: no second session
	}
	to := s.hosts.current()
	raw, err := s.connect(to)
	if err != nil {
		s.blame(to.server, err)
		return nil, err
	}
	size := 32 << 10
	if s.cfg.Small {
		size = 1 << 10
	}
	c := &conn{Conn: raw, session: s, server: to.server, in: bufio.NewReaderSize(raw, size)}
	s.mu.Lock()
	s.conn = c
	s.mu.Unlock()
	if s.ctx.Err() != nil { // ended meanwhile, perhaps before the connection could be cut
		c.Close()
		return nil, context.Cause(s.ctx)
	}
	return c, nil
}

func (s *Session) connect(to endpoint) (net.Conn, error) {
	if to.err != nil {
		return nil, to.err
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.handshakeCap())
	defer cancel()
	var d net.Dialer
	raw, err := d.DialContext(ctx, "tcp", to.addr)
	if err != nil || s.cfg.TLS == nil {
		return raw, err
	}
	cfg := s.cfg.TLS
	if cfg.ServerName == "" {
		cfg = cfg.Clone()
		cfg.ServerName = to.server.host
	}
	c := tls.Client(raw, cfg)
	if err := c.HandshakeContext(ctx); err != nil {
		raw.Close()
		if hungUp(err) {
			return nil, errors.New("hangs up during the TLS handshake: it may not speak TLS")
		}
		return nil, err
	}
	return c, nil
}

// blame remembers and logs why a server gave us no session.
func (s *Session) blame(to server, err error) {
	if s.ctx.Err() != nil {
		return
	}
	reason := s.reason(err)
	s.hosts.note(to, reason)
	s.log.log(slog.LevelWarn, "no zookeeper session", "server", to.String(), "reason", reason)
}

// reason puts a network error in words. The error itself, which callers could mistake for theirs, goes no further.
func (s *Session) reason(err error) string {
	var dns *net.DNSError
	var op *net.OpError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return "no such host"
	case dns != nil && dns.IsTimeout:
		return "the name service does not answer"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, errNotZooKeeper):
		return err.Error()
	case hungUp(err):
		return "hangs up: it has no quorum or too many clients, or it wants TLS"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("no answer within %s", s.handshakeCap())
	case errors.As(err, &op) && strings.HasPrefix(op.Err.Error(), "tls: "):
		return op.Err.Error() // an alert from the server
	}
	return err.Error()
}

func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
