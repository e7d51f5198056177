package differ

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"muster/dev/zkmodel"
)

// link is a connection: one to the real server, and its twin to the model. Both get the same requests; what each sends
// is kept as text until it is compared.
type link struct {
	pair   *pair
	slot   int
	server int // of the ensemble
	wire   *wire
	peer   *zkmodel.Peer

	xid      int32
	greeted  bool       // the model has answered the handshake
	ended    bool       // the model has closed the connection
	gone     bool       // it has, or the client
	asked    [2][]int32 // opcodes of the requests without reply: the model's, the real server's
	want     []string   // from the model
	got      []string   // from the real server
	batch    []byte     // requests for the real server that are not sent yet
	writes   bool       // the batch begins with a write
	before   int64      // the model's last zxid before the batch
	batchOps []op
}

const (
	byModel = iota
	byReal
)

// fromModel takes what the model sends.
func (l *link) fromModel(frame []byte) {
	s := &l.pair.model
	switch {
	case l.gone:
		l.pair.stray = fmt.Errorf("the model sends to a client that is gone: %x", frame)
	case frame == nil:
		l.ended, l.gone = true, true
		l.want = append(l.want, "closed")
	case !l.greeted:
		l.greeted = true
		text, id, password := s.handshake(frame, l.slot)
		l.pair.slots[l.slot].keep(byModel, id, password)
		l.want = append(l.want, text)
	default:
		l.want = append(l.want, s.frame(l.next(byModel, frame), frame))
	}
}

// next is the opcode of the request that the frame answers; 0 if there is none, or if it is an event.
func (l *link) next(side int, frame []byte) int32 {
	d := decoder{rest: frame}
	if d.int() == xidEvent || len(l.asked[side]) == 0 {
		return 0
	}
	code := l.asked[side][0]
	l.asked[side] = l.asked[side][1:]
	return code
}

// fromReal takes what the real server sent. A write's reply says when its change was made: not before from.
func (l *link) fromReal(frames [][]byte, from int64, err error) error {
	s := &l.pair.real
	for _, frame := range frames {
		code := l.next(byReal, frame)
		d := decoder{rest: frame}
		d.int()
		if zxid := d.long(); (&op{code: code}).isWrite() {
			s.windows[zxid] = [2]int64{from, s.now()}
		}
		kinds := len(s.kinds)
		text := s.frame(code, frame)
		l.got = append(l.got, text)
		if len(s.kinds) > kinds && len(frame) < 4096 { // the first of its kind in this trace
			if i := s.blindSpot(code, frame, text); i >= 0 {
				return fmt.Errorf("byte %d is not compared: %s: %x", i, text, frame)
			}
		}
	}
	if errors.Is(err, io.EOF) {
		s.kinds["closed"]++
		l.got = append(l.got, "closed")
		return nil
	}
	return err
}

// request gives a request to the model at once, and keeps it for the real server.
func (l *link) request(o *op) {
	p := l.pair
	l.xid++
	xid := o.xid(l.xid)
	if len(l.batch) == 0 {
		l.before, l.writes = p.last(), o.isWrite()
		l.batchOps = l.batchOps[:0]
	}
	l.batch = append(l.batch, framed(o.frame(xid, p.root, p.real.base))...)
	l.batchOps = append(l.batchOps, *o)
	for side := range l.asked {
		l.asked[side] = append(l.asked[side], o.code)
	}
	p.tick()
	l.peer.Handle(o.frame(xid, p.root, p.model.base))
}

// flush sends the batch to the real server and compares what both sent. A read of an ensemble first waits until its
// server has applied what came before: only then the reply is determined. A write needs no wait, because a server
// sends the events of earlier changes before the write's reply.
func (l *link) flush() error {
	if len(l.batch) == 0 {
		return nil
	}
	if !l.writes {
		if err := l.await(l.before); err != nil {
			return err
		}
	}
	from := l.pair.real.now()
	if l.ended { // what the server has not read when it closes could cost its last replies: no barrier
		l.wire.send(l.batch)
		l.batch = nil
		return l.drain(from)
	}
	l.wire.send(append(l.batch, barrierRequest()...))
	l.batch = nil
	frames, zxid, err := l.wire.untilBarrier()
	l.pair.servers.saw(l.server, zxid)
	if err := l.fromReal(frames, from, err); err != nil {
		return l.pair.differs(l, fmt.Sprintf("real server: %v", err))
	}
	return l.compare()
}

// hangUp closes the connection from the client's side.
func (l *link) hangUp() {
	l.wire.hangUp()
	l.peer.Lost()
	l.gone = true
}

// drain reads until the real server closes the connection, and compares.
func (l *link) drain(from int64) error {
	var frames [][]byte
	l.wire.nudge = func() { l.wire.send(barrierRequest()) } // answered if the server does not think of closing
	for {
		frame, err := l.wire.receive()
		if err == nil && (&decoder{rest: frame}).int() == xidBarrier {
			return l.pair.differs(l, "real server keeps the connection open")
		}
		if err == nil {
			frames = append(frames, frame)
			continue
		}
		if err := l.fromReal(frames, from, err); err != nil {
			return l.pair.differs(l, fmt.Sprintf("real server does not close the connection: %v", err))
		}
		l.wire.conn.Close()
		return l.compare()
	}
}

// await waits until the link's server has applied the model's zxid, and keeps the events that come meanwhile.
func (l *link) await(zxid int64) error {
	p := l.pair
	want := p.real.base + zxid - p.model.base
	for p.servers.seen[l.server] < want && !l.wire.over {
		l.wire.send(barrierRequest())
		frames, seen, err := l.wire.untilBarrier()
		p.servers.saw(l.server, seen)
		if err := l.fromReal(frames, p.real.from, err); err != nil {
			return p.differs(l, fmt.Sprintf("real server: %v", err))
		}
	}
	return nil
}

// settle makes the real server send all events up to the model's zxid, and compares.
func (l *link) settle(zxid int64) error {
	if err := l.await(zxid); err != nil {
		return err
	}
	if !l.wire.over {
		l.wire.send(barrierRequest())
		frames, seen, err := l.wire.untilBarrier()
		l.pair.servers.saw(l.server, seen)
		if err := l.fromReal(frames, l.pair.real.from, err); err != nil {
			return l.pair.differs(l, fmt.Sprintf("real server: %v", err))
		}
	}
	return l.compare()
}

// compare compares what both sent since the last time. If the pair is ending a session, the order of neighbouring
// events does not count.
func (l *link) compare() error {
	if l.pair.ending {
		sortEvents(l.want)
		sortEvents(l.got)
	}
	for i := range max(len(l.want), len(l.got)) {
		want, got := "nothing", "nothing"
		if i < len(l.want) {
			want = l.want[i]
		}
		if i < len(l.got) {
			got = l.got[i]
		}
		if want != got {
			return l.pair.differs(l, fmt.Sprintf("real:  %s\n    model: %s", got, want))
		}
	}
	l.pair.compared += len(l.got)
	l.want, l.got = nil, nil
	return nil
}

// sortEvents sorts each run of events.
func sortEvents(texts []string) {
	isEvent := func(s string) bool { return strings.HasPrefix(s, "event ") }
	for i := 0; i < len(texts); i++ {
		j := i
		for j < len(texts) && isEvent(texts[j]) {
			j++
		}
		slices.Sort(texts[i:j])
		i = j
	}
}

// open shakes hands on a new connection. It returns nil if there is no session on it.
func (p *pair) open(o *op) (*link, error) {
	s := p.slots[o.slot]
	w, err := p.servers.dial(o.server)
	if err != nil {
		return nil, err
	}
	l := &link{pair: p, slot: o.slot, server: o.server, wire: w}
	l.peer = p.server.Open(l.fromModel)
	ids, passwords := [2]int64{}, [2][]byte{make([]byte, 16), make([]byte, 16)}
	if o.code != opConnect {
		ids, passwords = s.ids, s.passwords
	}
	if o.wrong {
		passwords = [2][]byte{[]byte("0123456789abcdef"), []byte("0123456789abcdef")}
	}
	p.tick()
	open := l.peer.Handle(o.handshake(ids[byModel], passwords[byModel], p.model.base))
	from := p.real.now()
	w.send(framed(o.handshake(ids[byReal], passwords[byReal], p.real.base)))
	frame, err := w.receive()
	if err == nil {
		text, id, password := p.real.handshake(frame, o.slot)
		s.keep(byReal, id, password)
		l.got = append(l.got, text)
	} else if err := l.fromReal(nil, from, err); err != nil {
		return nil, p.differs(l, fmt.Sprintf("real server: %v", err))
	}
	if !open && !w.over {
		return nil, l.drain(from)
	}
	return l, l.compare()
}
