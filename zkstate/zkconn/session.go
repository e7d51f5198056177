// Package zkconn provides a ZooKeeper session. Every call takes a context and returns a named error. The error of a
// write with an unknown outcome is ErrUnknown.
//
// A Session always has the same session id. When it expires, passes its own deadline or is closed, its context ends,
// and calls that wait are not sent. The owner must then dial a new one. The package never repeats a write that may have
// happened, never reconnects with another session id, never sends a request that is too large for a server, and never
// prints a secret. It does not support SASL and chroots.
package zkconn

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-zookeeper/zk"
)

// Config configures a Session. Only Servers is required.
type Config struct {
	Servers []string      // "host:port" or "host" (port 2181)
	Timeout time.Duration // requested session timeout, default 10s; the server may grant another
	Auth    []Auth        // sent before Dial returns, and again on every new connection
	SASL    SASL          // logs in before anything is sent; nil does not
	TLS     *tls.Config   // nil is plain TCP; an empty ServerName becomes the host as given in Servers
	Logger  *slog.Logger  // nil discards
	// Dial connects to an address of a server; nil is TCP. A simulation connects to a model in memory.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Jitter is how long a session waits before it tries all servers again, less than most; nil is a random time.
	Jitter func(most time.Duration) time.Duration
	// ReadBuffer is the maximum size of a reply in bytes; default 16 MiB. A larger reply is ErrTooLarge.
	ReadBuffer int
	// Small makes a session use little memory, for thousands in one process. It limits requests to 15 KiB, and
	// replies to ReadBuffer or 16 KiB.
	Small bool
}

const (
	defaultTimeout = 10 * time.Second
	longestTimeout = 24 * time.Hour
	inFlight       = 128 // calls that wait for a reply at once, at most
)

// sizes are in bytes.
type sizes struct {
	// request is below the limit of a server (jute.maxbuffer, 1 MiB). Above that limit the server closes the connection,
	// and all calls of the session fail.
	request int
	// send is larger than request: the library panics if a request ends exactly at the end of its buffer.
	send  int
	reply int // unless Config says it
	read  int // from the network at once
}

func (c Config) sizes() sizes {
	if c.Small {
		return sizes{request: 15 << 10, send: 16 << 10, reply: 16 << 10, read: 1 << 10}
	}
	return sizes{request: 1_000_000, send: 1<<20 + 4<<10, reply: 16 << 20, read: 32 << 10}
}

// Auth is one credential, for example digest with "user:password". Format never prints Data.
type Auth struct {
	Scheme string
	Data   []byte `json:"-"`
}

// Format prints only the scheme, with every verb.
func (a Auth) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "{%s …}", a.Scheme) }

// Session is one ZooKeeper session. Its methods may be called concurrently.
type Session struct {
	reads

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

	gate    *gate
	slots   chan struct{}
	watches watches

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

	abandoned []<-chan struct{} // closed when the library can no longer send a write whose caller has left

	disconnected atomic.Bool // it had a connection, and lost it
	connections  atomic.Int64

	watchTimer *time.Timer // calls watchdog; set before the first call
}

// Dial opens a session. It waits until a server grants it and accepts the credentials, or until ctx ends: the error is
// then ErrUnreachable and says for each server why it failed. If each server was tried, and one refused the login by
// SASL, it is ErrAuthFailed and says the same.
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
		gate:    &gate{ch: make(chan struct{})},
		start:   make(chan struct{}),
		done:    make(chan struct{}),
		slots:   make(chan struct{}, inFlight),
		timeout: c.Timeout,
	}
	s.reads = reads{s: s}
	s.log = &rateLimited{to: c.Logger, last: map[string]repeated{}}
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
		_, err := read(ctx, s, "auth", a.Scheme, func(c *zk.Conn) (struct{}, error) {
			return struct{}{}, c.AddAuth(a.Scheme, a.Data) // the library sends it again on every new connection
		})
		if err != nil {
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
	c.Timeout = cmp.Or(c.Timeout, defaultTimeout)
	if c.Timeout < time.Millisecond || c.Timeout > longestTimeout {
		return c, fmt.Errorf("session timeout %s: must be between 1ms and %s", c.Timeout, longestTimeout)
	}
	if c.ReadBuffer <= 0 {
		c.ReadBuffer = c.sizes().reply
	}
	if c.Dial == nil {
		c.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}
	}
	if c.Jitter == nil {
		c.Jitter = func(most time.Duration) time.Duration { return rand.N(most) }
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	for _, a := range c.Auth {
		if size := requestHeader + 4 + 4 + len(a.Scheme) + 4 + len(a.Data); size > c.sizes().request {
			return c, &Error{Op: "auth", Path: a.Scheme, Err: ErrTooLarge}
		}
	}
	return c, nil
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
		zk.WithMaxConnBufferSize(s.cfg.sizes().send))
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
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
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
		s.connections.Add(1)
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
func (s *Session) Connected() bool {
	return Closed(s.gate.opened()) && s.ctx.Err() == nil
}

// Connections is how many connections the session has had. If it is another number than before, a connection was lost.
func (s *Session) Connections() int64 { return s.connections.Load() }

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

// Deadline is when this process takes the session for ended, unless a server answers before, if only a ping.
func (s *Session) Deadline() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answered.Add(s.timeout)
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
	login, err := s.beginLogin(to)
	var raw net.Conn
	if err == nil {
		raw, err = s.connect(to)
	}
	if err != nil {
		s.recordFailure(to.server, err)
		return nil, err
	}
	c := &conn{Conn: raw, session: s, to: to, login: login}
	c.in = bufio.NewReaderSize(limitedReader{c}, s.cfg.sizes().read)
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
	s.giveUp(err)
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

// shortestLimit is the least that LeaveAfter takes. A healthy server may need that long for a write.
const shortestLimit = 250 * time.Millisecond

// isOurs reports whether a server's answer is for this session: the first one that is granted decides.
func (s *Session) isOurs(id int64, secret []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id == 0 || s.id == id && s.secret == string(secret)
}

// granted is called when a server has accepted the connection, and the login if there is one. The caller holds the lock
// of c.
func (s *Session) granted(c *conn, id int64, secret []byte, timeout time.Duration) {
	s.hosts.setReason(c.to.server, "")
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id, s.secret, s.timeout = id, string(secret), timeout
	s.answered = c.handshakeSent
	s.confirm(c.handshakeSent)
}

// confirm is called when the leader has taken part in an answer. The caller holds the mutex.
func (s *Session) confirm(sent time.Time) {
	if s.leaveAfter > 0 {
		s.silent = max(s.silent, time.Since(s.confirmed))
	}
	s.confirmed = sent
}

func (s *Session) replied(r request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.at.After(s.answered) {
		s.answered = r.at
	}
	if r.at.After(s.confirmed) && asksLeader(r.op) {
		s.confirm(r.at)
	}
	s.closeConfirmed = s.closeConfirmed || r.op == opClose
}

// watchdog ends the session when its timeout has passed since the last answered request was sent. From then on the
// servers may have expired it, even if none can be reached. watchdog also closes the connection to a server that
// answers pings but not a request. It calls itself again at the time when either can happen next.
func (s *Session) watchdog() {
	if s.ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	c, timeout, answered, leaveAfter := s.conn, s.timeout, s.answered, s.leaveAfter
	s.mu.Unlock()

	now := time.Now()
	deadline := answered.Add(timeout)
	if !now.Before(deadline) {
		s.end(fmt.Errorf("%w: no server has answered for %s", ErrSessionLost, timeout))
		return
	}
	replyLimit := max(timeout*2/3, time.Second)
	if leaveAfter > 0 && c.hasAnswered() {
		replyLimit = leaveAfter
	}
	due := now.Add(replyLimit)
	if oldest := c.oldest(); !oldest.IsZero() {
		due = oldest.Add(replyLimit)
		if !now.Before(due) {
			s.log.log(slog.LevelWarn, "zookeeper does not answer: reconnecting",
				"server", c.to.server.String(), "after", replyLimit)
			c.Close()
			due = now.Add(replyLimit)
		}
	}
	if deadline.Before(due) {
		due = deadline
	}
	if leaveAfter > 0 && due.After(now.Add(leaveAfter)) { // the next answer may be the first of a connection
		due = now.Add(leaveAfter)
	}
	s.watchTimer.Reset(due.Sub(now))
}

// rateLimited logs a message that comes again and again ever more rarely: a second after the first time, then after
// twice as long, up to a minute. A session that cannot connect tries many times a second, and a process can have
// thousands of sessions.
type rateLimited struct {
	to *slog.Logger

	mu   sync.Mutex
	last map[string]repeated
}

// repeated is when a message was logged last, and how long it is not logged after that.
type repeated struct {
	at    time.Time
	quiet time.Duration
}

const shortestQuiet, longestQuiet = time.Second, time.Minute

// Printf logs a message of the library.
func (l *rateLimited) Printf(format string, args ...any) {
	l.log(slog.LevelDebug, "zookeeper client library", "says", fmt.Sprintf(format, args...))
}

func (l *rateLimited) log(level slog.Level, msg string, args ...any) {
	if l.to.Enabled(context.Background(), level) && l.due(msg) {
		l.to.Log(context.Background(), level, msg, args...)
	}
}

func (l *rateLimited) due(msg string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	last := l.last[msg]
	since := now.Sub(last.at)
	if since < last.quiet {
		return false
	}
	quiet := min(2*last.quiet, longestQuiet)
	if since > 2*last.quiet { // it had ended, or never begun
		quiet = shortestQuiet
	}
	l.last[msg] = repeated{now, quiet}
	return true
}

// CloseLost closes another session, which has ended without a server's word, such as at its own deadline. The servers
// would keep its ephemeral znodes for its timeout from when they are back. Whoever calls this has ended all that relies
// on these znodes, since others may begin when they are gone. After nil they are gone. It makes a connection of its own
// to the server of s, and gives up after half of the timeout of s.
func (s *Session) CloseLost(ctx context.Context, lost *Session) error {
	_ = lost.Close() // it makes no connection any more
	lost.mu.Lock()
	id, timeout, secret, gone := lost.id, lost.timeout, lost.secret, lost.closeConfirmed
	lost.mu.Unlock()
	if gone {
		return nil
	}
	s.mu.Lock()
	to := s.conn.to
	s.mu.Unlock()
	login, err := s.beginLogin(to)
	var c net.Conn
	if err == nil {
		c, err = s.connect(to)
	}
	if err == nil {
		defer c.Close()
		defer context.AfterFunc(ctx, func() { c.Close() })()
		_ = c.SetDeadline(time.Now().Add(s.handshakeLimit()))
		err = closeAs(c, login, id, timeout.Milliseconds(), secret)
	}
	if err != nil {
		return fmt.Errorf("session %#x: its ephemeral znodes stay for up to %s: %s", id, timeout, s.reason(err))
	}
	return nil
}

// closeAs takes a session over on a connection, and closes it.
func closeAs(c io.ReadWriter, login Login, id, timeout int64, secret string) error {
	hello := make([]byte, 4+8, 44) // protocol version, last zxid
	hello = binary.BigEndian.AppendUint32(hello, uint32(timeout))
	hello = binary.BigEndian.AppendUint64(hello, uint64(id))
	hello = binary.BigEndian.AppendUint32(hello, uint32(len(secret)))
	granted, err := ask(c, append(hello, secret...), helloLeast, helloMost)
	if err != nil {
		return err
	}
	switch int64(binary.BigEndian.Uint64(granted[12:])) {
	case 0: // the server has ended it
		return nil
	case id:
		if login != nil {
			if err := logIn(c, login); err != nil {
				return err
			}
		}
		closing := int32(opClose)
		_, err = ask(c, binary.BigEndian.AppendUint32([]byte{0, 0, 0, 1}, uint32(closing)), replyHeader, replyHeader)
		return err
	}
	return errors.New("the server answers with another session")
}

// ask sends a frame, and returns the next one, whose length is within these bounds.
func ask(c io.ReadWriter, body []byte, least, most uint32) ([]byte, error) {
	if _, err := c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)); err != nil {
		return nil, err
	}
	return readFrame(c, least, most)
}
