package plan

import (
	"slices"

	"muster/resource"
)

// Reason is the action table. Protection is asked last because it matters only to a row that would delete or replace.
// Whatever the tables say, no row deletes a znode that has children.
func (w Want) Reason(r Row) Reason {
	table := w.declaredReason
	if r.New == nil {
		table = w.undeclaredReason
	}
	reason := table(r)
	action := reason.Action()
	deletes := action == Replace || action == Delete
	switch {
	case deletes && r.protected():
		return IsProtected
	case deletes && r.Old.Live > 0: // all have completed, so the children are nobody's members
		return StrangerChildren
	case reason.aboutLive() && len(r.Old.Strangers) > 0 && len(r.Old.Strangers) >= r.Old.Live: // nobody is live after all
		return StrangerChildren
	}
	return reason
}

// aboutLive reports whether a row is left alone because somebody is live.
func (r Reason) aboutLive() bool {
	return slices.Contains([]Reason{MembersStopping, AlreadyRunning, ClassicLive, LiveDiffers, DamagedLive, UndeclaredLive}, r)
}

// protected: the declaration decides, or the record where nothing is declared any more.
func (r Row) protected() bool {
	if r.New != nil {
		return r.New.Policy().Protect
	}
	return r.recorded() != nil && r.recorded().Declaration.Policy().Protect
}

// otherKind reports whether something of another kind has the name of what is declared.
func (r Row) otherKind() bool {
	return r.New != nil && r.recorded() != nil && r.recorded().Declaration.Kind().Name != r.New.Kind().Name
}

// Owns reports whether a record is of this stack. Stacks of two homes are two, whatever they are called: they do not share
// a lock. A record of before homes were recorded is taken for ours.
func (w Want) Owns(rec *resource.Record) bool {
	return rec != nil && rec.Stack == w.Stack && (rec.Home == "" || w.Home == "" || rec.Home == w.Home)
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

// damagedReason says what is done about parts that somebody deleted. The Record, the gate and the thing's own znode are put
// back in the same generation, because its members may go on. What else is lost is known to nobody: then nothing is
// changed while anybody is live.
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

// compare decides something of ours that is ready, live or done by what differs.
func (w Want) compare(r Row, class resource.Class) Reason {
	changes := r.Changes()
	immutable := slices.ContainsFunc(changes, func(c resource.Change) bool { return c.Immutable })
	retained := class == resource.Done && r.New.Policy().KeepsDone
	switch {
	case class == resource.Done && (immutable || !retained):
		return CompletedDone
	case immutable && class == resource.Ready:
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
	case class == resource.Damaged:
		return r.damagedReason()
	case class.IsLive():
		return UndeclaredLive
	case class == resource.Terminating && r.Old.Live > 0:
		return MembersStopping
	}
	return Undeclared
}
