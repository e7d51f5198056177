package page

import (
	"crypto/tls"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestAConnectionIsOneRequestAtATime: the limits count connections, so that none may have many requests, as in HTTP/2.
func TestAConnectionIsOneRequestAtATime(t *testing.T) {
	other := httptest.NewTLSServer(nil) // it has a certificate
	defer other.Close()
	s := startServer(t, Config{TLS: &tls.Config{MinVersion: tls.VersionTLS12, Certificates: other.TLS.Certificates}})
	client := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}} //nolint:gosec // on loopback
	c, err := tls.Dial("tcp", strings.TrimPrefix(s.url, "http://"), client)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := c.ConnectionState().NegotiatedProtocol; got != "http/1.1" {
		t.Errorf("the protocol is %q", got)
	}
	answers(t, c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", "HTTP/1.1 200 OK\r\n")
}

// TestOptionsOfTheServer: not only those of a page are refused.
func TestOptionsOfTheServer(t *testing.T) {
	s := startServer(t, Config{Token: "a token of some length"})
	c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	answers(t, c, "OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", "HTTP/1.1 405 ")
}

// answers sends a request that ends the connection, and says how the answer must begin.
func answers(t *testing.T, c net.Conn, request, begin string) {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(got), begin) {
		t.Errorf("%q: %q, %v", request, got, err)
	}
}
