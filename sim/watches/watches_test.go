package watches

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"muster/dev/zkmodel"
	"muster/sim"
	"muster/zkstate/zkconn"
)

const timeout = 10 * time.Second

var open = zkconn.World(zkconn.PermAll)

// TestWorlds: whoever waits for events knows at the end what is there, and nobody gets an answer that is older than
// what its session knew.
func TestWorlds(t *testing.T) { sim.Test(t, named()...) }

// TestMutants: a session or a server that breaks one of the rules on which this rests is found, by each way that needs
// the rule, alone.
func TestMutants(t *testing.T) {
	data, exists, children := watches("/w/b", "data"), watches("/w/a/c", "exists"), watches("/w/a", "children")
	looksAt := looks("data", "children", "stat")
	for _, mutant := range []struct {
		name  string
		cuts  int
		hooks wire
		ways  []way
	}{
		{"watches are set again as of later", 6, wire{request: future}, []way{data, exists, children, looksAt}},
		{"watches are not set again", 6, wire{request: forgetful}, []way{data, exists, children, looksAt}},
		{"get sets no watch", 0, wire{request: careless(zkmodel.OpGetData)}, []way{data, follows("/w/a"), looks("data")}},
		{"exists sets no watch", 0, wire{request: careless(zkmodel.OpExists)}, []way{exists, follows("/w/a"), looks("stat")}},
		{"children sets no watch", 0, wire{request: careless(zkmodel.OpGetChildren2)}, []way{children, looks("children")}},
		{"events come after newer answers", 0, wire{late: 4}, []way{looksAt}},
	} {
		o := sim.Options{Seeds: 2000, End: 5 * time.Minute, Faults: sim.Faults{Cuts: mutant.cuts}}
		for i, one := range mutant.ways {
			t.Run(fmt.Sprint(mutant.name, "/", i), func(t *testing.T) { sim.Finds(t, o, world(mutant.hooks, one)) })
		}
	}
}

func named() []sim.Named {
	faults := sim.Faults{Cuts: 3, LostReplies: 2, Expiries: 1, Pauses: 2}
	options := sim.Options{Seeds: 300, End: 5 * time.Minute, Faults: faults}
	plain := []way{follows("/w/a"), watches("/w/b", "data"), watches("/w/a/c", "exists"), watches("/w/a", "children")}
	return []sim.Named{
		{Name: "mirror", Options: options, World: world(wire{}, looks("data", "children"), looks("stat", "data"))},
		{Name: "watch", Options: options, World: world(wire{}, plain...)},
		{Name: "both", Options: options, World: world(wire{}, append(plain, looks("data", "children", "stat"))...)},
	}
}

// world has one who changes znodes, and one who waits for events.
func world(hooks wire, ways ...way) func(*sim.World) {
	return func(w *sim.World) {
		w.Setup(func(ctx context.Context, s *zkconn.Session) error {
			_, err := s.Create(ctx, "/w", nil, zkconn.Persistent, open)
			return err
		})
		b := newBook(w, 15)
		b.change(w, "changes")
		b.read(w, "reads", hooks, ways...)
	}
}

// change declares a process that changes znodes at random, and then ends its session. What it does depends on the
// schedule alone.
func (b *book) change(w *sim.World, name string) {
	w.Process(name, 0, sim.InSession(timeout, func(p *sim.Process, s *zkconn.Session) error {
		for {
			zxid, ok := b.take()
			if !ok {
				break
			}
			if err := b.changeOne(p.Context(), s, zxid); err != nil {
				return err
			}
		}
		if err := s.Close(); err != nil {
			return fmt.Errorf("%w: %w", zkconn.ErrUnreachable, err)
		}
		close(b.quiet)
		return nil
	}))
}

func (b *book) changeOne(ctx context.Context, s *zkconn.Session, zxid int64) error {
	random := rand.New(rand.NewPCG(uint64(zxid), 1))
	path := paths[random.IntN(len(paths))]
	body, mode := fmt.Append(nil, zxid), zkconn.Persistent
	if path == paths[1] && random.IntN(2) == 0 {
		mode = zkconn.Ephemeral
	}
	create, err := zkconn.CreateOp(path, body, mode, open), error(nil)
	switch what := random.IntN(6); {
	case b.now(aspect{path, "exists"}) == none:
		_, err = s.Create(ctx, path, body, mode, open)
	case what < 2:
		_, err = s.Set(ctx, path, body, -1)
	case what < 4:
		err = s.Delete(ctx, path, -1)
	case what == 4:
		_, err = s.Multi(ctx, zkconn.DeleteOp(path, -1), create)
	default:
		_, err = s.Multi(ctx, zkconn.SetOp(paths[0], body, -1), zkconn.SetOp(paths[1], body, -1))
	}
	return sim.Unless(err, zkconn.ErrNoNode, zkconn.ErrNodeExists, zkconn.ErrNotEmpty)
}

func BenchmarkWorlds(b *testing.B) { sim.Bench(b, named()...) }

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
