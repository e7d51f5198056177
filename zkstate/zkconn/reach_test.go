package zkconn_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"muster/dev/fault"
	"muster/dev/zkserver"
	"muster/zkstate/zkconn"
)

func TestUnreachableNamesEachServerAndWhy(t *testing.T) {
	t.Parallel()
	closed, free, err := zkserver.Refusing()
	if err != nil {
		t.Fatal(err)
	}
	defer free()
	web := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer web.Close()
	go answer(web, "HTTP/1.1 400 Bad Request\r\n\r\n")
	mute := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer mute.Close()
	rude := proxy(t, shared.Connect())
	rude.Refuse(true)

	want := map[string]string{
		closed:                 "connection refused",
		"nowhere.invalid:2181": "no such host",
		web.Addr().String():    "answers, but not like a ZooKeeper server",
		mute.Addr().String():   "no answer within 250ms",
		rude.Addr():            "hangs up: ",
	}
	var servers []string
	for s := range want {
		servers = append(servers, s)
	}
	begin := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err = zkconn.Dial(ctx, zkconn.Config{Servers: servers, Timeout: time.Second})
	if !errors.Is(err, zkconn.ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if took := time.Since(begin); took > 20*time.Second { // the machine may be busy
		t.Errorf("took %s", took)
	}
	for s, why := range want {
		if text := s + ": " + why; !strings.Contains(err.Error(), text) {
			t.Errorf("%v\nlacks %q", err, text)
		}
	}
}

// answer writes the same text to every connection.
func answer(l net.Listener, text string) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		c.Write([]byte(text))
	}
}

func TestServerListIsChecked(t *testing.T) {
	for servers, want := range map[string]string{
		"":              "must be host:port",
		"a:2181/jobs":   "write /jobs in front of the roots",
		"http://a:2181": "leave out http://",
		"a:b:c":         "must be host:port",
		"a:99999":       "its port is not one",
		":2181":         "must be host:port",
		"a:2181,b:2181": "must be host:port",
	} {
		_, err := zkconn.Dial(t.Context(), zkconn.Config{Servers: []string{servers}})
		if err == nil || errors.Is(err, zkconn.ErrUnreachable) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", servers, err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for servers, want := range map[string]string{
		"zk.invalid": "zk.invalid:2181: ", "::1": "[::1]:2181: ", "[::1]": "[::1]:2181: ", "[::1]:9": "[::1]:9: ",
	} {
		_, err := zkconn.Dial(ctx, zkconn.Config{Servers: []string{servers}})
		if !errors.Is(err, zkconn.ErrUnreachable) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", servers, err, want)
		}
	}
}

// TestLocalIP: it accepts the servers that Dial accepts, and no server needs to listen.
func TestLocalIP(t *testing.T) {
	for list, want := range map[string]string{
		"127.0.0.1":                          "127.0.0.1",
		"nobody.invalid:2181,127.0.0.1:2181": "127.0.0.1",
	} {
		if ip, err := zkconn.LocalIP(t.Context(), strings.Split(list, ",")); err != nil || ip.String() != want {
			t.Errorf("%s: %v, %v; want %s", list, ip, err, want)
		}
	}
	if _, err := zkconn.LocalIP(t.Context(), []string{"nobody.invalid:2181"}); !errors.Is(err, zkconn.ErrUnreachable) {
		t.Errorf("a name that nobody has: %v", err)
	}
	_, err := zkconn.LocalIP(t.Context(), []string{"127.0.0.1:2181/chroot"})
	if err == nil || errors.Is(err, zkconn.ErrUnreachable) {
		t.Errorf("a path: %v", err)
	}
}

func TestSessionTimeoutMustFitTheProtocol(t *testing.T) {
	for _, d := range []time.Duration{-time.Second, time.Microsecond, 25 * 24 * time.Hour} {
		if _, err := zkconn.Dial(t.Context(), zkconn.Config{Servers: shared.Addrs(), Timeout: d}); err == nil {
			t.Errorf("%s was accepted", d)
		}
	}
	if got := dial(t, zkconn.Config{Timeout: time.Hour}).Timeout(); got != 10*time.Minute {
		t.Errorf("granted %s, want the server's greatest", got)
	}
}

func TestDialWaitsForAServer(t *testing.T) {
	p := proxy(t, shared.Connect())
	p.Refuse(true)
	time.AfterFunc(300*time.Millisecond, func() { p.Refuse(false) })
	dial(t, zkconn.Config{Servers: []string{p.Addr()}})
}

func TestTLS(t *testing.T) {
	t.Parallel()
	ctx := within(t, time.Minute)
	e := must(zkserver.Start(ctx, zkserver.Options{TLS: true, ClientCert: true}))(t)
	t.Cleanup(func() { e.Stop() })
	good := must(e.Certs().Config())(t)
	_, port, _ := strings.Cut(e.Connect(), ":")
	byName, byIP := "localhost:"+port, "127.0.0.1:"+port
	with := func(change func(*tls.Config)) *tls.Config {
		c := good.Clone()
		change(c)
		return c
	}

	for _, server := range []string{byName, byIP} { // the name in the list is the one that is verified
		s := dial(t, zkconn.Config{Servers: []string{server}, TLS: with(func(c *tls.Config) { c.ServerName = "" })})
		acl := []zkconn.ACL{{Perms: zkconn.PermAll, Scheme: "x509", ID: "CN=client"}}
		path := must(s.Create(ctx, "/x509-", []byte("secret"), zkconn.PersistentSequential, acl))(t)
		if data, _, err := s.Get(ctx, path); err != nil || string(data) != "secret" {
			t.Errorf("%q %v", data, err)
		}
	}
	for name, c := range map[string]struct {
		server string
		tls    *tls.Config
		want   string
	}{
		"unknown_ca": {byIP, with(func(c *tls.Config) { c.RootCAs = x509.NewCertPool() }),
			"certificate signed by unknown authority"},
		"wrong_name": {byIP, with(func(c *tls.Config) { c.ServerName = "other.example" }),
			"certificate is valid for localhost, not other.example"},
		"no_client_cert": {byIP, with(func(c *tls.Config) { c.Certificates = nil }), "tls: "},
		"no_tls_at_all":  {byIP, nil, "127.0.0.1:" + port + ": hangs up: "},
		"server_is_plain": {shared.Connect(), with(func(c *tls.Config) { c.ServerName = "" }),
			"hangs up during the TLS handshake"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			_, err := zkconn.Dial(ctx, zkconn.Config{Servers: []string{c.server}, TLS: c.tls})
			if !errors.Is(err, zkconn.ErrUnreachable) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestCredentialsDecideAndAreNeverPrinted(t *testing.T) {
	ctx, dir := within(t, 10*time.Second), root(t)
	secret := func(password string) zkconn.Config {
		return zkconn.Config{Servers: shared.Addrs(),
			Auth: []zkconn.Auth{{Scheme: "digest", Data: []byte("ann:" + password)}}}
	}
	acl := []zkconn.ACL{{Perms: zkconn.PermAll, Scheme: "auth"}}
	path := must(dial(t, secret("hunter2")).Create(ctx, dir+"/a", []byte("x"), zkconn.Persistent, acl))(t)
	if data, _, err := dial(t, secret("hunter2")).Get(ctx, path); err != nil || string(data) != "x" {
		t.Errorf("right password: %q %v", data, err)
	}
	for name, c := range map[string]zkconn.Config{"wrong password": secret("guess"), "no password": {}} {
		s := dial(t, c)
		_, _, get := s.Get(ctx, path)
		_, set := s.Set(ctx, path, nil, -1)
		_, multi := s.Multi(ctx, zkconn.SetOp(path, nil, -1))
		for _, err := range []error{get, set, multi} {
			if !errors.Is(err, zkconn.ErrNoAuth) {
				t.Errorf("%s: %v, want %v", name, err, zkconn.ErrNoAuth)
			}
		}
	}
	c := secret("hunter2")
	c.Auth[0].Scheme = "nonsense"
	_, err := zkconn.Dial(ctx, c)
	if !errors.Is(err, zkconn.ErrAuthFailed) || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("%v, want %v", err, zkconn.ErrAuthFailed)
	}
	for _, text := range []string{err.Error(), fmt.Sprintf("%v %+v %#v %s %x", c, c, c, c.Auth, c.Auth[0])} {
		for _, secret := range []string{"hunter2", fmt.Sprintf("%x", "hunter2"), "104, 117"} {
			if strings.Contains(text, secret) {
				t.Errorf("it holds the secret: %s", text)
			}
		}
	}
}

func TestRetriesAndWarningsAreLimited(t *testing.T) {
	t.Parallel()
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	var tries atomic.Int32
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			tries.Add(1)
			c.Close()
		}
	}()
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var warnings counter
	logger := slog.New(slog.NewTextHandler(&warnings, &slog.HandlerOptions{Level: slog.LevelDebug}))
	_, err := zkconn.Dial(ctx, zkconn.Config{Servers: []string{l.Addr().String()}, Logger: logger})
	if !errors.Is(err, zkconn.ErrUnreachable) {
		t.Fatal(err)
	}
	if n := tries.Load(); n < 4 || n > 60 {
		t.Errorf("%d tries in 2s", n)
	}
	if n := warnings.Load(); n < 1 || n > 3 {
		t.Errorf("%d warnings in 2s", n)
	}
}

// counter counts the warnings about a server that are written to it.
type counter struct{ atomic.Int32 }

func (c *counter) Write(line []byte) (int, error) {
	if strings.Contains(string(line), "no zookeeper session") {
		c.Add(1)
	}
	return len(line), nil
}

// TestFrozenServerLeavesTimeForTheOthers: Dial reaches the other server even with a long session timeout, and if both
// have one name.
func TestFrozenServerLeavesTimeForTheOthers(t *testing.T) {
	t.Parallel()
	alive, frozen := twoAtOnePort(t)
	_, port, _ := strings.Cut(alive, ":")
	for _, servers := range [][]string{{frozen, alive}, {"two.test:" + port}} {
		var all sync.WaitGroup
		for range 8 { // about half of them try the frozen server first
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
				defer cancel()
				s, err := zkconn.Dial(ctx, zkconn.Config{Servers: servers, Timeout: time.Minute})
				if err != nil {
					t.Error(err)
					return
				}
				s.Close()
			})
		}
		all.Wait()
	}
}

// twoAtOnePort returns two addresses with one port: at 127.0.0.1 a server answers, at 127.0.0.2 none does.
func twoAtOnePort(t *testing.T) (alive, frozen string) {
	t.Helper()
	for range 100 {
		r := newRelay(t, shared.Connect())
		_, port, _ := strings.Cut(r.Addr().String(), ":")
		if l, err := net.Listen("tcp", "127.0.0.2:"+port); err == nil {
			t.Cleanup(func() { l.Close() })
			return r.Addr().String(), l.Addr().String()
		}
	}
	t.Fatal("no port is free at 127.0.0.1 and 127.0.0.2")
	return "", ""
}

// TestSlowAuthenticationIsUnreachable: a server that grants a session and does not answer the credentials is
// unreachable.
func TestSlowAuthenticationIsUnreachable(t *testing.T) {
	r := newRelay(t, shared.Connect())
	r.set(func(r *relay) { r.drop = func([]byte) bool { return true } })
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("no answer within 1s"))
	defer cancel()
	_, err := zkconn.Dial(ctx, zkconn.Config{
		Servers: []string{r.Addr().String()}, Auth: []zkconn.Auth{{Scheme: "digest", Data: []byte("me:secret")}},
	})
	if !errors.Is(err, zkconn.ErrUnreachable) || strings.Contains(err.Error(), "secret") {
		t.Errorf("dial: %v, want unreachable", err)
	}
}

// names is the name service of these tests.
var names *nameService

// nameService answers queries (RFC 1035) for localhost and names in .test with 127.0.0.1, for two.test also with
// 127.0.0.2. It says that no other name exists.
type nameService struct {
	conn  net.PacketConn
	mu    sync.Mutex
	muted map[string]bool // names for which it does not answer
}

// startNames starts the name service and makes it that of this process.
func startNames() (*nameService, error) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	n := &nameService{conn: conn, muted: map[string]bool{}}
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
	go n.serve()
	return n, nil
}

func (n *nameService) serve() {
	query := make([]byte, 512)
	for {
		size, from, err := n.conn.ReadFrom(query)
		if err != nil {
			return
		}
		if answer := n.answer(query[:size]); answer != nil {
			_, _ = n.conn.WriteTo(answer, from) // after an error the client asks again
		}
	}
}

// answer is nil for a muted name.
func (n *nameService) answer(query []byte) []byte {
	var labels []string
	at := 12 // after the header
	for query[at] != 0 {
		size := int(query[at])
		labels = append(labels, string(query[at+1:at+1+size]))
		at += 1 + size
	}
	end := at + 5 // after type and class
	n.mu.Lock()
	muted := n.muted[strings.Join(labels, ".")]
	n.mu.Unlock()
	if muted {
		return nil
	}
	answer := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, query[12:end]...)
	switch domain, typeA := labels[len(labels)-1], binary.BigEndian.Uint16(query[at+1:]) == 1; {
	case domain != "test" && domain != "localhost": // not every machine has localhost in /etc/hosts
		answer[3] |= 3 // no such name
	case typeA:
		last := []byte{1}
		if labels[0] == "two" {
			last = []byte{1, 2}
		}
		answer[7] = byte(len(last))
		for _, b := range last {
			answer = append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, b)
		}
	}
	return answer
}

// mute makes the name service no longer answer for a name.
func (n *nameService) mute(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.muted[name] = true
}

// TestUnansweredNameDoesNotDelayTheOthers: the session connects in time, at any place of the name in the list.
func TestUnansweredNameDoesNotDelayTheOthers(t *testing.T) {
	t.Parallel()
	names.mute("mute.test")
	_, port, _ := strings.Cut(shared.Connect(), ":")
	good, mute := "good.test:"+port, "mute.test:"+port
	for _, servers := range [][]string{{mute, good}, {good, mute}} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // as the commands do
		defer cancel()
		s, err := zkconn.Dial(ctx, zkconn.Config{Servers: servers})
		if err != nil {
			t.Fatal(err)
		}
		s.Close()
		if ip, err := zkconn.LocalIP(ctx, servers); err != nil || ip.String() != "127.0.0.1" {
			t.Errorf("%v: %v, %v", servers, ip, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err := zkconn.Dial(ctx, zkconn.Config{Servers: []string{mute}})
	if err == nil || !strings.Contains(err.Error(), mute+": the name service does not answer") {
		t.Error(err)
	}
}

// TestAddressIsKeptWithoutTheNameService: a session reconnects to the old address if its name no longer resolves.
func TestAddressIsKeptWithoutTheNameService(t *testing.T) {
	t.Parallel()
	p := proxy(t, shared.Connect())
	_, port, _ := strings.Cut(p.Addr(), ":")
	s := dial(t, zkconn.Config{Servers: []string{"outlived.test:" + port}, Timeout: 10 * time.Second})
	names.mute("outlived.test")
	before := p.Requests()[fault.OpExists]
	p.Cut()
	if _, _, err := s.Exists(within(t, 30*time.Second), "/"); err != nil {
		t.Error(err)
	}
	if p.Requests()[fault.OpExists] == before {
		t.Error("the request went to another server")
	}
}
