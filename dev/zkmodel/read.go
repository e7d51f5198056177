package zkmodel

import "strings"

// read answers a request that changes nothing. Source: FinalRequestProcessor.
func (s *Server) read(p *Peer, xid int32, op OpType, d *decoder) encoder {
	path := d.string()
	watch := op != OpSync && op != OpGetACL && d.bool()
	if d.err != nil {
		return newReply(xid, s.zxid, MarshallingError, 0)
	}
	switch op {
	case OpSync:
		e := newReply(xid, s.zxid, OK, 4+len(path))
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
		return newReply(xid, s.zxid, code, 0)
	}
	switch op {
	case OpGetACL:
		return s.replyACL(p, xid, n)
	case OpGetData:
		if watch {
			s.data.add(path, p)
		}
		e := newReply(xid, s.zxid, OK, 4+len(n.data)+statSize)
		e.buffer(n.data)
		e.stat(n.stat())
		return e
	}
	if watch {
		s.child.add(path, p)
	}
	return s.replyChildren(xid, op, n)
}

// exists needs no permission, and watches also a znode that does not exist.
func (s *Server) exists(p *Peer, xid int32, path string, watch bool) encoder {
	if strings.IndexByte(path, 0) >= 0 {
		return newReply(xid, s.zxid, BadArguments, 0)
	}
	if watch {
		s.data.add(path, p)
	}
	n := s.tree.nodes[path]
	if n == nil {
		return newReply(xid, s.zxid, NoNode, 0)
	}
	e := newReply(xid, s.zxid, OK, statSize)
	e.stat(n.stat())
	return e
}

func (s *Server) replyChildren(xid int32, op OpType, n *node) encoder {
	names := n.names()
	size := 4 + statSize
	for _, name := range names {
		size += 4 + len(name)
	}
	e := newReply(xid, s.zxid, OK, size)
	e.strings(names)
	if op == OpGetChildren2 {
		e.stat(n.stat())
	}
	return e
}

func (s *Server) replyACL(p *Peer, xid int32, n *node) encoder {
	acl := n.acl
	if !permitted(acl, permAdmin, p.ids) {
		acl = withoutHashes(acl)
	}
	e := newReply(xid, s.zxid, OK, 128+statSize)
	e.acl(acl)
	e.stat(n.stat())
	return e
}
