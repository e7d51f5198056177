// Package zkmodel is a small ZooKeeper in memory: the data tree, sessions, watches and the wire protocol that muster
// uses. It is for trying things out and for simulation, never for production: nothing outlives the process.
//
// It knows what muster's client sends: sessions that begin, resume and end; pings; create and create2 with the four
// modes; delete, exists, getData, getChildren, getChildren2, setData, getACL, setACL, sync, multi, and check inside it;
// one-shot watches, and setWatches after a reconnection; ACLs and credentials of the schemes world, digest and auth.
// Everything else it refuses with an error: containers, znodes with a time to live, persistent watches, quotas, other
// schemes, TLS, four-letter words. It never guesses.
//
// It answers as one server of ZooKeeper 3.8 does that stands alone. Tests hold it against real servers: each reply,
// code, zxid, Stat and event.
package zkmodel

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"math"
	"net"
	"slices"
	"sync"
	"time"
	"unicode/utf8"
)

// Options are what a server may be told. The zero value is a server without hooks that grants every session timeout.
type Options struct {
	MinTimeout, MaxTimeout time.Duration    // bounds of a granted session timeout; 0: none below, none above
	Now                    func() time.Time // for the times in a Stat and for expiry; default time.Now
	Applied                func(*Txn)       // is called after each write request, committed or refused, in order
	// Ignore makes a mutant: if true, the server does not check this guard of a transaction, that is, a check
	// operation, or the version of a set or a delete. It is called for each guard before it is checked.
	Ignore func(t *Txn, op int) bool
}

// Txn is a write request, or the end of a session: then the first operation is OpClose, and those after it delete the
// session's ephemeral znodes.
type Txn struct {
	Zxid, Session int64
	Multi         bool
	Ops           []Op // none if the request could not be read
	Err           Code // of the first operation that was refused; OK if the transaction was committed
}

// Op is an operation of a transaction.
type Op struct {
	Type    OpType
	Path    string // as created, with its number
	Data    []byte
	ACL     []ACL // as asked
	Version int32 // of a check, set, setACL or delete; -1: any
	Flags   Flags // of a create
	Err     Code

	after      Stat  // of the znode, for the reply
	acl, above []ACL // of the znode and its parent, for the events
}

// Server is one ZooKeeper. Serve, ServeConn, Close and Do may be called at any time. All other methods, also those of
// its peers, must not run at the same time: their caller takes turns, or uses Do.
type Server struct {
	o        Options
	tree     *tree
	zxid     int64
	data     watches // also those of exists
	child    watches
	sessions map[int64]*session
	nextID   int64

	mu sync.Mutex // held while a request is handled by Serve, and by Do

	opening  sync.Mutex     // held while something begins, and by Close
	running  sync.WaitGroup // Serve, ServeConn and expire
	expiring sync.Once
	closed   context.Context
	end      context.CancelFunc
}

// New returns a server that holds what a new ZooKeeper holds.
func New(o Options) *Server {
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Server{o: o, tree: newTree(), data: watches{}, child: watches{}, sessions: map[int64]*session{}}
	s.closed, s.end = context.WithCancel(context.Background())
	s.nextID = 1<<56 | int64(uint64(o.Now().UnixMilli())<<24>>8)
	return s
}

// Do runs f while the server handles no request. f may call every method but Serve, ServeConn, Close and Do.
func (s *Server) Do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// Get returns the data and Stat of a znode. The caller must not change the data.
func (s *Server) Get(path string) (data []byte, stat Stat, ok bool) {
	n := s.tree.nodes[path]
	if n == nil {
		return nil, Stat{}, false
	}
	return n.data, n.stat(), true
}

// Children returns the names of the children, sorted; nil without the znode.
func (s *Server) Children(path string) []string {
	n := s.tree.nodes[path]
	if n == nil {
		return nil
	}
	return n.names()
}

// Walk calls f for each znode in the order of the paths, except the root and ZooKeeper's own below /zookeeper. f must
// not change the data, and may be called from Applied.
func (s *Server) Walk(f func(path string, data []byte, stat Stat)) {
	walk(s.tree.nodes[""], f)
}

func walk(n *node, f func(path string, data []byte, stat Stat)) {
	for _, name := range n.names() {
		child := n.children[name]
		if child.path == "/zookeeper" {
			continue
		}
		f(child.path, child.data, child.stat())
		walk(child, f)
	}
}

// SessionInfo describes a session.
type SessionInfo struct {
	ID        int64
	Timeout   time.Duration // as granted
	Heard     time.Time     // when its client last sent something
	Connected bool
}

// Sessions returns the sessions that have not ended, by id.
func (s *Server) Sessions() []SessionInfo {
	var list []SessionInfo
	for _, id := range slices.Sorted(maps.Keys(s.sessions)) {
		x := s.sessions[id]
		list = append(list, SessionInfo{id, x.timeout, x.heard, x.peer != nil})
	}
	return list
}

// ExpireDue ends each session that was silent for its timeout at the time now.
func (s *Server) ExpireDue(now time.Time) {
	for _, x := range s.Sessions() {
		if !now.Before(x.Heard.Add(x.Timeout)) {
			s.Expire(x.ID)
		}
	}
}

// Expire ends a session now, and its connection. It does nothing if there is no such session.
func (s *Server) Expire(id int64) {
	if x := s.sessions[id]; x != nil {
		p := x.peer
		s.endSession(x)
		if p != nil {
			p.close()
		}
	}
}

// ErrClosed is what Serve returns after Close.
var ErrClosed = errors.New("zookeeper model closed")

// Serve accepts connections until Close. It owns the listener, and expires sessions by itself. When this process has no
// file left for a connection, it waits until there is one.
func (s *Server) Serve(l net.Listener) error {
	defer l.Close()
	done, ok := s.begin(l)
	if !ok {
		return ErrClosed
	}
	defer done()
	wait := firstWait
	for {
		c, err := l.Accept()
		var passing interface{ Temporary() bool }
		switch {
		case err == nil:
			wait = firstWait
			go s.ServeConn(c)
		case s.closed.Err() != nil:
			return ErrClosed
		case errors.As(err, &passing) && passing.Temporary():
			select {
			case <-time.After(wait):
			case <-s.closed.Done():
			}
			wait = min(2*wait, time.Second)
		default:
			return err
		}
	}
}

// firstWait is how long Serve first waits when it cannot accept a connection now.
const firstWait = 5 * time.Millisecond

// ServeConn serves one connection until it ends, and closes it. It expires sessions by itself.
func (s *Server) ServeConn(c net.Conn) {
	defer c.Close()
	done, ok := s.begin(c)
	if !ok {
		return
	}
	defer done()
	out := newSender(c)
	defer out.stop()
	var p *Peer
	s.Do(func() { p = s.Open(out.add) })
	defer s.Do(p.Lost)
	in := bufio.NewReader(c)
	var head [4]byte
	var frame []byte
	for {
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return
		}
		n := binary.BigEndian.Uint32(head[:])
		if n > maxFrame {
			return
		}
		frame = slices.Grow(frame[:0], int(n))[:n]
		if _, err := io.ReadFull(in, frame); err != nil {
			return
		}
		open := false
		s.Do(func() { open = p.Handle(frame) })
		if !open {
			return
		}
	}
}

// Close ends Serve and all connections, and returns when nothing of them runs. The sessions and the znodes stay.
func (s *Server) Close() error {
	s.opening.Lock()
	s.end()
	s.opening.Unlock()
	s.running.Wait()
	return nil
}

// begin registers what Close closes, until done is called. ok is false after Close.
func (s *Server) begin(c io.Closer) (done func(), ok bool) {
	s.opening.Lock()
	defer s.opening.Unlock()
	if s.closed.Err() != nil {
		return nil, false
	}
	s.expiring.Do(func() { s.running.Go(s.expire) })
	s.running.Add(1)
	stop := context.AfterFunc(s.closed, func() { _ = c.Close() })
	return func() {
		stop()
		s.running.Done()
	}, true
}

// expiryTick is how often Serve looks for sessions that were silent for too long.
const expiryTick = 100 * time.Millisecond

func (s *Server) expire() {
	for {
		select {
		case <-time.After(expiryTick):
			s.Do(func() { s.ExpireDue(s.o.Now()) })
		case <-s.closed.Done():
			return
		}
	}
}

// lastWords is how long a client may take for what was sent before its connection ended.
const lastWords = time.Second

// sender writes frames to a connection, in order. The server never waits for a slow client.
type sender struct {
	conn   net.Conn
	mu     sync.Mutex
	filled sync.Cond
	queue  [][]byte
	end    bool
	ended  chan struct{}
}

func newSender(c net.Conn) *sender {
	w := &sender{conn: c, ended: make(chan struct{})}
	w.filled.L = &w.mu
	go w.run()
	return w
}

// add queues a frame; nil ends the connection after the frames before it.
func (w *sender) add(frame []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if frame == nil {
		w.end = true
	} else if !w.end {
		w.queue = append(w.queue, frame)
	}
	w.filled.Signal()
}

// stop sends what is queued, if the client takes it soon, and waits for the end of it.
func (w *sender) stop() {
	w.add(nil)
	w.conn.SetWriteDeadline(time.Now().Add(lastWords))
	<-w.ended
}

func (w *sender) run() {
	defer close(w.ended)
	defer w.conn.Close()
	for {
		w.mu.Lock()
		for len(w.queue) == 0 && !w.end {
			w.filled.Wait()
		}
		frames, end := w.queue, w.end
		w.queue = nil
		w.mu.Unlock()
		var all []byte
		for _, f := range frames {
			all = binary.BigEndian.AppendUint32(all, uint32(len(f)))
			all = append(all, f...)
		}
		if _, err := w.conn.Write(all); err != nil {
			return
		}
		if end {
			return
		}
	}
}

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
	if d.bad {
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
		p.out(newReply(pingXid, s.zxid, OK))
	case OpExists, OpGetData, OpGetChildren, OpGetChildren2, OpGetACL, OpSync:
		p.out(s.read(p, xid, op, d))
	case OpSetWatches:
		p.out(newReply(xid, s.zxid, s.setWatches(p, d)))
	case OpCreate, OpCreate2, OpDelete, OpSetData, OpSetACL:
		p.out(s.write(p, xid, op, d))
	case OpMulti:
		p.out(s.multi(p, xid, d))
	case OpClose:
		s.endSession(p.session)
		p.out(newReply(xid, s.zxid, OK))
		return p.close()
	default:
		p.out(newReply(xid, -1, Unimplemented))
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
	if d.bad {
		return p.close()
	}
	if scheme != "digest" || credential == nil || !utf8.Valid(credential) {
		p.out(newReply(xid, 0, AuthFailed))
		return p.close()
	}
	if id := digestIdentity(credential); !slices.Contains(p.ids, id) {
		p.ids = append(p.ids, id)
	}
	p.out(newReply(xid, 0, OK))
	return true
}

func (p *Peer) sendEvent(event eventType, path string) {
	e := newReply(eventXid, -1, OK)
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
	if d.bad || seen > s.zxid {
		return p.close() // the client has seen a future that this server does not know
	}
	p.flag = len(d.b) > 0
	timeout := s.granted(time.Duration(millis) * time.Millisecond)
	x := s.sessions[id]
	if id == 0 {
		s.zxid++
		s.nextID++
		x = &session{id: s.nextID}
		s.sessions[x.id] = x
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

// endSession ends a session and deletes its ephemeral znodes, as one transaction. Its connection is left open.
func (s *Server) endSession(x *session) {
	s.zxid++
	t := &Txn{Zxid: s.zxid, Session: x.id, Ops: []Op{{Type: OpClose, Version: -1}}}
	for _, n := range s.tree.ownedBy(x.id) {
		s.tree.remove(n, t.Zxid)
		t.Ops = append(t.Ops, Op{Type: OpDelete, Path: n.path, Version: -1, acl: n.acl, above: n.parent.acl})
	}
	s.tree.commit()
	delete(s.sessions, x.id)
	s.notify(t)
	if s.o.Applied != nil {
		s.o.Applied(t)
	}
}
