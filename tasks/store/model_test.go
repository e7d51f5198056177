package store

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// model is the queue in memory: what the scripts do, in plain Go. It takes a script's arguments and gives its reply.
type model struct {
	now                                             float64 // ms
	id                                              string
	vt, mean, seen, bytes, born, slots, evictedTime float64
	batches                                         map[string]*modelBatch
	seats                                           map[string]*modelSeat
	dead                                            map[string][]modelTask
	wakeE, wakeW                                    bool
}

type modelBatch struct {
	id, life, state, results, holder, because string
	born, weight, attempts, version           float64
	declared, sum, bytes, big, rbig           float64
	v, mean, seen, tries, falls               float64
	waiting                                   []string
	taken, dead                               float64
	again, late                               []modelTask // late ones by their time, then as their bytes order
	finished                                  []string
	fullAt                                    float64 // when it may be claimed
}

type modelTask struct {
	index           string
	attempt, deaths float64
	at              float64 // due, or died
	reason, payload string

	born, charge float64 // in a hand
}

type modelSeat struct {
	role    string
	slots   float64
	seq     float64
	shut    string // "": not; otherwise whether deaths are charged
	hand    map[string]modelTask
	suspect string
}

// refused is why a script does nothing. The model panics with it, from any depth, as the scripts raise an error; call
// makes it the reply.
type refused string

func newModel(now float64) *model {
	return &model{
		now: now, batches: map[string]*modelBatch{}, seats: map[string]*modelSeat{}, dead: map[string][]modelTask{},
	}
}

// call is one call of a script.
func (m *model) call(script string, args []string) (reply any) {
	defer func() {
		if r := recover(); r != nil {
			why, ok := r.(refused)
			if !ok {
				panic(r)
			}
			reply = why
		}
	}()
	return map[string]func([]string) any{
		"hello": m.hello, "evict": m.evict, "begin": m.begin, "append": m.append, "open": m.open, "turn": m.turn,
		"sync": m.sync, "claim": m.claim, "unclaim": m.unclaim, "set": m.set, "retry": m.retry, "drop": m.drop,
		"remove": m.remove,
	}[script](args)
}

func num(s string) float64     { n, _ := strconv.ParseFloat(s, 64); return n }
func str(n float64) string     { return strconv.FormatFloat(n, 'f', -1, 64) }
func size(s ...string) float64 { return float64(len(strings.Join(s, "")) + 32) }

func (b *modelBatch) runnable() bool {
	return b.state == "open" && len(b.waiting)+len(b.again) > 0
}

func (b *modelBatch) complete() bool {
	return (b.state == "open" || b.state == "paused") && float64(len(b.finished))+b.dead == b.tasks()
}
func (b *modelBatch) tasks() float64 { return b.taken + float64(len(b.waiting)) }

func (m *model) out(b *modelBatch) float64 {
	return b.taken - float64(len(b.finished)) - b.dead - float64(len(b.again)) - float64(len(b.late))
}

func (m *model) weights() (sum float64) {
	for _, b := range m.batches {
		if b.runnable() {
			sum += b.weight
		}
	}
	return sum
}

// change does something to a batch, and then what follows from it: it enters at the queue's time, it is complete.
func (m *model) change(b *modelBatch, f func()) {
	ran, full := b.runnable(), b.complete()
	f()
	if b.runnable() && !ran {
		b.v = max(b.v, m.vt)
	}
	if b.complete() && !full {
		b.fullAt = b.claimable(0)
		m.wakeW = m.wakeW || b.fullAt == 0
	}
}

func (b *modelBatch) claimable(at float64) float64 {
	if b.results != "watcher" || b.tries >= b.attempts {
		return math.Inf(1)
	}
	return at
}

func (m *model) grow(b *modelBatch, d float64) { b.bytes += d; m.bytes += d }

func (m *model) wake() {
	for _, b := range m.batches {
		m.wakeE = m.wakeE || b.runnable()
	}
}

func (m *model) need(id string) *modelBatch {
	b := m.batches[id]
	if b == nil {
		panic(refused("NOBATCH " + id))
	}
	return b
}

func (m *model) seat(name string) *modelSeat {
	s := m.seats[name]
	if s == nil {
		panic(refused("NOSEAT unknown"))
	}
	if s.shut != "" {
		panic(refused("NOSEAT shut"))
	}
	return s
}

// next checks and counts a call of a seat.
func (s *modelSeat) next(seq string) {
	if num(seq) != s.seq+1 {
		panic(refused("SEQ " + str(s.seq)))
	}
	s.seq++
}

func sameLife(b *modelBatch, life string) {
	if b.life != life {
		panic(refused("LIFE " + b.life))
	}
}

func (m *model) hello(a []string) any {
	if m.seats[a[0]] != nil {
		return str(m.seat(a[0]).seq)
	}
	s := &modelSeat{role: a[2], slots: num(a[3]), hand: map[string]modelTask{}}
	m.id = a[1]
	if s.role == "e" {
		m.slots += s.slots
	}
	m.seats[a[0]] = s
	return "0"
}

func (m *model) evict(a []string) any {
	s := m.seats[a[0]]
	if s == nil {
		return int64(0)
	}
	if s.shut == "" {
		s.shut = a[1]
		if s.role == "e" {
			m.slots -= s.slots
		}
	}
	mode := "free"
	if s.shut == "1" {
		mode = "all"
		if s.suspect != "" {
			mode = "suspect"
		}
	}
	more := m.giveBack(s, nil, mode)
	if !more {
		delete(m.seats, a[0])
	}
	m.evictedTime = m.now
	m.wake()
	return integerOf(more)
}

func integerOf(on bool) int64 { return int64(flag(on)) }

// giveBack empties a hand except kept fields until 1 MiB went back.
func (m *model) giveBack(s *modelSeat, kept map[string]bool, mode string) (more bool) {
	bytes, suspect := 0, s.suspect
	before := map[*modelBatch][2]bool{}
	for _, f := range sortedKeys(s.hand) {
		if kept[f] {
			continue
		}
		if bytes >= MaxBytes {
			more = true
			break
		}
		h := s.hand[f]
		delete(s.hand, f)
		if f == suspect && mode != "suspect" {
			s.suspect = ""
		}
		id, index, _ := strings.Cut(f, ":")
		b := m.batches[id]
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
			before[b] = [2]bool{b.runnable(), b.complete()}
		}
		b.v -= h.charge
		if mode == "all" || mode == "suspect" && f == suspect {
			h.deaths++
			if h.deaths > 2 {
				h.attempt++
			}
		}
		if h.attempt > b.attempts {
			h.attempt--
			m.die(b, h, fmt.Sprint("its executor died ", h.deaths, " times"))
		} else {
			b.putBack(h)
		}
	}
	for b, was := range before {
		if b.runnable() && !was[0] {
			b.v = max(b.v, m.vt)
		}
		if b.complete() && !was[1] {
			b.fullAt = b.claimable(0)
			m.wakeW = m.wakeW || b.fullAt == 0
		}
	}
	return more
}

func (m *model) dropClaim(b *modelBatch, charged bool) {
	if charged {
		b.falls++
		if b.falls > 2 {
			b.tries++
			b.because = "its watcher died"
		}
	}
	b.holder = ""
	if b.complete() {
		b.fullAt = b.claimable(0)
		m.wakeW = m.wakeW || b.fullAt == 0
	}
}

func (b *modelBatch) putBack(h modelTask) {
	if h.deaths >= 2 {
		b.again = slices.Insert(b.again, 0, h)
	} else {
		b.again = append(b.again, h)
	}
}

func (m *model) die(b *modelBatch, h modelTask, reason string) {
	h.reason, h.at = reason[:min(len(reason), 1024)], m.now
	m.dead[b.id] = append(m.dead[b.id], h)
	b.dead++
	m.grow(b, -size(h.payload))
	m.bytes += size(h.payload, h.reason)
}

func (m *model) begin(a []string) any {
	m.id = a[1]
	if b := m.batches[a[0]]; b != nil {
		sameLife(b, a[2])
		return int64(0)
	}
	if len(m.dead[a[0]]) > 0 {
		panic(refused("DEAD " + a[0]))
	}
	if m.bytes > 0 && m.bytes+num(a[6]) > num(a[7]) {
		panic(refused("FULL " + str(m.bytes)))
	}
	m.born++
	b := &modelBatch{
		id: a[0], life: a[2], weight: num(a[3]), attempts: num(a[4]), results: a[5], declared: num(a[6]), born: m.born,
		state: "submitting",
	}
	m.grow(b, b.declared)
	m.batches[b.id] = b
	return int64(1)
}

func (m *model) append(a []string) any {
	tasks, at := a[3:], num(a[2])
	if len(tasks) > MaxItems {
		panic(refused("LIMIT more than 1000 items"))
	}
	b := m.need(a[0])
	sameLife(b, a[1])
	end := at + float64(len(tasks))
	if end <= b.tasks() && (at < b.tasks() || len(tasks) == 0) {
		return int64(b.tasks())
	}
	if at != b.tasks() {
		panic(refused("OFFSET " + str(b.tasks())))
	}
	if b.state != "submitting" {
		panic(refused("STATE " + b.state))
	}
	for _, p := range tasks {
		b.waiting, b.sum, b.big = append(b.waiting, p), b.sum+size(p), max(b.big, float64(len(p)))
	}
	return int64(b.tasks())
}

func (m *model) open(a []string) any {
	b := m.need(a[0])
	sameLife(b, a[1])
	if b.tasks() != num(a[2]) {
		panic(refused("OFFSET " + str(b.tasks())))
	}
	if b.state == "cancelled" {
		panic(refused("STATE " + b.state))
	}
	if b.state != "submitting" {
		return int64(0)
	}
	m.change(b, func() { b.state = "open" })
	m.grow(b, b.sum-b.declared)
	m.wake()
	return int64(1)
}

func (m *model) sync(a []string) any {
	s := m.seat(a[0])
	if num(a[1]) <= s.seq {
		panic(refused("SEQ " + str(s.seq)))
	}
	s.seq = num(a[1])
	kept, reply := map[string]bool{}, []any{int64(0)}
	for i := 2; i < len(a); i += 2 {
		id, index, _ := strings.Cut(a[i], ":")
		h, held := s.hand[a[i]]
		b := m.batches[id]
		if held && b != nil && b.born == h.born && !kept[a[i]] && (index == "watch" || h.attempt == num(a[i+1])) {
			kept[a[i]] = true
			reply = append(reply, a[i])
		}
	}
	reply[0] = integerOf(m.giveBack(s, kept, "free"))
	m.wake()
	return reply
}

// sorted are the batches that pass, by a number, then by name.
func (m *model) sorted(pass func(b *modelBatch) bool, by func(b *modelBatch) float64) []*modelBatch {
	var all []*modelBatch
	for _, b := range m.batches {
		if pass(b) {
			all = append(all, b)
		}
	}
	slices.SortFunc(all, func(x, y *modelBatch) int {
		return cmp.Or(cmp.Compare(by(x), by(y)), cmp.Compare(x.id, y.id))
	})
	return all
}
