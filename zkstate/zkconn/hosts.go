package zkconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	defaultPort   = "2181"
	shortestPause = 20 * time.Millisecond
	longestPause  = time.Second
	lookupLimit   = 2 * time.Second
	lookupGrace   = 500 * time.Millisecond // for the other names, once one has resolved
)

// server is one entry of Config.Servers.
type server struct{ host, port string }

func (s server) String() string { return net.JoinHostPort(s.host, s.port) }

func parseServers(list []string) ([]server, error) {
	if len(list) == 0 {
		return nil, errors.New("no zookeeper server given")
	}
	var servers []server
	for i, entry := range list {
		s, err := parseServer(strings.TrimSpace(entry))
		if err != nil {
			return nil, fmt.Errorf("zookeeper server %d of %d: %w", i+1, len(list), err)
		}
		servers = append(servers, s)
	}
	return servers, nil
}

// parseServer reads one address. Its errors do not repeat it: what is no address may hold a password.
func parseServer(entry string) (server, error) {
	if strings.Contains(entry, "@") {
		return server{}, errors.New("an address has no user and no password")
	}
	if scheme, _, found := strings.Cut(entry, "://"); found {
		return server{}, fmt.Errorf("an address has no scheme: leave out %s://", scheme)
	}
	if _, path, found := strings.Cut(entry, "/"); found {
		return server{}, fmt.Errorf("a path after the address (chroot) is not supported: write /%s in front of the "+
			"roots (root and home in the configuration, --root elsewhere)", strings.TrimSuffix(path, "/"))
	}
	host, port, err := net.SplitHostPort(entry)
	if err != nil { // no port, or an IPv6 address without brackets
		host, port = strings.TrimSuffix(strings.TrimPrefix(entry, "["), "]"), defaultPort
		if strings.Contains(host, ":") && net.ParseIP(host) == nil {
			return server{}, errors.New("must be host:port")
		}
	}
	if host == "" || port == "" || strings.ContainsAny(host, " ,[]") {
		return server{}, errors.New("must be host:port")
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return server{}, errors.New("its port is not one: a number up to 65535")
	}
	return server{host, port}, nil
}

// LocalIP is the address from which this machine would send to the first server whose name resolves. It sends nothing
// to the servers. Its errors are those of Dial.
func LocalIP(ctx context.Context, list []string) (net.IP, error) {
	servers, err := parseServers(list)
	if err != nil {
		return nil, err
	}
	for _, e := range lookup(ctx, servers) {
		if err = e.err; err != nil {
			continue
		}
		var facing net.Conn
		if facing, err = net.Dial("udp", e.addr); err == nil {
			defer facing.Close()
			return facing.LocalAddr().(*net.UDPAddr).IP, nil
		}
	}
	return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
}

// endpoint is one address of a server. err is set if the name did not resolve.
type endpoint struct {
	server server
	addr   string
	err    error
}

// hosts chooses the next server for the library. It resolves the names again in every round, since addresses of
// containers change. It pauses for a random time between two rounds without success, so that many sessions do not
// return at once.
//
// The library calls Init, Next and Connected from one goroutine. Others read the reasons too.
type hosts struct {
	ctx      context.Context // of the session
	servers  []server
	maxPause time.Duration
	jitter   func(most time.Duration) time.Duration

	round     []endpoint
	at        int  // index in round
	failures  int  // in this round
	rounds    int  // without success
	refused   bool // a server of this round has refused the login
	connected time.Time

	mu      sync.Mutex
	reasons map[server]string // why the last attempt failed
}

func newHosts(ctx context.Context, servers []server, c Config) *hosts {
	return &hosts{
		ctx: ctx, servers: servers, jitter: c.Jitter,
		maxPause: max(shortestPause, min(longestPause, c.Timeout/8)),
		reasons:  map[server]string{},
	}
}

// Init does nothing: newHosts has set the servers.
func (h *hosts) Init([]string) error { return nil }

// Len is the number of servers.
func (h *hosts) Len() int { return len(h.servers) }

// Connected is called after each handshake. Next takes a connection as a success only if it lasted for a second, since
// a server may accept every connection and close it at once.
func (h *hosts) Connected() { h.connected = time.Now() }

// Next chooses the next server, perhaps after a pause. Its second result stops the library if the session has ended.
func (h *hosts) Next() (string, bool) {
	if !h.connected.IsZero() && time.Since(h.connected) > time.Second {
		h.failures, h.rounds = 0, 0
	}
	h.connected = time.Time{}
	if h.failures >= len(h.round) {
		if h.round != nil {
			Pause(h.ctx, h.jitter(min(h.maxPause, shortestPause<<min(h.rounds, 10))))
			h.rounds++
		}
		h.resolve()
	}
	h.failures++
	h.at = (h.at + 1) % len(h.round)
	return h.current().addr, h.ctx.Err() != nil
}

// current is the endpoint that Next chose.
func (h *hosts) current() endpoint { return h.round[h.at] }

// resolve starts a new round. It keeps the old addresses of a name for which the name service does not answer.
func (h *hosts) resolve() {
	before := h.round
	h.round, h.failures, h.refused = nil, 0, false
	for _, e := range lookup(h.ctx, h.servers) {
		if dns, ok := errors.AsType[*net.DNSError](e.err); ok && !dns.IsNotFound {
			other := func(o endpoint) bool { return o.server != e.server || o.err != nil }
			old := slices.DeleteFunc(slices.Clone(before), other)
			h.round = append(h.round, old...)
			if len(old) > 0 {
				continue
			}
		}
		h.round = append(h.round, e)
	}
	rand.Shuffle(len(h.round), func(i, j int) { h.round[i], h.round[j] = h.round[j], h.round[i] })
}

// lookup resolves all names at once. Once one has resolved, it waits only lookupGrace for the others.
func lookup(ctx context.Context, servers []server) []endpoint {
	ctx, cancel := context.WithTimeout(ctx, lookupLimit)
	defer cancel()
	found := make([][]endpoint, len(servers))
	var all sync.WaitGroup
	for i, s := range servers {
		all.Go(func() {
			addrs, err := net.DefaultResolver.LookupHost(ctx, s.host)
			switch {
			case err == nil:
				time.AfterFunc(lookupGrace, cancel)
			case ctx.Err() != nil:
				err = &net.DNSError{Err: "no answer", Name: s.host, IsTimeout: true}
			}
			if err != nil {
				found[i] = []endpoint{{s, s.String(), err}}
			}
			for _, a := range addrs {
				found[i] = append(found[i], endpoint{s, net.JoinHostPort(a, s.port), nil})
			}
		})
	}
	all.Wait()
	return slices.Concat(found...)
}

// setReason keeps the reason why a server failed; "" means that it did not.
func (h *hosts) setReason(s server, reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reasons[s] = reason
}

// unreachable is the error when time is up.
func (h *hosts) unreachable(cause error) error {
	return fmt.Errorf("%w: %w", h.allReasons(ErrUnreachable), cause)
}

// allReasons is an error of this kind that names every server and the reason why it failed.
func (h *hosts) allReasons(kind error) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []string
	for _, s := range h.servers {
		all = append(all, fmt.Sprintf("%s: %s", s, cmp.Or(h.reasons[s], "no answer yet")))
	}
	return fmt.Errorf("%w: %s", kind, strings.Join(all, "; "))
}

// gate is open while the session has a connection. Every call waits for it before it calls the library, so that the
// library queues nothing during an outage: a call that waits here was certainly not sent.
type gate struct {
	mu sync.Mutex
	ch chan struct{} // closed while the gate is open
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !Closed(g.ch) {
		close(g.ch)
	}
}

// shut closes the gate, and reports whether it was open.
func (g *gate) shut() (was bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if was = Closed(g.ch); was {
		g.ch = make(chan struct{})
	}
	return was
}

// opened is a channel that is closed while the gate is open.
func (g *gate) opened() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ch
}
