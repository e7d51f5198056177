// Package plan compares declared resources with observed ones. Diff is a pure function: the same declarations and the
// same observations give the same plan. Every row carries the facts that must still hold when it is committed.
//
// The package reads no file, talks to no server, and uses neither a clock nor random numbers.
package plan

import (
	"cmp"
	"errors"
	"path"
	"slices"
	"time"

	"muster/resource"
	"muster/text"
)

// Want is what is declared.
type Want struct {
	Stack    string   // the stack that owns these declarations
	Home     string   // of the stack: a stack of another home is another stack
	TakeOver []string // stacks that lose a resource to this one if it is declared here
	Declared []resource.Declaration
}

// Plan is the result of one comparison.
type Plan struct {
	ID        string   `json:"id"` // random; set by the caller that shows or saves the plan
	Stack     string   `json:"stack"`
	Home      string   `json:"home,omitempty"`
	Ensemble  string   `json:"ensemble"` // empty: the ensemble had no id yet
	Roots     []string `json:"roots,omitempty"`
	Unlisted  []string `json:"unlisted,omitempty"`  // see State
	Unindexed string   `json:"unindexed,omitempty"` // see State
	Rows      []Row    `json:"-"`                   // all of them, in the order of CompareRows
	Partial   bool     `json:"-"`                   // the user left out some resources (--only, --skip)
}

// Row is one resource in a plan. Old is what was observed, nil if it is missing; it is also the precondition of the
// commit. New is what is declared, nil if nothing is.
type Row struct {
	Path   string
	Old    *resource.Observed
	New    resource.Declaration
	Reason Reason
}

// Action is what apply would do.
func (r Row) Action() Action { return r.Reason.Action() }

// Address is the address of the declaration, or else the path.
func (r Row) Address() string {
	if r.New != nil && r.New.ID().Address != "" {
		return r.New.ID().Address
	}
	return r.Path
}

// At is the place of the declaration: "jobs.hcl:29"; empty if there is none.
func (r Row) At() string {
	if r.New == nil {
		return ""
	}
	return r.New.ID().At
}

// Kind is the kind of the declaration, or else of the Record; the zero Kind if there is neither.
func (r Row) Kind() resource.Kind {
	switch {
	case r.New != nil:
		return r.New.Kind()
	case r.recorded() != nil:
		return r.recorded().Declaration.Kind()
	}
	return resource.Kind{}
}

// recorded is the Record; nil if there is none.
func (r Row) recorded() *resource.Record {
	if r.Old == nil {
		return nil
	}
	return r.Old.Record
}

// Changes lists the fields in which the declaration differs from the Record; nil unless both exist. A repair changes no
// field.
func (r Row) Changes() []resource.Change {
	if r.recorded() == nil || r.New == nil || r.otherKind() || r.Reason == IsDamaged {
		return nil
	}
	return resource.Changes(r.recorded().Declaration, r.New)
}

// Sets lists the fields that the commit of r by this stack sets: what it changes, or those of a new resource that do
// not have their default.
func (r Row) Sets(stack string) []resource.Change {
	var all []resource.Change
	switch rec := r.recorded(); {
	case r.New == nil:
	case r.Action() == Create:
		for _, f := range r.New.Fields() {
			if !f.IsDefault {
				all = append(all, resource.Change{Name: f.Name, New: &f.Value})
			}
		}
	case r.Action().Changes() && rec != nil && rec.Stack != stack:
		all = append(all, resource.Change{Name: "stack", Old: &rec.Stack, New: &stack})
	}
	return append(all, r.Changes()...)
}

// Stale reports whether the commit of r deletes a resource whose members may come back, since their containers may only
// be restarting. Apply commits such a row only after it saw it unchanged for Grace.
func (r Row) Stale() bool {
	class := r.Old.Class()
	comeBack := class == resource.Stale || class == resource.Idle || class == resource.Damaged
	return comeBack && r.Action().deletes()
}

// Grace is how long no member must be live before a stale resource is deleted or replaced: as declared, or else as
// recorded, or else the default.
func (r Row) Grace() resource.Duration {
	switch {
	case r.New != nil:
		return r.New.Policy().Grace
	case r.recorded() != nil:
		return r.recorded().Declaration.Policy().Grace
	}
	return resource.Duration(30 * time.Second)
}

// Diff compares. Everything that is declared or observed gets a row and a reason. The caller has checked the
// declarations. If two have the same path, Diff uses the one with the smaller address.
func Diff(want Want, have State) Plan {
	declared := want.byPath()
	p := Plan{
		Stack: want.Stack, Home: want.Home, Ensemble: have.Ensemble, Unlisted: have.Unlisted, Unindexed: have.Unindexed,
	}
	for at := range have.Found {
		if declared[at] == nil {
			declared[at] = nil // it gets a row all the same
		}
	}
	for at, d := range declared {
		row := Row{Path: at, New: d}
		if o, ok := have.Found[at]; ok {
			row.Old = &o
		}
		if want.isForgery(row) {
			row.Old = nil
		}
		row.Reason = want.Reason(row)
		p.Rows = append(p.Rows, row)
	}
	slices.SortFunc(p.Rows, CompareRows)
	return p
}

// isForgery reports whether nothing is there but a generation whose copy of the Record names this path, and another
// kind or owner than is declared. Whoever may write in any generation could have written that.
func (w Want) isForgery(r Row) bool {
	rec := r.recorded()
	return rec != nil && r.New != nil && !r.Old.Has(resource.PartRecord) && !r.Old.Has(resource.PartZnode) &&
		(r.otherKind() || !w.Owns(rec) && !slices.Contains(w.TakeOver, rec.Stack))
}

func (w Want) byPath() map[string]resource.Declaration {
	declared := make(map[string]resource.Declaration, len(w.Declared))
	for _, d := range w.Declared {
		id := d.ID()
		if prev, ok := declared[id.Path()]; !ok || id.Address < prev.ID().Address {
			declared[id.Path()] = d
		}
	}
	return declared
}

// Paths lists the paths of what is declared.
func (w Want) Paths() []string {
	return text.Each(w.Declared, func(d resource.Declaration) string { return d.ID().Path() })
}

// Settled returns a function that reports whether Diff plans nothing for a resource that is as observed, and would not
// do so either if its znode had children: its row is unchanged or unmanaged.
func (w Want) Settled() func(path string, o *resource.Observed) bool {
	declared := w.byPath()
	return func(path string, o *resource.Observed) bool {
		d := declared[path]
		if d != nil && d.Policy().FailIfLive {
			return false
		}
		a := w.Reason(Row{Path: path, Old: o, New: d}).Action()
		return a == None || a == Unmanaged
	}
}

// Changes lists the rows that apply would commit.
func (p Plan) Changes() []Row {
	return slices.DeleteFunc(slices.Clone(p.Rows), func(r Row) bool { return !r.Action().Changes() })
}

// Leaves lists the paths of what an apply would change, but must not.
func (p Plan) Leaves() (paths []string) {
	for _, r := range p.Rows {
		if a := r.Action(); a == Blocked || a == LeftRunning {
			paths = append(paths, r.Path)
		}
	}
	return paths
}

// Own lists the rows that the plan's stack owns, or will own after apply.
func (p Plan) Own() []Row {
	w := Want{Stack: p.Stack, Home: p.Home}
	return slices.DeleteFunc(slices.Clone(p.Rows), func(r Row) bool {
		return !w.Owns(r.recorded()) && (r.New == nil || !r.Action().Changes())
	})
}

// OwnRoots lists the roots of the rows that Own lists.
func (p Plan) OwnRoots() []string {
	roots := text.Each(p.Own(), func(r Row) string { return path.Dir(r.Path) })
	slices.Sort(roots)
	return slices.Compact(roots)
}

// CompareRows is the order of a plan: by action in the order of Actions, then address, then path.
func CompareRows(a, b Row) int {
	return cmp.Or(
		cmp.Compare(slices.Index(Actions(), a.Action()), slices.Index(Actions(), b.Action())),
		cmp.Compare(a.Address(), b.Address()),
		cmp.Compare(a.Path, b.Path),
	)
}

// State is what was read from ZooKeeper below a set of roots.
type State struct {
	Ensemble string                       // random id of the ensemble; empty before its first apply
	Found    map[string]resource.Observed // by znode path
	// Unlisted are the roots that could not be listed, sorted. Undeclared resources there are not in Found.
	Unlisted []string
	// Unindexed says why the index of stacks could not be read; empty if it was read. The index tells in which other
	// roots the stack owns something.
	Unindexed string
}

// The results of a commit that a caller handles.
var (
	// ErrMoved means that somebody changed the resource after it was read. Nothing was written. Read again and make a
	// new plan.
	ErrMoved = errors.New("state changed since it was read")
	// ErrUnknown means that the connection was lost during the write, and nobody knows whether it succeeded. Read
	// again: the next plan shows it.
	ErrUnknown = errors.New("outcome unknown")
	// ErrAlreadyDone means that ZooKeeper already is as the row wants it. Nothing was written: the resource to delete
	// is gone, or the one to create exists, is this stack's, ready and equal. Count it as done.
	ErrAlreadyDone = errors.New("already done")
	// ErrLeft means that the folders of some deleted generations stay: nothing in them tells whose they are, or ZooKeeper
	// does not let them be deleted. The error says where and why. Delete them by hand if nobody needs them.
	ErrLeft = errors.New("it cannot be collected")
	// ErrApplied means that this saved plan was applied before, in whole or in part. Make a new plan.
	ErrApplied = errors.New("this plan was already applied")
)
