// Package page is the read-only web page of "muster serve": what ZooKeeper holds, for people who would rather look than
// read.
//
// A Board is what is known now. Views turn it into fragments of HTML with ids, so that only those that changed are sent
// to who looks. The package writes nothing anywhere, and the page loads nothing from elsewhere.
package page

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"muster/resource"
	"muster/text"
	"muster/zkstate"
	"muster/zkstate/zkconn"
)

// Config configures a Server.
type Config struct {
	// Connect opens a session. The server closes it, and opens another one when it is lost.
	Connect func(ctx context.Context) (*zkconn.Session, error)
	// Redis connects to the Redis of a queue: for the last hour of up to MaxSampled queues, and while somebody looks at
	// one. Nil: the page does without.
	Redis func(ctx context.Context, rec *resource.Record) (Lookout, error)
	// Configuration returns what is declared, if that has changed since it was called last; else nil. Nil: nothing is.
	Configuration func() *Configuration
	Servers       string // of ZooKeeper, as they are shown
	Home          string // see zkstate.NewReader
	Kinds         []zkstate.Kind
	Roots         []string // what is below them is shown; none: the roots of Stacks, and Also
	Stacks        []string // that are shown; none: all
	Also          []string // roots in which the stacks may have nothing yet
	// Hosts are the names by which the server may be called, besides those of loopback and addresses.
	Hosts   []string
	Token   string      // that a request must have; empty: none
	Version string      // of muster
	TLS     *tls.Config // nil: plain HTTP
	Log     *slog.Logger
}

// Serve serves the page on a listener until ctx ends.
func Serve(ctx context.Context, l net.Listener, cfg Config) error {
	reading, stop := context.WithCancel(context.WithoutCancel(ctx))
	k := newKeeper(reading, cfg)
	var keeping sync.WaitGroup
	keeping.Go(func() { k.run(reading) })
	s := newServer(reading, k, l)
	err := s.serveUntil(ctx)
	stop()
	keeping.Wait()
	s.hub.running.Wait()
	return err
}

// newServer returns a server of what k keeps. Views are drawn until ctx ends.
func newServer(ctx context.Context, k *keeper, l net.Listener) *server {
	return &server{
		cfg: k.cfg, keeper: k, hub: newHub(ctx, k), connections: bound(l), answering: make(chan struct{}, maxAnswers),
		streams: streams{from: map[netip.Addr]int{}},
	}
}

// serveUntil answers requests until ctx ends, and then finishes those that are being answered.
func (s *server) serveUntil(ctx context.Context) error {
	s.ending = ctx.Done()
	var protocols http.Protocols
	protocols.SetHTTP1(true) // the limits count connections, and one of HTTP/2 has many requests at a time
	web := &http.Server{
		Handler:        s.handler(),
		MaxHeaderBytes: maxHeader, ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout,
		WriteTimeout: answerTimeout, Protocols: &protocols, DisableGeneralOptionsHandler: true,
		ConnState: s.connections.state, TLSConfig: s.cfg.TLS,
		ErrorLog: slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { // it ends with the server
		if s.cfg.TLS != nil {
			served <- web.ServeTLS(s.connections, "", "")
		} else {
			served <- web.Serve(s.connections)
		}
	}()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	_ = web.Shutdown(closing) // what is not answered by then is cut
	_ = web.Close()
	<-served //nolint:errcheck // it says that the server was closed
	return nil
}

type server struct {
	cfg    Config
	keeper *keeper
	hub    *hub
	ending <-chan struct{} // closed when the server ends

	connections *bounded
	answering   chan struct{} // has an entry for each answer of the API
	streams     streams
	dropped     atomic.Int64

	all struct { // the API's status of everything
		sync.Mutex
		board *Board
		body  []byte
	}
}

// policy is the Content-Security-Policy: the page loads only what this server has, and is in no other page.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /assets/{file}", func(w http.ResponseWriter, r *http.Request) { // lists no folder
		http.ServeFileFS(w, r, assets, "assets/"+r.PathValue("file"))
	})
	mux.HandleFunc("GET /stream", s.stream)
	mux.HandleFunc("GET /healthz", s.health)
	mux.Handle("GET /metrics", s.metrics())
	s.api(mux)
	mux.HandleFunc("GET /", s.page)
	return s.guard(mux)
}

// guard refuses what must not be asked, and sets the headers of every answer.
func (s *server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		if r.ContentLength != 0 { // the server would wait for it, before it answers
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(time.Second))
			h.Set("Connection", "close")
		}
		allowed := HasToken(r, s.cfg.Token)
		if !allowed { // who has no token keeps no connection
			h.Set("Connection", "close")
		}
		switch {
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "only GET and HEAD: this page changes nothing", http.StatusMethodNotAllowed)
		case r.ContentLength != 0:
			http.Error(w, "a request has no body here", http.StatusBadRequest)
		case r.URL.Path != "/healthz" && !s.called(r.Host):
			http.Error(w, "this server is not called "+text.Escape(r.Host)+": name it with --listen or --allow-host",
				http.StatusMisdirectedRequest)
		case r.URL.Path != "/healthz" && !allowed:
			h.Set("WWW-Authenticate", `Basic realm="muster", charset="UTF-8"`)
			http.Error(w, "a token is needed, as the password or as a bearer token", http.StatusUnauthorized)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// called reports whether a Host header names this server. A page elsewhere whose name was made to lead here (DNS
// rebinding) sends its own name; an address cannot be made to lead elsewhere.
func (s *server) called(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	name = strings.TrimSuffix(strings.ToLower(strings.Trim(name, "[]")), ".")
	if _, err := netip.ParseAddr(name); err == nil || name == "localhost" {
		return true
	}
	return slices.Contains(s.cfg.Hosts, name)
}

// HasToken reports whether a request has the token, as its password or as a bearer token. All have an empty one.
func HasToken(r *http.Request, token string) bool {
	if token == "" {
		return true
	}
	_, given, ok := r.BasicAuth()
	if !ok {
		scheme, bearer, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return false
		}
		given = strings.TrimSpace(bearer)
	}
	want, got := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(given))
	return subtle.ConstantTimeCompare(want[:], got[:]) == 1
}

func (s *server) page(w http.ResponseWriter, r *http.Request) {
	request, ok := parseRequest(r.URL)
	if len(r.URL.String()) > maxURL {
		http.Error(w, "the address is longer than 2 KiB", http.StatusRequestURITooLong)
		return
	}
	if !ok {
		http.Error(w, "there is no such page; / shows all", http.StatusNotFound)
		return
	}
	v, err := s.hub.acquire(request)
	if err != nil {
		unavailable(w, err.Error())
		return
	}
	defer s.hub.release(v)
	ctx, cancel := context.WithTimeout(r.Context(), firstRead)
	defer cancel()
	shown, ok := await(ctx, &v.shown)
	if !ok {
		unavailable(w, "ZooKeeper has not answered yet")
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if shown.Missing {
		w.WriteHeader(http.StatusNotFound)
	}
	whole := shown.Rendered
	if b, _, _ := s.keeper.board.now(); b != nil && b.Connected {
		whole.At = time.Now() // nothing has changed since
	}
	_ = s.hub.views.document(patient(w), request, whole) // the reader may have gone
}

// unavailable answers that a limit is reached, or that nothing is known yet.
func unavailable(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", "5")
	http.Error(w, why, http.StatusServiceUnavailable)
}

// await returns the value of a feed as soon as there is one.
func await[T any](ctx context.Context, f *feed[T]) (value T, ok bool) {
	for {
		value, ok, changed := f.now()
		if ok {
			return value, true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return value, false
		}
	}
}

// patient returns a writer that gives the reader writeTimeout for each chunk, and answerTimeout for all. Who is slower
// gets an error.
func patient(w http.ResponseWriter) *patientWriter {
	return &patientWriter{w, http.NewResponseController(w), time.Now().Add(answerTimeout)}
}

type patientWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	by      time.Time // when all is to be written; zero: some time
}

func (p *patientWriter) Write(b []byte) (int, error) {
	n := 0
	for chunk := range slices.Chunk(b, writeChunk) {
		p.wait()
		m, err := p.ResponseWriter.Write(chunk)
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// wait says how long the next write may take.
func (p *patientWriter) wait() {
	by := time.Now().Add(writeTimeout)
	if !p.by.IsZero() && p.by.Before(by) {
		by = p.by
	}
	_ = p.control.SetWriteDeadline(by) // a test's writer may have none
}

// bounded limits the connections of a listener, and those of each address. One too many closes the one that has waited
// longest for a request: so nobody shuts others out with connections that ask nothing. If all are being answered, it is
// told so and closed. It would otherwise wait in the kernel's queue, as with netutil.LimitListener, and nobody would
// know why.
type bounded struct {
	net.Listener
	refused atomic.Int64

	mu   sync.Mutex
	open map[*boundedConn]bool
}

func bound(l net.Listener) *bounded {
	return &bounded{Listener: l, open: map[*boundedConn]bool{}}
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
	fromThere := 0
	for o := range b.open {
		if o.from == one.from {
			fromThere++
		}
	}
	full := fromThere >= MaxFromAddress
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
		delete(b.open, longest)
		_ = longest.Conn.Close()
	}
	b.open[one] = true
	return one
}

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

type boundedConn struct {
	net.Conn
	in   *bounded
	from netip.Addr

	waits time.Time // since when, for a request; zero: it is being answered. in.mu guards it
}

func (c *boundedConn) Close() error {
	c.in.mu.Lock()
	delete(c.in.open, c)
	c.in.mu.Unlock()
	return c.Conn.Close()
}
