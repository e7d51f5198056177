package jobs_test

import (
	"fmt"
	"slices"
	"strconv"

	"muster/dev/zkmodel"
	"muster/zkstate/znode"
)

// barrier is one name.
type barrier struct {
	floor    int
	attempts map[string]*attempt // by the name of the folder
}

// attempt is an attempt at a round, of which nothing is forgotten when it is cleared.
type attempt struct {
	name          string
	round, number int
	state         znode.Round
	arrived       map[int]bool  // ids that have ever arrived
	here          map[int]int64 // live arrivals, and their sessions
	most          int           // live arrivals at one instant
	told          map[int]bool  // ids that arrived after an abort, to say that they know of it
	released      bool
	aborted       bool
	cleared       bool // or being cleared
}

func (b *barrier) endSession(id int64) {
	for _, a := range b.attempts {
		for worker, session := range a.here {
			if session == id {
				delete(a.here, worker)
			}
		}
	}
}

// releasedRound reports whether an attempt at a round was released.
func (b *barrier) releasedRound(round int) bool {
	for _, a := range b.attempts {
		if a.round == round && a.released {
			return true
		}
	}
	return false
}

// skipped reports whether a round is below the floor, and nobody has ever arrived at it: that counts as released.
func (b *barrier) skipped(round int) bool {
	for _, a := range b.attempts {
		if a.round == round && len(a.arrived) > 0 {
			return false
		}
	}
	return round < b.floor
}

// applyBarrier notes what is written below barrier/<name>.
func (b *book) applyBarrier(s step, op zkmodel.Op, p place) error {
	r, name := b.run(p.g), p.parts[1]
	one := r.barriers[name]
	if one == nil {
		one = &barrier{attempts: map[string]*attempt{}}
		r.barriers[name] = one
	}
	if b.ended(p.g) {
		return nil // it is swept
	}
	var err error
	switch {
	case len(p.parts) == 2:
		err = one.applyFloor(op)
	case p.is("barrier", "*", "*"):
		err = one.applyFolder(op, p.parts[2])
	case one.attempts[p.parts[2]] == nil:
		err = fmt.Errorf("nobody made %s", p.parts[2])
	case p.is("barrier", "*", "*", "st"):
		err = one.attempts[p.parts[2]].applyState(one, op)
	case p.is("barrier", "*", "*", "a", "*"):
		err = one.attempts[p.parts[2]].applyArrival(one, s, op, p.parts[4])
	case p.is("barrier", "*", "*", "c", "*"):
		err = one.attempts[p.parts[2]].applyCount(one, op, p.parts[4])
	}
	if err != nil {
		return fmt.Errorf("barrier %s: %w", name, err)
	}
	return nil
}

func (b *barrier) applyFloor(op zkmodel.Op) error {
	if op.Type == zkmodel.OpDelete {
		return nil
	}
	floor, err := znode.DecodeFloor(op.Data)
	if err == nil && floor < b.floor {
		err = fmt.Errorf("the floor falls from %d to %d", b.floor, floor)
	}
	b.floor = floor
	return err
}

// applyFolder checks that no round is made below the floor or after its release, and no attempt before the one before
// it was aborted.
func (b *barrier) applyFolder(op zkmodel.Op, name string) error {
	if op.Type != zkmodel.OpCreate {
		return nil
	}
	round, number, err := znode.ParseAttempt(name)
	if err != nil {
		return err
	}
	before := b.attempts[znode.AttemptName(round, number-1)]
	switch {
	case round < b.floor:
		return fmt.Errorf("%s is made below the floor, which is %d", name, b.floor)
	case b.releasedRound(round):
		return fmt.Errorf("%s is made after round %d was released", name, round)
	case number > 1 && (before == nil || !before.aborted):
		return fmt.Errorf("%s is made before attempt %d was aborted", name, number-1)
	}
	b.attempts[name] = &attempt{
		name: name, round: round, number: number,
		arrived: map[int]bool{}, here: map[int]int64{}, told: map[int]bool{},
	}
	return nil
}

// applyState notes an abort: those whom it names are those who have not arrived.
func (a *attempt) applyState(b *barrier, op zkmodel.Op) error {
	if op.Type == zkmodel.OpDelete {
		if !a.cleared && len(a.arrived) > 0 && a.round >= b.floor {
			return fmt.Errorf("%s is cleared, and the floor is %d", a.name, b.floor)
		}
		if len(a.arrived) > 0 && !a.released && !b.releasedRound(a.round) {
			return fmt.Errorf("the state of %s is cleared, and it was not released", a.name)
		}
		a.cleared = true
		return nil
	}
	st, err := znode.Decode[znode.Round](op.Data)
	if err != nil || op.Type == zkmodel.OpCreate {
		a.state = st
		return err
	}
	if a.released || a.aborted {
		return fmt.Errorf("%s is aborted, and was decided before", a.name)
	}
	if missing := a.missing(); !st.Mode.Live() && !slices.Equal(st.Missing, missing) {
		return fmt.Errorf("%s is aborted because of %v, and %v are missing", a.name, st.Missing, missing)
	}
	a.state, a.aborted = st, true
	return nil
}

// missing are the ids that have not arrived at a durable round.
func (a *attempt) missing() []int {
	var ids []int
	for id := range a.state.Workers {
		if !a.arrived[id] {
			ids = append(ids, id)
		}
	}
	return ids
}

// applyArrival notes who arrives.
func (a *attempt) applyArrival(b *barrier, s step, op zkmodel.Op, name string) error {
	id, err := strconv.Atoi(name)
	if err != nil {
		return err
	}
	if op.Type == zkmodel.OpDelete {
		delete(a.here, id)
		if !a.released && !a.aborted && (s.who == nil || s.who.id != id) {
			return fmt.Errorf("the arrival of %d at %s is deleted, and that is undecided", id, a.name)
		}
		return nil
	}
	if s.who != nil && s.who.id != id {
		return fmt.Errorf("worker %d arrives at %s as %d", s.who.id, a.name, id)
	}
	if a.aborted {
		a.told[id] = true
		return nil
	}
	a.arrived[id] = true
	if a.state.Mode.Live() {
		a.here[id] = s.Session
		a.most = max(a.most, len(a.here))
	}
	return nil
}

// applyCount notes the last arrival: T. It is the release, or the abort that was noted in the same transaction.
func (a *attempt) applyCount(b *barrier, op zkmodel.Op, name string) error {
	number, err := znode.CountNumber(name)
	if err != nil || op.Type == zkmodel.OpDelete || number != a.state.Workers-1 {
		return err
	}
	if len(op.Data) > 0 {
		if !a.aborted {
			return fmt.Errorf("%s is aborted without a reason", a.name)
		}
		return nil
	}
	switch here := len(a.arrived); {
	case a.aborted:
		return fmt.Errorf("%s is released, and was aborted before", a.name)
	case b.releasedRound(a.round):
		return fmt.Errorf("%s is released, and the round was released before", a.name)
	case a.state.Mode.Live() && a.most < a.state.Workers:
		return fmt.Errorf("%s is released, and at most %d were there at one instant", a.name, a.most)
	case here < a.state.Workers:
		return fmt.Errorf("%s is released, and %d have arrived", a.name, here)
	}
	a.released = true
	return nil
}
