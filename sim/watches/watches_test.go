// Package watches has worlds of those who wait for events: no event may be lost. It has no code of its own.
package watches

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/dev/zkmodel"
	"muster/sim"
	"muster/zkstate"
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

// aspect is what can be known of a znode.
type aspect struct {
	path string
	kind string // "data", "children", "exists" or, with its children, "stat"
}

// none is the value of every aspect of a znode that does not exist.
const none = "none"

// book knows which values each aspect has had. A value names the transaction that it is from, so it comes once, unless
// it is none.
type book struct {
	server *zkmodel.Server

	mu     sync.Mutex
	zxid   int64
	values map[aspect][]value // the oldest first
	made   map[string]int     // how often a znode was created
	left   int                // changes that are still to be made
	quiet  chan struct{}      // closed when nobody changes anything any more
}

type value struct {
	since int64
	text  string
}

// paths are the znodes that change. The second may be ephemeral.
var paths = []string{"/w/a", "/w/b", "/w/a/c"}

func newBook(w *sim.World, changes int) *book {
	b := &book{
		server: w.Server(), values: map[aspect][]value{}, made: map[string]int{}, left: changes,
		quiet: make(chan struct{}),
	}
	w.OnTxn(func(t *zkmodel.Txn) error {
		b.note(t)
		return nil
	})
	return b
}

// note notes what a transaction has left.
func (b *book) note(t *zkmodel.Txn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.zxid = t.Zxid
	for _, op := range t.Ops {
		if t.Err == zkmodel.OK && (op.Type == zkmodel.OpCreate || op.Type == zkmodel.OpCreate2) {
			b.made[op.Path]++
		}
	}
	for _, path := range paths {
		data, s, there := b.server.Get(path)
		children := b.server.Children(path)
		stat := zkconn.Stat{Mzxid: s.Mzxid, Pzxid: s.Pzxid}
		for _, kind := range []string{"data", "children", "exists", "stat"} {
			at, text := aspect{path, kind}, textOf(kind, there, data, children, stat)
			if all := b.values[at]; len(all) == 0 || all[len(all)-1].text != text {
				b.values[at] = append(all, value{t.Zxid, text})
			}
		}
	}
}

// textOf is the value of an aspect.
func textOf(kind string, there bool, data []byte, children []string, s zkconn.Stat) string {
	switch {
	case !there:
		return none
	case kind == "data":
		return fmt.Sprintf("%q of %#x", data, s.Mzxid)
	case kind == "children":
		return fmt.Sprintf("%s of %#x", strings.Join(children, ","), s.Pzxid)
	case kind == "exists":
		return fmt.Sprintf("of %#x", s.Mzxid)
	}
	return fmt.Sprintf("of %#x, children of %#x", s.Mzxid, s.Pzxid)
}

// now is the value that an aspect has.
func (b *book) now(at aspect) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if all := b.values[at]; len(all) > 0 {
		return all[len(all)-1].text
	}
	return none
}

// notBefore complains if an aspect no longer had this value after the transaction since.
func (b *book) notBefore(at aspect, text string, since int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.values[at]
	for i := len(all) - 1; i >= 0; i-- {
		switch {
		case all[i].text != text:
		case i == len(all)-1 || all[i+1].since > since:
			return nil
		default:
			return fmt.Errorf("the %s of %s: %s, but transaction %#x, of which the session knew, is after %#x: %s",
				at.kind, at.path, text, since, all[i+1].since, all[i+1].text)
		}
	}
	if text == none {
		return nil // before the first transaction
	}
	return fmt.Errorf("the %s of %s never was %s", at.kind, at.path, text)
}

// take takes one of the changes that are left, and returns the newest transaction.
func (b *book) take() (zxid int64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.left--
	return b.zxid, b.left >= 0
}

// created is how often a znode was created.
func (b *book) created(path string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.made[path]
}

// reader is a process that waits for events in several ways at once. Each way believes something of some aspects.
type reader struct {
	book    *book
	process *sim.Process
	session *zkconn.Session
	mirror  *zkstate.Mirror

	mu      sync.Mutex
	seen    int64 // the newest transaction of which an answer has told
	beliefs map[belief]string
	err     error
	news    chan struct{} // holds an element after a change of the above
}

type belief struct {
	way string
	of  aspect
}

// way waits for events until its context ends, or reading fails.
type way func(ctx context.Context, r *reader) error

// read declares a process that ends when nothing changes any more and all that it believes is true.
func (b *book) read(w *sim.World, name string, hooks wire, ways ...way) {
	w.Process(name, 0, func(p *sim.Process) error {
		config := p.Config(timeout)
		config.Dial = hooks.dial(config.Dial)
		s, err := zkconn.Dial(p.Context(), config)
		if err != nil {
			return err
		}
		p.Owns(s)
		defer s.Close()
		r := &reader{
			book: b, process: p, session: s, mirror: zkstate.NewMirror(s), beliefs: map[belief]string{},
			news: make(chan struct{}, 1),
		}
		return r.run(p.Context(), ways)
	})
}

func (r *reader) run(ctx context.Context, ways []way) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for _, one := range ways {
		running.Go(func() {
			if err := one(ctx, r); err != nil && ctx.Err() == nil {
				r.mu.Lock()
				r.err = err
				r.mu.Unlock()
				r.tell()
			}
		})
	}
	for quiet := r.book.quiet; ; {
		select {
		case <-quiet:
			quiet = nil
		case <-r.news:
		case <-ctx.Done():
			return ctx.Err()
		case <-r.session.Context().Done():
			return context.Cause(r.session.Context())
		}
		if done, err := r.done(len(ways)); err != nil || done && quiet == nil {
			return err
		}
	}
}

// done reports whether everything that is believed is true, after each way has read everything.
func (r *reader) done(ways int) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for b, text := range r.beliefs {
		if text != r.book.now(b.of) {
			return false, r.err
		}
	}
	by := map[string]bool{}
	for b := range r.beliefs {
		by[b.way] = true
	}
	return len(by) == ways, r.err
}

func (r *reader) tell() {
	select {
	case r.news <- struct{}{}:
	default:
	}
}

// believes notes what a way has read.
func (r *reader) believes(way, path, kind, text string) {
	r.mu.Lock()
	r.beliefs[belief{way, aspect{path, kind}}] = text
	r.mu.Unlock()
	r.tell()
}

// answered notes what an answer tells, and complains if the session knew of something newer before it asked.
func (r *reader) answered(path, kind, text string, s zkconn.Stat, knew int64) {
	if err := r.book.notBefore(aspect{path, kind}, text, knew); err != nil {
		r.process.Fail(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = max(r.seen, s.Mzxid, s.Pzxid)
}

func (r *reader) knows() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen
}

// ask reads an aspect of a znode through a Look, or without one, and checks the answer.
func (r *reader) ask(ctx context.Context, from zkstate.Source, path, kind string) (text string, err error) {
	knew, there := r.knows(), true
	var data []byte
	var children []string
	var stat zkconn.Stat
	switch kind {
	case "data":
		data, stat, err = from.Get(ctx, path)
	case "children":
		children, stat, err = from.Children(ctx, path)
	default:
		stat, there, err = from.Exists(ctx, path)
	}
	if errors.Is(err, zkconn.ErrNoNode) {
		there, err = false, nil
	}
	if err != nil {
		return "", err
	}
	text = textOf(kind, there, data, children, stat)
	r.answered(path, kind, text, stat, knew)
	return text, nil
}

// looks reads all znodes through one Look after the other. After each answer it asks for something else without a
// Look, which may tell of newer transactions.
func looks(kinds ...string) way {
	return func(ctx context.Context, r *reader) error {
		look := r.mirror.Look()
		defer func() { look.Close() }()
		for {
			for i, path := range paths {
				for _, kind := range kinds {
					text, err := r.ask(ctx, look, path, kind)
					if err == nil {
						_, err = r.ask(ctx, r.session, paths[(i+1)%len(paths)], "stat")
					}
					if err != nil {
						return err
					}
					r.believes(fmt.Sprint("look ", kinds), path, kind, text)
				}
			}
			if err := await(ctx, look.Changed()); err != nil {
				return nil
			}
			next := r.mirror.Look()
			look.Close()
			look = next
		}
	}
}

// watches waits with the channel of a kind of read.
func watches(path, kind string) way {
	return func(ctx context.Context, r *reader) error {
		for {
			knew, there := r.knows(), true
			var data []byte
			var children []string
			var stat zkconn.Stat
			var changed <-chan struct{}
			var err error
			created := func() bool { return false }
			switch kind {
			case "data":
				data, stat, changed, err = r.session.GetW(ctx, path)
			case "children":
				children, stat, changed, err = r.session.ChildrenW(ctx, path)
			}
			if kind == "exists" || errors.Is(err, zkconn.ErrNoNode) {
				stat, there, changed, created, err = r.session.CreatedW(ctx, path)
				if kind != "exists" && there {
					continue
				}
			}
			if err != nil {
				return err
			}
			text := textOf(kind, there, data, children, stat)
			r.answered(path, kind, text, stat, knew)
			r.believes("watch "+path+" "+kind, path, kind, text)
			if await(ctx, changed) != nil {
				return nil
			}
			if created() && r.book.created(path) == 0 {
				r.process.Fail(fmt.Errorf("%s was never created", path))
			}
		}
	}
}

// follows reads with Follow while the znode is there, and then waits until it is created again.
func follows(path string) way {
	return func(ctx context.Context, r *reader) error {
		for {
			err := r.session.Follow(ctx, path, func(body []byte, s zkconn.Stat, there bool) error {
				r.believes("follow "+path, path, "data", textOf("data", there, body, nil, s))
				if !there {
					return zkconn.ErrNoNode
				}
				return nil
			})
			if !errors.Is(err, zkconn.ErrNoNode) {
				return err
			}
			_, there, changed, err := r.session.ExistsW(ctx, path)
			if err != nil {
				return err
			}
			if !there && await(ctx, changed) != nil {
				return nil
			}
		}
	}
}

func await(ctx context.Context, changed <-chan struct{}) error {
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
