// Package zkconn provides a ZooKeeper session. Every call takes a context and returns a named error. The error of a
// write with an unknown outcome is ErrUnknown.
//
// A Session always has the same session id. When it expires, passes its own deadline or is closed, its context ends,
// and calls that wait are not sent. The owner must then dial a new one. The package never repeats a write that may have
// happened, never reconnects with another session id, never sends a request that is too large for a server, and never
// prints a secret. It does not support SASL and chroots.
package zkconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// Config configures a Session. Only Servers is required.
type Config struct {
	Servers []string      // "host:port" or "host" (port 2181)
	Timeout time.Duration // requested session timeout, default 10s; the server may grant another
	Auth    []Auth        // sent before Dial returns, and again on every new connection
	TLS     *tls.Config   // nil is plain TCP; an empty ServerName becomes the host as given in Servers
	Logger  *slog.Logger  // nil discards
	// Dial connects to an address of a server; nil is TCP. A simulation connects to a model in memory.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Jitter is how long a session waits before it tries all servers again, less than most; nil is a random time.
	Jitter func(most time.Duration) time.Duration
	// InFlight is the maximum number of calls that wait for a reply at once; default 128.
	InFlight int
	// ReadBuffer is the maximum size of a reply in bytes; default 16 MiB. A larger reply is ErrTooLarge.
	ReadBuffer int
	// Small makes a session use little memory, for thousands in one process. It limits requests to 15 KiB, and
	// replies to ReadBuffer or 16 KiB.
	Small bool
}

const (
	defaultTimeout    = 10 * time.Second
	longestTimeout    = 24 * time.Hour
	defaultInFlight   = 128
	defaultReadBuffer = 16 << 20
	smallBuffer       = 16 << 10

	// maxRequest is below the limit of a server (jute.maxbuffer, 1 MiB). Above that limit the server closes the
	// connection, and all calls of the session fail.
	maxRequest = 1_000_000
	// sendBuffer is larger than maxRequest: the library panics if a request ends exactly at the end of its buffer.
	sendBuffer = 1<<20 + 4<<10
)

// Auth is one credential, for example digest with "user:password". Format never prints Data.
type Auth struct {
	Scheme string
	Data   []byte `json:"-"`
}

// Format prints only the scheme, with every verb.
func (a Auth) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "{%s …}", a.Scheme) }

// Session is one ZooKeeper session. Its methods may be called concurrently.
type Session struct {
	ctx      context.Context // ends, with cause, when the session is gone
	cancel   context.CancelCauseFunc
	cfg      Config
	log      *rateLimited
	hosts    *hosts
	dialTime time.Duration // that Dial may take; 0 if there is no limit

	zk     *zk.Conn
	events <-chan zk.Event // closed when the library's goroutines have ended; not read before the session has ended
	start  chan struct{}   // closed when zk and events are set
	ended  sync.Once
	done   chan struct{} // closed after events

	gate      *gate
	slots     chan struct{}
	watches   watches
	abandoned abandoned

	mu       sync.Mutex
	conn     *conn         // newest connection, perhaps closed
	id       int64         // 0 until the first handshake; never changes then
	secret   string        // the password of id, with which a server gives the session to a connection
	timeout  time.Duration // as the server granted it
	answered time.Time     // when the newest answered request was sent

	confirmed  time.Time     // the same for requests in which the leader took part
	silent     time.Duration // the longest time without one, since LeaveAfter
	leaveAfter time.Duration // see LeaveAfter; 0: as usual

	closeConfirmed bool // by the server

	disconnected atomic.Bool // it had a connection, and lost it

	watchTimer *time.Timer // calls watchdog; set before the first call
}

// Dial opens a session. It waits until a server grants it and accepts the credentials, or until ctx ends: the error is
// then ErrUnreachable and says for each server why it failed.
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
	s.log = &rateLimited{to: c.Logger}
	s.watches.init()
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.hosts = newHosts(s.ctx, servers, c)
	if end, ok := ctx.Deadline(); ok {
		s.dialTime = time.Until(end)
	}
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	for _, a := range c.Auth {
		if err := s.authenticate(ctx, a); err != nil {
			s.Close()
			if ctx.Err() != nil && !errors.Is(err, ErrUnreachable) { // the server stopped answering
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
	if c.Timeout < time.Millisecond || c.Timeout > longestTimeout {
		return c, fmt.Errorf("session timeout %s: must be between 1ms and %s", c.Timeout, longestTimeout)
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
	if c.Dial == nil {
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}
	}
	if c.Jitter == nil {
		c.Jitter = func(most time.Duration) time.Duration { return rand.N(most) }
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
	setConn := func(c *zk.Conn) { s.zk = c } // the library runs its options before it starts a goroutine
	_, events, err := zk.Connect([]string{"-"}, s.cfg.Timeout, setConn,
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
		s.watchTimer = time.AfterFunc(s.cfg.Timeout, s.watchdog)
		s.watchdog()
		return nil
	case <-ctx.Done():
		err := s.hosts.unreachable(context.Cause(ctx))
		s.end(err)
		return err
	}
}

// event handles an event of the library. It must neither block nor call the library.
func (s *Session) event(e zk.Event) {
	switch {
	case e.Type != zk.EventSession:
		s.watches.fire(e)
	case e.State == zk.StateHasSession:
		if s.disconnected.Swap(false) {
			s.log.log(slog.LevelInfo, "connected to zookeeper again", "server", e.Server)
		} else {
			s.log.log(slog.LevelDebug, "connected to zookeeper", "server", e.Server)
		}
		s.gate.open()
		s.resetWatches()
	case e.State == zk.StateDisconnected:
		if s.gate.shut() && s.ctx.Err() == nil { // else it is closed, or its loss is logged
			s.disconnected.Store(true)
			s.log.log(slog.LevelWarn, "the connection to zookeeper is lost", "server", e.Server)
		}
	case e.State == zk.StateExpired:
		s.end(errExpired)
	}
}

// Context ends when the session is gone. Its cause is ErrSessionLost with the reason.
func (s *Session) Context() context.Context { return s.ctx }

// Connected reports whether the session has a connection to a server. Without one, calls wait.
func (s *Session) Connected() bool { return s.ctx.Err() == nil && s.gate.isOpen() }

// ID is the session id: the EphemeralOwner of every ephemeral znode that this session creates.
func (s *Session) ID() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// Timeout is the session timeout that the server granted. It can differ from Config.Timeout.
func (s *Session) Timeout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.timeout
}

// Answered is when the newest answered request was sent in which the leader of the ensemble took part: a handshake, a
// write, or Sync. The servers keep the session for about Timeout after that. Reads and pings do not count, because a
// server that has lost the leader answers them for a while, and the others may end the session meanwhile.
func (s *Session) Answered() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.confirmed
}

// Silence is the longest time, since Probe or LeaveAfter was called and until now, in which Answered stayed as it was.
// A process that was frozen sees that as soon as it goes on, whatever it reads first, and later answers do not shrink
// it. The clock is the monotonic one: on Linux it stands still while the machine is suspended.
func (s *Session) Silence() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.silent, time.Since(s.confirmed))
}

// LeaveAfter makes the session leave a server for another when a request has had no answer for limit, which is two
// thirds of Timeout, and at least a second, unless this is called. A shorter limit finds another server sooner, and
// makes more writes ErrUnknown if all servers are slow. It does not hold for the first answer of a connection, so that
// a session settles on a slow server if there is no other.
func (s *Session) LeaveAfter(limit time.Duration) {
	s.mu.Lock()
	s.leaveAfter = max(limit, shortestLimit)
	s.mu.Unlock()
	s.watchTimer.Reset(0)
}

// Close ends the session and removes its ephemeral znodes. An error means that no server confirmed it: the ephemeral
// znodes then stay for up to the session timeout. Calls in flight end with ErrSessionLost.
func (s *Session) Close() error {
	first := s.ctx.Err() == nil
	s.end(errClosed)
	<-s.done
	s.mu.Lock()
	defer s.mu.Unlock()
	if first && !s.closeConfirmed {
		return fmt.Errorf("session %#x: closed without a server: its ephemeral znodes stay for up to %s",
			s.id, s.timeout)
	}
	return nil
}

// end ends the session's context at once, and the library soon after. No connection is made after that.
func (s *Session) end(cause error) {
	s.ended.Do(func() {
		s.cancel(cause)
		s.watches.end()
		closeTimeout := time.Duration(0)
		switch {
		case errors.Is(cause, errClosed):
			closeTimeout = time.Second
		case errors.Is(cause, ErrSessionLost):
			s.cfg.Logger.Warn("zookeeper session ended", "reason", cause)
		}
		go s.shutDown(closeTimeout)
	})
}

// shutDown gives the server closeTimeout to confirm the end of the session. It returns when the library has stopped.
func (s *Session) shutDown(closeTimeout time.Duration) {
	defer close(s.done)
	<-s.start
	go s.zk.Close() // sends a request, and gives up after 3 s
	cut := time.AfterFunc(closeTimeout, s.cut)
	defer cut.Stop()
	for range s.events {
	}
}

// cut closes the connection. The library reconnects, unless the session has ended.
func (s *Session) cut() {
	s.mu.Lock()
	c := s.conn
	s.mu.Unlock()
	if c != nil {
		c.Close()
	}
}
