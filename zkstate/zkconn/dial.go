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

// handshakeLimit is how long one server may take to accept a connection, and again to answer the handshake. Each
// address gets at most its share of the time that Dial has. The library alone would wait nearly seven session timeouts
// for a frozen server. Only the library's connecting goroutine may call it.
func (s *Session) handshakeLimit() time.Duration {
	limit := s.Timeout() / 4
	if s.dialTime > 0 && s.ID() == 0 {
		limit = min(limit, (s.dialTime / time.Duration(len(s.hosts.round))).Round(10*time.Millisecond))
	}
	return max(limit, 250*time.Millisecond)
}

// dial connects to the server that hosts.Next chose. The library calls both from one goroutine.
func (s *Session) dial(string, string, time.Duration) (net.Conn, error) {
	if s.ctx.Err() != nil {
		return nil, context.Cause(s.ctx) // the library must not open a second session
	}
	to := s.hosts.current()
	raw, err := s.connect(to)
	if err != nil {
		s.recordFailure(to.server, err)
		return nil, err
	}
	size := 32 << 10
	if s.cfg.Small {
		size = 1 << 10
	}
	c := &conn{Conn: raw, session: s, to: to}
	c.in = bufio.NewReaderSize(limitedReader{c}, size)
	s.mu.Lock()
	s.conn = c
	s.mu.Unlock()
	if s.ctx.Err() != nil { // the session ended meanwhile, and may not have seen this connection
		c.Close()
		return nil, context.Cause(s.ctx)
	}
	return c, nil
}

func (s *Session) connect(to endpoint) (net.Conn, error) {
	if to.err != nil {
		return nil, to.err
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.handshakeLimit())
	defer cancel()
	raw, err := s.cfg.Dial(ctx, to.addr)
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

// recordFailure keeps and logs the reason why a server gave no session.
func (s *Session) recordFailure(to server, err error) {
	if s.ctx.Err() != nil {
		return
	}
	reason := s.reason(err)
	s.hosts.setReason(to, reason)
	level := slog.LevelDebug // the error of Dial says it
	if s.disconnected.Load() {
		level = slog.LevelWarn
	}
	s.log.log(level, "no zookeeper session", "server", to.String(), "reason", reason)
}

// reason is a text for a network error. The error itself is not returned to callers: they could mistake it for an error
// of their own context.
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
		return fmt.Sprintf("no answer within %s", s.handshakeLimit())
	case errors.As(err, &op) && strings.HasPrefix(op.Err.Error(), "tls: "):
		return op.Err.Error() // an alert from the server
	}
	return err.Error()
}

func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
