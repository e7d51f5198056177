package differ

import (
	"fmt"
	"hash/crc32"
	"strings"
)

// What a trace does besides requests.
const (
	opConnect int32 = 1000 + iota // a new session
	opResume                      // the slot's session by id and password, on a new connection
	opCut                         // the client closes the connection
	opExpire                      // the session gets a short timeout and is silent until the server ends it
)

// op is one line of a trace. Everything in it is literal, so that a trace means something after lines were dropped: a
// line that no longer fits does the same on both sides, or nothing.
type op struct {
	slot int   // whose session
	code int32 // an opcode, or one of the above
	more bool  // the next request is sent with this one, before its reply

	path    string // "~" at its beginning is the run's root
	data    []byte // also of auth: the identity
	acl     []acl
	scheme  string
	flags   int32
	version int32
	watch   bool        // expire: the connection stays open
	watches [3][]string // setWatches: data, exists, children
	zxid    int64       // setWatches, connect, resume: since the run's beginning
	ops     []op        // multi
	short   int         // how many bytes the request lacks at its end

	timeout  int32 // connect, resume: milliseconds
	server   int   // connect, resume
	wrong    bool  // resume: with a wrong password
	readOnly bool  // connect, resume: the handshake has the byte of newer clients
}

// isRequest reports whether the op is a request in a session.
func (o *op) isRequest() bool { return o.code < opConnect }

// isWrite reports whether the servers of an ensemble order the request themselves.
func (o *op) isWrite() bool {
	switch o.code {
	case opCreate, opCreate2, opDelete, opSetData, opSetACL, opMulti, opClose:
		return true
	}
	return false
}

// isAlone reports whether nothing may be sent with the request: credentials count from the moment they arrive, and
// nobody knows what a connection that the server closes still delivers.
func (o *op) isAlone() bool {
	return !o.isRequest() || o.code == opAuth || o.code == opClose || len(o.data) > 100_000
}

// xid is the request's number: a fixed one where ZooKeeper wants it.
func (o *op) xid(next int32) int32 {
	switch o.code {
	case opPing:
		return xidPing
	case opAuth:
		return xidAuth
	case opSetWatches:
		return xidSetWatches
	}
	return next
}

// frame is the request without its length, for a side whose root is root and whose zxids start at base.
func (o *op) frame(xid int32, root string, base int64) []byte {
	var e encoder
	e.int(xid)
	e.int(o.code)
	switch o.code {
	case opAuth:
		e.int(0)
		e.string(o.scheme)
		e.buffer(o.data)
	case opSetWatches:
		e.long(base + o.zxid)
		for _, list := range o.watches {
			full := make([]string, len(list))
			for i, path := range list {
				full[i] = under(root, path)
			}
			e.strings(full)
		}
	case opMulti:
		for _, sub := range o.ops {
			e.int(sub.code)
			e.bool(false)
			e.int(-1)
			sub.body(&e, root)
		}
		e.int(-1)
		e.bool(true)
		e.int(-1)
	default:
		o.body(&e, root)
	}
	return e[:max(len(e)-o.short, headerSize)]
}

// headerSize is the length of a request's header.
const headerSize = 8

// body is the record of a request that can also be part of a multi.
func (o *op) body(e *encoder, root string) {
	if o.code == opPing || o.code == opClose {
		return
	}
	e.string(under(root, o.path))
	switch o.code {
	case opCreate, opCreate2:
		e.buffer(o.data)
		e.acls(o.acl)
		e.int(o.flags)
	case opDelete, opCheck:
		e.int(o.version)
	case opExists, opGetData, opGetChildren, opGetChildren2:
		e.bool(o.watch)
	case opSetData:
		e.buffer(o.data)
		e.int(o.version)
	case opSetACL:
		e.acls(o.acl)
		e.int(o.version)
	}
}

// handshake is the first frame of a connection. A zxid of 0 is of a client that has seen nothing.
func (o *op) handshake(session int64, password []byte, base int64) []byte {
	var e encoder
	e.int(0) // version of the protocol
	if o.zxid == 0 {
		e.long(0)
	} else {
		e.long(base + o.zxid)
	}
	e.int(o.timeout)
	e.long(session)
	e.buffer(password)
	if o.readOnly {
		e.bool(false)
	}
	return e
}

// under replaces "~" at the beginning of a path by the root.
func under(root, path string) string {
	if rest, ok := strings.CutPrefix(path, "~"); ok {
		return root + rest
	}
	return path
}

func (o op) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "s%d %s", o.slot, opNames[o.code])
	switch o.code {
	case opConnect, opResume, opExpire:
		fmt.Fprintf(&b, " server=%d timeout=%d", o.server, o.timeout)
		if o.zxid != 0 {
			fmt.Fprintf(&b, " seen=%+d", o.zxid)
		}
		if o.wrong {
			b.WriteString(" wrong-password")
		}
		if o.readOnly {
			b.WriteString(" read-only-byte")
		}
	case opAuth:
		fmt.Fprintf(&b, " %s %q", o.scheme, o.data)
	case opSetWatches:
		fmt.Fprintf(&b, " since=%+d data=%q exists=%q children=%q", o.zxid, o.watches[0], o.watches[1], o.watches[2])
	case opMulti:
		for _, sub := range o.ops {
			fmt.Fprintf(&b, "\n      %s%s", opNames[sub.code], sub.arguments())
		}
	case opCut, opPing, opClose:
	default:
		b.WriteString(o.arguments())
	}
	if o.short > 0 {
		fmt.Fprintf(&b, " without its last %d bytes", o.short)
	}
	if o.more {
		b.WriteString(" …")
	}
	return b.String()
}

// arguments are those of a request that can also be part of a multi.
func (o *op) arguments() string {
	var b strings.Builder
	fmt.Fprintf(&b, " %q", o.path)
	switch o.code {
	case opCreate, opCreate2:
		fmt.Fprintf(&b, " data=%s flags=%d acl=%s", shortData(o.data), o.flags, aclText(o.acl))
	case opDelete, opCheck:
		fmt.Fprintf(&b, " version=%d", o.version)
	case opSetData:
		fmt.Fprintf(&b, " data=%s version=%d", shortData(o.data), o.version)
	case opSetACL:
		fmt.Fprintf(&b, " acl=%s version=%d", aclText(o.acl), o.version)
	}
	if o.watch {
		b.WriteString(" watch")
	}
	return b.String()
}

func aclText(list []acl) string {
	if list == nil {
		return "nil"
	}
	texts := make([]string, len(list))
	for i, a := range list {
		texts[i] = fmt.Sprintf("%d/%s:%q", a.perms, a.scheme, a.id)
	}
	return "[" + strings.Join(texts, " ") + "]"
}

// shortData is data on one line; nil and empty differ.
func shortData(data []byte) string {
	switch {
	case data == nil:
		return "nil"
	case len(data) > 40:
		return fmt.Sprintf("%q…(%d bytes, CRC %08x)", data[:8], len(data), crc32.ChecksumIEEE(data))
	}
	return fmt.Sprintf("%q", data)
}
