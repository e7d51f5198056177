package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"muster/resource"
	"muster/text"
)

// DriftKind is one way in which ZooKeeper can differ from the declarations.
type DriftKind string

// The kinds, in the order in which drift lists them.
const (
	DriftMissing   DriftKind = "missing"   // declared, and there is no job znode
	DriftStale     DriftKind = "stale"     // a run died and left its job behind
	DriftDamaged   DriftKind = "damaged"   // a part of it was deleted by hand
	DriftChanged   DriftKind = "changed"   // somebody other than muster edited the Record
	DriftPending   DriftKind = "pending"   // the declaration or the stack differs, or workers were asked to stop
	DriftOrphan    DriftKind = "orphan"    // this stack owns it, and it is not declared
	DriftDegraded  DriftKind = "degraded"  // all have joined, and some left without completing
	DriftFailing   DriftKind = "failing"   // the last runs of some cron have failed
	DriftForeign   DriftKind = "foreign"   // declared, and this stack does not own what is there
	DriftUnmanaged DriftKind = "unmanaged" // neither declared nor owned by this stack
)

// Kinds lists every kind in the order in which drift lists them.
func DriftKinds() []DriftKind {
	return []DriftKind{
		DriftMissing, DriftStale, DriftDamaged, DriftChanged, DriftPending, DriftOrphan, DriftDegraded, DriftFailing,
		DriftForeign, DriftUnmanaged,
	}
}

// FailingKinds are the kinds that make "muster drift" fail by default.
func FailingKinds() []DriftKind {
	return []DriftKind{DriftMissing, DriftStale, DriftDamaged, DriftChanged, DriftOrphan}
}

// Finding is one difference. A job can have two: its run died, and its Record was edited.
type Finding struct {
	Row     Row
	Kind    DriftKind
	Changes []resource.Change // for changed and pending: the fields that differ and are not ignored
	Ignore  *resource.Ignore  // the Ignore that covers this finding; nil in Drift.Findings
}

// Drift is the difference between a configuration that was applied and ZooKeeper.
type Drift struct {
	Plan
	Declared int
	Findings []Finding // by kind, then by address
	Ignored  []Finding // those that an Ignore covers, in the same order
	// Unreadable could not be read. If there is any, or something that Plan could not list, a result without findings does
	// not mean that nothing drifted.
	Unreadable []Row
}

// Drift lists what differs in p from the declarations. Completed work is never drift. A missing job that removes itself
// when it has completed is no drift either: it may have completed.
func (p Plan) Drift(ignores []resource.Ignore) Drift {
	d := Drift{Plan: p}
	for _, r := range p.Rows {
		if r.New != nil {
			d.Declared++
		}
		if r.Old.Class() == resource.Unreadable {
			if ignoreOf(r, ignores, coversAll) == nil {
				d.Unreadable = append(d.Unreadable, r)
			}
			continue
		}
		for _, kind := range r.drift(Want{Stack: p.Stack, Home: p.Home}) {
			f := Finding{Row: r, Kind: kind}
			if kind == DriftChanged || kind == DriftPending {
				f.Changes = r.Changes()
			}
			if f = f.applyIgnores(ignores, p.Stack); f.Ignore != nil {
				d.Ignored = append(d.Ignored, f)
			} else {
				d.Findings = append(d.Findings, f)
			}
		}
	}
	slices.SortFunc(d.Findings, compareFindings)
	slices.SortFunc(d.Ignored, compareFindings)
	slices.SortFunc(d.Unreadable, func(a, b Row) int { return cmp.Compare(a.Path, b.Path) })
	return d
}

func compareFindings(a, b Finding) int {
	return cmp.Or(
		cmp.Compare(slices.Index(DriftKinds(), a.Kind), slices.Index(DriftKinds(), b.Kind)),
		cmp.Compare(a.Row.Address(), b.Row.Address()),
		cmp.Compare(a.Row.Path, b.Row.Path),
	)
}

// Of lists the findings of these kinds.
func (d Drift) Of(kinds ...DriftKind) []Finding {
	return slices.DeleteFunc(slices.Clone(d.Findings), func(f Finding) bool { return !slices.Contains(kinds, f.Kind) })
}

// Incomplete reports whether something could not be read.
func (d Drift) Incomplete() bool {
	return len(d.Unlisted) > 0 || d.Unindexed != "" || len(d.Unreadable) > 0
}

// drift lists how a row differs: at most once in its members, and at most once in its Record.
func (r Row) drift(w Want) []DriftKind {
	class, rec := r.Old.Class(), r.recorded()
	switch {
	case r.New == nil:
		return []DriftKind{r.undeclaredDrift(w)}
	case r.Reason == OtherKind, class == resource.Foreign:
		return []DriftKind{DriftForeign}
	case class == resource.Missing && r.New.Policy().RemovesSelf:
		return nil
	case class == resource.Missing:
		return []DriftKind{DriftMissing}
	}
	var kinds []DriftKind
	switch {
	case class == resource.Damaged:
		kinds = append(kinds, DriftDamaged)
	case class == resource.Stale:
		kinds = append(kinds, DriftStale)
	case r.Old.IsDegraded():
		kinds = append(kinds, DriftDegraded)
	case r.Old.Status() == resource.StatusFailing:
		kinds = append(kinds, DriftFailing)
	}
	switch {
	case rec == nil && len(kinds) > 0:
	case rec == nil: // classic
		kinds = append(kinds, DriftForeign)
	case rec.Edited():
		kinds = append(kinds, DriftChanged)
	case r.Reason == OtherStack, r.Reason == OtherHome:
		return []DriftKind{DriftForeign} // a run of another stack is no drift of this one
	case len(r.Changes()) > 0, !w.Owns(rec), rec.State == resource.StateTerminating:
		kinds = append(kinds, DriftPending)
	}
	return kinds
}

func (r Row) undeclaredDrift(w Want) DriftKind {
	switch {
	case r.Old.Foreign || !w.Owns(r.recorded()):
		return DriftUnmanaged
	case r.Old.Class() == resource.Damaged:
		return DriftDamaged
	}
	return DriftOrphan
}

// applyIgnores removes the ignored fields from f, or sets f.Ignore if nothing else is left.
func (f Finding) applyIgnores(ignores []resource.Ignore, stack string) Finding {
	if f.Ignore = ignoreOf(f.Row, ignores, coversAll); f.Ignore != nil || len(f.Changes) == 0 {
		return f
	}
	var last *resource.Ignore
	var left []resource.Change
	for _, c := range f.Changes {
		covers := func(field string) bool { return c.Name == field || strings.HasPrefix(c.Name, field+".") }
		if ig := ignoreOf(f.Row, ignores, func(fields []string) bool {
			return slices.ContainsFunc(fields, covers)
		}); ig != nil {
			last = ig
		} else {
			left = append(left, c)
		}
	}
	// A take-over or a termination is pending even if every field that differs is ignored.
	rec := f.Row.Old.Record
	pending := f.Kind == DriftPending && (rec.Stack != stack || rec.State == resource.StateTerminating)
	if len(left) == 0 && !pending {
		f.Ignore = last
		return f
	}
	f.Changes = left
	return f
}

// ignoreOf finds the ignore that names a row, and whose fields cover what is asked.
func ignoreOf(r Row, ignores []resource.Ignore, cover func(fields []string) bool) *resource.Ignore {
	for i, ig := range ignores {
		if (ig.Address == r.Address() || ig.Address == r.Path) && cover(ig.Fields) {
			return &ignores[i]
		}
	}
	return nil
}

// coversAll reports whether these are the fields of an ignore that covers all of its row.
func coversAll(fields []string) bool { return len(fields) == 0 }

// Because says why f was found.
func (f Finding) Because() string {
	r := f.Row
	switch f.Kind {
	case DriftMissing:
		return "no " + r.Kind().Name + " znode"
	case DriftStale:
		return r.Kind().Member + "s have joined and none is live: " + r.health()
	case DriftDamaged:
		return r.lost() + r.lostData()
	case DriftDegraded, DriftFailing:
		return r.health()
	case DriftChanged:
		return "somebody other than muster changed its record" + differs(f.Changes)
	case DriftPending:
		return f.pending()
	case DriftOrphan:
		return "owned by stack " + r.owner() + ", not declared, " + string(r.Old.Status())
	case DriftForeign:
		if !r.Old.Classic {
			return r.Because()
		}
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
	case DriftMissing, DriftStale, DriftDamaged, DriftPending, DriftForeign:
		return cmp.Or(r.Proceed(), "muster apply")
	case DriftChanged:
		explain := "muster explain " + text.ShellWord(r.Address()) + " shows it"
		if len(r.Changes()) > 0 {
			return explain + "; muster apply writes what is declared"
		}
		return explain + "; its next change by apply writes the record anew"
	case DriftOrphan:
		return cmp.Or(r.Proceed(), "muster apply deletes it; or declare it again")
	case DriftDegraded:
		return "muster status " + r.Name() + " names " + cmp.Or(r.Kind().Absent, "what is missing")
	case DriftFailing:
		return "muster status " + r.Name() + " shows its last runs"
	}
	return ""
}
