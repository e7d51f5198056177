package zkmodel

import (
	"cmp"
	"io"
	"slices"
	"sync"
	"time"
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
	data     *watches // also those of exists
	child    *watches
	sessions map[int64]*session
	nextID   int64

	mu   sync.Mutex // held while a request is handled by Serve, and by Do
	open opened
}

// New returns a server that holds what a new ZooKeeper holds.
func New(o Options) *Server {
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Server{o: o, tree: newTree(), data: newWatches(), child: newWatches(), sessions: map[int64]*session{}}
	s.open.all, s.open.done = map[io.Closer]struct{}{}, make(chan struct{})
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

// Children returns the names of the children, sorted; nil without the znode. The caller must not change them.
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
	for _, x := range s.sessions {
		list = append(list, SessionInfo{x.id, x.timeout, x.heard, x.peer != nil})
	}
	slices.SortFunc(list, func(a, b SessionInfo) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// ExpireDue ends each session that was silent for its timeout at the time now.
func (s *Server) ExpireDue(now time.Time) {
	var due []int64
	for id, x := range s.sessions {
		if !now.Before(x.heard.Add(x.timeout)) {
			due = append(due, id)
		}
	}
	slices.Sort(due)
	for _, id := range due {
		s.Expire(id)
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
