package znode

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// maxOddities is how many oddities are listed. A body of a million newlines must not give a million sentences.
const maxOddities = 20

// oddities collects what is wrong with a roll, in sentences.
type oddities struct {
	listed []string
	more   int
}

func (o *oddities) add(format string, args ...any) {
	if len(o.listed) == maxOddities {
		o.more++
		return
	}
	o.listed = append(o.listed, fmt.Sprintf(format, args...))
}

func (o *oddities) list() []string {
	if o.more > 0 {
		return append(o.listed, fmt.Sprintf("and %d more", o.more))
	}
	return o.listed
}

// checkIDs adds missing and duplicate ids, and addresses that several workers have.
func (o *oddities) checkIDs(ws []Worker) {
	var ids []int
	byAddress := map[string]int{}
	for _, w := range ws {
		if w.ID != NoID {
			ids = append(ids, w.ID)
		}
		if w.IP != "" {
			byAddress[w.Address()]++
		}
	}
	if n := len(ws) - len(ids); n > 0 {
		o.add("%d of %d workers have no id", n, len(ws))
	}
	slices.Sort(ids)
	o.checkGaps(ids)
	for start := 0; start < len(ids); {
		end := start
		for end < len(ids) && ids[end] == ids[start] {
			end++
		}
		if end-start > 1 {
			o.add("id %d is held by %d workers", ids[start], end-start)
		}
		start = end
	}
	type shared struct {
		address string
		n       int
	}
	var shares []shared
	for a, n := range byAddress {
		if n > 1 {
			shares = append(shares, shared{a, n})
		}
	}
	slices.SortFunc(shares, func(a, b shared) int { return cmp.Compare(a.address, b.address) })
	for _, s := range shares {
		o.add("%q is the address of %d workers", s.address, s.n)
	}
}

// checkGaps adds the numbers that are missing in sorted ids.
func (o *oddities) checkGaps(ids []int) {
	const maxGaps = 5
	var gaps []string
	next := 0
	for _, id := range ids {
		switch {
		case id > next+1:
			gaps = append(gaps, fmt.Sprintf("%d-%d", next, id-1))
		case id == next+1:
			gaps = append(gaps, fmt.Sprint(next))
		}
		next = max(next, id+1)
	}
	if len(gaps) > maxGaps {
		gaps = append(gaps[:maxGaps], fmt.Sprintf("and %d more gaps", len(gaps)-maxGaps))
	}
	if len(gaps) > 0 {
		o.add("ids reach %d, but these are missing: %s", next-1, strings.Join(gaps, ", "))
	}
}
