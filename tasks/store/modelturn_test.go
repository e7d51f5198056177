package store

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"
)

func sortedKeys[V any](of map[string]V) []string { return slices.Sorted(maps.Keys(of)) }

func handEntry(h modelTask) string {
	return strings.Join([]string{str(h.born), str(h.attempt), str(h.deaths), str(h.charge), h.payload}, ":")
}

func (h modelTask) returned() string {
	return strings.Join([]string{h.index, str(h.attempt), str(h.deaths), h.payload}, ":")
}

func (m *model) turn(a []string) any {
	if len(a[6:])/3 > MaxItems {
		panic(refused("LIMIT more than 1000 items"))
	}
	s := m.seat(a[0])
	s.next(a[1])
	idle, room, backoff, most := num(a[2]), num(a[3]), num(a[4]), num(a[5])
	accepted, no := m.readResults(s, a[6:])
	m.comeDue()
	m.finish(s, accepted, backoff)
	grants := m.take(s, idle, room, most)
	m.wakeE = false
	for _, b := range m.candidates(most) {
		onlySuspects := len(b.waiting) == 0 && b.again[len(b.again)-1].deaths >= 2
		m.wakeE = m.wakeE || m.free(b) > 0 && (!onlySuspects || m.hasFreeHand())
	}
	due := int64(-1)
	for _, b := range m.batches {
		if len(b.late) > 0 {
			if d := int64(max(0, b.late[0].at-m.now)); due < 0 || d < due {
				due = d
			}
		}
	}
	return []any{due, no, grants, m.level(most)}
}

// hasFreeHand reports whether an executor holds no suspect.
func (m *model) hasFreeHand() bool {
	for _, s := range m.seats {
		if s.role == "e" && s.shut == "" && s.suspect == "" {
			return true
		}
	}
	return false
}

type modelResult struct {
	field, outcome, data string
	ns                   float64
}

// readResults sorts out which results count.
func (m *model) readResults(s *modelSeat, a []string) (accepted []modelResult, no []any) {
	no, seen := []any{}, map[string]bool{}
	for i := 0; i < len(a); i += 3 {
		n, f := int64(i/3), a[i]
		id, _, _ := strings.Cut(f, ":")
		meta := strings.Split(a[i+1], ":")
		h, held := s.hand[f]
		b := m.batches[id]
		switch {
		case b == nil:
			no = append(no, []any{n, "gone"})
			if held {
				delete(s.hand, f)
				if s.suspect == f {
					s.suspect = ""
				}
			}
		case !held || seen[f]:
			no = append(no, []any{n, "held"})
		case h.born != b.born:
			no = append(no, []any{n, "gone"})
			accepted, seen[f] = append(accepted, modelResult{field: f}), true
		case h.attempt != num(meta[0]):
			no = append(no, []any{n, "held"})
		default:
			accepted = append(accepted, modelResult{f, meta[1], a[i+2], num(meta[2])})
			seen[f] = true
		}
	}
	return accepted, no
}

func (m *model) comeDue() {
	isDue := func(b *modelBatch) bool { return len(b.late) > 0 && b.late[0].at <= m.now }
	all := m.sorted(isDue, func(b *modelBatch) float64 { return b.late[0].at })
	for _, b := range all[:min(len(all), 16)] {
		m.change(b, func() {
			most := max(1, min(100, math.Floor(MaxBytes/(b.big+64))))
			for n := 0.0; n < most && isDue(b); n++ {
				b.again, b.late = append(b.again, b.late[0]), b.late[1:]
			}
		})
	}
}

func (m *model) finish(s *modelSeat, accepted []modelResult, backoff float64) {
	type tally struct{ n, ns float64 }
	tallies, order := map[*modelBatch]*tally{}, []*modelBatch{}
	was := map[*modelBatch][2]bool{}
	for _, r := range accepted {
		h := s.hand[r.field]
		delete(s.hand, r.field)
		if s.suspect == r.field {
			s.suspect = ""
		}
		id, _, _ := strings.Cut(r.field, ":")
		b := m.batches[id]
		if r.outcome == "" {
			continue
		}
		if tallies[b] == nil {
			tallies[b], order = &tally{}, append(order, b)
			was[b] = [2]bool{b.runnable(), b.complete()}
		}
		tallies[b].n++
		tallies[b].ns += r.ns
		b.v += max(1, math.Floor(r.ns/b.weight)) - h.charge
		switch {
		case r.outcome == "o":
			b.finished = append(b.finished, h.index+":"+str(h.attempt)+":"+str(r.ns)+":"+r.data)
			b.rbig = max(b.rbig, float64(len(r.data)))
			m.grow(b, size(r.data)-size(h.payload))
		case r.outcome == "d" || h.attempt >= b.attempts:
			h.deaths = 0
			m.die(b, h, r.data)
		default:
			h.at = m.now + backoff*min(math.Pow(2, h.attempt-1), 100)
			h.attempt, h.deaths = h.attempt+1, 0
			b.late = append(b.late, h)
			slices.SortFunc(b.late, func(x, y modelTask) int {
				return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.returned(), y.returned()))
			})
		}
	}
	for _, b := range order {
		t := tallies[b]
		b.mean, b.seen = learned(b.mean, b.seen, t.n, t.ns)
		m.mean, m.seen = learned(m.mean, m.seen, t.n, t.ns)
		if b.complete() && !was[b][1] {
			b.fullAt = b.claimable(0)
			m.wakeW = m.wakeW || b.fullAt == 0
		}
	}
}

func learned(mean, seen, n, ns float64) (float64, float64) {
	c := min(seen, 100)
	return math.Floor((float64(mean*c) + ns) / (c + n)), seen + n
}

func (m *model) level(most float64) int64 {
	switch {
	case m.bytes > 2*most:
		return 2
	case m.bytes > most:
		return 1
	}
	return 0
}

// candidates are the batches to take from: the least served first; or only the oldest; or none.
func (m *model) candidates(most float64) []*modelBatch {
	order := func(b *modelBatch) float64 { return b.v }
	n := 32
	switch m.level(most) {
	case 1:
		order, n = func(b *modelBatch) float64 { return b.born }, 1
	case 2:
		n = 0
	}
	all := m.sorted((*modelBatch).runnable, order)
	return all[:min(len(all), n)]
}

// free is how many more of its tasks may be out.
func (m *model) free(b *modelBatch) float64 {
	if b.seen > 0 {
		return 1000
	}
	return max(0, math.Ceil(m.slots*b.weight/m.weights())-m.out(b))
}

func (m *model) estimate(b *modelBatch) float64 {
	ns := 1e6
	if b.seen > 0 {
		ns = b.mean
	} else if m.seen > 0 {
		ns = m.mean
	}
	return min(max(ns, 1), 9e13)
}

func (m *model) take(s *modelSeat, idle, room, most float64) []any {
	grants, bytes := []any{}, 0
	for _, b := range m.candidates(most) {
		est, free := m.estimate(b), m.free(b)
		if b.seen == 0 {
			one := 0.0
			if room > 0 {
				one = 1
			}
			free = min(free, max(idle, one))
		}
		left := float64(len(b.waiting) + len(b.again))
		share := math.Ceil(left * s.slots / (2 * max(m.slots, 1)))
		k := min(max(idle, min(math.Floor(room/est), share)), left, float64(MaxItems-len(s.hand)))
		if k <= 0 || bytes >= MaxBytes {
			break
		}
		capped := k > free
		if k = min(k, free); k == 0 {
			continue
		}
		charge := max(1, math.Floor(est/b.weight))
		m.vt = max(m.vt, b.v)
		n := m.takeFrom(s, b, k, charge, &bytes, &grants)
		b.v += float64(n * charge)
		idle, room = idle-n, room-float64(n*est)
		if n == k && !capped && len(b.waiting)+len(b.again) > 0 {
			break
		}
	}
	return grants
}

// takeFrom moves at most k tasks into the hand: one suspect if it has none, returned ones, waiting ones.
func (m *model) takeFrom(s *modelSeat, b *modelBatch, k, charge float64, bytes *int, grants *[]any) (n float64) {
	hold := func(h modelTask) {
		h.born, h.charge = b.born, charge
		s.hand[b.id+":"+h.index] = h
		*bytes += len(h.payload)
		n++
	}
	grant := func(h modelTask) {
		hold(h)
		*grants = append(*grants, []any{b.id, int64(num(h.index)), int64(h.attempt), []any{h.payload}})
	}
	if len(b.again) > 0 && b.again[0].deaths >= 2 && s.suspect == "" {
		s.suspect = b.id + ":" + b.again[0].index
		grant(b.again[0])
		b.again = b.again[1:]
	}
	for n < k && len(b.again) > 0 && b.again[len(b.again)-1].deaths < 2 && *bytes < MaxBytes {
		last := len(b.again) - 1
		grant(b.again[last])
		b.again = b.again[:last]
	}
	for n < k && len(b.waiting) > 0 && *bytes < MaxBytes {
		c := int(min(k-n, float64(len(b.waiting)), max(1, math.Floor(float64(MaxBytes-*bytes)/max(b.big, 1)))))
		first, payloads := b.taken, []any{}
		for _, p := range b.waiting[:c] {
			hold(modelTask{index: str(b.taken), attempt: 1, payload: p})
			payloads = append(payloads, p)
			b.taken++
		}
		b.waiting = b.waiting[c:]
		*grants = append(*grants, []any{b.id, int64(first), int64(1), payloads})
	}
	return n
}

func (m *model) claim(a []string) any {
	s := m.seat(a[0])
	s.next(a[1])
	free := func(b *modelBatch) bool { return b.complete() && b.holder == "" }
	reply := []any{int64(-1)}
	by := func(b *modelBatch) float64 { return b.fullAt }
	if all := m.sorted(free, by); len(all) > 0 && all[0].fullAt <= m.now {
		b := all[0]
		b.holder = a[0]
		s.hand[b.id+":watch"] = modelTask{born: b.born}
		done := int64(len(b.finished))
		reply = append(reply, b.id, b.life, done, int64(b.dead), int64(b.tries+1))
	}
	if all := m.sorted(free, by); len(all) > 0 && !math.IsInf(all[0].fullAt, 1) {
		reply[0] = int64(max(0, all[0].fullAt-m.now))
	}
	m.wakeW = reply[0] == int64(0)
	return reply
}

func (m *model) unclaim(a []string) any {
	s := m.seat(a[0])
	s.next(a[1])
	h, held := s.hand[a[2]+":watch"]
	delete(s.hand, a[2]+":watch")
	b := m.batches[a[2]]
	if !held || b == nil || b.born != h.born {
		return int64(0)
	}
	at := 0.0
	if a[3] == "1" {
		b.tries, b.falls, b.because = b.tries+1, 0, a[5]
		at = m.now + num(a[4])*min(math.Pow(2, b.tries-1), 100)
	}
	b.holder = ""
	if b.complete() {
		b.fullAt = b.claimable(at)
		m.wakeW = true
	}
	return int64(1)
}
