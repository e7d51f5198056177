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

// throttled is the error code of an overloaded server.
const throttled = -127

// fault is a fault that happens to the first request that matches.
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

// fire disarms and returns the first fault that matches; nil if none does. The match function of a fault may call the
// proxy, so it runs without the lock.
func (p *Proxy) fire(op int32, req []byte) *fault {
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

// disarm removes f. It returns false if a request of another connection was first.
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

// request handles a client's frame: length, xid, opcode, record.
func (p *Proxy) request(l *link, frame []byte) message {
	if len(frame) < 12 {
		return message{bytes: frame}
	}
	xid, op := int32(binary.BigEndian.Uint32(frame[4:])), int32(binary.BigEndian.Uint32(frame[8:]))
	f := p.fire(op, frame[12:])
	if f == nil {
		return message{bytes: frame}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if f.kind == throttle { // send another request instead, and replace its reply
		l.pending[xid] = f
		return message{bytes: existsRoot(xid)}
	}
	l.fired = append(l.fired, f)
	if f.kind == beforeSend {
		return message{last: true}
	}
	l.pending[xid] = f
	return message{bytes: frame}
}

// existsRoot is a request that reads whether "/" exists, without a watch.
func existsRoot(xid int32) []byte {
	frame := binary.BigEndian.AppendUint32(nil, 4+4+4+1+1)
	frame = binary.BigEndian.AppendUint32(frame, uint32(xid))
	frame = binary.BigEndian.AppendUint32(frame, uint32(OpExists))
	frame = binary.BigEndian.AppendUint32(frame, 1)
	return append(frame, '/', 0)
}

// reply handles a server's frame: length, xid, zxid, error, record.
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
		binary.BigEndian.PutUint32(frame, 16) // only the header
		binary.BigEndian.PutUint32(frame[16:], uint32(code))
		return message{bytes: frame[:20]}
	default:
		return message{bytes: frame, last: true}
	}
}

// dueTime is the time at which a message that arrives now is sent; zero if there is no delay.
func (p *Proxy) dueTime() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.delay == 0 {
		return time.Time{}
	}
	return time.Now().Add(p.delay)
}

// flowing are the channels that are closed while bytes flow in a direction.
func (p *Proxy) flowing(toClient bool) []chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if toClient {
		return []chan struct{}{p.flow, p.answers}
	}
	return []chan struct{}{p.flow}
}
