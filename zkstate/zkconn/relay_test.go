package zkconn_test

import (
	"encoding/binary"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
)

// relay is a proxy with faults that fault.Proxy does not have: it can drop replies and keep the connection, refuse a
// request as an overloaded server does, reset a connection just after the handshake, and change the answer to a
// handshake, or add to it.
type relay struct {
	net.Listener
	target string

	mu        sync.Mutex
	handshake []byte                  // newest answer to a handshake
	drop      func(reply []byte) bool // selects replies that are dropped
	throttle  func(op int32) bool     // selects a request that is refused, once
	resets    int                     // number of connections that will be reset
	forge     func(frame []byte)      // changes answers to a handshake on their way to the client
	added     []byte                  // follows the answer to a handshake at once
}

func newRelay(t testing.TB, target string) *relay {
	t.Helper()
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	r := &relay{Listener: l, target: target}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go r.serve(c.(*net.TCPConn))
		}
	}()
	return r
}

func (r *relay) set(change func(r *relay)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(r)
}

// granted is the newest answer to a handshake.
func (r *relay) granted() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.handshake
}

func (r *relay) serve(client *net.TCPConn) {
	defer client.Close()
	server, err := net.Dial("tcp", r.target)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		defer server.Close()
		for first := true; ; first = false {
			frame, err := readFrame(client)
			if err != nil {
				return
			}
			if !first && r.throttles(int32(binary.BigEndian.Uint32(frame[8:]))) {
				const code = "\xff\xff\xff\x81" // -127
				client.Write(slices.Concat([]byte{0, 0, 0, 16}, frame[4:8], make([]byte, 8), []byte(code)))
				continue
			}
			server.Write(frame)
		}
	}()
	for first := true; ; first = false {
		frame, err := readFrame(server)
		if err != nil {
			return
		}
		r.mu.Lock()
		reset := false
		if first {
			r.handshake = slices.Clone(frame)
			if r.forge != nil {
				r.forge(frame)
			}
			frame = append(frame, r.added...)
			if reset = r.resets > 0; reset {
				r.resets--
			}
		}
		drop := !first && r.drop != nil && r.drop(frame)
		r.mu.Unlock()
		if drop {
			continue
		}
		if _, err := client.Write(frame); err != nil {
			return
		}
		if reset {
			client.SetLinger(0)
			return
		}
	}
}

func (r *relay) throttles(op int32) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.throttle == nil || !r.throttle(op) {
		return false
	}
	r.throttle = nil
	return true
}

func readFrame(r io.Reader) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	frame := append(head, make([]byte, binary.BigEndian.Uint32(head))...)
	_, err := io.ReadFull(r, frame[4:])
	return frame, err
}

// endSession makes the server end the session of a handshake, as if it had expired: it connects to the session and
// closes it.
func endSession(t testing.TB, server string, handshake []byte) {
	t.Helper()
	c := must(net.Dial("tcp", server))(t)
	defer c.Close()
	hello := binary.BigEndian.AppendUint32(nil, 44)
	hello = append(hello, make([]byte, 12)...)                // protocol version, last zxid
	hello = append(hello, handshake[8:20]...)                 // timeout, session id
	hello = append(hello, handshake[20:40]...)                // password
	bye := []byte{0, 0, 0, 8, 0, 0, 0, 1, 255, 255, 255, 245} // xid 1, code -11
	for _, frame := range [][]byte{hello, bye} {
		if _, err := c.Write(frame); err != nil {
			t.Fatal(err)
		}
		if _, err := readFrame(c); err != nil {
			t.Fatal(err)
		}
	}
}
