package zkmodel

import (
	"slices"
	"unicode/utf8"
)

// Peer is one connection of a client.
type Peer struct {
	server  *Server
	out     func(frame []byte)
	session *session // nil before the handshake
	ids     []identity
	flag    bool // the client understands a handshake that ends in a flag
	closed  bool
}

// Open begins a connection. out gets each reply and event, in order, without the length before it, and owns it. When
// the server closes the connection, out gets nil, once, and nothing after it. out must not call the server.
func (s *Server) Open(out func(frame []byte)) *Peer { return &Peer{server: s, out: out} }

// Handle handles a request, without the length before it; the first request is the handshake. Replies and events are
// sent before it returns. It keeps nothing of the frame. It returns false when the server has closed the connection.
func (p *Peer) Handle(frame []byte) (open bool) {
	switch {
	case p.closed:
		return false
	case len(frame) > maxFrame:
		return p.close()
	case p.session == nil:
		return p.handshake(frame)
	}
	d := decoder{b: frame}
	xid, op := d.int32(), OpType(d.int32())
	if d.err != nil {
		return p.close()
	}
	if op == OpAuth {
		return p.authenticate(xid, &d)
	}
	p.session.heard = p.server.o.Now()
	return p.dispatch(xid, op, &d)
}

// maxFrame is the most bytes of a request: ZooKeeper's jute.maxbuffer by default.
const maxFrame = 1<<20 - 1

func (p *Peer) dispatch(xid int32, op OpType, d *decoder) bool {
	s := p.server
	switch op {
	case OpPing:
		p.out(newReply(pingXid, s.zxid, OK, 0))
	case OpExists, OpGetData, OpGetChildren, OpGetChildren2, OpGetACL, OpSync:
		p.out(s.read(p, xid, op, d))
	case OpSetWatches:
		code := s.setWatches(p, d)
		p.out(newReply(xid, s.zxid, code, 0))
	case OpCreate, OpCreate2, OpDelete, OpSetData, OpSetACL:
		p.out(s.write(p, xid, op, d))
	case OpMulti:
		p.out(s.multi(p, xid, d))
	case OpClose:
		s.endSession(p.session)
		p.out(newReply(xid, s.zxid, OK, 0))
		return p.close()
	default:
		p.out(newReply(xid, -1, Unimplemented, 0))
		return p.close()
	}
	return true
}

// pingXid and eventXid are the numbers of all replies to pings, and of all events.
const (
	eventXid = -1
	pingXid  = -2
)

// authenticate handles a credential. Only the scheme digest is known. It does not count as a sign of life, as it does
// not with ZooKeeper. Source: ZooKeeperServer.processPacket.
func (p *Peer) authenticate(xid int32, d *decoder) bool {
	d.int32()
	scheme, credential := d.string(), d.buffer()
	if d.err != nil {
		return p.close()
	}
	if scheme != "digest" || credential == nil || !utf8.Valid(credential) {
		p.out(newReply(xid, 0, AuthFailed, 0))
		return p.close()
	}
	if id := digestIdentity(credential); !slices.Contains(p.ids, id) {
		p.ids = append(p.ids, id)
	}
	p.out(newReply(xid, 0, OK, 0))
	return true
}

func (p *Peer) sendEvent(event eventType, path string) {
	e := newReply(eventXid, -1, OK, 12+len(path))
	e.int32(int32(event))
	e.int32(syncConnected)
	e.string(path)
	p.out(e)
}

// Lost tells the server that the connection is gone. The session goes on until it expires.
func (p *Peer) Lost() {
	if p.closed {
		return
	}
	p.closed = true
	p.server.data.drop(p)
	p.server.child.drop(p)
	if p.session != nil {
		p.session.peer = nil
	}
}

// close ends the connection from the server's side. It returns false, for Handle.
func (p *Peer) close() bool {
	if !p.closed {
		p.Lost()
		p.out(nil)
	}
	return false
}
