package zkmodel

import (
	"encoding/binary"
	"math"
	"time"
)

// session is a client's session. It outlives its connections.
type session struct {
	id      int64
	timeout time.Duration
	heard   time.Time
	peer    *Peer // nil while not connected
}

// password of a session. It keeps nobody out: the model is no place for secrets.
func password(id int64) []byte {
	b := make([]byte, 16)
	binary.BigEndian.PutUint64(b, uint64(id)*0x9e3779b97f4a7c15)
	binary.BigEndian.PutUint64(b[8:], uint64(id)^0xb3415c00b3415c00)
	return b
}

// handshake handles the first request of a connection: protocol version (4 bytes), last zxid that the client has seen
// (8), timeout in ms (4), session id (8; 0: a new session), password (4+16), and perhaps a flag whether a server that
// only reads will do. Source: ZooKeeperServer.processConnectRequest.
func (p *Peer) handshake(frame []byte) bool {
	s, d := p.server, decoder{b: frame}
	d.int32()
	seen, millis, id := d.int64(), d.int32(), d.int64()
	secret := d.buffer()
	if d.err != nil || seen > s.zxid {
		return p.close() // the client has seen a future that this server does not know
	}
	p.flag = len(d.b) > 0
	timeout := s.granted(time.Duration(millis) * time.Millisecond)
	x := s.sessions[id]
	if id == 0 {
		x = s.newSession()
	} else if x != nil && x.peer != nil {
		x.peer.close() // before the password is compared
	}
	if x == nil || id != 0 && string(secret) != string(password(id)) {
		p.answerHandshake(0, 0, make([]byte, 16))
		return p.close()
	}
	x.peer, x.timeout, x.heard, p.session = p, timeout, s.o.Now(), x
	p.answerHandshake(timeout, x.id, password(x.id))
	return true
}

func (p *Peer) answerHandshake(timeout time.Duration, id int64, secret []byte) {
	e := make(encoder, 0, 37)
	e.int32(0)
	e.int32(int32(timeout / time.Millisecond))
	e.int64(id)
	e.buffer(secret)
	if p.flag {
		e.bool(false)
	}
	p.out(e)
}

// granted is the timeout for a client that asks for one.
func (s *Server) granted(timeout time.Duration) time.Duration {
	timeout = max(timeout, s.o.MinTimeout, time.Millisecond)
	if s.o.MaxTimeout > 0 {
		timeout = min(timeout, s.o.MaxTimeout)
	}
	return min(timeout, math.MaxInt32*time.Millisecond)
}

func (s *Server) newSession() *session {
	s.zxid++
	s.nextID++
	x := &session{id: s.nextID}
	s.sessions[x.id] = x
	return x
}

// endSession ends a session and deletes its ephemeral znodes, as one transaction. Its connection is left open.
func (s *Server) endSession(x *session) {
	s.zxid++
	t := &Txn{Zxid: s.zxid, Session: x.id, Ops: []Op{{Type: OpClose, Version: -1}}}
	for _, n := range s.tree.ownedBy(x.id) {
		s.tree.remove(n, t.Zxid)
		t.Ops = append(t.Ops, Op{Type: OpDelete, Path: n.path, Version: -1, acl: n.acl, above: n.parent.acl})
	}
	s.tree.commit()
	delete(s.tree.ephemerals, x.id)
	delete(s.sessions, x.id)
	s.notify(t)
	if s.o.Applied != nil {
		s.o.Applied(t)
	}
}
