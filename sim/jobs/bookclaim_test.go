package jobs_test

import (
	"errors"
	"fmt"

	"muster/dev/zkmodel"
	"muster/zkstate/znode"
)

// mayWrite checks that who sends a transaction may write what it writes. The function that it returns checks the rest
// when the transaction is noted: who joins has the claim only then.
func (b *book) mayWrite(s step) (after func() error, err error) {
	for i, p := range s.places {
		if p.g == "" || s.Ops[i].Type == zkmodel.OpCheck || b.mayWriteIn(s, p.g) {
			continue
		}
		return nil, fmt.Errorf("it writes %s, and the generation has no gate", s.Ops[i].Path)
	}
	if s.who == nil || s.endsRun() || b.onlyDeletesGarbage(s) {
		return func() error { return nil }, nil
	}
	if s.who.g != "" && !b.ended(s.who.g) {
		switch {
		case s.who.member && b.run(s.who.g).holders[s.who.identity] != s.who:
			return nil, errors.New("it is fenced")
		case s.who.done, s.who.left && !s.setsClaim():
			return nil, errors.New("it has ended its membership")
		}
	}
	return func() error { return b.mustHold(s) }, nil
}

// mayWriteIn reports whether generation g can be written: it is open, or it is made now, or it has ended and is swept.
func (b *book) mayWriteIn(s step, g string) bool {
	if b.run(g).open {
		return true
	}
	makes := false
	for i, p := range s.places {
		makes = makes || p.g == g && p.is("gate") && s.Ops[i].Type == zkmodel.OpCreate
	}
	return makes || b.onlyDeletesGarbage(s)
}

// onlyDeletesGarbage reports whether all that a transaction does is to delete znodes of ended generations, of which who
// sends it is no member any more. Who has called Complete may not know that another one ended the generation first.
func (b *book) onlyDeletesGarbage(s step) bool {
	for i, p := range s.places {
		member := s.who != nil && s.who.member && s.who.g == p.g && !s.who.left && !s.who.completing
		if s.Ops[i].Type != zkmodel.OpDelete || p.g == "" || member || !b.ended(p.g) || p.is("gate") {
			return false
		}
	}
	return true
}

// endsRun reports whether a transaction ends a generation.
func (s step) endsRun() bool {
	for i, p := range s.places {
		if p.is("gate") && s.Ops[i].Type == zkmodel.OpDelete {
			return true
		}
	}
	return false
}

func (s step) setsClaim() bool {
	for i, p := range s.places {
		if p.is("by", s.who.identity) && s.Ops[i].Type == zkmodel.OpSetData {
			return true
		}
	}
	return false
}

// mustHold checks that a worker has the claim of its identity in what it has just written: the generation, the job
// znode, its live znode. Who withdraws has deleted it.
func (b *book) mustHold(s step) error {
	withdraws := false
	for i, p := range s.places {
		withdraws = withdraws || p.is("by", s.who.identity) && s.Ops[i].Type == zkmodel.OpDelete
	}
	if withdraws {
		return nil
	}
	for i, p := range s.places {
		g := p.g
		if p.job || p.record || p.identity != "" {
			if b.record == nil {
				return fmt.Errorf("it writes %s, and there is no record", s.Ops[i].Path)
			}
			g = b.record.Generation
		}
		if g == "" || s.Ops[i].Type == zkmodel.OpCheck {
			continue
		}
		if b.run(g).holders[s.who.identity] != s.who {
			return fmt.Errorf("it writes %s, and has no claim there", s.Ops[i].Path)
		}
		if !b.run(g).open {
			return fmt.Errorf("it writes %s, and the generation has no gate", s.Ops[i].Path)
		}
		if p.identity != "" && p.identity != s.who.identity {
			return fmt.Errorf("it writes %s, and is %s", s.Ops[i].Path, s.who.identity)
		}
	}
	return nil
}

// applyClaim checks how a claim may change: a life is counted once, and done is final.
func (b *book) applyClaim(s step, op zkmodel.Op, p place) error {
	r, identity := b.run(p.g), p.parts[1]
	old, had := r.claims[identity]
	if op.Type == zkmodel.OpDelete {
		delete(r.claims, identity)
		delete(r.holders, identity)
		if s.who != nil && s.who.g == p.g && !b.ended(p.g) { // it withdraws, and may join the next generation
			s.who.g = ""
		}
		return nil
	}
	now, err := znode.Decode[znode.Claim](op.Data)
	if err != nil || s.who == nil {
		r.claims[identity] = now
		return err
	}
	switch {
	case identity != s.who.identity:
		return fmt.Errorf("it writes the claim of %s", identity)
	case had && old.State == znode.Done:
		return fmt.Errorf("it writes the claim of %s, who has completed", identity)
	case s.who.member && now.Lives != old.Lives, !s.who.member && now.Lives != old.Lives+1:
		return fmt.Errorf("it counts life %d of %s after life %d", now.Lives, identity, old.Lives)
	}
	r.claims[identity], r.holders[identity] = now, s.who
	s.who.g, s.who.left, s.who.done = p.g, now.State == znode.Left, now.State == znode.Done
	return nil
}

// applyID checks that the ids below N have no gap, that an identity has one, and that none of them is given up.
func (b *book) applyID(s step, op zkmodel.Op, p place) error {
	r := b.run(p.g)
	id, err := znode.IDNumber(p.parts[1])
	if err != nil {
		return err
	}
	switch op.Type {
	case zkmodel.OpDelete:
		switch {
		case id >= b.job.Workers:
			delete(r.ids, id)
		case !b.ended(p.g): // and then who had the ids is still known
			return fmt.Errorf("it deletes id %d of %d", id, b.job.Workers)
		}
	case zkmodel.OpCreate:
		for other, identity := range r.ids {
			if s.who != nil && identity == s.who.identity {
				return fmt.Errorf("%s gets id %d, and has %d", identity, id, other)
			}
		}
		for before := range min(id, b.job.Workers) {
			if _, taken := r.ids[before]; !taken {
				return fmt.Errorf("it gets id %d, and nobody has %d", id, before)
			}
		}
		r.ids[id] = ""
		if s.who != nil {
			r.ids[id] = s.who.identity
		}
	case zkmodel.OpSetData:
		if s.who != nil && r.ids[id] != s.who.identity {
			return fmt.Errorf("it writes id %d, which %q has", id, r.ids[id])
		}
	}
	return nil
}

// applyEnd checks that only a worker that has called Complete is counted, and only once.
func (b *book) applyEnd(s step, op zkmodel.Op, p place) error {
	r := b.run(p.g)
	if op.Type != zkmodel.OpCreate || s.who == nil {
		return nil
	}
	switch {
	case !s.who.completing:
		return fmt.Errorf("it is counted as completed, and has not called Complete")
	case r.completed[s.who.identity]:
		return fmt.Errorf("%s is counted as completed twice", s.who.identity)
	}
	r.completed[s.who.identity] = true
	return nil
}
