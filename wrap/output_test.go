package wrap

import (
	"os"
	"testing"
	"time"
)

// TestBlockedStreamDoesNotHoldUpTheEndOfARun: nobody reads what this process writes.
func TestBlockedStreamDoesNotHoldUpTheEndOfARun(t *testing.T) {
	t.Parallel()
	unread, blocked, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unread.Close() }) // ends what is blocked
	t.Cleanup(func() { blocked.Close() })
	o, err := openOutput(blocked, blocked)
	if err != nil {
		t.Fatal(err)
	}
	_ = o.pipes[0].SetWriteDeadline(time.Now().Add(time.Second))
	if n, err := o.pipes[0].Write(make([]byte, 1<<20)); err == nil {
		t.Fatalf("nothing is blocked after %d bytes", n)
	}
	closed := make(chan *tail, 1)
	go func() { closed <- o.close() }()
	select {
	case end := <-closed:
		if n := len(end.last(tailSize)); n != tailSize {
			t.Errorf("%d bytes of the output are kept", n)
		}
	case <-time.After(time.Minute):
		t.Error("close does not return")
	}
}
