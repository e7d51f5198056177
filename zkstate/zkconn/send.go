package zkconn

import "time"

// The library writes each request with a system call of its own, and sets a deadline before and after every read and
// write. With many calls in flight that would be most of what a request costs. So conn holds a request back while many
// others are unanswered, until it can send several at once, and sets deadlines only when it waits for the network.
//
// Holding back costs no time: a server answers a session in order, so the answer cannot come before those for which the
// request waits. It needs no timer: each of these answers is a reason to look again.

const (
	// heldShare is how many requests must be unanswered for each one that is held back.
	heldShare = 3
	// maxHeld is how many bytes are held back.
	maxHeld = 32 << 10
	// maxSpare is the size of the largest buffer that a sender keeps.
	maxSpare = 64 << 10
)

// sender collects frames that are to be sent. Its fields are guarded by conn's mutex.
type sender struct {
	frames  []byte
	count   int    // of frames
	urgent  bool   // one of them must not wait
	spare   []byte // for the next frames
	sending bool   // somebody sends
}

func (o *sender) add(frame []byte) {
	o.frames = append(o.frames, frame...)
	o.count++
}

// due reports whether frames are to be sent now. The caller holds the mutex.
func (c *conn) due() bool {
	o := &c.out
	sent := len(c.unanswered) - o.count
	return o.count > 0 && (o.urgent || heldShare*o.count >= sent || len(o.frames) > maxHeld)
}

// sendDue sends while frames are due. After an error it closes the connection. The caller holds the mutex, has set
// sending, and has the mutex again afterwards.
func (c *conn) sendDue() {
	for c.due() {
		frames := c.out.frames
		c.out.frames, c.out.spare, c.out.count, c.out.urgent = c.out.spare[:0], nil, 0, false
		c.mu.Unlock()
		_ = c.Conn.SetWriteDeadline(time.Now().Add(c.silence()))
		if _, err := c.Conn.Write(frames); err != nil {
			c.Close()
		}
		c.mu.Lock()
		if cap(frames) <= maxSpare {
			c.out.spare = frames
		}
	}
	c.out.sending = false
}

// silence is how long the server may neither send nor take anything before the connection is given up. The library
// pings in half that time.
func (c *conn) silence() time.Duration { return c.session.Timeout() * 2 / 3 }

// SetReadDeadline does nothing: limitedReader sets deadlines.
func (c *conn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing: sendDue sets deadlines.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// limitedReader reads from the network.
type limitedReader struct{ c *conn }

// Read waits at most until the handshake must be answered, or as long as the server may be silent.
func (r limitedReader) Read(b []byte) (int, error) {
	by := r.c.readBy
	if by.IsZero() {
		by = time.Now().Add(r.c.silence())
	}
	if err := r.c.Conn.SetReadDeadline(by); err != nil {
		return 0, err
	}
	return r.c.Conn.Read(b)
}
