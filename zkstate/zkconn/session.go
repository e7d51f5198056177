// Package zkconn holds exactly one ZooKeeper session. Every call takes a context and answers with a named error; a write
// whose outcome cannot be known says so (ErrUnknown).
//
// A Session is one session id for ever. When the session is gone — expired, past its own deadline, or closed — its
// context ends, nothing that waited is sent, and the owner dials a new one deliberately. The package refuses to repeat a
// write that may have happened, to reconnect under another session id, to send what is too large for a server, and to print a
// secret. SASL and chroots are not supported.
package zkconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// Config says where ZooKeeper is and how to speak to it. Only Servers is required.
type Config struct {
	Servers []string      // "host:port" or "host" (port 2181)
	Timeout time.Duration // of the session, as asked for; the server may change it; default 10s
	Auth    []Auth        // added before Dial returns and again on every reconnection
	TLS     *tls.Config   // nil is plain TCP; an empty ServerName becomes the host as given in Servers
	Logger  *slog.Logger  // nil discards
	// InFlight is the greatest number of calls that wait for an answer at once; default 128.
	InFlight int
	// ReadBuffer is the size in bytes of the largest accepted reply; default 16 MiB. A larger reply is ErrTooLarge.
	ReadBuffer int
	// Small makes a session cheap in memory, for thousands in one process: requests are limited to 15 KiB, replies to
	// ReadBuffer or 16 KiB, and all watched paths together to 8 KiB.
	Small bool
}

const (
	defaultTimeout    = 10 * time.Second
	defaultInFlight   = 128
	defaultReadBuffer = 16 << 20
	smallBuffer       = 16 << 10

	// maxRequest is below the limit of a server (jute.maxbuffer, 1 MiB). Beyond that the server hangs up, and every
	// other call of the session fails with the large one.
	maxRequest = 1_000_000
	// sendBuffer keeps clear of maxRequest: the client library panics if a request ends exactly at its buffer's end.
	sendBuffer = 1<<20 + 4<<10
)

// Auth is one credential, for example digest with "user:password". Data is never printed.
type Auth struct {
	Scheme string
	Data   []byte `json:"-"`
}

// Format prints the scheme, whatever the verb.
func (a Auth) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "{%s …}", a.Scheme) }

// Session is one ZooKeeper session. Its methods may be called concurrently.
type Session struct {
	ctx    context.Context // ends, with cause, when the session is gone
	cancel context.CancelCauseFunc
	cfg    Config
	log    *limited
	hosts  *hosts
	first  time.Duration // that Dial has for all servers; 0 if that is without end

	zk     *zk.Conn
	events <-chan zk.Event // closed when the library's goroutines have ended; never read before
	start  chan struct{}   // closed when the two above are set
	ended  sync.Once
	done   chan struct{} // closed after events

	gate    *gate
	slots   chan struct{}
	watches watches
	strays  strays

	mu       sync.Mutex
	conn     *conn         // newest connection, perhaps closed
	id       int64         // 0 until the first handshake, then for ever
	timeout  time.Duration // as the server granted it
	answered time.Time     // when the newest answered request was sent
	told     bool          // the server has confirmed the end of the session
}

// Dial opens a session and waits until ctx ends for a server to grant it and for the credentials to be accepted. If no
// server does, the error is ErrUnreachable and names each server and what is wrong with it.
func Dial(ctx context.Context, c Config) (*Session, error) {
	c, err := c.complete()
	if err != nil {
		return nil, err
	}
	servers, err := parseServers(c.Servers)
	if err != nil {
		return nil, err
	}
	s := &Session{
		cfg:     c,
		gate:    newGate(),
		start:   make(chan struct{}),
		done:    make(chan struct{}),
		slots:   make(chan struct{}, c.InFlight),
		timeout: c.Timeout,
	}
	s.log = &limited{to: c.Logger}
	s.watches.init(c)
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.hosts = newHosts(s.ctx, servers, c.Timeout)
	if end, ok := ctx.Deadline(); ok {
		s.first = time.Until(end)
	}
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	for _, a := range c.Auth {
		if err := s.authenticate(ctx, a); err != nil {
			s.Close()
			if ctx.Err() != nil && !errors.Is(err, ErrUnreachable) { // connected, and then no answer
				err = s.hosts.unreachable(err)
			}
			return nil, err
		}
	}
	return s, nil
}

func (c Config) complete() (Config, error) {
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if ms := c.Timeout.Milliseconds(); ms < 1 || ms > math.MaxInt32 {
		return c, fmt.Errorf("session timeout %s: must be between 1ms and %s", c.Timeout, math.MaxInt32*time.Millisecond)
	}
	if c.InFlight <= 0 {
		c.InFlight = defaultInFlight
	}
	if c.ReadBuffer <= 0 {
		c.ReadBuffer = defaultReadBuffer
		if c.Small {
			c.ReadBuffer = smallBuffer
		}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	for _, a := range c.Auth {
		if size := requestHeader + 4 + 4 + len(a.Scheme) + 4 + len(a.Data); size > c.maxRequest() {
			return c, &Error{Op: "auth", Path: a.Scheme, Err: ErrTooLarge}
		}
	}
	return c, nil
}

func (c Config) sendBuffer() int {
	if c.Small {
		return smallBuffer
	}
	return sendBuffer
}

func (c Config) maxRequest() int {
	if c.Small {
		return smallBuffer - 1<<10
	}
	return maxRequest
}

// open starts the library and waits for its first session.
func (s *Session) open(ctx context.Context) error {
	pointer := func(c *zk.Conn) { s.zk = c } // an option runs before any goroutine of the library
	_, events, err := zk.Connect([]string{"-"}, s.cfg.Timeout, pointer,
		zk.WithHostProvider(s.hosts),
		zk.WithDialer(s.dial),
		zk.WithEventCallback(s.event),
		zk.WithLogger(s.log), zk.WithLogInfo(false),
		zk.WithMaxBufferSize(s.cfg.ReadBuffer),
		zk.WithMaxConnBufferSize(s.cfg.sendBuffer()))
	if err != nil {
		return err
	}
	s.events = events
	close(s.start)
	select {
	case <-s.gate.opened():
		s.watchdog()
		return nil
	case <-ctx.Done():
		err := s.hosts.unreachable(context.Cause(ctx))
		s.end(err)
		return err
	}
}

// event is called by the library's goroutines: it must neither block nor call the library.
func (s *Session) event(e zk.Event) {
	switch {
	case e.Type != zk.EventSession:
		s.watches.fire(e)
	case e.State == zk.StateHasSession:
		s.log.log(slog.LevelInfo, "connected to zookeeper", "server", e.Server)
		s.gate.open()
	case e.State == zk.StateDisconnected:
		if s.gate.shut() {
			s.log.log(slog.LevelInfo, "disconnected from zookeeper", "server", e.Server)
		}
	case e.State == zk.StateExpired:
		s.end(errExpired)
	}
}

// Context ends when the session is gone; context.Cause then is ErrSessionLost with the reason.
func (s *Session) Context() context.Context { return s.ctx }

// Connected reports whether the session has a connection to a server. Without one it is not lost yet: calls wait.
func (s *Session) Connected() bool { return s.ctx.Err() == nil && s.gate.isOpen() }

// ID is the session id: the EphemeralOwner of every ephemeral znode that this session creates.
func (s *Session) ID() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// Timeout is the session timeout that the server granted, which can differ from the one asked for.
func (s *Session) Timeout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.timeout
}

// Close ends the session and removes its ephemeral znodes. The error says that no server could be told: the ephemeral
// znodes then stay for up to the session timeout. Calls in flight end as if the session were lost.
func (s *Session) Close() error {
	first := s.ctx.Err() == nil
	s.end(errClosed)
	<-s.done
	s.mu.Lock()
	defer s.mu.Unlock()
	if first && !s.told {
		return fmt.Errorf("session %#x: closed without a server: its ephemeral znodes stay for up to %s", s.id, s.timeout)
	}
	return nil
}

// end makes the session over, for its owner at once and for the library soon. From here on no connection is made.
func (s *Session) end(cause error) {
	s.ended.Do(func() {
		s.cancel(cause)
		s.watches.end()
		patience := time.Duration(0)
		switch {
		case errors.Is(cause, errClosed):
			patience = time.Second
		case errors.Is(cause, ErrSessionLost):
			s.cfg.Logger.Warn("zookeeper session ended", "reason", cause)
		}
		go s.dismantle(patience)
	})
}

// dismantle gives the server that long to confirm the end of the session, and returns when the library has stopped.
func (s *Session) dismantle(patience time.Duration) {
	defer close(s.done)
	<-s.start
	go s.zk.Close() // asks the server; gives up by itself within 3 s
	hangUp := time.AfterFunc(patience, s.cut)
	defer hangUp.Stop()
	for range s.events {
	}
}

// cut closes the TCP connection. The library reconnects, unless the session has ended.
func (s *Session) cut() {
	s.mu.Lock()
	c := s.conn
	s.mu.Unlock()
	if c != nil {
		c.Close()
	}
}
