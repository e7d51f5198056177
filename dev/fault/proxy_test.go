package fault

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/dev/zkserver"
)

// start starts a server, and a proxy before it.
func start(t *testing.T) (*zkserver.Ensemble, *Proxy) {
	t.Helper()
	e, err := zkserver.Start(t.Context(), zkserver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewProxy(e.Connect())
	if err != nil {
		t.Fatal(errors.Join(err, e.Stop()))
	}
	t.Cleanup(func() {
		if err := errors.Join(p.Close(), e.Stop()); err != nil {
			t.Error(err)
		}
	})
	return e, p
}

// client is a minimal client that shows what one connection receives.
type client struct {
	net.Conn
	t   *testing.T
	xid int32
}

// dialRaw opens a session on one connection.
func dialRaw(t *testing.T, addr string) *client {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	if err := handshake(conn); err != nil {
		t.Fatal(err)
	}
	return &client{Conn: conn, t: t}
}

// handshake sends a ConnectRequest: protocol version, last zxid, timeout in ms, session id, password.
func handshake(conn io.ReadWriter) error {
	request := binary.BigEndian.AppendUint32(make([]byte, 12), 30_000)
	request = append(request, make([]byte, 8)...)
	request = binary.BigEndian.AppendUint32(request, 16)
	if err := writeRaw(conn, append(request, make([]byte, 16)...)); err != nil {
		return err
	}
	_, err := readRaw(conn)
	return err
}

func writeRaw(w io.Writer, body []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...))
	return err
}

func readRaw(r io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint32(size[:]))
	_, err := io.ReadFull(r, body)
	return body, err
}

// send sends a request for a path; tail is the rest of its record.
func (c *client) send(op int32, path string, tail ...byte) {
	c.t.Helper()
	c.xid++
	b := binary.BigEndian.AppendUint32(nil, uint32(c.xid))
	b = binary.BigEndian.AppendUint32(b, uint32(op))
	b = binary.BigEndian.AppendUint32(b, uint32(len(path)))
	if err := writeRaw(c, append(append(b, path...), tail...)); err != nil {
		c.t.Fatal(err)
	}
}

// create sends a request for a persistent znode that permits everything to everybody.
func (c *client) create(path string) {
	c.t.Helper()
	tail := []byte("\xff\xff\xff\xff" + "\x00\x00\x00\x01" + "\x00\x00\x00\x1f" +
		"\x00\x00\x00\x05world" + "\x00\x00\x00\x06anyone" + "\x00\x00\x00\x00")
	c.send(OpCreate, path, tail...)
}

func (c *client) exists(path string) {
	c.t.Helper()
	c.send(OpExists, path, 0)
}

// receive returns the xids and error codes of the next n replies.
func (c *client) receive(n int) [][2]int32 {
	c.t.Helper()
	var got [][2]int32
	for range n {
		body, err := readRaw(c)
		if err != nil || len(body) < 16 {
			c.t.Fatalf("reply after %v: %d bytes, %v", got, len(body), err)
		}
		got = append(got, [2]int32{int32(binary.BigEndian.Uint32(body)), int32(binary.BigEndian.Uint32(body[12:]))})
	}
	return got
}

// wantSilence expects nothing for a moment.
func (c *client) wantSilence() {
	c.t.Helper()
	c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if _, err := readRaw(c); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("read from a connection on which nothing comes: %v", err)
	}
	c.SetReadDeadline(time.Now().Add(20 * time.Second))
}

func (c *client) wantEnd() {
	c.t.Helper()
	if body, err := readRaw(c); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Errorf("want the end of the connection, got %d bytes, %v", len(body), err)
	}
}

func onPath(op int32, path string) func(int32, []byte) bool {
	return func(o int32, req []byte) bool { return o == op && bytes.Contains(req, []byte(path)) }
}

func wantExists(t *testing.T, c *client, path string, want bool) {
	t.Helper()
	c.exists(path)
	const noNode = -101
	if code := c.receive(1)[0][1]; (code == 0) != want || code != 0 && code != noNode {
		t.Errorf("%s: code %d, want existing %t", path, code, want)
	}
}

// TestFaultOnOneRequest sends two creates, with a fault for the second, and checks which replies arrive and what was
// executed.
func TestFaultOnOneRequest(t *testing.T) {
	t.Parallel()
	_, p := start(t)
	for _, c := range []struct {
		name     string
		arm      func(*Proxy, func(int32, []byte) bool) <-chan struct{}
		replies  int
		executed bool
	}{
		{"drop_reply", (*Proxy).DropReply, 0, true},
		{"before_send", (*Proxy).BeforeSend, 0, false},
		{"after_reply", (*Proxy).AfterReply, 1, true},
	} {
		for _, delay := range []time.Duration{0, 20 * time.Millisecond} {
			t.Run(fmt.Sprintf("%s_delay_%s", c.name, delay), func(t *testing.T) {
				p.Delay(delay)
				bystander, hit := dialRaw(t, p.Addr()), dialRaw(t, p.Addr())
				first, second := "/"+path.Base(t.Name())+"-1", "/"+path.Base(t.Name())+"-2"
				happened := c.arm(p, onPath(OpCreate, second))
				hit.create(first)
				hit.receive(1)
				hit.create(second)
				hit.receive(c.replies)
				hit.wantEnd()
				<-happened
				wantExists(t, bystander, first, true)
				wantExists(t, bystander, second, c.executed)

				again := dialRaw(t, p.Addr()) // the fault happens only once
				again.create(second)
				again.receive(1)
			})
		}
	}
}

func TestEachFaultHappensOnce(t *testing.T) {
	t.Parallel()
	_, p := start(t)
	any := func(op int32, _ []byte) bool { return op == OpExists }
	first, second := p.DropReply(any), p.DropReply(any)
	for _, happened := range []<-chan struct{}{first, second} {
		c := dialRaw(t, p.Addr())
		c.exists("/")
		c.wantEnd()
		<-happened
	}
	wantExists(t, dialRaw(t, p.Addr()), "/", true)
	if d := cmp.Diff(map[int32]int{OpExists: 3}, p.Requests()); d != "" {
		t.Errorf("requests (-want +got):\n%s", d)
	}
}

// TestDropReplyDeliversEarlierReplies in order, before it cuts the connection.
func TestDropReplyDeliversEarlierReplies(t *testing.T) {
	t.Parallel()
	_, p := start(t)
	const before = 500
	p.DropReply(onPath(OpExists, "/zookeeper"))
	c := dialRaw(t, p.Addr())
	var want [][2]int32
	for i := range int32(before) {
		c.exists("/")
		want = append(want, [2]int32{i + 1, 0})
	}
	c.exists("/zookeeper")
	if d := cmp.Diff(want, c.receive(before)); d != "" {
		t.Errorf("replies (-want +got):\n%s", d)
	}
	c.wantEnd()
}

func TestCutAndRefuse(t *testing.T) {
	t.Parallel()
	_, p := start(t)
	one, two := dialRaw(t, p.Addr()), dialRaw(t, p.Addr())
	p.Refuse(true)
	wantExists(t, one, "/", true)
	p.Cut()
	one.wantEnd()
	two.wantEnd()
	if conn, err := net.DialTimeout("tcp", p.Addr(), 5*time.Second); err == nil {
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(5 * time.Second))
		if err := handshake(conn); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("refused connection: %v", err)
		}
	}
	p.Refuse(false)
	wantExists(t, dialRaw(t, p.Addr()), "/", true)
}

func TestDelay(t *testing.T) {
	_, p := start(t)
	c := dialRaw(t, p.Addr())
	const each = 50 * time.Millisecond
	p.Delay(each)
	begin := time.Now()
	const pipelined = 100
	for range pipelined {
		c.exists("/")
	}
	c.receive(pipelined)
	if took := time.Since(begin); took < 2*each || took > pipelined*each {
		t.Errorf("%d pipelined round trips, each %s slower, took %s", pipelined, 2*each, took)
	}
}

func TestMute(t *testing.T) {
	t.Parallel()
	e, p := start(t)
	bystander, c := dialRaw(t, e.Connect()), dialRaw(t, p.Addr())
	p.Mute(true)
	c.create("/muted")
	c.wantSilence()
	wantExists(t, bystander, "/muted", true)
	p.Mute(false)
	c.receive(1)
}

func TestHang(t *testing.T) {
	t.Parallel()
	e, p := start(t)
	bystander, c := dialRaw(t, e.Connect()), dialRaw(t, p.Addr())
	p.Hang(true)
	p.Hang(true)
	c.create("/hung")
	c.wantSilence()
	wantExists(t, bystander, "/hung", false)

	p.Hang(false)
	c.receive(1)
	wantExists(t, bystander, "/hung", true)

	p.Hang(true)
	c.create("/lost")
	p.Cut()
	p.Hang(false)
	c.wantEnd()
	wantExists(t, bystander, "/lost", false)
}

// ask sends a four-letter word.
func ask(addr, word string) (string, error) {
	conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(5 * time.Second))
	fmt.Fprint(conn, word)
	answer, err := io.ReadAll(conn)
	return string(answer), err
}

func TestFourLetterWordsPass(t *testing.T) {
	t.Parallel()
	_, p := start(t)
	answer, err := ask(p.Addr(), "srvr")
	if err != nil || !strings.Contains(answer, "Mode: standalone\n") {
		t.Errorf("srvr: %q, %v", answer, err)
	}
	if d := cmp.Diff(map[int32]int{}, p.Requests()); d != "" {
		t.Errorf("requests (-want +got):\n%s", d)
	}
}

func TestProxyOutlivesItsTarget(t *testing.T) {
	t.Parallel()
	e, p := start(t)
	c := dialRaw(t, p.Addr())
	if err := e.Server(0).Kill(); err != nil {
		t.Fatal(err)
	}
	c.wantEnd()
	if _, err := ask(p.Addr(), "srvr"); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("connection to a proxy without a server: %v", err)
	}
	if err := e.Server(0).Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantExists(t, dialRaw(t, p.Addr()), "/", true)
}
