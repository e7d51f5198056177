package zkmodel

import (
	"bytes"
	"fmt"
	"strings"
)

// execute executes all operations or none, sends the events, and fills in what came of it. unread is set if
// the request could not be read. A refused transaction uses up a zxid too.
func (s *Server) execute(p *Peer, t *Txn, unread bool) {
	s.zxid++
	t.Zxid = s.zxid
	if unread {
		t.Err, t.Ops = MarshallingError, nil
	}
	now := s.o.Now().UnixMilli()
	for i := range t.Ops {
		o := &t.Ops[i]
		if t.Err != OK {
			o.Err = RuntimeInconsistency
			continue
		}
		o.Err = s.apply(p, t, i, now)
		t.Err = o.Err
	}
	if t.Err != OK {
		s.tree.rollback()
	} else {
		s.tree.commit()
		s.notify(t)
	}
	if s.o.Applied != nil {
		s.o.Applied(t)
	}
}

// apply executes one operation. The functions below check in ZooKeeper's order: what fails first gives the error.
// Source: PrepRequestProcessor.pRequest2Txn.
func (s *Server) apply(p *Peer, t *Txn, i int, now int64) Code {
	switch o := &t.Ops[i]; o.Type {
	case OpCreate, OpCreate2:
		return s.create(p, o, t.Zxid, now)
	case OpDelete:
		return s.delete(p, t, i)
	case OpSetData:
		return s.setData(p, t, i, now)
	case OpSetACL:
		return s.setACL(p, t, i)
	default:
		return s.check(p, t, i)
	}
}

func (s *Server) create(p *Peer, o *Op, zxid, now int64) Code {
	if code := o.Flags.refusal(); code != OK {
		return code
	}
	above, ok := parentOf(o.Path)
	if !ok {
		return BadArguments
	}
	acl, code := fixACL(o.ACL, p.ids)
	if code != OK {
		return code
	}
	parent, code := s.find(above, permCreate, p)
	if code != OK {
		return code
	}
	path := o.Path
	if o.Flags&Sequential != 0 {
		path += fmt.Sprintf("%010d", parent.meta.Cversion)
	}
	switch {
	case !validPath(path):
		return BadArguments
	case s.tree.nodes[path] != nil:
		return NodeExists
	case parent.meta.EphemeralOwner != 0:
		return NoChildrenForEphemerals
	case strings.HasPrefix(path, quota+"/"):
		return Unimplemented
	}
	n := &node{path: path, parent: parent, data: o.Data, acl: acl}
	n.meta = Stat{Czxid: zxid, Mzxid: zxid, Pzxid: zxid, Ctime: now, Mtime: now}
	if o.Flags&Ephemeral != 0 {
		n.meta.EphemeralOwner = p.session.id
	}
	s.tree.add(n, zxid)
	o.Path, o.after, o.acl, o.above = path, n.stat(), acl, parent.acl
	return OK
}

// refusal is why the model creates no znode with these flags.
func (f Flags) refusal() Code {
	switch {
	case f >= 0 && f <= Ephemeral|Sequential:
		return OK
	case f >= 4 && f <= 6: // containers, and znodes with a time to live
		return Unimplemented
	}
	return BadArguments
}

func (s *Server) delete(p *Peer, t *Txn, i int) Code {
	o := &t.Ops[i]
	above, ok := parentOf(o.Path)
	if !ok || reserved(o.Path) {
		return BadArguments
	}
	parent, code := s.find(above, permDelete, p)
	if code != OK {
		return code
	}
	n := s.tree.nodes[o.Path]
	switch {
	case n == nil:
		return NoNode
	case s.conflicts(t, i, n.meta.Version):
		return BadVersion
	case len(n.children) > 0:
		return NotEmpty
	}
	o.acl, o.above = n.acl, parent.acl
	s.tree.remove(n, t.Zxid)
	return OK
}

func (s *Server) setData(p *Peer, t *Txn, i int, now int64) Code {
	o := &t.Ops[i]
	if !validPath(o.Path) {
		return BadArguments
	}
	n, code := s.find(o.Path, permWrite, p)
	if code != OK {
		return code
	}
	if s.conflicts(t, i, n.meta.Version) {
		return BadVersion
	}
	s.tree.keep(n)
	n.data = o.Data
	n.meta.Version++
	n.meta.Mzxid, n.meta.Mtime = t.Zxid, now
	o.after, o.acl = n.stat(), n.acl
	return OK
}

func (s *Server) setACL(p *Peer, t *Txn, i int) Code {
	o := &t.Ops[i]
	if !validPath(o.Path) {
		return BadArguments
	}
	acl, code := fixACL(o.ACL, p.ids)
	if code != OK {
		return code
	}
	n, code := s.find(o.Path, permAdmin, p)
	if code != OK {
		return code
	}
	if s.conflicts(t, i, n.meta.Aversion) {
		return BadVersion
	}
	n.acl = acl // never in a transaction with others, so nothing undoes it
	n.meta.Aversion++
	o.after = n.stat()
	return OK
}

func (s *Server) check(p *Peer, t *Txn, i int) Code {
	if s.o.Ignore != nil && s.o.Ignore(t, i) {
		return OK
	}
	o := &t.Ops[i]
	if !validPath(o.Path) {
		return BadArguments
	}
	n, code := s.find(o.Path, permRead, p)
	if code == OK && o.Version != -1 && o.Version != n.meta.Version {
		return BadVersion
	}
	return code
}

// find returns the znode if the client has one of the permissions.
func (s *Server) find(path string, perms int32, p *Peer) (*node, Code) {
	n := s.tree.nodes[path]
	if n == nil {
		return nil, NoNode
	}
	if !permitted(n.acl, perms, p.ids) {
		return nil, NoAuth
	}
	return n, OK
}

// conflicts reports whether an operation asks for another version than the znode has. A mutant may not look.
func (s *Server) conflicts(t *Txn, i int, version int32) bool {
	asked := t.Ops[i].Version
	return asked != -1 && (s.o.Ignore == nil || !s.o.Ignore(t, i)) && asked != version
}

func (s *Server) write(p *Peer, xid int32, op OpType, d *decoder) encoder {
	t := &Txn{Session: p.session.id, Ops: []Op{decodeOp(d, op)}}
	s.execute(p, t, d.bad)
	if t.Err != OK {
		return newReply(xid, t.Zxid, t.Err)
	}
	e := newReply(xid, t.Zxid, OK)
	e.result(op, &t.Ops[0])
	return e
}

// multi executes a transaction and returns its reply. Each operation has a header before it: type (4 bytes), a flag
// that marks the end, and an error (4). If one was refused, the reply holds an error for each: OK for those before it
// and RuntimeInconsistency for those after it. A create2 is answered as a create. Source: MultiOperationRecord,
// MultiResponse.
func (s *Server) multi(p *Peer, xid int32, d *decoder) encoder {
	t := &Txn{Session: p.session.id, Multi: true, Ops: decodeOps(d)}
	s.execute(p, t, d.bad)
	if d.bad {
		return newReply(xid, t.Zxid, t.Err)
	}
	e := newReply(xid, t.Zxid, OK)
	for i := range t.Ops {
		o := &t.Ops[i]
		if t.Err != OK {
			e.opHeader(opError, false, o.Err)
			e.int32(int32(o.Err))
			continue
		}
		as := o.Type
		if as == OpCreate2 {
			as = OpCreate
		}
		e.opHeader(as, false, OK)
		e.result(as, o)
	}
	e.opHeader(opError, true, -1)
	return e
}

func decodeOps(d *decoder) (ops []Op) {
	for {
		op, done := OpType(d.int32()), d.bool()
		d.int32()
		if d.bad || done {
			return ops
		}
		switch op {
		case OpCreate, OpCreate2, OpDelete, OpSetData, OpCheck:
			ops = append(ops, decodeOp(d, op))
		default:
			d.bad = true
		}
	}
}

// ReadRequest reads a request after the handshake, as far as it can be read: its number, its type, and the operations
// with paths. One that only reads has nothing but its path.
func ReadRequest(frame []byte) (xid int32, op OpType, ops []Op) {
	d := &decoder{b: frame}
	xid, op = d.int32(), OpType(d.int32())
	switch op {
	case OpMulti:
		ops = decodeOps(d)
	case OpCreate, OpCreate2, OpDelete, OpSetData, OpSetACL:
		ops = []Op{decodeOp(d, op)}
	case OpExists, OpGetData, OpGetChildren, OpGetChildren2, OpGetACL, OpSync:
		ops = []Op{{Type: op, Path: d.string(), Version: -1}}
	}
	return xid, op, ops
}

// decodeOp reads the body of a write operation. The data is a copy, and nil for null.
func decodeOp(d *decoder, op OpType) Op {
	o := Op{Type: op, Path: d.string(), Version: -1}
	switch op {
	case OpCreate, OpCreate2:
		o.Data = bytes.Clone(d.buffer())
		o.ACL = d.acl()
		o.Flags = Flags(d.int32())
		return o
	case OpSetData:
		o.Data = bytes.Clone(d.buffer())
	case OpSetACL:
		o.ACL = d.acl()
	}
	o.Version = d.int32()
	return o
}

// result appends what the reply to an operation of the type as holds.
func (e *encoder) result(as OpType, o *Op) {
	switch as {
	case OpCreate:
		e.string(o.Path)
	case OpCreate2:
		e.string(o.Path)
		e.stat(o.after)
	case OpSetData, OpSetACL:
		e.stat(o.after)
	}
}

func (e *encoder) opHeader(op OpType, done bool, err Code) {
	e.int32(int32(op))
	e.bool(done)
	e.int32(int32(err))
}

// read answers a request that changes nothing. Source: FinalRequestProcessor.
func (s *Server) read(p *Peer, xid int32, op OpType, d *decoder) encoder {
	path := d.string()
	watch := op != OpSync && op != OpGetACL && d.bool()
	if d.bad {
		return newReply(xid, s.zxid, MarshallingError)
	}
	e := newReply(xid, s.zxid, OK)
	switch op {
	case OpSync:
		e.string(path)
		return e
	case OpExists:
		return s.exists(p, xid, path, watch)
	}
	perms := permRead
	if op == OpGetACL {
		perms |= permAdmin
	}
	n, code := s.find(path, perms, p)
	if code != OK {
		return newReply(xid, s.zxid, code)
	}
	watched := s.child
	switch op {
	case OpGetACL:
		acl := n.acl
		if !permitted(acl, permAdmin, p.ids) {
			acl = withoutHashes(acl)
		}
		e.acl(acl)
	case OpGetData:
		watched = s.data
		e.buffer(n.data)
	default:
		e.strings(n.names())
	}
	if op != OpGetChildren {
		e.stat(n.stat())
	}
	if watch {
		watched.add(path, p)
	}
	return e
}

// exists needs no permission, and watches also a znode that does not exist.
func (s *Server) exists(p *Peer, xid int32, path string, watch bool) encoder {
	if strings.IndexByte(path, 0) >= 0 {
		return newReply(xid, s.zxid, BadArguments)
	}
	if watch {
		s.data.add(path, p)
	}
	n := s.tree.nodes[path]
	if n == nil {
		return newReply(xid, s.zxid, NoNode)
	}
	e := newReply(xid, s.zxid, OK)
	e.stat(n.stat())
	return e
}
