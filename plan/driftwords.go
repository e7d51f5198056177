package plan

import (
	"cmp"
	"fmt"

	"muster/resource"
	"muster/text"
)

// Because says why f was found.
func (f Finding) Because() string {
	r := f.Row
	switch f.Kind {
	case DriftMissing:
		return "no " + r.Kind().Name + " znode"
	case DriftStale:
		return r.Kind().Member + "s have joined and none is live: " + r.health()
	case DriftDamaged:
		return r.fact("lost") + r.lostData()
	case DriftDegraded:
		return r.health()
	case DriftChanged:
		return "somebody other than muster changed its record" + differs(f.Changes)
	case DriftPending:
		return f.pending()
	case DriftOrphan:
		return "owned by stack " + r.fact("owner") + ", not declared, " + string(r.Old.Status())
	case DriftForeign:
		switch {
		case r.Old.Foreign:
			return "a znode is there that is not a " + r.Kind().Name + r.problem()
		case r.Old.Classic:
			return "made by classic workers, " + string(r.Old.Status())
		case r.Reason == OtherKind:
			return "a " + r.recordedKind() + " has this name"
		case r.Reason == OtherHome:
			return "owned by stack " + r.fact("owner") + " of home " + r.fact("home")
		}
		return "owned by stack " + r.fact("owner")
	}
	return r.unmanaged()
}

func (f Finding) pending() string {
	rec := f.Row.Old.Record
	switch {
	case rec.State == resource.StateTerminating:
		return "its " + f.Row.Kind().Member + "s were asked to stop; nobody can join before the next apply" +
			differs(f.Changes)
	case len(f.Changes) == 0:
		return "owned by stack " + rec.Stack + " until the next apply"
	}
	return "the record is as apply wrote it" + differs(f.Changes)
}

// differs counts the changes; it is empty if there are none.
func differs(changes []resource.Change) string {
	if len(changes) == 0 {
		return ""
	}
	return "; " + text.Plural(len(changes), "field differs", "fields differ") + " from the declaration"
}

// health counts the members.
func (r Row) health() string {
	if r.recorded() == nil {
		return fmt.Sprintf("%d joined, %d live", r.Old.Count(resource.CountJoined), r.Old.Live)
	}
	return r.recorded().Declaration.Health(r.Old)
}

// Proceed says what a user can do next; empty if nothing needs to be done.
func (f Finding) Proceed() string {
	r := f.Row
	switch f.Kind {
	case DriftMissing, DriftStale, DriftDamaged, DriftPending:
		if next := r.Proceed(); next != "" {
			return next
		}
		return "muster apply"
	case DriftChanged:
		explain := "muster explain " + text.ShellWord(r.Address()) + " shows it"
		if len(r.Changes()) > 0 {
			return explain + "; muster apply writes what is declared"
		}
		return explain + "; its next change by apply writes the record anew"
	case DriftOrphan:
		if next := r.Proceed(); next != "" {
			return next
		}
		return "muster apply deletes it; or declare it again"
	case DriftDegraded:
		return "muster status " + r.Name() + " names " + cmp.Or(r.Kind().Absent, "what is missing")
	case DriftForeign:
		if next := r.Proceed(); next != "" {
			return next
		}
		return "muster apply"
	}
	return ""
}
