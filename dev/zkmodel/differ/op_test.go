package differ

import (
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
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

// side turns what one of the two sent into text that must be equal on both. All is compared as it was sent, but:
//
//   - zxids are counted from the run's root, because a server has a history; 0 and -1 stay. The servers number without
//     gaps, so the difference is one constant.
//   - session ids become names, and passwords only their length: servers draw them at random.
//   - a time becomes the zxid of the change that set it, if it lies within the time that the change took.
//   - children are sorted, and so are neighbouring entries of one scheme and the same permissions in an ACL: real
//     servers keep both in hash tables. Events of one session's end are sorted too, by pair.ending.
//   - the run's root becomes "~".
type side struct {
	root     string
	base     int64            // the zxid of the root's creation
	sessions map[int64]string // the by id, in the order in which they came
	// known has the time of a change by its zxid. The model's clock stands still within a request, so there it is
	// exact. A real server's is known only after it was sent once.
	known map[int64]int64
	// windows limits when a change was made, by its zxid; changes without a window are those of dead sessions.
	windows map[int64][2]int64
	from    int64 // when the run began
	now     func() int64
	kinds   map[string]int // how often each kind of answer came: an opcode and an error, or an event
	answers int            // how many came, without events
}

// change counts a zxid from the run's root.
func (s *side) change(zxid int64) string {
	if zxid == 0 || zxid == -1 {
		return fmt.Sprint(zxid)
	}
	return fmt.Sprintf("%+d", zxid-s.base)
}

func (s *side) session(id int64) string {
	if id == 0 {
		return "0"
	}
	if name, ok := s.sessions[id]; ok {
		return name
	}
	return fmt.Sprintf("unknown(%#x)", id)
}

// time checks the time of a change.
func (s *side) time(zxid, ms int64) string {
	if zxid == 0 {
		return fmt.Sprint(ms)
	}
	if known, ok := s.known[zxid]; ok {
		if known == ms {
			return "@" + s.change(zxid)
		}
		return fmt.Sprintf("%d, not %d as at %s", ms, known, s.change(zxid))
	}
	window, ok := s.windows[zxid]
	if !ok {
		window = [2]int64{s.from, s.now()}
	}
	if ms < window[0] || ms > window[1] {
		return fmt.Sprintf("%d, not between %d and %d as %s", ms, window[0], window[1], s.change(zxid))
	}
	s.known[zxid] = ms
	return "@" + s.change(zxid)
}

// stat reads a Stat.
func (s *side) stat(d *decoder) string {
	czxid, mzxid, ctime, mtime := d.long(), d.long(), d.long(), d.long()
	version, cversion, aversion, owner := d.int(), d.int(), d.int(), d.long()
	length, children, pzxid := d.int(), d.int(), d.long()
	if d.err != nil {
		return ""
	}
	return fmt.Sprintf("stat{czxid %s mzxid %s ctime %s mtime %s version %d cversion %d aversion %d owner %s length %d "+
		"children %d pzxid %s}", s.change(czxid), s.change(mzxid), s.time(czxid, ctime), s.time(mzxid, mtime), version,
		cversion, aversion, s.session(owner), length, children, s.change(pzxid))
}

// short is a path with "~" for the root.
func (s *side) short(path string) string {
	if rest, ok := strings.CutPrefix(path, s.root); ok && s.root != "" {
		return "~" + rest
	}
	return path
}

// path reads a path.
func (s *side) path(d *decoder) string {
	b := d.buffer()
	if b == nil {
		return "nil"
	}
	return fmt.Sprintf("%q", s.short(string(b)))
}

func (s *side) names(d *decoder) string {
	names := make([]string, d.count())
	for i := range names {
		names[i] = d.string()
	}
	slices.Sort(names)
	return fmt.Sprintf("%q", names)
}

func (s *side) acls(d *decoder) string {
	list := make([]acl, d.count())
	for i := range list {
		list[i] = acl{d.int(), d.string(), d.string()}
	}
	for i := 0; i < len(list); {
		j := i + 1
		for j < len(list) && list[j].perms == list[i].perms && list[j].scheme == list[i].scheme {
			j++
		}
		slices.SortFunc(list[i:j], func(a, b acl) int { return strings.Compare(a.id, b.id) })
		i = j
	}
	return aclText(list)
}

// handshake is the answer to a connect or resume. It names the slot's session.
func (s *side) handshake(frame []byte, slot int) (text string, session int64, password []byte) {
	d := decoder{rest: frame}
	version, timeout := d.int(), d.int()
	session, password = d.long(), d.buffer()
	readOnly := "absent"
	if d.err == nil && len(d.rest) > 0 {
		readOnly = fmt.Sprint(d.bool())
	}
	if err := d.end(); err != nil {
		return fmt.Sprintf("handshake: %v: %x", err, frame), 0, nil
	}
	s.answers++
	s.kinds[fmt.Sprintf("handshake accepted %t", session != 0)]++
	secret := "secret"
	if !slices.ContainsFunc(password, func(b byte) bool { return b != 0 }) {
		secret = "zero"
	}
	if _, ok := s.sessions[session]; session != 0 && !ok {
		s.sessions[session] = fmt.Sprintf("s%d/%d", slot, len(s.sessions))
	}
	return fmt.Sprintf("handshake version %d timeout %d session %s password %d bytes %s readOnly %s",
		version, timeout, s.session(session), len(password), secret, readOnly), session, password
}

// frame is a reply to a request with this opcode, or an event.
func (s *side) frame(code int32, frame []byte) string {
	d := &decoder{rest: frame}
	xid, zxid, fault := d.int(), d.long(), d.int()
	var b strings.Builder
	if xid == xidEvent {
		event := d.int()
		s.kinds[fmt.Sprintf("event %d", event)]++
		fmt.Fprintf(&b, "event zxid %d error %d type %d state %d path %s", zxid, fault, event, d.int(), s.path(d))
	} else {
		s.answers++
		s.kinds[fmt.Sprintf("%s %d", opNames[code], fault)]++
		fmt.Fprintf(&b, "reply xid %d zxid %s error %d", xid, s.change(zxid), fault)
		if len(d.rest) > 0 {
			b.WriteString(" " + s.record(code, d))
		}
	}
	if err := d.end(); err != nil {
		return fmt.Sprintf("%s: %v: %x", b.String(), err, frame)
	}
	return b.String()
}

// blindSpot is the place of a byte that could be another without a difference to the text of the frame; -1 if there is
// none.
func (s *side) blindSpot(code int32, frame []byte, text string) int {
	other := *s
	other.known, other.kinds = maps.Clone(s.known), map[string]int{}
	changed := slices.Clone(frame)
	for i := range changed {
		changed[i] ^= 1
		if other.frame(code, changed) == text {
			return i
		}
		changed[i] ^= 1
	}
	return -1
}

// record is what follows the header of a reply.
func (s *side) record(code int32, d *decoder) string {
	switch code {
	case opCreate, opSync:
		return s.path(d)
	case opCreate2:
		return s.path(d) + " " + s.stat(d)
	case opExists, opSetData, opSetACL:
		return s.stat(d)
	case opGetData:
		return shortData(d.buffer()) + " " + s.stat(d)
	case opGetACL:
		return s.acls(d) + " " + s.stat(d)
	case opGetChildren:
		return s.names(d)
	case opGetChildren2:
		return s.names(d) + " " + s.stat(d)
	case opMulti:
		return s.multi(d)
	}
	return "" // end reports the bytes
}

func (s *side) multi(d *decoder) string {
	var b strings.Builder
	for d.err == nil {
		kind, done, fault := d.int(), d.bool(), d.int()
		fmt.Fprintf(&b, "[%d %t %d", kind, done, fault)
		if done {
			b.WriteString("]")
			break
		}
		switch kind {
		case -1:
			fault := d.int()
			s.kinds[fmt.Sprintf("part of a multi %d", fault)]++
			fmt.Fprintf(&b, " error %d", fault)
		case opCreate, opDelete, opSetData, opCheck:
			s.kinds["multi with "+opNames[kind]]++
			b.WriteString(" " + s.record(kind, d))
		}
		b.WriteString("] ")
	}
	return b.String()
}
