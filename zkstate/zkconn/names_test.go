package zkconn_test

import (
	"context"
	"encoding/binary"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/dev/zkserver"
	"muster/zkstate/zkconn"
)

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
	before := p.Requests()[zkserver.OpExists]
	p.Cut()
	if _, _, err := s.Exists(within(t, 30*time.Second), "/"); err != nil {
		t.Error(err)
	}
	if p.Requests()[zkserver.OpExists] == before {
		t.Error("the request went to another server")
	}
}
