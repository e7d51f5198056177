package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"muster/resource"
	"muster/text"
)

// Kind is one way in which ZooKeeper may have drifted from what is declared.
type Kind string

// The kinds, in the order in which drift lists them.
const (
	DriftMissing   Kind = "missing"   // declared, and there is no job znode
	DriftStale     Kind = "stale"     // a run died and left its job behind
	DriftDamaged   Kind = "damaged"   // a part of it was deleted by hand
	DriftChanged   Kind = "changed"   // somebody other than muster edited the Record
	DriftPending   Kind = "pending"   // the declaration or the stack differs, or workers were asked to stop
	DriftOrphan    Kind = "orphan"    // ours, and no longer declared
	DriftDegraded  Kind = "degraded"  // all have joined, and some left without completing
	DriftForeign   Kind = "foreign"   // declared, and what is there is not ours
	DriftUnmanaged Kind = "unmanaged" // neither declared nor ours
)

// Kinds lists every kind in the order in which drift lists them.
func Kinds() []Kind {
	return []Kind{
		DriftMissing, DriftStale, DriftDamaged, DriftChanged, DriftPending, DriftOrphan, DriftDegraded, DriftForeign,
		DriftUnmanaged,
	}
}

// FailingKinds are the kinds that make a check fail unless its caller says otherwise.
func FailingKinds() []Kind {
	return []Kind{DriftMissing, DriftStale, DriftDamaged, DriftChanged, DriftOrphan}
}

// Ignore is drift that is known and tolerated. Whether it has expired is for its reader to say.
type Ignore struct {
	Address string   // of a declared job, or the path of any
	Fields  []string // "workers", "labels", "labels.team"; none: whatever is found
	Reason  string
	Until   string // the last day, for people
	At      string // where it is declared: "drift.hcl:3"
}

// Finding is one thing that drifted. A job can have two: its run died, and its Record was edited.
type Finding struct {
	Row     Row
	Kind    Kind
	Changes []resource.Change // of changed and pending: the fields that differ and are not ignored
	Ignore  *Ignore           // what hides this finding; nil among Findings
}

// Drift is what a comparison says about a configuration that should already be in force.
type Drift struct {
	Stack, Ensemble string
	Roots           []string
	Declared        int
	Findings        []Finding // by kind, then in the order of the plan's rows by address
	Ignored         []Finding // the same, hidden by an Ignore

	// What could not be seen, so that a clean result does not mean a clean ZooKeeper.
	Unlisted   []string
	Unindexed  string
	Unreadable []Row
}

// Drift tells what differs in p from the declarations, sorted out by who must do something about it. Completed work is
// never drift, and a missing job that removes itself when it has completed cannot be told from one that did.
func (p Plan) Drift(ignores []Ignore) Drift {
	d := Drift{Stack: p.Stack, Ensemble: p.Ensemble, Roots: p.Roots, Unlisted: p.Unlisted, Unindexed: p.Unindexed}
	for _, r := range p.Rows {
		if r.New != nil {
			d.Declared++
		}
		if r.Old.Class() == resource.Unreadable {
			if hidden(r, ignores) == nil {
				d.Unreadable = append(d.Unreadable, r)
			}
			continue
		}
		for _, f := range r.drift(Want{Stack: p.Stack, Home: p.Home}) {
			if f = f.without(ignores, p.Stack); f.Ignore != nil {
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
		cmp.Compare(slices.Index(Kinds(), a.Kind), slices.Index(Kinds(), b.Kind)),
		cmp.Compare(a.Row.Address(), b.Row.Address()),
		cmp.Compare(a.Row.Path, b.Row.Path),
	)
}

// Of lists the findings of the given kinds.
func (d Drift) Of(kinds ...Kind) []Finding {
	var fs []Finding
	for _, f := range d.Findings {
		if slices.Contains(kinds, f.Kind) {
			fs = append(fs, f)
		}
	}
	return fs
}

// Blind reports that something could not be seen.
func (d Drift) Blind() bool { return len(d.Unlisted) > 0 || d.Unindexed != "" || len(d.Unreadable) > 0 }

// drift is what happened to what works for it, if anything, and what happened to its Record.
func (r Row) drift(w Want) []Finding {
	if r.New == nil {
		return []Finding{{Row: r, Kind: r.undeclaredDrift(w)}}
	}
	if r.Reason == OtherKind {
		return []Finding{{Row: r, Kind: DriftForeign}}
	}
	var fs []Finding
	switch r.Old.Class() {
	case resource.Missing:
		if r.New.Policy().RemovesSelf {
			return nil
		}
		return []Finding{{Row: r, Kind: DriftMissing}}
	case resource.Foreign:
		return []Finding{{Row: r, Kind: DriftForeign}}
	case resource.Damaged:
		fs = append(fs, Finding{Row: r, Kind: DriftDamaged})
	case resource.Stale:
		fs = append(fs, Finding{Row: r, Kind: DriftStale})
	case resource.Degraded:
		fs = append(fs, Finding{Row: r, Kind: DriftDegraded})
	}
	rec := r.recorded()
	changes := r.Changes()
	switch {
	case rec == nil && len(fs) > 0:
	case rec == nil: // classic
		fs = append(fs, Finding{Row: r, Kind: DriftForeign})
	case rec.Edited():
		fs = append(fs, Finding{Row: r, Kind: DriftChanged, Changes: changes})
	case r.Reason == OtherStack, r.Reason == OtherHome:
		fs = []Finding{{Row: r, Kind: DriftForeign}} // what its owner's run does is no drift of ours
	case len(changes) > 0, !w.Owns(rec), rec.State == resource.StateTerminating:
		fs = append(fs, Finding{Row: r, Kind: DriftPending, Changes: changes})
	}
	return fs
}

func (r Row) undeclaredDrift(w Want) Kind {
	switch {
	case r.Old.Foreign || !w.Owns(r.recorded()):
		return DriftUnmanaged
	case r.Old.Class() == resource.Damaged:
		return DriftDamaged
	}
	return DriftOrphan
}

// without takes the ignored fields out of f, or marks f as ignored.
func (f Finding) without(ignores []Ignore, stack string) Finding {
	if f.Ignore = hidden(f.Row, ignores); f.Ignore != nil || len(f.Changes) == 0 {
		return f
	}
	var last *Ignore
	var left []resource.Change
	for _, c := range f.Changes {
		if ig := hides(f.Row, ignores, c.Name); ig != nil {
			last = ig
		} else {
			left = append(left, c)
		}
	}
	// A job that is also to be taken over, or was terminated, is pending whatever its fields are.
	rec := f.Row.Old.Record
	pending := f.Kind == DriftPending && (rec.Stack != stack || rec.State == resource.StateTerminating)
	if len(left) == 0 && !pending {
		f.Ignore = last
		return f
	}
	f.Changes = left
	return f
}

// hidden finds the ignore that covers all of a row.
func hidden(r Row, ignores []Ignore) *Ignore {
	for i, ig := range ignores {
		if ig.names(r) && len(ig.Fields) == 0 {
			return &ignores[i]
		}
	}
	return nil
}

// hides finds the ignore that covers one field of a row.
func hides(r Row, ignores []Ignore, field string) *Ignore {
	for i, ig := range ignores {
		if ig.names(r) && slices.ContainsFunc(ig.Fields, func(f string) bool { return field == f || strings.HasPrefix(field, f+".") }) {
			return &ignores[i]
		}
	}
	return nil
}

func (ig Ignore) names(r Row) bool { return ig.Address == r.Address() || ig.Address == r.Path }

// Because is why f was found.
func (f Finding) Because() string {
	r := f.Row
	switch f.Kind {
	case DriftMissing:
		return "no " + r.Kind().Name + " znode"
	case DriftStale:
		return r.Kind().Member + "s have joined and none is live: " + r.health()
	case DriftDamaged:
		return "deleted by hand: " + r.lost()
	case DriftDegraded:
		return r.health()
	case DriftChanged:
		return "somebody other than muster changed its record" + differs(f.Changes)
	case DriftPending:
		return f.pending()
	case DriftOrphan:
		return "owned by stack " + r.owner() + ", not declared, " + string(r.Old.Status())
	case DriftForeign:
		switch {
		case r.Old.Foreign:
			return "a znode is there that is not a job" + r.problem()
		case r.Old.Classic:
			return "made by classic workers, " + string(r.Old.Status())
		case r.Reason == OtherKind:
			return "a " + r.recordedKind() + " has this name"
		case r.Reason == OtherHome:
			return "owned by stack " + r.owner() + " of home " + r.home()
		}
		return "owned by stack " + r.owner()
	}
	return r.unmanaged()
}

func (f Finding) pending() string {
	rec := f.Row.Old.Record
	switch {
	case rec.State == resource.StateTerminating:
		return "its " + f.Row.Kind().Member + "s were asked to stop; nobody can join before the next apply" + differs(f.Changes)
	case len(f.Changes) == 0:
		return "owned by stack " + rec.Stack + " until the next apply"
	}
	return "the record is as apply wrote it" + differs(f.Changes)
}

// differs: an edited record may still say what is declared.
func differs(changes []resource.Change) string {
	switch len(changes) {
	case 0:
		return ""
	case 1:
		return "; 1 field differs from the declaration"
	}
	return fmt.Sprintf("; %d fields differ from the declaration", len(changes))
}

// health counts who works for it.
func (r Row) health() string {
	if r.recorded() == nil {
		return fmt.Sprintf("%d joined, %d live", r.Old.Count(resource.CountJoined), r.Old.Live)
	}
	return r.recorded().Declaration.Health(r.Old)
}

// Proceed is what a user can type next; empty where nothing needs to be done.
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
		return "muster status " + r.Name() + " names the missing " + r.Kind().Member + "s"
	case DriftForeign:
		if next := r.Proceed(); next != "" {
			return next
		}
		return "muster apply"
	}
	return ""
}
