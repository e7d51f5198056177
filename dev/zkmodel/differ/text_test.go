package differ

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

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
