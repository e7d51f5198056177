package zkconn

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"time"
)

// Operation codes and sizes of ZooKeeper's wire format. Every frame is a big-endian length and that many bytes. A
// request begins with xid and code (4 bytes each), a reply with xid (4), zxid (8) and error (4).
const (
	opCreate     = 1
	opDelete     = 2
	opExists     = 3
	opGetData    = 4
	opSetData    = 5
	opSync       = 9
	opChildren   = 12
	opClose      = -11
	opPing       = 11
	opMulti      = 14
	opAuth       = 100
	opSetWatches = 101

	xidEvent    = -1
	xidPing     = -2
	xidReset    = -8 // as in ZooKeeper's own client
	replyHeader = 16

	helloLeast, helloMost = 36, 37 // bytes, of the answer to a handshake
	codeNoNode            = -101
)

var errNotZooKeeper = errors.New("answers, but not like a ZooKeeper server")

// conn is the connection that the library uses. It sees every frame and has five tasks: it limits the time of the
// handshake, keeps the session id, records when each request was sent and answered, replaces a reply that is too large
// by an error, and sets watches: in the reads of those who wait for an event, and again after a reconnection. It never
// reports a write error, since the library can deadlock on one. It closes the connection instead, so that the next read
// fails.
type conn struct {
	net.Conn
	session *Session
	to      endpoint
	login   Login // nil without SASL

	// Used by the library's reading goroutine.
	in     *bufio.Reader // reads through limitedReader
	readBy time.Time     // deadline of the handshake; zero once it is answered
	ready  []byte        // bytes that the library reads before those of in
	left   int           // bytes of the current frame that the library has not read
	xid    int32         // of the current frame
	code   int32
	zxid   int64

	mu            sync.Mutex
	handshakeSent time.Time // zero before
	handshaken    bool      // the handshake was answered
	unanswered    []request // oldest first
	answers       bool      // a request was answered that is no ping
	resets        [][]byte  // requests that set watches again, not sent yet
	closed        bool
	out           sender
}

// Close closes the connection. The library still reads the answers that have come before: they count like all others,
// since whoever gets one relies on the watch that it has set.
func (c *conn) Close() error {
	c.mu.Lock()
	c.closed, c.resets, c.out.frames, c.out.count = true, nil, nil, 0
	c.mu.Unlock()
	if t, ok := c.Conn.(*tls.Conn); ok {
		return t.NetConn().Close() // without TLS's close message, which would wait for a frozen server
	}
	return c.Conn.Close()
}

type request struct {
	xid, op int32
	at      time.Time
	watch   string // path, if it sets a watch
}

// Write writes exactly one frame: the library writes each frame with one call.
func (c *conn) Write(frame []byte) (int, error) {
	c.mu.Lock()
	if c.handshakeSent.IsZero() {
		defer c.mu.Unlock()
		return c.writeHandshake(frame)
	}
	if c.closed {
		c.mu.Unlock()
		return len(frame), nil
	}
	r := request{at: time.Now()}
	r.xid, r.op = int32(binary.BigEndian.Uint32(frame[4:])), int32(binary.BigEndian.Uint32(frame[8:]))
	r.watch = c.setWatch(r.op, frame)
	c.addResets(r)
	c.unanswered = append(c.unanswered, r)
	c.out.add(frame)
	c.out.urgent = c.out.urgent || r.xid < 0
	if c.due() && !c.out.sending {
		c.out.sending = true
		c.sendDue()
	}
	c.mu.Unlock()
	return len(frame), nil
}

// writeHandshake refuses a handshake for another session. It may return an error, since no request was sent before.
func (c *conn) writeHandshake(frame []byte) (int, error) {
	if len(frame) < 28 {
		return 0, errors.New("handshake too short")
	}
	asked := int64(binary.BigEndian.Uint64(frame[20:]))
	if ours := c.session.ID(); ours != 0 && asked != ours {
		return 0, ErrSessionLost
	}
	c.handshakeSent = time.Now()
	if err := c.Conn.SetWriteDeadline(c.handshakeSent.Add(c.session.handshakeLimit())); err != nil {
		return 0, err
	}
	return c.Conn.Write(frame)
}

// setWatch makes a read set a watch, if somebody waits for its event, and returns the path then; else "". Such a
// request holds a path and a flag.
func (c *conn) setWatch(op int32, frame []byte) string {
	key := watchKey{}
	switch op {
	case opGetData:
		key.kind = onData
	case opExists:
		key.kind = onExistence
	case opChildren:
		key.kind = onChildren
	default:
		return ""
	}
	key.path = string(frame[16 : len(frame)-1])
	if !c.session.watches.wants(key) {
		return ""
	}
	frame[len(frame)-1] = 1
	return key.path
}

// Read returns bytes of one frame at a time.
func (c *conn) Read(b []byte) (int, error) {
	if c.left == 0 && len(c.ready) == 0 {
		if err := c.nextFrame(); err != nil {
			return 0, err
		}
	}
	if len(c.ready) > 0 {
		n := copy(b, c.ready)
		c.ready = c.ready[n:]
		return n, nil
	}
	n, err := c.in.Read(b[:min(len(b), c.left)])
	c.left -= n
	if c.left == 0 && n > 0 {
		c.answer(c.xid, c.code)
	}
	return n, err
}

func (c *conn) nextFrame() error {
	if !c.handshaken {
		err := c.readHandshake()
		if err != nil {
			c.session.recordFailure(c.to.server, err)
		}
		return err
	}
	head, err := c.in.Peek(4 + replyHeader)
	if err != nil {
		return err
	}
	length := int(int32(binary.BigEndian.Uint32(head)))
	if length < replyHeader {
		return fmt.Errorf("reply of %d bytes", length)
	}
	c.xid, c.code = int32(binary.BigEndian.Uint32(head[4:])), int32(binary.BigEndian.Uint32(head[16:]))
	c.zxid = int64(binary.BigEndian.Uint64(head[8:]))
	if c.xid == xidReset { // not the library's
		if _, err := c.in.Discard(4 + length); err != nil {
			return err
		}
		c.answer(c.xid, c.code)
		return c.nextFrame()
	}
	if length <= c.session.cfg.ReadBuffer {
		c.left = 4 + length
		return nil
	}
	c.ready = slices.Clone(head)
	binary.BigEndian.PutUint32(c.ready, replyHeader)
	refusal := int32(tooLarge)
	binary.BigEndian.PutUint32(c.ready[16:], uint32(refusal))
	if _, err := c.in.Discard(4 + length); err != nil {
		return err
	}
	c.answer(c.xid, refusal)
	return nil
}

// readHandshake reads the answer to the handshake: protocol version (4 bytes), timeout in ms (4), session id (8),
// password (4+16) and perhaps a flag. What does not fit is a failure of this server. Another session than ours is the
// end of ours: the library would go on in it, and our ephemeral znodes are not there. The login comes here, since the
// library sends nothing before it has this answer.
func (c *conn) readHandshake() error {
	c.readBy = time.Now().Add(c.session.handshakeLimit())
	frame, err := readFrame(c.in, helloLeast, helloMost)
	if err != nil {
		return err
	}
	timeout := time.Duration(int32(binary.BigEndian.Uint32(frame[8:]))) * time.Millisecond
	id, secret := int64(binary.BigEndian.Uint64(frame[12:])), frame[24:40]
	switch {
	case binary.BigEndian.Uint32(frame[20:]) != uint32(len(secret)):
		return errNotZooKeeper
	case id == 0 && c.session.ID() == 0:
		return errors.New("grants no session")
	case id != 0 && (timeout <= 0 || timeout > longestTimeout):
		return fmt.Errorf("%w: it grants a session of %s", errNotZooKeeper, timeout)
	}
	if id != 0 {
		if !c.session.isOurs(id, secret) {
			c.session.end(errOther)
			return errOther
		}
		if err := c.logIn(); err != nil {
			return err
		}
	}
	c.ready, c.readBy = frame, time.Time{}
	c.mu.Lock()
	defer c.mu.Unlock()
	if id != 0 {
		c.session.granted(c, id, secret, timeout)
	}
	c.handshaken, c.resets = true, c.session.watches.connected()
	return nil
}

// readFrame reads a frame whose length is within these bounds.
func readFrame(from io.Reader, least, most uint32) ([]byte, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(from, head); err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(head)
	switch {
	case least <= length && length <= most:
	case head[0] == 0x15 && head[1] == 0x03:
		return nil, fmt.Errorf("%w: it speaks TLS", errNotZooKeeper)
	default:
		return nil, errNotZooKeeper
	}
	frame := append(head, make([]byte, length)...)
	_, err := io.ReadFull(from, frame[4:])
	return frame, err
}

// answer records that the reply to xid has been read completely.
func (c *conn) answer(xid, code int32) {
	if xid == xidEvent {
		return
	}
	c.mu.Lock()
	i := slices.IndexFunc(c.unanswered, func(r request) bool { return r.xid == xid })
	if i < 0 {
		c.mu.Unlock()
		return
	}
	r := c.unanswered[i]
	c.answers = c.answers || xid >= 0
	if i == 0 { // as nearly always, since a server answers in order
		c.unanswered = c.unanswered[1:]
	} else {
		c.unanswered = slices.Delete(c.unanswered, i, i+1)
	}
	if c.due() && !c.out.sending {
		c.out.sending = true
		go func() { // the reader must not wait for the network
			c.mu.Lock()
			c.sendDue()
			c.mu.Unlock()
		}()
	}
	c.mu.Unlock()
	c.session.replied(r)
	c.session.watches.answered(r, c.zxid, code)
}

// oldest is when the oldest unanswered request was sent, except pings; zero if there is none, or the connection is
// closed.
func (c *conn) oldest() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.unanswered, func(r request) bool { return r.xid != xidPing })
	if c.closed || i < 0 {
		return time.Time{}
	}
	return c.unanswered[i].at
}

// hasAnswered reports whether a request was answered on this connection, besides pings and what the library sends
// first.
func (c *conn) hasAnswered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answers
}

// asksLeader reports whether a server cannot answer a request without the leader of the ensemble.
func asksLeader(op int32) bool {
	return slices.Contains([]int32{opCreate, opDelete, opSetData, opSync, opMulti}, op)
}

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

// maxReset is how many bytes a request to set watches again has, as in ZooKeeper's own client: a server may have been
// configured to refuse larger ones.
const maxReset = 128 << 10

// connected counts a new connection. It returns the requests that set all watches again. Each names the zxid up to
// which events have arrived: the server then sends what has happened since.
func (w *watches) connected() (frames [][]byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns++
	var lists [3][]string
	size := 0
	send := func() {
		if size > 0 {
			frames = append(frames, resetFrame(w.arrived, lists))
		}
		lists, size = [3][]string{}, 0
	}
	for _, path := range slices.Sorted(maps.Keys(w.armed)) {
		for i, kind := range []kinds{onData, onExistence, onChildren} { // as the request has them
			if w.armed[path]&kind == 0 {
				continue
			}
			if size+4+len(path) > maxReset {
				send()
			}
			lists[i] = append(lists[i], path)
			size += 4 + len(path)
		}
	}
	send()
	w.resets = len(frames)
	return frames
}

// resetFrame is a request that sets watches again: a zxid, and paths whose data, existence and children are watched.
func resetFrame(since int64, lists [3][]string) []byte {
	frame := make([]byte, 4, 4+requestHeader+8+3*4+maxReset)
	reset := int32(xidReset)
	frame = binary.BigEndian.AppendUint32(frame, uint32(reset))
	frame = binary.BigEndian.AppendUint32(frame, opSetWatches)
	frame = binary.BigEndian.AppendUint64(frame, uint64(since))
	for _, paths := range lists {
		frame = binary.BigEndian.AppendUint32(frame, uint32(len(paths)))
		for _, path := range paths {
			frame = binary.BigEndian.AppendUint32(frame, uint32(len(path)))
			frame = append(frame, path...)
		}
	}
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return frame
}

// addResets sends the watches, before any other request but credentials. The caller holds the mutex.
func (c *conn) addResets(r request) {
	if r.op == opAuth {
		return
	}
	for _, frame := range c.resets {
		c.unanswered = append(c.unanswered, request{xid: xidReset, op: opSetWatches, at: r.at})
		c.out.add(frame)
		c.out.urgent = true
	}
	c.resets = nil
}

// resetWatches makes the library send something after it has connected again, if there are watches to set: they go
// before it.
func (s *Session) resetWatches() {
	s.mu.Lock()
	c := s.conn
	s.mu.Unlock()
	c.mu.Lock()
	waiting := len(c.resets) > 0
	c.mu.Unlock()
	if waiting {
		go s.Exists(s.ctx, "/") //nolint:errcheck // it fails only when the session ends
	}
}
