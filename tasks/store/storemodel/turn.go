package storemodel

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

func (m *Queue) seat(name string) *Seat {
	s := m.Seats[name]
	refuseIf(s == nil, "NOSEAT unknown")
	refuseIf(s.Shut != "", "NOSEAT shut")
	return s
}

func (s *Seat) drop(field string) {
	delete(s.Hand, field)
	if s.suspect == field {
		s.suspect = ""
	}
}

// next checks and counts a call of a seat.
func (s *Seat) next(seq string) {
	refuseIf(num(seq) != s.Seq+1, "SEQ "+str(s.Seq))
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
	refuseIf(a[0] != "0" && a[0] != "1", "ARGUMENT "+a[0])
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
	var touched []*Batch
	for _, f := range sortedKeys(s.Hand) {
		if kept[f] {
			continue
		}
		if bytes >= maxBytes {
			more = true
			break
		}
		h, suspect := s.Hand[f], f == s.suspect
		s.drop(f)
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
		touched = append(touched, b)
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
	for _, b := range touched {
		m.settle(b)
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
	m.offer(b)
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
	refuseIf(num(a[1]) <= s.Seq, "SEQ "+str(s.Seq))
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

func sortedKeys[V any](of map[string]V) []string { return slices.Sorted(maps.Keys(of)) }

func handEntry(h Task) string {
	return strings.Join([]string{str(h.born), str(h.Attempt), str(h.deaths), str(h.charge), h.payload}, ":")
}

func (h Task) returned() string {
	return strings.Join([]string{h.Index, str(h.Attempt), str(h.deaths), h.payload}, ":")
}

func (m *Queue) turn(a []string) any {
	refuseIf(len(a[6:])/3 > maxItems, tooMany)
	s := m.seat(a[0])
	s.next(a[1])
	idle, room, backoff, most := num(a[2]), num(a[3]), num(a[4]), num(a[5])
	accepted, no := m.readResults(s, a[6:])
	m.comeDue()
	m.finish(s, accepted, backoff)
	held := len(s.Hand)
	grants, passed := m.take(a[0], s, idle, room, most)
	m.wakeE = false
	for _, b := range m.candidates(most) {
		onlySuspects := len(b.waiting) == 0 && b.again[len(b.again)-1].deaths >= 2
		canTry, _ := m.trial()
		m.wakeE = m.wakeE || m.free(b) > 0 && (!onlySuspects || canTry)
	}
	due := int64(-1)
	for _, b := range m.Batches {
		if len(b.late) > 0 {
			if d := int64(max(0, b.late[0].At-m.Now)); due < 0 || d < due {
				due = d
			}
		}
	}
	if held > 0 && len(grants) == 0 && (passed || s.suspect != "") {
		return []any{due, no, grants, int64(3)}
	}
	return []any{due, no, grants, m.level(most)}
}

// trial reports whether one more executor may have a suspect: then half of them at most do. first is the first one that
// has other tasks.
func (m *Queue) trial() (free bool, first string) {
	executors, trying := 0, 0
	for _, name := range sortedKeys(m.Seats) {
		s := m.Seats[name]
		if s.Role != "e" || s.Shut != "" {
			continue
		}
		executors++
		if s.suspect != "" {
			trying++
		} else if first == "" && len(s.Hand) > 0 {
			first = name
		}
	}
	return 2*trying < executors, first
}

type result struct {
	field, outcome, data string
	ns                   float64
}

// readResults sorts out which results count.
func (m *Queue) readResults(s *Seat, a []string) (accepted []result, no []any) {
	no, seen := []any{}, map[string]bool{}
	for i := 0; i < len(a); i += 3 {
		n, f := int64(i/3), a[i]
		id, _, _ := strings.Cut(f, ":")
		meta := strings.Split(a[i+1], ":")
		h, held := s.Hand[f]
		b := m.Batches[id]
		switch {
		case b == nil:
			no = append(no, []any{n, "gone"})
			s.drop(f)
		case !held || seen[f]:
			no = append(no, []any{n, "held"})
		case h.born != b.born:
			no = append(no, []any{n, "gone"})
			accepted, seen[f] = append(accepted, result{field: f}), true
		case h.Attempt != num(meta[0]):
			no = append(no, []any{n, "held"})
		default:
			accepted = append(accepted, result{f, meta[1], a[i+2], num(meta[2])})
			seen[f] = true
		}
	}
	return accepted, no
}

func (m *Queue) comeDue() {
	isDue := func(b *Batch) bool { return len(b.late) > 0 && b.late[0].At <= m.Now }
	all := m.sorted(isDue, func(b *Batch) float64 { return b.late[0].At })
	for _, b := range all[:min(len(all), 16)] {
		most := max(1, min(100, math.Floor(maxBytes/(b.big+64))))
		for n := 0.0; n < most && isDue(b); n++ {
			b.again, b.late = append(b.again, b.late[0]), b.late[1:]
		}
		m.settle(b)
	}
}

func (m *Queue) finish(s *Seat, accepted []result, backoff float64) {
	type tally struct{ n, ns float64 }
	tallies, order := map[*Batch]*tally{}, []*Batch{}
	for _, r := range accepted {
		h := s.Hand[r.field]
		s.drop(r.field)
		id, _, _ := strings.Cut(r.field, ":")
		b := m.Batches[id]
		if r.outcome == "" {
			continue
		}
		if tallies[b] == nil {
			tallies[b], order = &tally{}, append(order, b)
		}
		tallies[b].n++
		tallies[b].ns += r.ns
		b.v += max(1, math.Floor(r.ns/b.weight)) - h.charge
		switch {
		case r.outcome == "o" && b.Results == "discard":
			b.discarded = append(b.discarded, h.Index)
			m.grow(b, -size(h.payload))
		case r.outcome == "o":
			b.Finished = append(b.Finished, h.Index+":"+str(h.Attempt)+":"+str(r.ns)+":"+r.data)
			b.rbig = max(b.rbig, float64(len(r.data)))
			m.grow(b, size(r.data)-size(h.payload))
		case r.outcome == "d" || h.Attempt >= b.attempts:
			h.deaths = 0
			m.die(b, h, r.data)
		default:
			h.At = m.Now + backoff*min(math.Pow(2, h.Attempt-1), 100)
			h.Attempt, h.deaths = h.Attempt+1, 0
			b.late = append(b.late, h)
			slices.SortFunc(b.late, func(x, y Task) int {
				return cmp.Or(cmp.Compare(x.At, y.At), cmp.Compare(x.returned(), y.returned()))
			})
		}
	}
	for _, b := range order {
		t := tallies[b]
		b.mean, b.seen = learned(b.mean, b.seen, t.n, t.ns)
		m.mean, m.seen = learned(m.mean, m.seen, t.n, t.ns)
		m.settle(b)
	}
}

func learned(mean, seen, n, ns float64) (float64, float64) {
	c := min(seen, 100)
	return math.Floor((float64(mean*c) + ns) / (c + n)), seen + n
}

func (m *Queue) level(most float64) int64 {
	switch {
	case m.Bytes > 2*most:
		return 2
	case m.Bytes > most:
		return 1
	}
	return 0
}

// candidates are the batches to take from: the least served first; or only the oldest; or none.
func (m *Queue) candidates(most float64) []*Batch {
	order := func(b *Batch) float64 { return b.v }
	n := 32
	switch m.level(most) {
	case 1:
		order, n = func(b *Batch) float64 { return b.born }, 1
	case 2:
		n = 0
	}
	all := m.sorted((*Batch).runnable, order)
	return all[:min(len(all), n)]
}

// free is how many more of its tasks may be out.
func (m *Queue) free(b *Batch) float64 {
	if b.seen > 0 {
		return 1000
	}
	return max(0, math.Ceil(m.slots*b.weight/m.weights())-b.out())
}

func (m *Queue) estimate(b *Batch) float64 {
	ns := 1e6
	if b.seen > 0 {
		ns = b.mean
	} else if m.seen > 0 {
		ns = m.mean
	}
	return min(max(ns, 1), 9e13)
}

// take grants tasks. passed tells that suspects waited, and the seat got none.
func (m *Queue) take(name string, s *Seat, idle, room, most float64) (grants []any, passed bool) {
	grants, bytes := []any{}, 0
	if s.suspect != "" {
		return grants, false
	}
	free, first := m.trial()
	for _, b := range m.candidates(most) {
		est, can := m.estimate(b), m.free(b)
		if b.seen == 0 {
			can = min(can, max(idle, float64(flag(room > 0))))
		}
		left := float64(len(b.waiting) + len(b.again))
		share := math.Ceil(left * s.slots / (2 * max(m.slots, 1)))
		k := min(max(idle, min(math.Floor(room/est), share)), left, float64(maxItems-len(s.Hand)))
		if k <= 0 || bytes >= maxBytes {
			break
		}
		capped := k > can
		if k = min(k, can); k == 0 {
			continue
		}
		if len(b.again) > 0 && b.again[0].deaths >= 2 {
			if free && len(s.Hand) == 0 {
				s.suspect = b.ID + ":" + b.again[0].Index
				k, capped = 1, false
			} else if passed = true; free && first == name {
				break
			}
		}
		charge := max(1, math.Floor(est/b.weight))
		m.vt = max(m.vt, b.v)
		n := m.takeFrom(s, b, k, charge, &bytes, &grants)
		b.v += float64(n * charge)
		m.settle(b)
		idle, room = idle-n, room-float64(n*est)
		if s.suspect != "" || n == k && !capped && len(b.waiting)+len(b.again) > 0 {
			break
		}
	}
	return grants, passed
}

// takeFrom moves at most k tasks into the hand: the suspect that the seat is to have, or returned and waiting ones.
func (m *Queue) takeFrom(s *Seat, b *Batch, k, charge float64, bytes *int, grants *[]any) (n float64) {
	hold := func(h Task) {
		h.born, h.charge = b.born, charge
		s.Hand[b.ID+":"+h.Index] = h
		*bytes += len(h.payload)
		n++
	}
	grant := func(h Task) {
		hold(h)
		*grants = append(*grants, []any{b.ID, int64(num(h.Index)), int64(h.Attempt), []any{h.payload}})
	}
	if s.suspect != "" {
		grant(b.again[0])
		b.again = b.again[1:]
		return n
	}
	for n < k && len(b.again) > 0 && b.again[len(b.again)-1].deaths < 2 && *bytes < maxBytes {
		last := len(b.again) - 1
		grant(b.again[last])
		b.again = b.again[:last]
	}
	for n < k && len(b.waiting) > 0 && *bytes < maxBytes {
		c := int(min(k-n, float64(len(b.waiting)), max(1, math.Floor(float64(maxBytes-*bytes)/max(b.big, 1)))))
		first, payloads := b.taken, []any{}
		for _, p := range b.waiting[:c] {
			hold(Task{Index: str(b.taken), Attempt: 1, payload: p})
			payloads = append(payloads, p)
			b.taken++
		}
		b.waiting = b.waiting[c:]
		*grants = append(*grants, []any{b.ID, int64(first), int64(1), payloads})
	}
	return n
}

func (m *Queue) claim(a []string) any {
	s := m.seat(a[0])
	s.next(a[1])
	reply := []any{int64(-1)}
	by := func(b *Batch) float64 { return b.fullAt }
	if all := m.sorted((*Batch).unclaimed, by); len(all) > 0 && all[0].fullAt <= m.Now {
		b := all[0]
		b.Holder = a[0]
		s.Hand[b.ID+":watch"] = Task{born: b.born}
		if b.falls >= 2 {
			s.suspect = b.ID + ":watch"
		}
		done := int64(b.Done())
		reply = append(reply, b.ID, b.Life, done, int64(b.Dead), int64(b.tries+1))
	}
	if all := m.sorted((*Batch).unclaimed, by); len(all) > 0 && !math.IsInf(all[0].fullAt, 1) {
		reply[0] = int64(max(0, all[0].fullAt-m.Now))
	}
	m.wakeW = reply[0] == int64(0)
	return reply
}

func (m *Queue) unclaim(a []string) any {
	s := m.seat(a[0])
	s.next(a[1])
	h, held := s.Hand[a[2]+":watch"]
	s.drop(a[2] + ":watch")
	b := m.Batches[a[2]]
	if !held || b == nil || b.born != h.born {
		return int64(0)
	}
	at := 0.0
	if a[3] == "1" {
		b.tries, b.falls, b.because = b.tries+1, 0, a[5]
		at = m.Now + num(a[4])*min(math.Pow(2, b.tries-1), 100)
	}
	b.Holder = ""
	if b.Complete() {
		b.fullAt = b.claimable(at)
		m.wakeW = true
	}
	return int64(1)
}
