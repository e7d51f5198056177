package storemodel

import (
	"fmt"
	"slices"
	"strings"
)

func (m *Queue) seat(name string) *Seat {
	s := m.Seats[name]
	if s == nil {
		panic(Refused("NOSEAT unknown"))
	}
	if s.Shut != "" {
		panic(Refused("NOSEAT shut"))
	}
	return s
}

// next checks and counts a call of a seat.
func (s *Seat) next(seq string) {
	if num(seq) != s.Seq+1 {
		panic(Refused("SEQ " + str(s.Seq)))
	}
	s.Seq++
}

func (m *Queue) hello(a []string) any {
	m.identify(a[1])
	if m.Seats[a[0]] != nil {
		return str(m.seat(a[0]).Seq)
	}
	s := &Seat{Role: a[2], slots: num(a[3]), Hand: map[string]Task{}}
	if s.Role == "e" {
		m.slots += s.slots
	}
	m.Seats[a[0]] = s
	return "0"
}

func (m *Queue) evict(a []string) any {
	s := m.Seats[a[0]]
	if s == nil {
		return int64(0)
	}
	if s.Shut == "" {
		s.Shut = a[1]
		if s.Role == "e" {
			m.slots -= s.slots
		}
	}
	mode := "free"
	if s.Shut == "1" {
		mode = "all"
		if s.suspect != "" {
			mode = "suspect"
		}
	}
	more := m.giveBack(s, nil, mode)
	if !more {
		delete(m.Seats, a[0])
	}
	m.evictedTime = m.Now
	m.wake()
	return flag(more)
}

// giveBack empties a hand except kept fields until 1 MiB went back.
func (m *Queue) giveBack(s *Seat, kept map[string]bool, mode string) (more bool) {
	bytes, suspect := 0, s.suspect
	before := map[*Batch][2]bool{}
	for _, f := range sortedKeys(s.Hand) {
		if kept[f] {
			continue
		}
		if bytes >= maxBytes {
			more = true
			break
		}
		h := s.Hand[f]
		delete(s.Hand, f)
		if f == suspect && mode != "suspect" {
			s.suspect = ""
		}
		id, index, _ := strings.Cut(f, ":")
		b := m.Batches[id]
		if index == "watch" {
			bytes += len(str(h.born))
			if b != nil && b.born == h.born {
				m.dropClaim(b, mode != "free")
			}
			continue
		}
		bytes += len(handEntry(h))
		if b == nil || b.born != h.born {
			continue
		}
		if _, ok := before[b]; !ok {
			before[b] = [2]bool{b.runnable(), b.Complete()}
		}
		b.v -= h.charge
		if mode == "all" || mode == "suspect" && f == suspect {
			h.deaths++
			if h.deaths > 2 {
				h.Attempt++
			}
		}
		if h.Attempt > b.attempts {
			h.Attempt--
			m.die(b, h, fmt.Sprint("its executor died ", h.deaths, " times"))
		} else {
			b.putBack(h)
		}
	}
	for b, was := range before {
		if b.runnable() && !was[0] {
			b.v = max(b.v, m.vt)
		}
		if b.Complete() && !was[1] {
			b.fullAt = b.claimable(0)
			m.wakeW = m.wakeW || b.fullAt == 0
		}
	}
	return more
}

func (m *Queue) dropClaim(b *Batch, charged bool) {
	if charged {
		b.falls++
		if b.falls > 2 {
			b.tries++
			b.because = "its watcher died"
		}
	}
	b.Holder = ""
	if b.Complete() {
		b.fullAt = b.claimable(0)
		m.wakeW = m.wakeW || b.fullAt == 0
	}
}

func (b *Batch) putBack(h Task) {
	if h.deaths >= 2 {
		b.again = slices.Insert(b.again, 0, h)
	} else {
		b.again = append(b.again, h)
	}
}

func (m *Queue) sync(a []string) any {
	s := m.seat(a[0])
	if num(a[1]) <= s.Seq {
		panic(Refused("SEQ " + str(s.Seq)))
	}
	s.Seq = num(a[1])
	kept, reply := map[string]bool{}, []any{int64(0)}
	for i := 2; i < len(a); i += 2 {
		id, index, _ := strings.Cut(a[i], ":")
		h, held := s.Hand[a[i]]
		b := m.Batches[id]
		if held && b != nil && b.born == h.born && !kept[a[i]] && (index == "watch" || h.Attempt == num(a[i+1])) {
			kept[a[i]] = true
			reply = append(reply, a[i])
		}
	}
	reply[0] = flag(m.giveBack(s, kept, "free"))
	m.wake()
	return reply
}
