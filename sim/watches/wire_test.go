package watches

import (
	"context"
	"encoding/binary"
	"io"
	"math"
	"net"

	"muster/dev/zkmodel"
)

// wire changes what a session sends and gets: it makes the session or the server break a rule. Frames are as on the
// wire. The zero value changes nothing.
type wire struct {
	request func(op zkmodel.OpType, frame []byte) []byte
	late    int // so many replies come before an event
}

type dialer = func(ctx context.Context, addr string) (net.Conn, error)

func (h wire) dial(dial dialer) dialer {
	if h.request == nil && h.late == 0 {
		return dial
	}
	return func(ctx context.Context, addr string) (net.Conn, error) {
		c, err := dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		return &bent{Conn: c, wire: h, late: make([][]byte, h.late)}, nil
	}
}

// bent is a connection through a wire.
type bent struct {
	net.Conn
	wire
	shaken bool     // the handshake was sent
	in     []byte   // for Read
	late   [][]byte // events, by how many replies come before them
}

func (c *bent) Write(b []byte) (int, error) {
	var out []byte
	for rest := b; len(rest) > 0; {
		n := 4 + binary.BigEndian.Uint32(rest)
		frame := rest[:n:n]
		rest = rest[n:]
		if c.shaken && c.request != nil {
			frame = c.request(zkmodel.OpType(binary.BigEndian.Uint32(frame[8:])), frame)
		}
		c.shaken = true
		out = append(out, frame...)
	}
	if _, err := c.Conn.Write(out); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (c *bent) Read(b []byte) (int, error) {
	for len(c.in) == 0 {
		head := make([]byte, 8)
		if _, err := io.ReadFull(c.Conn, head); err != nil {
			return 0, err
		}
		frame := append(head, make([]byte, binary.BigEndian.Uint32(head)-4)...)
		if _, err := io.ReadFull(c.Conn, frame[8:]); err != nil {
			return 0, err
		}
		isEvent := int32(binary.BigEndian.Uint32(head[4:])) == -1
		if isEvent && c.wire.late > 0 {
			c.late[c.wire.late-1] = append(c.late[c.wire.late-1], frame...)
			continue
		}
		if c.in = frame; c.wire.late > 0 {
			c.in = append(c.in, c.late[0]...)
			c.late = append(c.late[1:], nil)
		}
	}
	n := copy(b, c.in)
	c.in = c.in[n:]
	return n, nil
}

// future names a transaction in the far future when watches are set again: nothing has changed since.
func future(op zkmodel.OpType, frame []byte) []byte {
	if op == zkmodel.OpSetWatches {
		binary.BigEndian.PutUint64(frame[12:], math.MaxInt64)
	}
	return frame
}

// forgetful sets no watches again.
func forgetful(op zkmodel.OpType, frame []byte) []byte {
	if op != zkmodel.OpSetWatches {
		return frame
	}
	frame = append(frame[:20:20], make([]byte, 3*4)...)
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	return frame
}

// careless sets no watch with some reads.
func careless(ops ...zkmodel.OpType) func(op zkmodel.OpType, frame []byte) []byte {
	return func(op zkmodel.OpType, frame []byte) []byte {
		for _, one := range ops {
			if op == one {
				frame[len(frame)-1] = 0
			}
		}
		return frame
	}
}
