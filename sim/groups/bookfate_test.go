package groups

import (
	"fmt"
	"time"

	"muster/dev/zkmodel"
	"muster/resource/group/schedule"
	"muster/zkstate/znode"
)

// fate is a run, or a range of ticks that do not run.
type fate struct{ first, last time.Time }

// fateRule: a holder that moves the cursor gives each tick that it passes one fate, in the same transaction.
func (b *book) fateRule(s step) error {
	for i, p := range s.places {
		if !p.is("duty", "*", "cursor") || s.Ops[i].Type != zkmodel.OpSetData || b.isAssigners(s, s.Ops[i], p) {
			continue
		}
		c, err := znode.Decode[znode.TickCursor](s.Ops[i].Data)
		if err != nil {
			return err
		}
		d, declared := b.declares(p.parts[1])
		sched, err := schedule.Parse(d.Schedule, d.Timezone)
		if !declared || err != nil || c.Digest != sched.Digest() || c.Digest != b.book(p).digest {
			continue // it begins anew with an edited schedule
		}
		fates, err := fatesOf(s)
		if err != nil {
			return err
		}
		for _, f := range fates {
			if !f.first.After(b.book(p).cursor) {
				return fmt.Errorf("the tick of %s had a fate before: the cursor had passed it", f.first)
			}
		}
		for tick, ok := sched.Next(b.book(p).cursor); ok && !tick.After(c.Tick); tick, ok = sched.Next(tick) {
			n := 0
			for _, f := range fates {
				if !tick.Before(f.first) && !tick.After(f.last) {
					n++
				}
			}
			if n != 1 {
				return fmt.Errorf("the tick of %s gets %d fates", tick, n)
			}
		}
	}
	return nil
}

// fatesOf are the fates of ticks that a transaction writes first.
func fatesOf(s step) (fates []fate, err error) {
	for i, p := range s.places {
		if !p.is("duty", "*", "tick", "*") || s.Ops[i].Type != zkmodel.OpCreate {
			continue
		}
		r, err := znode.Decode[znode.TickRecord](s.Ops[i].Data)
		if err != nil {
			return nil, err
		}
		f := fate{r.First, r.Last}
		if !r.Range() {
			if f.first, err = znode.TickTime(p.parts[3]); err != nil {
				return nil, err
			}
			f.last = f.first
		}
		fates = append(fates, f)
	}
	return fates, nil
}
