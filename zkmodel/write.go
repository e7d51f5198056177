package zkmodel

import (
	"fmt"
)

// decodeOp reads the body of a write operation. The data is a copy.
func decodeOp(d *decoder, op OpType) Op {
	o := Op{Type: op, Path: d.string(), Version: -1}
	switch op {
	case OpCreate, OpCreate2:
		o.Data = cloneData(d.buffer())
		o.ACL = d.acl()
		o.Flags = Flags(d.int32())
	case OpSetData:
		o.Data = cloneData(d.buffer())
		o.Version = d.int32()
	case OpSetACL:
		o.ACL = d.acl()
		o.Version = d.int32()
	default:
		o.Version = d.int32()
	}
	return o
}

// cloneData keeps null and empty apart.
func cloneData(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append(make([]byte, 0, len(b)), b...)
}

// write executes a request of one operation and returns its reply.
func (s *Server) write(p *Peer, xid int32, op OpType, d *decoder) encoder {
	t := &Txn{Session: p.session.id, Ops: []Op{decodeOp(d, op)}}
	results := s.execute(p, t, d.err)
	if t.Err != OK {
		return newReply(xid, t.Zxid, t.Err, 0)
	}
	e := newReply(xid, t.Zxid, OK, 4+len(t.Ops[0].Path)+statSize)
	e.result(&t.Ops[0], results[0])
	return e
}

// result appends what the reply to an operation holds.
func (e *encoder) result(o *Op, after Stat) {
	switch o.Type {
	case OpCreate:
		e.string(o.Path)
	case OpCreate2:
		e.string(o.Path)
		e.stat(after)
	case OpSetData, OpSetACL:
		e.stat(after)
	}
}

// multi executes a transaction and returns its reply. Each operation has a header before it: type (4 bytes), a flag
// that marks the end, and an error (4). If one was refused, the reply holds an error for each: OK for those before it
// and RuntimeInconsistency for those after it. Source: MultiOperationRecord, MultiResponse.
func (s *Server) multi(p *Peer, xid int32, d *decoder) encoder {
	t := &Txn{Session: p.session.id, Multi: true}
	for {
		op, done := OpType(d.int32()), d.bool()
		d.int32()
		if d.err != nil || done {
			break
		}
		switch op {
		case OpCreate, OpCreate2, OpDelete, OpSetData, OpCheck:
			t.Ops = append(t.Ops, decodeOp(d, op))
		default:
			d.err = errShort
		}
	}
	unread := d.err
	results := s.execute(p, t, unread)
	if unread != nil {
		return newReply(xid, t.Zxid, t.Err, 0)
	}
	e := newReply(xid, t.Zxid, OK, 16+len(t.Ops)*(9+statSize))
	for i := range t.Ops {
		o := &t.Ops[i]
		if t.Err != OK {
			e.opHeader(opError, false, o.Err)
			e.int32(int32(o.Err))
			continue
		}
		e.opHeader(o.Type, false, OK)
		e.result(o, results[i])
	}
	e.opHeader(-1, true, -1)
	return e
}

func (e *encoder) opHeader(op OpType, done bool, err Code) {
	e.int32(int32(op))
	e.bool(done)
	e.int32(int32(err))
}

// execute executes all operations or none, sends the events, and returns each znode's Stat after its operation. unread
// is the error with which the request could not be read. A refused transaction uses up a zxid too.
func (s *Server) execute(p *Peer, t *Txn, unread error) []Stat {
	s.zxid++
	t.Zxid = s.zxid
	results := make([]Stat, len(t.Ops))
	if unread != nil {
		t.Err = MarshallingError
	}
	now := s.o.Now().UnixMilli()
	for i := range t.Ops {
		o := &t.Ops[i]
		if t.Err != OK {
			o.Err = RuntimeInconsistency
			continue
		}
		results[i], o.Err = s.apply(p, t, i, now)
		t.Err = o.Err
	}
	if t.Err != OK {
		s.tree.rollback(s.linked)
	} else {
		s.tree.commit()
		for i := range t.Ops {
			s.notify(&t.Ops[i])
		}
	}
	if s.o.Applied != nil {
		s.o.Applied(t)
	}
	return results
}

// linked keeps the list of a session's ephemeral znodes.
func (s *Server) linked(n *node, exists bool) {
	x := s.sessions[n.meta.EphemeralOwner]
	if x == nil {
		return
	}
	if exists {
		x.ephemerals[n] = struct{}{}
	} else {
		delete(x.ephemerals, n)
	}
}

// apply executes one operation. The order of its checks is ZooKeeper's: the first that fails gives the error. Source:
// PrepRequestProcessor.pRequest2Txn.
func (s *Server) apply(p *Peer, t *Txn, i int, now int64) (Stat, Code) {
	o := &t.Ops[i]
	switch o.Type {
	case OpCreate, OpCreate2:
		return s.create(p, o, t.Zxid, now)
	case OpDelete:
		return Stat{}, s.delete(p, t, i)
	}
	if o.Type == OpCheck && s.ignores(t, i) {
		return Stat{}, OK
	}
	if !validPath(o.Path) {
		return Stat{}, BadArguments
	}
	var acl []ACL
	need := map[OpType]int32{OpSetData: permWrite, OpSetACL: permAdmin, OpCheck: permRead}[o.Type]
	if o.Type == OpSetACL {
		var code Code
		if acl, code = fixACL(o.ACL, p.ids); code != OK {
			return Stat{}, code
		}
	}
	n := s.tree.nodes[o.Path]
	if n == nil {
		return Stat{}, NoNode
	}
	if !permitted(n.acl, need, p.ids) {
		return Stat{}, NoAuth
	}
	version := n.meta.Version
	if o.Type == OpSetACL {
		version = n.meta.Aversion
	}
	if o.Version != -1 && o.Version != version && (o.Type == OpCheck || !s.ignores(t, i)) {
		return Stat{}, BadVersion
	}
	s.tree.keep(n, changed)
	switch o.Type {
	case OpSetData:
		n.data = o.Data
		n.meta.Version, n.meta.Mzxid, n.meta.Mtime = version+1, t.Zxid, now
	case OpSetACL:
		n.acl, n.meta.Aversion = acl, version+1
	}
	return n.stat(), OK
}

// ignores reports whether a mutant does not check the guard of an operation.
func (s *Server) ignores(t *Txn, i int) bool { return s.o.Ignore != nil && s.o.Ignore(t, i) }

func (s *Server) create(p *Peer, o *Op, zxid, now int64) (Stat, Code) {
	if o.Flags < 0 || o.Flags > Ephemeral|Sequential {
		if o.Flags > 6 || o.Flags < 0 {
			return Stat{}, BadArguments
		}
		return Stat{}, Unimplemented // containers, and znodes with a time to live
	}
	parentPath, ok := parentOf(o.Path)
	if !ok {
		return Stat{}, BadArguments
	}
	acl, code := fixACL(o.ACL, p.ids)
	if code != OK {
		return Stat{}, code
	}
	parent := s.tree.nodes[parentPath]
	if parent == nil {
		return Stat{}, NoNode
	}
	if !permitted(parent.acl, permCreate, p.ids) {
		return Stat{}, NoAuth
	}
	path := o.Path
	if o.Flags&Sequential != 0 {
		path += fmt.Sprintf("%010d", parent.meta.Cversion)
	}
	switch {
	case !validPath(path):
		return Stat{}, BadArguments
	case s.tree.nodes[path] != nil:
		return Stat{}, NodeExists
	case parent.meta.EphemeralOwner != 0:
		return Stat{}, NoChildrenForEphemerals
	}
	n := &node{path: path, parent: parent, data: o.Data, acl: acl}
	n.meta = Stat{Czxid: zxid, Mzxid: zxid, Pzxid: zxid, Ctime: now, Mtime: now}
	if o.Flags&Ephemeral != 0 {
		n.meta.EphemeralOwner = p.session.id
	}
	s.tree.add(n, zxid)
	s.linked(n, true)
	o.Path = path
	return n.stat(), OK
}

func (s *Server) delete(p *Peer, t *Txn, i int) Code {
	o := &t.Ops[i]
	parentPath, ok := parentOf(o.Path)
	if !ok || reserved(o.Path) {
		return BadArguments
	}
	parent := s.tree.nodes[parentPath]
	if parent == nil {
		return NoNode
	}
	if !permitted(parent.acl, permDelete, p.ids) {
		return NoAuth
	}
	n := s.tree.nodes[o.Path]
	switch {
	case n == nil:
		return NoNode
	case o.Version != -1 && o.Version != n.meta.Version && !s.ignores(t, i):
		return BadVersion
	case len(n.children) > 0:
		return NotEmpty
	}
	s.tree.remove(n, t.Zxid)
	s.linked(n, false)
	return OK
}
