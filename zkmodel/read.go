package zkmodel

import "strings"

// read answers a request that changes nothing. Source: FinalRequestProcessor.
func (s *Server) read(p *Peer, xid int32, op OpType, d *decoder) encoder {
	path := d.string()
	watch := op != OpSync && op != OpGetACL && d.bool()
	code := MarshallingError
	if d.err == nil {
		code = OK
	}
	n := s.tree.nodes[path]
	switch {
	case code != OK:
	case op == OpSync:
		e := newReply(xid, s.zxid, OK, 4+len(path))
		e.string(path)
		return e
	case op == OpExists:
		if strings.IndexByte(path, 0) >= 0 {
			code = BadArguments
			break
		}
		if watch {
			s.data.add(path, p)
		}
		if n == nil {
			code = NoNode
			break
		}
		e := newReply(xid, s.zxid, OK, statSize)
		e.stat(n.stat())
		return e
	case n == nil:
		code = NoNode
	case op == OpGetACL:
		if permitted(n.acl, permRead|permAdmin, p.ids) {
			return s.replyACL(p, xid, n)
		}
		code = NoAuth
	case !permitted(n.acl, permRead, p.ids):
		code = NoAuth
	case op == OpGetData:
		if watch {
			s.data.add(path, p)
		}
		e := newReply(xid, s.zxid, OK, 4+len(n.data)+statSize)
		e.buffer(n.data)
		e.stat(n.stat())
		return e
	default:
		if watch {
			s.child.add(path, p)
		}
		return s.replyChildren(xid, op, n)
	}
	return newReply(xid, s.zxid, code, 0)
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
