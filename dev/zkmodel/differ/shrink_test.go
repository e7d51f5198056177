package differ

import (
	"slices"
	"time"
)

// shrinkLimit is how long a trace is shrunk. Some differences show only when a reply does not come.
const shrinkLimit = 3 * time.Minute

// shrinker makes a trace that differs shorter.
type shrinker struct {
	servers *servers
	late    time.Time
	trace   []op
	found   error // what the trace found
}

// shrink drops lines, and parts of lines, while the trace still differs. It returns nil if the trace does not differ
// again.
func shrink(s *servers, trace []op) ([]op, error) {
	k := &shrinker{servers: s, late: time.Now().Add(shrinkLimit)}
	if !k.try(trace) {
		return nil, nil
	}
	for changed := true; changed; {
		changed = k.lines()
		for i := range k.trace {
			changed = k.line(i) || changed
		}
	}
	return k.trace, k.found
}

// try takes a trace if it differs.
func (k *shrinker) try(trace []op) bool {
	if time.Now().After(k.late) {
		return false
	}
	err := play(k.servers, trace)
	if err != nil {
		k.trace, k.found = trace, err
	}
	return err != nil
}

// lines drops as many lines as it can, many at once first.
func (k *shrinker) lines() (changed bool) {
	for size := max(len(k.trace)/2, 1); size > 0; size /= 2 {
		for from := 0; from+size <= len(k.trace); {
			if k.try(without(k.trace, from, size, 0)) || k.try(without(k.trace, from, size, size)) {
				changed = true
			} else {
				from += size
			}
		}
	}
	return changed
}

// line makes one line as simple as it can.
func (k *shrinker) line(i int) (changed bool) {
	for j := 0; j < len(k.trace[i].simpler()); {
		one := slices.Clone(k.trace)
		one[i] = k.trace[i].simpler()[j]
		if k.try(one) {
			changed = true
		} else {
			j++
		}
	}
	return changed
}

// without is a trace without some lines. The zxids in the lines after them are smaller by fewer.
func without(trace []op, from, size, fewer int) []op {
	rest := slices.Concat(trace[:from], trace[from+size:])
	for i := from; i < len(rest); i++ {
		if zxid := rest[i].zxid; zxid > 0 {
			rest[i].zxid = max(zxid-int64(fewer), 0)
		}
	}
	return rest
}

// simpler are forms of the line with one thing less.
func (o op) simpler() (list []op) {
	add := func(change func(*op)) {
		one := o
		change(&one)
		list = append(list, one)
	}
	if o.more {
		add(func(one *op) { one.more = false })
	}
	if o.zxid != 0 && o.code != opSetWatches {
		add(func(one *op) { one.zxid = 0 })
	}
	for i := range o.ops {
		add(func(one *op) { one.ops = slices.Delete(slices.Clone(o.ops), i, i+1) })
	}
	for i, paths := range o.watches {
		for j := range paths {
			add(func(one *op) { one.watches[i] = slices.Delete(slices.Clone(paths), j, j+1) })
		}
	}
	return list
}
