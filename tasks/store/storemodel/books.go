package storemodel

import (
	"cmp"
	"math"
	"slices"
	"strconv"
)

// count is the script that reads the books.
func (m *Queue) count(a []string) any {
	a = append(a, "", "")
	from := int(num(a[2]))
	switch a[0] {
	case "queue":
		return m.books()
	case "batches":
		return m.batchPage(int(num(a[1])), from)
	case "batch":
		return m.need(a[1]).books(m)
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
	for _, n := range []float64{m.vt, m.Bytes, m.mean, m.seen, m.born, m.slots, m.weights(), m.evictedTime} {
		reply = append(reply, whole(n))
	}
	running, full, late := 0, 0, 0
	for _, b := range m.Batches {
		running += int(flag(b.runnable()))
		full += int(flag(b.Complete() && b.Holder == ""))
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
		reply = append(reply, b.books(m))
	}
	return reply
}

func (b *Batch) books(m *Queue) []any {
	row := []any{b.ID, "", b.Life, b.State, b.Results, b.Holder, b.because}
	for _, n := range []float64{
		b.born, b.weight, b.attempts, b.Version, b.declared, b.sum, b.Tasks(), b.taken, m.out(b),
		b.Done(), b.Dead, b.bytes, b.big, b.rbig, b.v, b.mean, b.seen, b.tries, b.falls,
	} {
		row = append(row, whole(n))
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
