package differ

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"muster/dev/zkmodel"
)

// slot is a client of a trace, with one session after another.
type slot struct {
	ids       [2]int64 // of its latest session: the model's, the real one's
	passwords [2][]byte
	alive     bool // the session goes on
	link      *link
}

// keep keeps a session for resuming.
func (s *slot) keep(side int, id int64, password []byte) {
	if id != 0 {
		s.ids[side], s.passwords[side] = id, password
	}
}

// slots is how many clients a trace may have.
const slots = 4

// pair runs one trace on a model of its own and on real servers, below one root. At any time one client at most has
// requests under way, so that each reply is determined.
type pair struct {
	servers     *servers
	server      *zkmodel.Server
	root        string
	model, real side
	clock       time.Time // the model's
	probe       *zkmodel.Peer
	probed      int64 // the zxid in the latest reply to the probe
	slots       [slots]*slot
	busy        *link // has a batch that is not sent
	ending      bool  // a session ends: see link.compare
	compared    int   // replies and events
	at          op    // the latest step
	stray       error // what the model sent to nobody
}

// difference is what a trace found. It implements error.
type difference struct {
	at   string
	text string
}

func (d *difference) Error() string { return "at " + d.at + "\n    " + d.text }

func (p *pair) differs(l *link, text string) error {
	at := p.at.String()
	if len(l.batchOps) > 1 {
		var ops []string
		for _, o := range l.batchOps {
			ops = append(ops, o.String())
		}
		at += ", or one of these:\n      " + strings.Join(ops, "\n      ")
	}
	return &difference{at, fmt.Sprintf("s%d, what its servers sent since the last comparison:\n    %s", l.slot, text)}
}

// newPair creates the root on both sides. Both count zxids from there.
func newPair(s *servers) (*pair, error) {
	p := &pair{servers: s, clock: time.UnixMilli(1_700_000_000_000)}
	p.root = s.newRoot()
	millis := func() int64 { return time.Now().UnixMilli() }
	for _, one := range []*side{&p.model, &p.real} {
		*one = side{
			root: p.root, sessions: map[int64]string{}, known: map[int64]int64{}, windows: map[int64][2]int64{},
			from: millis(), now: millis, kinds: map[string]int{},
		}
	}
	for i := range p.slots {
		p.slots[i] = &slot{}
	}
	p.server = zkmodel.New(zkmodel.Options{
		MinTimeout: leastTimeout, MaxTimeout: mostTimeout, Now: func() time.Time { return p.clock },
		Applied: func(t *zkmodel.Txn) { p.model.known[t.Zxid] = p.clock.UnixMilli() },
	})
	p.probe = p.server.Open(func(frame []byte) {
		d := decoder{rest: frame}
		d.int()
		p.probed = d.long()
	})
	create := op{code: opCreate, path: p.root, data: []byte{}, acl: openACL}
	p.probe.Handle((&op{timeout: 600_000}).handshake(0, nil, 0))
	p.probe.Handle(create.frame(1, "", 0))
	p.model.base = p.probed
	if err := s.keepAlive(); err != nil {
		return nil, err
	}
	var err error
	p.real.base, err = s.do(create)
	return p, err
}

// The bounds of session timeouts in package zkserver's configuration.
const (
	leastTimeout = 300 * time.Millisecond
	mostTimeout  = 10 * time.Minute
)

// tick lets the model's time pass, so that each change has a time of its own.
func (p *pair) tick() { p.clock = p.clock.Add(time.Millisecond) }

// last is the model's last zxid.
func (p *pair) last() int64 {
	p.probe.Handle((&op{code: opPing}).frame(xidPing, "", 0))
	return p.probed
}

// step does one line of a trace, or nothing if the line does not fit.
func (p *pair) step(o op) error {
	s := p.slots[o.slot]
	if p.busy != nil && (p.busy != s.link || o.isAlone()) {
		if err := p.flush(); err != nil {
			return err
		}
	}
	if p.stray != nil {
		return &difference{p.at.String(), p.stray.Error()}
	}
	p.at = o
	switch {
	case o.code == opConnect && !s.alive:
		return p.connect(s, &o)
	case o.code == opResume && s.ids[byModel] != 0:
		return p.connect(s, &o)
	case o.code == opCut && s.link != nil:
		p.cut(s)
	case o.code == opExpire && s.alive:
		return p.end(func() error { return p.expire(s, &o) })
	case o.code == opClose && s.link != nil:
		return p.end(func() error { s.alive = false; return p.request(s, &o) })
	case o.isRequest() && s.link != nil:
		return p.request(s, &o)
	}
	return nil
}

// request sends a request, or holds it back. Nothing follows a setACL before the leader has applied it: ZooKeeper
// checks a write against the ACL as it was before the writes that are on their way.
func (p *pair) request(s *slot, o *op) error {
	s.link.request(o)
	p.busy = s.link
	if o.more && !o.isAlone() && !s.link.ended && o.code != opSetACL {
		return nil
	}
	if err := p.flush(); err != nil || o.code != opSetACL {
		return err
	}
	return p.servers.await(p.real.base + p.last() - p.model.base)
}

// flush sends what was held back.
func (p *pair) flush() error {
	l := p.busy
	if l == nil {
		return nil
	}
	p.busy = nil
	err := l.flush()
	if l.ended {
		p.slots[l.slot].link = nil
	}
	return err
}

// connect opens a connection, for a new session or for the slot's. A server closes the session's earlier connection if
// that is its own; the model has one server, so with an ensemble the client closes it.
func (p *pair) connect(s *slot, o *op) error {
	if s.link != nil && len(p.servers.addrs) > 1 {
		p.cut(s)
	}
	if s.link != nil {
		if err := s.link.settle(p.last()); err != nil {
			return err
		}
	}
	old := s.link
	l, err := p.open(o)
	if err != nil {
		return err
	}
	if old != nil && old.ended {
		s.link = nil
		if err := old.drain(p.real.from); err != nil {
			return err
		}
	}
	if l != nil && !l.ended {
		s.link, s.alive = l, true
	}
	return nil
}

func (p *pair) cut(s *slot) {
	s.link.hangUp()
	s.link = nil
}

// end does what ends a session. Then the server deletes its ephemeral znodes in an order that nobody knows, so the
// events of this step are compared alone, in any order.
func (p *pair) end(step func() error) error {
	if err := p.settle(); err != nil {
		return err
	}
	p.ending = true
	defer func() { p.ending = false }()
	if err := step(); err != nil {
		return err
	}
	return p.settle()
}

// settle compares all that both have sent to everybody so far.
func (p *pair) settle() error {
	if err := p.flush(); err != nil {
		return err
	}
	last := p.last()
	for _, s := range p.slots {
		if s.link != nil {
			if err := s.link.settle(last); err != nil {
				return err
			}
		}
	}
	return nil
}

// expire resumes the slot's session with a short timeout, and then says nothing more; with o.watch the connection
// stays open, so that the server must close it.
func (p *pair) expire(s *slot, o *op) error {
	if s.link != nil {
		p.cut(s)
	}
	if err := p.connect(s, o); err != nil || s.link == nil {
		return err
	}
	l := s.link
	s.link, s.alive = nil, false
	if !o.watch {
		l.hangUp()
	}
	p.clock = p.clock.Add(time.Second) // longer than the timeout that the session has now, shorter than all others
	p.server.ExpireDue(p.clock)
	again := o.handshake(s.ids[byReal], s.passwords[byReal], 0)
	err := p.servers.awaitExpiry(p.real.base+p.last()-p.model.base, l.server, again)
	if err != nil || !o.watch {
		return err
	}
	return l.drain(p.real.from)
}

// finish ends all sessions of the trace, and compares what is left.
func (p *pair) finish() error {
	for i, s := range p.slots {
		if s.alive && s.link == nil {
			if err := p.step(op{slot: i, code: opResume, timeout: 600_000}); err != nil {
				return err
			}
		}
		if err := p.step(op{slot: i, code: opClose}); err != nil {
			return err
		}
	}
	return p.settle()
}

// clean removes what the trace has left on the real servers.
func (p *pair) clean(differed bool) error {
	for _, s := range p.slots {
		if s.link != nil {
			s.link.wire.conn.Close()
		}
		if s.ids[byReal] != 0 && (s.alive || differed) {
			if err := p.servers.endSession(s.ids[byReal], s.passwords[byReal]); err != nil {
				return err
			}
		}
	}
	return p.servers.remove(p.root)
}

// shrinkLimit is how long a trace is shrunk. Some differences show only when a reply does not come.
const shrinkLimit = 3 * time.Minute

// shrinker makes a trace that differs shorter.
type shrinker struct {
	servers *servers
	late    time.Time
	trace   []op
	found   error // what the trace found
}

// shrink drops lines while the trace still differs. It returns nil if the trace does not differ again.
func shrink(s *servers, trace []op) ([]op, error) {
	k := &shrinker{servers: s, late: time.Now().Add(shrinkLimit)}
	if !k.try(trace) {
		return nil, nil
	}
	for k.lines() {
	}
	return k.trace, k.found
}

// try takes a trace if it differs.
func (k *shrinker) try(trace []op) bool {
	if time.Now().After(k.late) {
		return false
	}
	err := play(k.servers, trace)
	if err != nil {
		k.trace, k.found = trace, err
	}
	return err != nil
}

// lines drops as many lines as it can, many at once first.
func (k *shrinker) lines() (changed bool) {
	for size := max(len(k.trace)/2, 1); size > 0; size /= 2 {
		for from := 0; from+size <= len(k.trace); {
			if k.try(without(k.trace, from, size, 0)) || k.try(without(k.trace, from, size, size)) {
				changed = true
			} else {
				from += size
			}
		}
	}
	return changed
}

// without is a trace without some lines. The zxids in the lines after them are smaller by fewer.
func without(trace []op, from, size, fewer int) []op {
	rest := slices.Concat(trace[:from], trace[from+size:])
	for i := from; i < len(rest); i++ {
		if zxid := rest[i].zxid; zxid > 0 {
			rest[i].zxid = max(zxid-int64(fewer), 0)
		}
	}
	return rest
}
