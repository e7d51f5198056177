package zkconn_test

import (
	"context"
	"encoding/binary"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/zkserver"
	"muster/zkstate/zkconn"
)

// names is the name service of these tests.
var names *nameService

// nameService answers queries (RFC 1035) that end in .test or localhost with 127.0.0.1, two.test also with 127.0.0.2, and denies that any other name
// exists.
type nameService struct {
	conn  net.PacketConn
	mu    sync.Mutex
	mutes map[string]bool // names that it does not answer for
}

// startNames makes it the one of this process.
func startNames() (*nameService, error) {
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	n := &nameService{conn: conn, mutes: map[string]bool{}}
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
			_, _ = n.conn.WriteTo(answer, from) // who asked asks again
		}
	}
}

// answer is nil for a name that is mute.
func (n *nameService) answer(query []byte) []byte {
	var labels []string
	at := 12 // behind the header
	for query[at] != 0 {
		size := int(query[at])
		labels = append(labels, string(query[at+1:at+1+size]))
		at += 1 + size
	}
	end := at + 5 // behind type and class
	n.mu.Lock()
	mute := n.mutes[strings.Join(labels, ".")]
	n.mu.Unlock()
	if mute {
		return nil
	}
	answer := append([]byte{query[0], query[1], 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, query[12:end]...)
	switch domain, typeA := labels[len(labels)-1], binary.BigEndian.Uint16(query[at+1:]) == 1; {
	case domain != "test" && domain != "localhost": // which not every machine has in /etc/hosts
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

// mute takes names out of service, or puts them back.
func (n *nameService) mute(is bool, names ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, name := range names {
		n.mutes[name] = is
	}
}

// TestANameThatNobodyAnswersFor does not take the time of the others, wherever it stands.
func TestANameThatNobodyAnswersFor(t *testing.T) {
	t.Parallel()
	names.mute(true, "mute.test")
	_, port, _ := strings.Cut(one.Connect(), ":")
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

// TestAnAddressOutlivesTheNameService: a session goes on where the server is as it was.
func TestAnAddressOutlivesTheNameService(t *testing.T) {
	t.Parallel()
	p := proxy(t, one.Connect())
	_, port, _ := strings.Cut(p.Addr(), ":")
	s := dial(t, zkconn.Config{Servers: []string{"outlived.test:" + port}, Timeout: 10 * time.Second})
	names.mute(true, "outlived.test")
	before := p.Requests()[zkserver.OpExists]
	p.Cut()
	if _, _, err := s.Exists(within(t, 30*time.Second), "/"); err != nil {
		t.Error(err)
	}
	if p.Requests()[zkserver.OpExists] == before {
		t.Error("it asks somebody else")
	}
}
