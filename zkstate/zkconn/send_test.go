package zkconn

import (
	"encoding/binary"
	"net"
	"slices"
	"sync"
	"testing"
	"time"
)

// recorder is a network connection that keeps what is written.
type recorder struct {
	net.Conn
	mu     sync.Mutex
	writes int
	xids   []int32
}

func (r *recorder) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writes++
	for at := 0; at < len(b); at += 4 + int(binary.BigEndian.Uint32(b[at:])) {
		r.xids = append(r.xids, int32(binary.BigEndian.Uint32(b[at+4:])))
	}
	return len(b), nil
}

func (r *recorder) SetWriteDeadline(time.Time) error { return nil }

func (r *recorder) sent() (xids []int32, writes int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.xids), r.writes
}

// await waits until n requests were sent.
func (r *recorder) await(t *testing.T, n int) []int32 {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if xids, _ := r.sent(); len(xids) >= n {
			return xids
		}
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatal("not all were sent")
		}
	}
}

// frame is a request for the data of /a.
func frame(xid, op int32) []byte {
	b := binary.BigEndian.AppendUint32(nil, 15)
	b = binary.BigEndian.AppendUint32(b, uint32(xid))
	b = binary.BigEndian.AppendUint32(b, uint32(op))
	return append(binary.BigEndian.AppendUint32(b, 2), '/', 'a', 0)
}

func newRecorded() (*conn, *recorder) {
	r := &recorder{}
	s := &Session{timeout: time.Minute}
	s.watches.init()
	return &conn{Conn: r, handshakeSent: time.Now(), session: s}, r
}

// TestRequestsAreSentTogether: a thousand requests, 128 in flight, take few writes. Each is sent, in order, without
// anything else than the answers before it.
func TestRequestsAreSentTogether(t *testing.T) {
	const n, inFlight = 1000, 128
	c, r := newRecorded()
	for xid := int32(1); xid <= n; xid++ {
		if xid > inFlight {
			r.await(t, int(xid-inFlight))
			c.answer(xid-inFlight, 0)
		}
		if _, err := c.Write(frame(xid, opGetData)); err != nil {
			t.Fatal(err)
		}
	}
	for xid := int32(n - inFlight + 1); xid <= n; xid++ {
		r.await(t, int(xid))
		c.answer(xid, 0)
	}
	xids, writes := r.sent()
	if !slices.IsSorted(xids) || len(xids) != n {
		t.Errorf("%d requests were sent, in order: %v", len(xids), slices.IsSorted(xids))
	}
	if writes > n/4 {
		t.Errorf("%d requests took %d writes, want at most %d", n, writes, n/4)
	}
}

// TestRequestThatMustNotWait: few requests in flight are sent at once, and so is a ping, with all before it.
func TestRequestThatMustNotWait(t *testing.T) {
	c, r := newRecorded()
	for xid := int32(1); xid <= heldShare+1; xid++ {
		_, _ = c.Write(frame(xid, opGetData)) // it never fails
		if xids, _ := r.sent(); len(xids) != int(xid) {
			t.Errorf("%d of %d requests were sent", len(xids), xid)
		}
	}
	_, _ = c.Write(frame(heldShare+2, opGetData))
	if xids, _ := r.sent(); len(xids) != heldShare+1 {
		t.Errorf("%d requests were sent, want that one waits", len(xids))
	}
	_, _ = c.Write(frame(xidPing, opPing))
	if xids, _ := r.sent(); len(xids) != heldShare+3 || xids[heldShare+2] != xidPing {
		t.Errorf("a ping waits: sent are %v", xids)
	}
}

// TestFailedWriteIsNotReported: the library deadlocks if a write fails while it sends the credentials again. So no
// write may fail; the next read does.
func TestFailedWriteIsNotReported(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tcp, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := &conn{Conn: tcp, handshakeSent: time.Now(), session: &Session{}}
	frame := make([]byte, 40)
	binary.BigEndian.PutUint32(frame[8:], opAuth)
	tcp.Close()
	for range 2 {
		if n, err := c.Write(frame); n != len(frame) || err != nil {
			t.Errorf("wrote %d of %d bytes: %v", n, len(frame), err)
		}
	}
	if !c.oldest().IsZero() {
		t.Error("still waits for an answer")
	}
}
