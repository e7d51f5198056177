package store

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
)

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
			var parts []string
			for _, z := range must(q.c.ZRangeWithScores(ctx, name, 0, -1).Result())(q.t) {
				parts = append(parts, z.Member.(string)+"@"+score(z.Score))
			}
			all[key] = joined(parts)
		}
	}
	return all
}
