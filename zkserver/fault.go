package zkserver

import (
	"encoding/binary"
	"slices"
	"time"
)

type faultKind int

const (
	dropReply faultKind = iota
	beforeSend
	afterReply
	throttle
)

// throttled is the error of a server that has too much to do.
const throttled = -127

// A fault waits for its request; then a link has caught it.
type fault struct {
	kind  faultKind
	match func(op int32, req []byte) bool
	done  chan struct{}
}

func (p *Proxy) arm(kind faultKind, match func(op int32, req []byte) bool) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := &fault{kind, match, make(chan struct{})}
	p.faults = append(p.faults, f)
	return f.done
}

// catch disarms the first fault that matches. match may call the proxy, so it runs without the lock.
func (p *Proxy) catch(op int32, req []byte) *fault {
	p.mu.Lock()
	p.requests[op]++
	armed := slices.Clone(p.faults)
	p.mu.Unlock()
	for _, f := range armed {
		if f.match(op, req) && p.disarm(f) {
			return f
		}
	}
	return nil
}

// disarm is false if another connection's request was first.
func (p *Proxy) disarm(f *fault) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.faults, f)
	if i < 0 {
		return false
	}
	p.faults = slices.Delete(p.faults, i, i+1)
	return true
}

// request is a client's frame: length, xid, opcode, record.
func (p *Proxy) request(l *link, frame []byte) message {
	if len(frame) < 12 {
		return message{bytes: frame}
	}
	xid, op := int32(binary.BigEndian.Uint32(frame[4:])), int32(binary.BigEndian.Uint32(frame[8:]))
	f := p.catch(op, frame[12:])
	if f == nil {
		return message{bytes: frame}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.kind == throttle { // the server answers another request in its place
		l.pending[xid] = f
		return message{bytes: existsRoot(xid)}
	}
	l.caught = append(l.caught, f)
	if f.kind == beforeSend {
		return message{last: true}
	}
	l.pending[xid] = f
	return message{bytes: frame}
}

// existsRoot asks whether there is "/", without a watch.
func existsRoot(xid int32) []byte {
	frame := binary.BigEndian.AppendUint32(nil, 4+4+4+1+1)
	frame = binary.BigEndian.AppendUint32(frame, uint32(xid))
	frame = binary.BigEndian.AppendUint32(frame, uint32(OpExists))
	frame = binary.BigEndian.AppendUint32(frame, 1)
	return append(frame, '/', 0)
}

// reply is a server's frame: length, xid, zxid, error, record.
func (p *Proxy) reply(l *link, frame []byte) message {
	if len(frame) < 8 {
		return message{bytes: frame}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.pending[int32(binary.BigEndian.Uint32(frame[4:]))]
	switch {
	case f == nil:
		return message{bytes: frame}
	case f.kind == dropReply:
		return message{last: true}
	case f.kind == throttle:
		close(f.done)
		code := int32(throttled)
		binary.BigEndian.PutUint32(frame, 16) // nothing follows the header
		binary.BigEndian.PutUint32(frame[16:], uint32(code))
		return message{bytes: frame[:20]}
	default:
		return message{bytes: frame, last: true}
	}
}

// due is zero without a delay.
func (p *Proxy) due() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.delay == 0 {
		return time.Time{}
	}
	return time.Now().Add(p.delay)
}

func (p *Proxy) flowing() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.flow
}
