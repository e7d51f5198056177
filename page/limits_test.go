package page

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// connect opens a connection from an address of loopback, and sends a request on it, if there is one.
func (s *testServer) connect(from, request string) net.Conn {
	s.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.DialContext(s.t.Context(), "tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil { // instead of for ever
		s.t.Fatal(err)
	}
	_, _ = io.WriteString(c, request) // it may be closed already
	return c
}

// requestLine is a request to a path, with more headers.
func requestLine(path string, headers ...string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + strings.Join(append(headers, "\r\n"), "\r\n")
}

// statusLine reads the first line of an answer; "" if there is none.
func statusLine(c net.Conn) string {
	line, _ := bufio.NewReader(c).ReadString('\n')
	return strings.TrimSpace(line)
}

// TestOthersHoldWhatTheyCan: beside connections without the token, whatever these ask, a reader with it gets the page.
func TestOthersHoldWhatTheyCan(t *testing.T) {
	const token, held = "0123456789abcdef", MaxConnections + 200
	request := requestLine("/", "Authorization: Bearer "+token)
	for name, others := range map[string]struct {
		ask  string
		from func(i int) string
	}{
		"healthz":            {requestLine("/healthz"), func(int) string { return "127.0.0.1" }},
		"the page":           {requestLine("/"), func(int) string { return "127.0.0.1" }},
		"nothing":            {"", func(int) string { return "127.0.0.1" }},
		"half a request":     {"GET / HTTP/1.1\r\nHost: x", func(int) string { return "127.0.0.1" }},
		"from many":          {"", func(i int) string { return fmt.Sprintf("127.0.1.%d", 1+i%200) }},
		"healthz, from many": {requestLine("/healthz"), func(i int) string { return fmt.Sprintf("127.0.1.%d", 1+i%200) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, Config{Token: token})
			for i := range held {
				c := s.connect(others.from(i), others.ask)
				if strings.HasSuffix(others.ask, "\r\n\r\n") { // it has its answer, and asks nothing more
					statusLine(c)
				}
			}
			for range 5 {
				if got := statusLine(s.connect("127.0.0.1", request)); got != "HTTP/1.1 200 OK" {
					t.Errorf("the reader with the token gets %q", got)
				}
			}
			if n := s.connections.count(); n > MaxConnections {
				t.Errorf("%d connections", n)
			}
		})
	}
}

// TestWithoutTheTokenNoConnectionStays: not even for who asks whether the server is well.
func TestWithoutTheTokenNoConnectionStays(t *testing.T) {
	s := startServer(t, Config{Token: "0123456789abcdef"})
	for _, path := range []string{"/", "/healthz", "/stream?u=/", "/nothing"} {
		answer, err := io.ReadAll(s.connect("127.0.0.1", requestLine(path))) // until the server closes it
		if err != nil || !strings.Contains(string(answer), "\r\nConnection: close\r\n") {
			t.Errorf("%s: %q, %v", path, answer, err)
		}
	}
	if _, _, h := s.get("/healthz", "Authorization", "Bearer 0123456789abcdef"); h.Get("Connection") == "close" {
		t.Error("with the token")
	}
}

// TestTooManyConnections: one more than an address, or all, may have closes one that waits; of those that are being
// answered none is closed, and it is told so.
func TestTooManyConnections(t *testing.T) {
	b := bound(nil)
	open := func(from string, answered bool) *boundedConn {
		c := b.add(idle{from: from})
		if c != nil && answered {
			b.state(c, http.StateActive)
		}
		return c
	}
	first := open("127.0.0.1:1", false)
	for i := range MaxFromAddress - 1 {
		open("127.0.0.1:1", i%2 == 0)
	}
	other := open("[2001:db8::1]:1", true)
	if more := open("127.0.0.1:2", false); more == nil || b.open[first] || !b.open[other] ||
		b.from[first.from] != MaxFromAddress {
		t.Errorf("one more of an address: %v, %d", more, b.from[first.from])
	}
	for range MaxFromAddress {
		open("127.0.0.1:2", true)
	}
	if more := open("127.0.0.1:2", false); more != nil {
		t.Error("it has room while all of the address are being answered")
	}
	for range MaxFromAddress - 1 {
		open("[2001:db8::2]:1", true) // of the same network
	}
	if more := open("127.0.0.2:1", false); more != nil || b.count() != MaxConnections {
		t.Errorf("%d connections, all being answered, and one more", b.count())
	}
	b.state(other, http.StateIdle)
	if more := open("127.0.0.2:1", false); more == nil || b.open[other] {
		t.Error("one waits, and keeps its place")
	}
	for c := range b.open {
		_ = c.Close()
		_ = c.Close() // counts once
	}
	if b.count() != 0 || len(b.from) != 0 {
		t.Errorf("%d connections are left, of %v", b.count(), b.from)
	}
}

// idle is a connection from an address.
type idle struct {
	net.Conn
	from string
}

func (i idle) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(i.from)) }
func (idle) Close() error           { return nil }

// TestStreamsOfOneAddress: one reader cannot have all.
func TestStreamsOfOneAddress(t *testing.T) {
	s := startServer(t, Config{})
	for i := range MaxStreamsFromAddress + 1 {
		want := "HTTP/1.1 200 OK"
		if i == MaxStreamsFromAddress {
			want = "HTTP/1.1 503 Service Unavailable"
		}
		if got := statusLine(s.connect("127.0.0.2", requestLine("/stream?u=/&v=1"))); got != want {
			t.Fatalf("stream %d: %q", i, got)
		}
	}
	if got := statusLine(s.connect("127.0.0.3", requestLine("/stream?u=/&v=1"))); got != "HTTP/1.1 200 OK" {
		t.Errorf("of another address: %q", got)
	}
}
