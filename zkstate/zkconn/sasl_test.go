package zkconn_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"muster/sim/rig"
	"muster/zkstate/zkconn"
)

// oneToken is a login of one token each way.
type oneToken struct{ begun atomic.Int64 }

func (o *oneToken) Begin(context.Context, string, string) (zkconn.Login, error) {
	o.begun.Add(1)
	return new(tokenLogin), nil
}

type tokenLogin struct{ asked bool }

func (l *tokenLogin) Next(token []byte) ([]byte, bool, error) {
	if !l.asked {
		l.asked = true
		return []byte("client"), false, nil
	}
	if token == nil {
		return nil, false, zkconn.ErrNoSASL
	}
	if string(token) != "server" {
		return nil, false, zkconn.ErrAuthFailed
	}
	return nil, true, nil
}

// framed puts a length before a frame.
func framed(body []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// loginReply is a reply to a token: xid, zxid, an error, and what follows.
func loginReply(code int32, body ...byte) []byte {
	head := binary.BigEndian.AppendUint32(make([]byte, 12), uint32(code))
	return framed(append(head, body...))
}

// grants answers handshakes with a session, and whatever comes next with the given bytes. It counts handshakes.
func grants(t *testing.T, answer []byte) (addr string, handshakes *atomic.Int64, requests chan []byte) {
	t.Helper()
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = l.Close() })
	handshakes, requests = new(atomic.Int64), make(chan []byte, 100)
	read := func(c net.Conn) []byte {
		head := make([]byte, 4)
		if _, err := io.ReadFull(c, head); err != nil {
			return nil
		}
		body := make([]byte, min(binary.BigEndian.Uint32(head), 1<<20))
		_, _ = io.ReadFull(c, body)
		return body
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if read(c) == nil {
					return
				}
				handshakes.Add(1)
				hello := make([]byte, 37)
				binary.BigEndian.PutUint32(hello[4:], 4000)
				binary.BigEndian.PutUint64(hello[8:], uint64(handshakes.Load()))
				binary.BigEndian.PutUint32(hello[16:], 16)
				_, _ = c.Write(framed(hello))
				for request := read(c); request != nil; request = read(c) {
					requests <- request
					_, _ = c.Write(answer)
				}
			}()
		}
	}()
	return l.Addr().String(), handshakes, requests
}

// TestLoginFrames: the login is the first request, in one frame, and no reply is more than refused.
func TestLoginFrames(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer []byte
		want   string
		lasts  bool // it is not tried again
	}{
		"refused":         {loginReply(-115), "the server refuses the login", true},
		"demanded":        {loginReply(-124), "the server refuses the login", true},
		"no token":        {loginReply(0, 0xff, 0xff, 0xff, 0xff), "does not log in by SASL", true},
		"nothing":         {loginReply(0), "does not log in by SASL", true},
		"another token":   {loginReply(0, 0, 0, 0, 1, 'x'), "authentication failed", true},
		"another error":   {loginReply(-6), "server error -6 at the login", false},
		"a short token":   {loginReply(0, 0, 0, 0, 9, 'x'), "not like a ZooKeeper server", false},
		"a long token":    {loginReply(0, 0, 0, 0, 1, 'x', 'y'), "not like a ZooKeeper server", false},
		"no length":       {loginReply(0, 0, 0), "not like a ZooKeeper server", false},
		"a negative one":  {loginReply(0, 0x80, 0, 0, 0), "not like a ZooKeeper server", false},
		"a huge frame":    {[]byte{0x7f, 0xff, 0xff, 0xff}, "not like a ZooKeeper server", false},
		"an endless one":  {[]byte{0, 0, 0xff, 0xff, 0}, "no answer within", false},
		"an empty answer": {[]byte{0, 0, 0, 0}, "not like a ZooKeeper server", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr, handshakes, requests := grants(t, c.answer)
			limit := 2 * time.Second
			if c.lasts {
				limit = rig.Patience
			}
			_, err := zkconn.Dial(within(t, limit), zkconn.Config{
				Servers: []string{addr}, SASL: new(oneToken), Timeout: 2 * time.Second,
			})
			if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, zkconn.ErrAuthFailed) != c.lasts {
				t.Errorf("%v, want %q", err, c.want)
			}
			if n := handshakes.Load(); c.lasts != (n == 1) && c.lasts {
				t.Errorf("%d logins after one was refused", n)
			}
			first := string(rig.Receive(t, requests, "a request"))
			if want := "\x00\x00\x00\x00\x00\x00\x00\x66\x00\x00\x00\x06client"; first != want {
				t.Errorf("the first request is %q, want %q", first, want)
			}
		})
	}
}

// TestASilentLogin: a server that never answers a token costs one handshake's time.
func TestASilentLogin(t *testing.T) {
	t.Parallel()
	addr, _, _ := grants(t, nil)
	_, err := zkconn.Dial(within(t, 2*time.Second), zkconn.Config{
		Servers: []string{addr}, SASL: new(oneToken), Timeout: time.Second,
	})
	if !errors.Is(err, zkconn.ErrUnreachable) || !strings.Contains(err.Error(), "no answer within") {
		t.Error(err)
	}
}
