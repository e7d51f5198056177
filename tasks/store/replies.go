package store

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"

	"muster/resource/queue"
)

// What a server may answer to what was sent at once. The client library makes room for what a reply announces, and has
// a stack frame for each array in another. The largest reply that muster asks for is a page, and each script and each
// pipeline ends its page at MaxBytes and one task or result more.
const (
	maxBulk  = int(queue.LargestTask) + 1<<20 // with what stands beside a task or a result
	maxReply = MaxBytes + maxBulk + 1<<20     // with the lines between the items
	maxItems = 1 << 18                        // of all arrays together
	maxDepth = 8
	maxLine  = 64 << 10
)

// sound is a connection to a Redis. Its Read ends with ErrReply at what is not RESP 2, or is more than a server may
// answer, and closes the connection.
type sound struct {
	net.Conn
	replies replies
	err     error
}

// soundly returns a connection of which only sound replies are read.
func soundly(c net.Conn) net.Conn {
	s := &sound{Conn: c}
	if raw, ok := c.(syscall.Conn); ok { // by which the client library sees that an idle connection was closed
		return struct {
			*sound
			syscall.Conn
		}{s, raw}
	}
	return s
}

func (s *sound) Read(b []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.Conn.Read(b)
	if bad := s.replies.pass(b[:n]); bad != nil {
		s.err = fmt.Errorf("%w", bad) // the client library unwraps the error of a new connection once
		_ = s.Conn.Close()
		return 0, s.err
	}
	return n, err
}

// Write begins a request: no reply to it is read before it is written.
func (s *sound) Write(b []byte) (int, error) {
	s.replies.bytes, s.replies.items = 0, 0
	return s.Conn.Write(b)
}

// replies follows replies as they come, in parts of any size.
type replies struct {
	open []int  // of each array that has not ended, the outermost first: how many items are to come
	line []byte // what has come of a line
	bulk int    // how much is to come of a bulk, with the two bytes after it

	bytes, items int // since a request
}

// pass looks at the next part.
func (r *replies) pass(b []byte) error {
	for len(b) > 0 {
		switch {
		case r.bulk > 2:
			n := min(len(b), r.bulk-2)
			r.bulk, b = r.bulk-n, b[n:]
			continue
		case r.bulk > 0:
			if b[0] != "\r\n"[2-r.bulk] {
				return fmt.Errorf("%w: a text is longer than it says", ErrReply)
			}
			if r.bulk, b = r.bulk-1, b[1:]; r.bulk == 0 {
				r.ended()
			}
			continue
		}
		n := bytes.IndexByte(b, '\n') + 1
		line, whole := b[:n], n > 0
		if !whole {
			n, line = len(b), b
		}
		if b = b[n:]; len(r.line) > 0 || !whole {
			r.line = append(r.line, line...)
			line = r.line
		}
		if len(line) > maxLine {
			return fmt.Errorf("%w: a line of more than %d bytes", ErrReply, maxLine)
		}
		if !whole {
			return nil
		}
		r.line = r.line[:0]
		if err := r.next(line); err != nil {
			return err
		}
	}
	return nil
}

// next reads a whole line, with its end.
func (r *replies) next(line []byte) error {
	text, ends := bytes.CutSuffix(line, []byte("\r\n"))
	if !ends || len(text) == 0 {
		return fmt.Errorf("%w: it says %.40q", ErrReply, line)
	}
	n, err := 0, error(nil)
	switch text[0] {
	case ':':
		_, err = strconv.ParseInt(string(text[1:]), 10, 64)
	case '$', '*':
		n, err = strconv.Atoi(string(text[1:]))
	case '+', '-':
	default:
		err = ErrReply
	}
	if err != nil || n < -1 {
		return fmt.Errorf("%w: it says %.40q", ErrReply, line)
	}
	r.bytes += len(line)
	switch {
	case text[0] == '$' && n > maxBulk, text[0] == '$' && r.bytes+n > maxReply:
		return fmt.Errorf("%w: a text of %d bytes after %d of the reply", ErrReply, n, r.bytes)
	case r.bytes > maxReply:
		return fmt.Errorf("%w: a reply of more than %d bytes", ErrReply, maxReply)
	case text[0] == '*' && (n > maxItems || r.items+n > maxItems || len(r.open) == maxDepth):
		return fmt.Errorf("%w: an array of %d after %d others, in %d arrays", ErrReply, n, r.items, len(r.open))
	case text[0] == '*' && n > 0:
		r.items, r.open = r.items+n, append(r.open, n)
		return nil
	case text[0] == '$' && n >= 0:
		r.bytes, r.bulk = r.bytes+n, n+2
		return nil
	}
	r.ended()
	return nil
}

// ended notes that an item has ended, and each array with its last one.
func (r *replies) ended() {
	for i := len(r.open) - 1; i >= 0; i-- {
		if r.open[i]--; r.open[i] > 0 {
			return
		}
		r.open = r.open[:i]
	}
}

// unread reports whether the client library could not read a reply as that of its command. It has no error for that. No
// reply to what muster asks is nil, but of a sentinel and of a wait.
func unread(err error) bool {
	if errors.Is(err, redis.Nil) || errors.As(err, new(*strconv.NumError)) {
		return true
	}
	for _, words := range []string{"redis: can't parse ", "redis: got ", "redis: the length of ", "redis: invalid reply"} {
		if err != nil && strings.Contains(err.Error(), words) {
			return true
		}
	}
	return false
}

// strange makes ErrReply of an error of the client library that means this.
func strange(err error) error {
	if unread(err) {
		return fmt.Errorf("%w: %w", ErrReply, err)
	}
	return err
}
