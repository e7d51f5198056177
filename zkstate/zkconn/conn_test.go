package zkconn

import (
	"encoding/binary"
	"net"
	"testing"
	"time"
)

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
