package zkmodel

import (
	"fmt"
	"strings"
)

// execute executes all operations or none, sends the events, and fills in what came of it. unread is the error with
// which the request could not be read. A refused transaction uses up a zxid too.
func (s *Server) execute(p *Peer, t *Txn, unread error) {
	s.zxid++
	t.Zxid = s.zxid
	if unread != nil {
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
	s.tree.keep(n, changed)
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
