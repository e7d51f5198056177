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

// shrink drops lines while the trace still differs. It returns nil if the trace does not differ again.
func shrink(s *servers, trace []op) ([]op, error) {
	k := &shrinker{servers: s, late: time.Now().Add(shrinkLimit)}
	if !k.try(trace) {
		return nil, nil
	}
	for k.lines() {
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
