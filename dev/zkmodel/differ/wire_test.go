package differ

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// Opcodes and fixed xids as in ZooKeeper's ZooDefs.OpCode and ClientCnxn. The client of these tests shares no code with
// the model or with the client library: it sees all that a server sends.
const (
	opCreate       int32 = 1
	opDelete       int32 = 2
	opExists       int32 = 3
	opGetData      int32 = 4
	opSetData      int32 = 5
	opGetACL       int32 = 6
	opSetACL       int32 = 7
	opGetChildren  int32 = 8
	opSync         int32 = 9
	opPing         int32 = 11
	opGetChildren2 int32 = 12
	opCheck        int32 = 13
	opMulti        int32 = 14
	opCreate2      int32 = 15
	opClose        int32 = -11
	opAuth         int32 = 100
	opSetWatches   int32 = 101

	xidEvent      int32 = -1
	xidPing       int32 = -2
	xidAuth       int32 = -4
	xidSetWatches int32 = -8
	xidBarrier    int32 = 0x7ffffff0 // of barrier; no request of a trace has it
)

// opNames are for traces that people read.
var opNames = map[int32]string{
	opCreate: "create", opDelete: "delete", opExists: "exists", opGetData: "getData", opSetData: "setData",
	opGetACL: "getACL", opSetACL: "setACL", opGetChildren: "getChildren", opSync: "sync", opPing: "ping",
	opGetChildren2: "getChildren2", opCheck: "check", opMulti: "multi", opCreate2: "create2", opClose: "close",
	opAuth: "auth", opSetWatches: "setWatches", opConnect: "connect", opResume: "resume", opCut: "cut",
	opExpire: "expire",
}

// encoder writes ZooKeeper's format, jute: big-endian numbers; strings, buffers and vectors with their length before.
type encoder []byte

func (e *encoder) int(n int32)  { *e = binary.BigEndian.AppendUint32(*e, uint32(n)) }
func (e *encoder) long(n int64) { *e = binary.BigEndian.AppendUint64(*e, uint64(n)) }

// null stands for a string that is null: length -1.
const null = "\xff null"

func (e *encoder) string(s string) {
	if s == null {
		e.int(-1)
		return
	}
	e.int(int32(len(s)))
	*e = append(*e, s...)
}

func (e *encoder) bool(b bool) {
	if b {
		*e = append(*e, 1)
	} else {
		*e = append(*e, 0)
	}
}

// buffer writes nil as length -1.
func (e *encoder) buffer(b []byte) {
	if b == nil {
		e.int(-1)
		return
	}
	e.string(string(b))
}

func (e *encoder) strings(list []string) {
	e.int(int32(len(list)))
	for _, s := range list {
		e.string(s)
	}
}

// acls writes nil as length -1.
func (e *encoder) acls(list []acl) {
	if list == nil {
		e.int(-1)
		return
	}
	e.int(int32(len(list)))
	for _, a := range list {
		e.int(a.perms)
		e.string(a.scheme)
		e.string(a.id)
	}
}

// acl is one entry of an access control list.
type acl struct {
	perms      int32
	scheme, id string
}

// decoder reads jute. It is strict: a missing byte, a bool that is neither 0 nor 1, or a length below -1 is an error,
// which is kept; so is a byte too many, which end reports.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) take(n int) []byte {
	if d.err == nil && (n < 0 || n > len(d.rest)) {
		d.err = fmt.Errorf("%d bytes wanted, %d left", n, len(d.rest))
	}
	if d.err != nil {
		return make([]byte, max(0, min(n, 16)))
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) int() int32  { return int32(binary.BigEndian.Uint32(d.take(4))) }
func (d *decoder) long() int64 { return int64(binary.BigEndian.Uint64(d.take(8))) }

func (d *decoder) bool() bool {
	b := d.take(1)[0]
	if b > 1 && d.err == nil {
		d.err = fmt.Errorf("bool is %d", b)
	}
	return b == 1
}

// buffer returns nil for length -1.
func (d *decoder) buffer() []byte {
	n := d.int()
	if n == -1 {
		return nil
	}
	return d.take(int(n))
}

func (d *decoder) string() string { return string(d.buffer()) }

// count is the length of a vector; 0 also for length -1.
func (d *decoder) count() int {
	n := int(d.int())
	if d.err == nil && (n < -1 || n > len(d.rest)) {
		d.err = fmt.Errorf("vector of %d", n)
	}
	if d.err != nil {
		return 0
	}
	return max(n, 0)
}

func (d *decoder) end() error {
	if d.err == nil && len(d.rest) > 0 {
		d.err = fmt.Errorf("%d bytes too many", len(d.rest))
	}
	return d.err
}

// wire is a connection to a real server. It starts no goroutine: what the server sends waits in the kernel.
type wire struct {
	conn net.Conn
	in   *bufio.Reader
	over bool // the server has closed the connection
	// nudge asks the same server for something on another connection; nil: nothing. Before 3.8.1 a server of an
	// ensemble may forget a request until the next one comes (ZOOKEEPER-4537).
	nudge func()
}

// replyLimit is the longest wait for a server that owes a frame. A busy machine needs it.
const replyLimit = time.Minute

// nudgeAfter is how long a server may keep a request before it is nudged.
const nudgeAfter = 2 * time.Second

func dialWire(addr string, nudge func()) (*wire, error) {
	conn, err := net.DialTimeout("tcp", addr, replyLimit)
	if err != nil {
		return nil, err
	}
	return &wire{conn: conn, in: bufio.NewReader(conn), nudge: nudge}, nil
}

// send writes frames that carry their lengths. If the server has closed the connection, the next read says so.
func (w *wire) send(frames []byte) {
	_ = w.conn.SetWriteDeadline(time.Now().Add(replyLimit))
	_, _ = w.conn.Write(frames)
}

// receive reads one frame, without its length. io.EOF means that the server closed the connection.
func (w *wire) receive() ([]byte, error) {
	late := time.Now().Add(replyLimit)
	for {
		_ = w.conn.SetReadDeadline(time.Now().Add(nudgeAfter))
		_, err := w.in.Peek(1)
		if err == nil {
			break
		}
		if err := w.closed(err); errors.Is(err, io.EOF) || time.Now().After(late) {
			return nil, err
		}
		if w.nudge != nil {
			w.nudge()
		}
	}
	_ = w.conn.SetReadDeadline(late)
	var size [4]byte
	if _, err := io.ReadFull(w.in, size[:]); err != nil {
		return nil, w.closed(err)
	}
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(w.in, frame); err != nil {
		return nil, w.closed(err)
	}
	return frame, nil
}

// hangUp closes the connection, and returns when the server has closed it too: one that has not yet noticed may later
// take the session's next connection for this one.
func (w *wire) hangUp() {
	_ = w.conn.(*net.TCPConn).CloseWrite()
	for !w.over {
		if _, err := w.receive(); err != nil {
			break
		}
	}
	w.conn.Close()
}

// closed turns the ways in which a closed connection shows into io.EOF. A server that closes with bytes unread resets.
func (w *wire) closed(err error) error {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return err
	}
	w.over = true
	return io.EOF
}

// framed is a frame with its length before it.
func framed(frame []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)
}

// barrierRequest is a read that ends a batch: what comes before its reply belongs to the batch.
func barrierRequest() []byte {
	var e encoder
	e.int(xidBarrier)
	e.int(opExists)
	e.string("/")
	e.bool(false)
	return framed(e)
}

// untilBarrier returns the frames before the barrier's reply, and that reply's zxid: the last that this server applied.
func (w *wire) untilBarrier() (frames [][]byte, zxid int64, err error) {
	for {
		frame, err := w.receive()
		if err != nil {
			return frames, 0, err
		}
		d := decoder{rest: frame}
		if xid, zxid := d.int(), d.long(); xid == xidBarrier && d.err == nil {
			return frames, zxid, nil
		}
		frames = append(frames, frame)
	}
}
