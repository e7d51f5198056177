package storemodel

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

func joined(parts []string) string { return strings.Join(parts, " | ") }

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
			all[key] = joined(parts)
		}
	}
	if m.id != "" {
		put("q", fields(map[string]float64{
			"format": 1, "vt": m.vt, "bytes": m.Bytes, "mean": m.mean, "seen": m.seen, "born": m.born, "slots": m.slots,
			"weights": m.weights(), "evicted": m.evictedTime,
		}, "id="+m.id))
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
	zset("full", func(b *Batch) bool { return b.Complete() && b.Holder == "" },
		func(b *Batch) float64 { return b.fullAt })
	zset("late", func(b *Batch) bool { return len(b.late) > 0 }, func(b *Batch) float64 { return b.late[0].At })
	var hands []string
	for name, s := range m.Seats {
		put("h:"+name, s.render())
		hands = append(hands, name+"="+s.entry())
	}
	slices.Sort(hands)
	put("hands", hands)
	for id, b := range m.Batches {
		put("b:"+id, b.render(m.out(b)))
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

func (b *Batch) render(out float64) []string {
	return fields(map[string]float64{
		"born": b.born, "weight": b.weight, "attempts": b.attempts, "version": b.Version, "declared": b.declared,
		"sum": b.sum, "tasks": b.Tasks(), "taken": b.taken, "out": out, "done": b.Done(), "dead": b.Dead,
		"bytes": b.bytes, "big": b.big, "rbig": b.rbig, "v": b.v, "mean": b.mean, "seen": b.seen, "tries": b.tries,
		"falls": b.falls,
	}, "life="+b.Life, "state="+b.State, "results="+b.Results, "holder="+b.Holder, "because="+b.because)
}

func fields(numbers map[string]float64, parts ...string) []string {
	for f, n := range numbers {
		parts = append(parts, f+"="+strconv.FormatFloat(n, 'f', -1, 64))
	}
	slices.Sort(parts)
	return parts
}
