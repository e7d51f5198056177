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
	if a[0] != "0" && a[0] != "1" {
		panic(Refused("ARGUMENT " + a[0]))
	}
	names, with, without := []string{}, 0, 0
	for _, name := range a[1:] {
		s := m.Seats[name]
		if s == nil || slices.Contains(names, name) {
			continue
		}
		names = append(names, name)
		switch {
		case s.Shut != "":
		case s.suspect != "":
			with++
		default:
			without++
		}
	}
	how := a[0]
	if how == "1" && with > 2*without {
		how = "2"
	}
	first, fields := len(names), 0 // the first seat whose fields are not read
	for i, name := range names {
		s := m.Seats[name]
		if fields >= maxItems {
			first = min(first, i)
		}
		fields += len(s.Hand)
		if s.Shut == "" {
			s.Shut = how
			if s.Role == "e" {
				m.slots -= s.slots
			}
		}
	}
	more, bytes := false, 0
	for i, name := range names {
		if more = i >= first || bytes >= maxBytes; !more {
			var sum int
			more, sum = m.giveBack(m.Seats[name], nil, m.Seats[name].Shut)
			bytes += sum
		}
		if more {
			break
		}
		delete(m.Seats, name)
	}
	if len(names) > 0 {
		m.evictedTime = m.Now
		m.wake()
	}
	return []any{flag(more)}
}

// giveBack empties a hand except kept fields until 1 MiB went back. how is 0, 1 or 2: see Seat.Shut.
func (m *Queue) giveBack(s *Seat, kept map[string]bool, how string) (more bool, bytes int) {
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
		suspect := f == s.suspect
		if suspect {
			s.suspect = ""
		}
		id, index, _ := strings.Cut(f, ":")
		b := m.Batches[id]
		if index == "watch" {
			bytes += len(str(h.born))
			if b != nil && b.born == h.born {
				m.dropClaim(b, how, suspect)
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
		switch {
		case how == "2" && suspect:
			h.deaths, h.Attempt = h.deaths+1, h.Attempt+1
		case how != "0" && h.deaths < 2:
			h.deaths++
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
	return more, bytes
}

func (m *Queue) dropClaim(b *Batch, how string, suspect bool) {
	switch {
	case how == "2" && suspect:
		b.falls, b.tries, b.because = b.falls+1, b.tries+1, "its watcher died"
	case how != "0" && b.falls < 2:
		b.falls++
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
	more, _ := m.giveBack(s, kept, "0")
	reply[0] = flag(more)
	m.wake()
	return reply
}
