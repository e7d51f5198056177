package plan

import (
	"slices"

	"muster/resource"
)

// Reason is the first reason that fits; the action table says what follows from it. Only if that deletes something, it
// looks at what forbids a delete: protection, unfinished work, and children, since no row deletes a znode that has any.
func (w Want) Reason(r Row) Reason {
	find := w.declaredReason
	if r.New == nil {
		find = w.undeclaredReason
	}
	reason := find(r)
	deletes := reason.Action().deletes()
	switch {
	case deletes && r.protected():
		return IsProtected
	case deletes && r.unfinished() > 0:
		return WorkUnfinished
	case deletes && r.Old.Live > 0: // the resource is not live, so who made these children is no member
		return StrangerChildren
	case slices.Contains(becauseLive(), reason) && r.onlyStrangers():
		return StrangerChildren
	}
	return reason
}

// becauseLive lists the reasons that say that members are live.
func becauseLive() []Reason {
	return []Reason{MembersStopping, AlreadyRunning, ClassicLive, LiveDiffers, DamagedLive, UndeclaredLive}
}

// onlyStrangers reports whether every child of the znode is a stranger.
func (r Row) onlyStrangers() bool {
	return len(r.Old.Strangers) > 0 && len(r.Old.Strangers) >= r.Old.Live
}

// protected is what the declaration says, or the Record if nothing is declared.
func (r Row) protected() bool {
	if r.New != nil {
		return r.New.Policy().Protect
	}
	return r.recorded() != nil && r.recorded().Declaration.Policy().Protect
}

// unfinished counts the work that must have ended before the resource is deleted or replaced.
func (r Row) unfinished() int {
	if r.recorded() == nil {
		return 0
	}
	return r.Old.Count(r.recorded().Declaration.Kind().Unfinished.Count)
}

// anyImmutable reports whether a field differs that cannot change in place.
func anyImmutable(changes []resource.Change) bool {
	return slices.ContainsFunc(changes, func(c resource.Change) bool { return c.Immutable })
}

// otherKind reports whether a resource of another kind has the declared name.
func (r Row) otherKind() bool {
	switch {
	case r.New == nil || r.Old == nil:
		return false
	case r.recorded() != nil:
		return r.recorded().Declaration.Kind().Name != r.New.Kind().Name
	}
	return r.Old.Classic && !r.New.Kind().Classic
}

// inPlace reports whether the resource is kept in its generation: see resource.Policy.
func (r Row) inPlace() bool { return r.recorded() != nil && r.recorded().Declaration.Policy().InPlace }

// Owns reports whether this stack owns a Record. Two stacks with one name and different homes are different stacks:
// they do not share a lock.
func (w Want) Owns(rec *resource.Record) bool {
	return rec != nil && rec.Stack == w.Stack && rec.Home == w.Home
}

func (w Want) declaredReason(r Row) Reason {
	class, rec := r.Old.Class(), r.recorded()
	switch {
	case class == resource.Foreign:
		return IsForeign
	case class == resource.Unreadable:
		return IsUnreadable
	case class == resource.Missing:
		return NotThere
	case r.otherKind():
		return OtherKind
	case rec != nil && rec.Stack == w.Stack && !w.Owns(rec):
		return OtherHome
	case rec != nil && rec.Stack != w.Stack && !slices.Contains(w.TakeOver, rec.Stack):
		return OtherStack
	case class == resource.Damaged:
		return r.damagedReason()
	case class == resource.Terminating && r.Old.Live > 0:
		return MembersStopping
	case class == resource.Terminating && r.inPlace() && !anyImmutable(r.Changes()):
		return TerminatedKept
	case class == resource.Terminating:
		return TerminatedIdle
	case class.IsLive() && r.New.Policy().FailIfLive:
		return AlreadyRunning
	case r.Old.Classic && class.IsLive():
		return ClassicLive
	case r.Old.Classic:
		return ClassicLeftover
	case class == resource.Stale:
		return StaleLeftover
	}
	return w.compare(r, class)
}

// damagedReason is the reason of a resource of which somebody deleted parts. Apply puts back the Record, the gate and
// the resource's own znode in the same generation, since its members may go on. Nobody knows what was in any other
// part, so nothing is changed while members are live; but of a resource that is kept in place every part is put back,
// empty.
func (r Row) damagedReason() Reason {
	switch {
	case r.Old.Repairable():
		return IsDamaged
	case r.recorded() == nil:
		return DamagedBeyondRepair
	case r.Old.Live > 0:
		return DamagedLive
	case r.New == nil:
		return Undeclared
	}
	return DamagedLeftover
}

// compare is the reason of a resource that this stack may change and that is ready, live or done.
func (w Want) compare(r Row, class resource.Class) Reason {
	changes := r.Changes()
	immutable := anyImmutable(changes)
	retained := class == resource.Done && r.New.Policy().KeepsDone
	switch {
	case class == resource.Done && (immutable || !retained):
		return CompletedDone
	case immutable && r.unfinished() > 0:
		return WorkUnfinished
	case immutable && (class == resource.Ready || class == resource.Idle):
		return ReadyDiffers
	case immutable:
		return LiveDiffers
	case len(changes) > 0:
		return MutableDiffers
	case !w.Owns(r.recorded()):
		return OwnerDiffers
	case r.recorded().Edited():
		return RecordEdited
	case retained:
		return CompletedKept
	}
	return Equal
}

func (w Want) undeclaredReason(r Row) Reason {
	class := r.Old.Class()
	switch {
	case class == resource.Foreign, class == resource.Unreadable, !w.Owns(r.recorded()):
		return NotOurs
	case class == resource.Damaged && (r.Old.Has(resource.PartRecord) || r.Old.Has(resource.PartZnode)):
		return r.damagedReason()
	case class == resource.Damaged: // only its generation is left, which ends
	case class.IsLive():
		return UndeclaredLive
	case class == resource.Terminating && r.Old.Live > 0:
		return MembersStopping
	}
	return Undeclared
}
