package store

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
)

// replyError is an error reply of Redis.
type replyError string

func (e replyError) Error() string { return string(e) }
func (e replyError) RedisError()   {}

func asRefusal(err error) *Refusal {
	var r *Refusal
	errors.As(err, &r)
	return r
}

func joined(parts []string) string { return strings.Join(parts, " | ") }

func score(n float64) string {
	if math.IsInf(n, 1) {
		return "inf"
	}
	return str(n)
}

// render is what is in Redis, by key. Sorted sets are member@score, in order; hashes are field=value, sorted.
func (q *testQueue) render() map[string]string {
	q.t.Helper()
	ctx, all := context.Background(), map[string]string{}
	for key := range q.keys() {
		name := q.prefix + key
		switch kind := must(q.c.Type(ctx, name).Result())(q.t); kind {
		case "hash":
			var parts []string
			for f, v := range must(q.c.HGetAll(ctx, name).Result())(q.t) {
				parts = append(parts, f+"="+v)
			}
			slices.Sort(parts)
			all[key] = joined(parts)
		case "list":
			all[key] = joined(must(q.c.LRange(ctx, name, 0, -1).Result())(q.t))
		case "zset":
			if key == "dead" { // its scores only say when to look
				members := must(q.c.ZRange(ctx, name, 0, -1).Result())(q.t)
				slices.Sort(members)
				all[key] = joined(members)
				continue
			}
			var parts []string
			for _, z := range must(q.c.ZRangeWithScores(ctx, name, 0, -1).Result())(q.t) {
				parts = append(parts, z.Member.(string)+"@"+score(z.Score))
			}
			all[key] = joined(parts)
		}
	}
	return all
}

// render is what Redis must have.
func (m *model) render() map[string]string {
	all := map[string]string{}
	put := func(key string, parts []string) {
		if len(parts) > 0 {
			all[key] = joined(parts)
		}
	}
	if m.id != "" {
		put("q", fields(map[string]float64{
			"format": 1, "vt": m.vt, "bytes": m.bytes, "mean": m.mean, "seen": m.seen, "born": m.born, "slots": m.slots,
			"weights": m.weights(), "evicted": m.evictedTime,
		}, "id="+m.id))
	}
	zset := func(key string, pass func(b *modelBatch) bool, by func(b *modelBatch) float64) {
		var parts []string
		for _, b := range m.sorted(pass, by) {
			parts = append(parts, b.id+"@"+score(by(b)))
		}
		put(key, parts)
	}
	zset("ids", func(*modelBatch) bool { return true }, func(b *modelBatch) float64 { return b.born })
	zset("run", (*modelBatch).runnable, func(b *modelBatch) float64 { return b.v })
	zset("full", func(b *modelBatch) bool { return b.complete() && b.holder == "" },
		func(b *modelBatch) float64 { return b.fullAt })
	zset("late", func(b *modelBatch) bool { return len(b.late) > 0 }, func(b *modelBatch) float64 { return b.late[0].at })
	var hands []string
	for name, s := range m.seats {
		put("h:"+name, s.render())
		if s.shut != "" {
			hands = append(hands, name+"=shut:"+s.shut+":"+s.role+":"+str(s.slots))
		} else {
			hands = append(hands, name+"="+s.role+":"+str(s.slots)+":"+str(s.seq))
		}
	}
	slices.Sort(hands)
	put("hands", hands)
	for id, b := range m.batches {
		put("b:"+id, b.render(m.out(b)))
		put("b:"+id+":w", b.waiting)
		put("b:"+id+":r", b.finished)
		var again, late []string
		for _, h := range b.again {
			again = append(again, h.returned())
		}
		for _, h := range b.late {
			late = append(late, h.returned()+"@"+str(h.at))
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

func (m *model) renderDead(put func(key string, parts []string)) {
	var ids []string
	for _, b := range sortedKeys(m.dead) {
		var parts []string
		for _, d := range m.dead[b] {
			parts = append(parts, deadEntry(d))
		}
		put("d:"+b, parts)
		if len(parts) > 0 {
			ids = append(ids, b)
		}
	}
	put("dead", ids)
}

func (s *modelSeat) render() (parts []string) {
	for f, h := range s.hand {
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

func (b *modelBatch) render(out float64) []string {
	return fields(map[string]float64{
		"born": b.born, "weight": b.weight, "attempts": b.attempts, "version": b.version, "declared": b.declared,
		"sum": b.sum, "tasks": b.tasks(), "taken": b.taken, "out": out, "done": float64(len(b.finished)), "dead": b.dead,
		"bytes": b.bytes, "big": b.big, "rbig": b.rbig, "v": b.v, "mean": b.mean, "seen": b.seen, "tries": b.tries,
		"falls": b.falls,
	}, "life="+b.life, "state="+b.state, "results="+b.results, "holder="+b.holder, "because="+b.because)
}

func fields(numbers map[string]float64, parts ...string) []string {
	for f, n := range numbers {
		parts = append(parts, f+"="+strconv.FormatFloat(n, 'f', -1, 64))
	}
	slices.Sort(parts)
	return parts
}
