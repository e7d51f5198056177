package groups

import (
	"fmt"
	"path"
	"slices"
	"time"

	"muster/dev/zkmodel"
	"muster/resource/group"
	"muster/zkstate/znode"
)

// assignerRule: only the assigner writes what is the assigner's: the member whose seat is there and is the first one.
// Seats that were passed over come last, and nobody is passed over who has written a moment ago. Who was passed over
// and takes the office again may not know of a seat that is newer than the last decision.
func (b *book) assignerRule(s step) error {
	if s.who == "" {
		return nil
	}
	for i, p := range s.places {
		if !b.isAssigners(s, s.Ops[i], p) {
			continue
		}
		if _, there := b.seats[s.who]; !there {
			return fmt.Errorf("it writes as the assigner and has no seat")
		}
		next, err := b.nextMemory(s)
		if err != nil {
			return err
		}
		passed := b.assigner.Passed
		if slices.ContainsFunc(next.Passed, func(seat string) bool { return !slices.Contains(passed, seat) }) {
			if silent := time.Since(b.decided); silent < time.Duration(b.group.Timeouts.Session) {
				return fmt.Errorf("it passes over %q, after a silence of %s", next.Passed, silent)
			}
			passed = next.Passed
		}
		late := func(seat string) bool { return slices.Contains(passed, path.Base(seat)) }
		for seat, other := range b.seats {
			first := late(s.who) && !late(seat) && other.since < b.written || late(s.who) == late(seat) && seat < s.who
			if first && znode.Decides(seat) && other.seat.Assign >= group.Assign(&b.record) {
				return fmt.Errorf("it writes as the assigner, and %s comes first", seat)
			}
		}
		if err := b.assignerMay(s.Ops[i], p); err != nil {
			return err
		}
	}
	return nil
}

// nextMemory is the assigner's memory after a transaction.
func (b *book) nextMemory(s step) (znode.AssignerMemory, error) {
	for i, p := range s.places {
		if p.is("assigner") && s.Ops[i].Type == zkmodel.OpSetData {
			return znode.DecodeAssigner(s.Ops[i].Data)
		}
	}
	return b.assigner, nil
}

// decides reports whether the assigner writes its memory.
func (s step) decides() bool {
	return slices.ContainsFunc(s.places, func(p place) bool { return p.is("assigner") })
}

// isAssigners reports whether only the assigner may do this.
func (b *book) isAssigners(s step, op zkmodel.Op, p place) bool {
	switch {
	case op.Type == zkmodel.OpCheck, op.Type == zkmodel.OpClose:
	case p.is("assigner"), p.is("seat", "*"):
		return op.Type == zkmodel.OpSetData
	case p.is("resigned", "*"), p.is("ask", "*"):
		return op.Type == zkmodel.OpDelete
	case p.is("duty", "*", "cursor") && s.decides(): // it may hold the duty too
		return true
	case p.below("duty", "*"):
		return b.holder(p) != s.Session && (op.Type == zkmodel.OpDelete || p.is("duty", "*", "cursor"))
	}
	return false
}

// holder is the session that holds the duty of a place; 0 if nobody does.
func (b *book) holder(p place) int64 { return b.held[znode.Held(root, p.g, p.parts[1])] }

// assignerMay says why the assigner must not do this.
func (b *book) assignerMay(op zkmodel.Op, p place) error {
	switch {
	case p.is("assigner"):
		memory, err := znode.DecodeAssigner(op.Data)
		if err != nil {
			return err
		}
		for _, d := range memory.Purge {
			if _, declared := b.group.Duty(d); declared && !slices.Contains(b.assigner.Purge, d) {
				return fmt.Errorf("it begins to delete %s, which is declared", d)
			}
		}
	case p.is("duty", "*", "cursor") && op.Type == zkmodel.OpSetData:
		if b.assigner.Paused[p.parts[1]] == "" {
			return fmt.Errorf("it forgets ticks of %s, which was not paused", p.parts[1])
		}
	case p.below("duty", "*") && op.Type == zkmodel.OpDelete:
		switch d := p.parts[1]; {
		case !slices.Contains(b.assigner.Purge, d):
			return fmt.Errorf("it deletes what %s has saved, and did not say so before", d)
		case b.holder(p) != 0:
			return fmt.Errorf("it deletes what %s has saved, which somebody holds", d)
		}
	}
	return nil
}

// pauseRule: a declared duty is paused and resumed only in the transaction that answers who asked for that, so what an
// operator asked for is not lost.
func (b *book) pauseRule(s step) error {
	answered := map[string]bool{}
	next, err := b.nextMemory(s)
	if err != nil {
		return err
	}
	for i, p := range s.places {
		if p.is("ask", "*") && s.Ops[i].Type == zkmodel.OpDelete {
			answered[b.asks[s.Ops[i].Path].Duty] = true
		}
	}
	for _, d := range b.group.Duties {
		if (b.assigner.Paused[d.Name] == "") != (next.Paused[d.Name] == "") && !answered[d.Name] {
			return fmt.Errorf("it pauses or resumes %s, and nobody asked for that", d.Name)
		}
	}
	return nil
}

// seatRule: what a transaction gives to members is declared, and fits their versions. After it no duty is in two seats,
// nor in one while what it has saved is being deleted.
func (b *book) seatRule(s step) error {
	now := map[string]znode.Seat{} // seats that it writes
	for i, p := range s.places {
		if p.is("seat", "*") && s.Ops[i].Type == zkmodel.OpSetData {
			seat, err := znode.Decode[znode.Seat](s.Ops[i].Data)
			if err != nil && s.who == "" {
				return nil // by hand
			}
			if err != nil {
				return err
			}
			now[s.Ops[i].Path] = seat
		}
	}
	in := map[string]string{}
	for path, old := range b.seats {
		seat, set := now[path]
		if !set {
			seat = old.seat
		}
		for _, d := range seat.Duties {
			if in[d] != "" {
				return fmt.Errorf("%s is in the seats %s and %s", d, in[d], path)
			}
			in[d] = path
			if !slices.Contains(old.seat.Duties, d) {
				if err := b.mayGive(d, old.seat.Identity); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (b *book) mayGive(duty, identity string) error {
	d, ok := b.declares(duty)
	switch {
	case !ok:
		return fmt.Errorf("it gives %s to %s, and it is not declared now", duty, identity)
	case slices.Contains(b.assigner.Purge, duty):
		return fmt.Errorf("it gives %s to %s, and what it saved is being deleted", duty, identity)
	}
	body, _, there := b.w.Server().Get(znode.Live(root, name, identity))
	if p, err := znode.Decode[znode.Present](body); there && err == nil && !d.Fits(p.Version) {
		return fmt.Errorf("it gives %s to %s, which has version %s", duty, identity, p.Version)
	}
	return nil
}

// takeRule: a member takes a duty only while its seat names it, and the Record declares it.
func (b *book) takeRule(s step) error {
	for i, p := range s.places {
		switch {
		case s.Ops[i].Type != zkmodel.OpCreate:
		case p.is("duty", "*", "held"):
			if err := b.ordered(s, p.parts[1]); err != nil {
				return fmt.Errorf("it takes %s: %w", p.parts[1], err)
			}
			if slices.Contains(b.assigner.Purge, p.parts[1]) {
				return fmt.Errorf("it takes %s, and what that saved is being deleted", p.parts[1])
			}
		case p.is("resigned", "*"):
			r, err := znode.Decode[znode.Resignation](s.Ops[i].Data)
			if err != nil {
				return err
			}
			if _, there := b.seats[s.who]; !there {
				return fmt.Errorf("it resigns from %s and has no seat", r.Duty)
			}
		}
	}
	return nil
}

// ordered says why a member must not begin with a duty now.
func (b *book) ordered(s step, duty string) error {
	seat, there := b.seats[s.who]
	if !there || !slices.Contains(seat.seat.Duties, duty) {
		return fmt.Errorf("its seat does not name it")
	}
	if _, ok := b.declares(duty); !ok {
		return fmt.Errorf("it is not declared now")
	}
	return nil
}
