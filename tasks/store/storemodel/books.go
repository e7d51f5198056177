package storemodel

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

func (m *Queue) count(a []string) any {
	a = append(a, "", "")
	from := int(num(a[2]))
	switch a[0] {
	case "queue":
		return m.books()
	case "batches":
		return m.batchPage(int(num(a[1])), from)
	case "batch":
		return m.need(a[1]).books()
	case "results":
		b := m.need(a[1])
		return page(b.Finished, from, b.rbig+64)
	case "dead":
		entries := make([]string, len(m.Dead[a[1]]))
		for i, d := range m.Dead[a[1]] {
			entries[i] = deadEntry(d)
		}
		return page(entries, from, 262144)
	}
	panic(Refused("ARGUMENT " + a[0]))
}

func (m *Queue) books() []any {
	reply := []any{whole(m.Now)}
	for _, n := range m.numbers() {
		reply = append(reply, whole(n.value))
	}
	running, full, late := 0, 0, 0
	for _, b := range m.Batches {
		running += int(flag(b.runnable()))
		full += int(flag(b.unclaimed()))
		late += int(flag(len(b.late) > 0))
	}
	for _, n := range []int{len(m.Batches), running, full, late, len(m.deadSince)} {
		reply = append(reply, strconv.Itoa(n))
	}
	hands := []any{}
	for _, name := range sortedKeys(m.Seats) {
		hands = append(hands, name, m.Seats[name].entry())
	}
	return append(reply, hands)
}

type number struct {
	field string
	value float64
}

// numbers are those of the queue, as QF of common.lua.
func (m *Queue) numbers() []number {
	return []number{
		{"vt", m.vt}, {"bytes", m.Bytes}, {"mean", m.mean}, {"seen", m.seen}, {"born", m.born}, {"slots", m.slots},
		{"weights", m.weights()}, {"evicted", m.evictedTime},
	}
}

// numbers are those of the batch, as NUMBERS of common.lua.
func (b *Batch) numbers() []number {
	return []number{
		{"born", b.born}, {"weight", b.weight}, {"attempts", b.attempts}, {"version", b.Version},
		{"declared", b.declared}, {"sum", b.sum}, {"tasks", b.Tasks()}, {"taken", b.taken}, {"out", b.out()},
		{"done", b.Done()}, {"dead", b.Dead}, {"bytes", b.bytes}, {"big", b.big}, {"rbig", b.rbig}, {"v", b.v},
		{"mean", b.mean}, {"seen", b.seen}, {"tries", b.tries}, {"falls", b.falls},
	}
}

// entry is what the key of all hands says of a seat.
func (s *Seat) entry() string {
	if s.Shut != "" {
		return "shut:" + s.Shut + ":" + s.Role + ":" + str(s.slots)
	}
	return s.Role + ":" + str(s.slots) + ":" + str(s.Seq)
}

// batchPage is the books of n batches from an index on, by age.
func (m *Queue) batchPage(from, n int) []any {
	all := m.sorted(func(*Batch) bool { return true }, func(b *Batch) float64 { return b.born })
	reply := []any{}
	for _, b := range all[min(from, len(all)):min(from+n, len(all))] {
		reply = append(reply, b.books())
	}
	return reply
}

func (b *Batch) books() []any {
	row := []any{b.ID, "", b.Life, b.State, b.Results, b.Holder, b.because}
	for _, n := range b.numbers() {
		row = append(row, whole(n.value))
	}
	for _, n := range []int{len(b.waiting), len(b.again), len(b.late)} {
		row = append(row, strconv.Itoa(n))
	}
	return row
}

// page is the items of a list from an index on, until there are enough. largest is of an item.
func page(list []string, from int, largest float64) []any {
	out, bytes, step := []any{}, 0.0, 1
	for len(out) < maxItems && bytes < maxBytes {
		at := min(from+len(out), len(list))
		some := list[at:min(at+step, len(list))]
		for _, e := range some {
			if bytes < maxBytes {
				out, bytes = append(out, e), bytes+float64(len(e))
			}
		}
		if len(some) < step {
			break
		}
		step = min(maxItems-len(out), max(1, int(math.Floor((maxBytes-bytes)/largest))))
	}
	return out
}

// whole is a number without its fraction, as the books tell it.
func whole(n float64) string { return strconv.FormatFloat(n, 'f', 0, 64) }

// deadBefore are at most n batches whose list of dead tasks began before a time (ms), as a direct command reads them.
func (m *Queue) deadBefore(before float64, n int) []any {
	var ids []string
	for id, since := range m.deadSince {
		if since < before {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(x, y string) int {
		return cmp.Or(cmp.Compare(m.deadSince[x], m.deadSince[y]), cmp.Compare(x, y))
	})
	reply := []any{}
	for _, id := range ids[:min(n, len(ids))] {
		reply = append(reply, id)
	}
	return reply
}

func score(n float64) string {
	if math.IsInf(n, 1) {
		return "inf"
	}
	return str(n)
}

// Keys is what Redis must have, by key without the queue's prefix. Sorted sets are member@score, in order; hashes are
// field=value, sorted. Items are separated by " | ".
func (m *Queue) Keys() map[string]string {
	all := map[string]string{}
	put := func(key string, parts []string) {
		if len(parts) > 0 {
			all[key] = strings.Join(parts, " | ")
		}
	}
	if m.id != "" {
		put("q", fields(m.numbers(), "format=1", "id="+m.id))
	}
	zset := func(key string, pass func(b *Batch) bool, by func(b *Batch) float64) {
		var parts []string
		for _, b := range m.sorted(pass, by) {
			parts = append(parts, b.ID+"@"+score(by(b)))
		}
		put(key, parts)
	}
	zset("ids", func(*Batch) bool { return true }, func(b *Batch) float64 { return b.born })
	zset("run", (*Batch).runnable, func(b *Batch) float64 { return b.v })
	zset("full", (*Batch).unclaimed, func(b *Batch) float64 { return b.fullAt })
	zset("late", func(b *Batch) bool { return len(b.late) > 0 }, func(b *Batch) float64 { return b.late[0].At })
	var hands []string
	for name := range m.Seats {
		put("h:"+name, m.Seats[name].render())
		hands = append(hands, name+"="+m.Seats[name].entry())
	}
	slices.Sort(hands)
	put("hands", hands)
	for id, b := range m.Batches {
		put("b:"+id, fields(b.numbers(), "life="+b.Life, "state="+b.State, "results="+b.Results, "holder="+b.Holder,
			"because="+b.because))
		put("b:"+id+":w", b.waiting)
		put("b:"+id+":r", b.Finished)
		var again, late []string
		for _, h := range b.again {
			again = append(again, h.returned())
		}
		for _, h := range b.late {
			late = append(late, h.returned()+"@"+str(h.At))
		}
		put("b:"+id+":again", again)
		put("b:"+id+":late", late)
	}
	m.renderDead(put)
	for key, on := range map[string]bool{"wake:e": m.wakeE, "wake:w": m.wakeW} {
		if on {
			all[key] = "1"
		}
	}
	return all
}

func (m *Queue) renderDead(put func(key string, parts []string)) {
	for _, b := range sortedKeys(m.Dead) {
		var parts []string
		for _, d := range m.Dead[b] {
			parts = append(parts, deadEntry(d))
		}
		put("d:"+b, parts)
	}
	var all []string
	for _, id := range m.deadBefore(math.Inf(1), len(m.deadSince)) {
		all = append(all, id.(string)+"@"+str(m.deadSince[id.(string)]))
	}
	put("dead", all)
}

func (s *Seat) render() (parts []string) {
	for f, h := range s.Hand {
		if strings.HasSuffix(f, ":watch") {
			parts = append(parts, f+"="+str(h.born))
		} else {
			parts = append(parts, f+"="+handEntry(h))
		}
	}
	if s.suspect != "" {
		parts = append(parts, "suspect="+s.suspect)
	}
	slices.Sort(parts)
	return parts
}

func fields(numbers []number, parts ...string) []string {
	for _, n := range numbers {
		parts = append(parts, n.field+"="+str(n.value))
	}
	slices.Sort(parts)
	return parts
}

// Check says what of the books does not balance: each task of a batch is in one place, no seat holds what another one
// does, a suspect task is alone in its hand, and the bytes are those of what is there.
func (m *Queue) Check() error {
	for name, s := range m.Seats {
		if _, held := s.Hand[s.suspect]; s.suspect != "" && (!held || s.Role == "e" && len(s.Hand) > 1) {
			return fmt.Errorf("the seat %s has %d in hand, of which %s is suspect", name, len(s.Hand), s.suspect)
		}
	}
	bytes := 0.0
	for _, id := range sortedKeys(m.Batches) {
		b := m.Batches[id]
		if err := m.checkBatch(b); err != nil {
			return fmt.Errorf("batch %s: %w", id, err)
		}
		bytes += b.bytes
	}
	for _, tasks := range m.Dead {
		for _, d := range tasks {
			bytes += size(d.payload, d.reason)
		}
	}
	if bytes != m.Bytes {
		return fmt.Errorf("the queue counts %.0f bytes, and has %.0f", m.Bytes, bytes)
	}
	return nil
}

// found is a task where it is, and what it counts for there.
type found struct {
	index, where string
	bytes        float64
}

// tasks are those of a batch that were taken, and are not dead.
func (m *Queue) tasks(b *Batch) (all []found, err error) {
	for _, r := range b.Finished {
		part := strings.SplitN(r, ":", 4)
		all = append(all, found{part[0], "done", size(part[3])})
	}
	for _, index := range b.discarded {
		all = append(all, found{index, "done", 0})
	}
	for where, tasks := range map[string][]Task{"returned": b.again, "late": b.late} {
		for _, t := range tasks {
			all = append(all, found{t.Index, where, size(t.payload)})
		}
	}
	for name, s := range m.Seats {
		for f, h := range s.Hand {
			id, index, _ := strings.Cut(f, ":")
			switch {
			case id != b.ID || h.born != b.born:
			case index != "watch":
				all = append(all, found{index, "in the hand of " + name, size(h.payload)})
			case b.Holder != name:
				err = fmt.Errorf("seat %s has claimed it, and its holder is %q", name, b.Holder)
			}
		}
	}
	return all, err
}

func (m *Queue) checkBatch(b *Batch) error {
	all, err := m.tasks(b)
	if err != nil {
		return err
	}
	places, bytes := map[string]string{}, 0.0
	for _, t := range all {
		if other := places[t.index]; other != "" {
			return fmt.Errorf("task %s is %s, and %s", t.index, other, t.where)
		}
		if num(t.index) >= b.taken {
			return fmt.Errorf("task %s is %s, and of those before %.0f only", t.index, t.where, b.taken)
		}
		places[t.index] = t.where
		bytes += t.bytes
	}
	if float64(len(places))+b.Dead != b.taken {
		return fmt.Errorf("%.0f tasks were taken, %d are somewhere, and %.0f dead", b.taken, len(places), b.Dead)
	}
	for _, p := range b.waiting {
		bytes += size(p)
	}
	setAside := b.bytes == b.declared && (b.State == "submitting" || b.State == "cancelled") // it was never opened
	if bytes != b.bytes && !setAside {
		return fmt.Errorf("it counts %.0f bytes, and has %.0f", b.bytes, bytes)
	}
	return nil
}

// clone is a copy that shares nothing.
func (s Saved) clone() Saved {
	all := Saved{}
	for prefix, q := range s {
		all[prefix] = q.clone()
	}
	return all
}

func (m *Queue) clone() *Queue {
	c := *m
	c.Batches, c.Seats, c.Dead = map[string]*Batch{}, map[string]*Seat{}, map[string][]Task{}
	for id, b := range m.Batches {
		n := *b
		n.Finished, n.waiting = slices.Clone(b.Finished), slices.Clone(b.waiting)
		n.discarded = slices.Clone(b.discarded)
		n.again, n.late = slices.Clone(b.again), slices.Clone(b.late)
		c.Batches[id] = &n
	}
	for name, s := range m.Seats {
		n := *s
		n.Hand = maps.Clone(s.Hand)
		c.Seats[name] = &n
	}
	for id, tasks := range m.Dead {
		c.Dead[id] = slices.Clone(tasks)
	}
	c.deadSince = maps.Clone(m.deadSince)
	return &c
}
