package zkmodel

// write executes a request of one operation and returns its reply.
func (s *Server) write(p *Peer, xid int32, op OpType, d *decoder) encoder {
	t := &Txn{Session: p.session.id, Ops: []Op{decodeOp(d, op)}}
	s.execute(p, t, d.err)
	if t.Err != OK {
		return newReply(xid, t.Zxid, t.Err, 0)
	}
	e := newReply(xid, t.Zxid, OK, 4+len(t.Ops[0].Path)+statSize)
	e.result(op, &t.Ops[0])
	return e
}

// multi executes a transaction and returns its reply. Each operation has a header before it: type (4 bytes), a flag
// that marks the end, and an error (4). If one was refused, the reply holds an error for each: OK for those before it
// and RuntimeInconsistency for those after it. A create2 is answered as a create. Source: MultiOperationRecord,
// MultiResponse.
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
			d.err = errUnknownOp
		}
	}
	s.execute(p, t, d.err)
	if d.err != nil {
		return newReply(xid, t.Zxid, t.Err, 0)
	}
	e := newReply(xid, t.Zxid, OK, (len(t.Ops)+1)*opHeaderSize+t.size())
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

// decodeOp reads the body of a write operation. The data is a copy.
func decodeOp(d *decoder, op OpType) Op {
	o := Op{Type: op, Path: d.string(), Version: -1}
	switch op {
	case OpCreate, OpCreate2:
		o.Data = cloneData(d.buffer())
		o.ACL = d.acl()
		o.Flags = Flags(d.int32())
		return o
	case OpSetData:
		o.Data = cloneData(d.buffer())
	case OpSetACL:
		o.ACL = d.acl()
	}
	o.Version = d.int32()
	return o
}

// cloneData keeps null and empty apart.
func cloneData(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append(make([]byte, 0, len(b)), b...)
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

// opHeaderSize is the number of bytes of the header of an operation.
const opHeaderSize = 9

func (e *encoder) opHeader(op OpType, done bool, err Code) {
	e.int32(int32(op))
	e.bool(done)
	e.int32(int32(err))
}

// size is a bound of the bytes of all results of a transaction.
func (t *Txn) size() int {
	n := 0
	for i := range t.Ops {
		n += 4 + len(t.Ops[i].Path)
		if t.Ops[i].Type != OpCreate {
			n += statSize
		}
	}
	return n
}
