package plan

import (
	"cmp"
	"maps"
	"slices"

	"muster/job"
)

// Want is what is declared.
type Want struct {
	Stack    string    `json:"stack"`     // owner mark of these declarations
	TakeOver []string  `json:"take_over"` // stacks whose jobs become ours where they are declared here
	Jobs     []job.Job `json:"jobs"`      // no two with one path; in any order
}

// Plan is every row of one comparison, changes first. Its JSON is the plan file's: see Encode.
type Plan struct {
	ID       string // random; stamped by whoever shows or saves the plan
	Stack    string
	Ensemble string
	Roots    []string
	Unlisted []string // see State
	Rows     []Row
	Partial  bool // some jobs were left out on purpose (--only, --skip)
}

// Row is one job in a plan. Old is what was observed (nil: missing) and also the precondition of the commit; New is
// what is declared (nil: not declared).
type Row struct {
	Path   string
	Old    *Observed
	New    *job.Job
	Reason Reason
}

// Action is what apply would do.
func (r Row) Action() Action { return r.Reason.Action() }

// Address names the row: that of the declaration, or the path of an undeclared job.
func (r Row) Address() string {
	if r.New != nil && r.New.Address != "" {
		return r.New.Address
	}
	return r.Path
}

// Changes lists the fields in which the declaration differs from what is recorded; nil unless both exist.
func (r Row) Changes() []job.Change {
	if r.Old == nil || r.Old.Record == nil || r.New == nil {
		return nil
	}
	return job.Changes(r.Old.Record.Job, *r.New)
}

// Stale reports whether the commit of r deletes what may only be waiting for its containers to come back. Such a row is
// committed only after the job has been seen unchanged for Grace.
func (r Row) Stale() bool {
	a := r.Action()
	return (a == Replace || a == Delete) && r.Old.Status() == Stale
}

// Grace is how long a stale job must have been stale before it is deleted or replaced: the declaration's, else the
// recorded one.
func (r Row) Grace() job.Duration {
	switch {
	case r.New != nil:
		return r.New.Timeouts.Stale
	case r.Old != nil && r.Old.Record != nil:
		return r.Old.Record.Job.Timeouts.Stale
	}
	return job.DefaultStaleTimeout
}

// Diff compares. It is total: whatever is declared and observed has a row and a reason. The caller has checked
// the declarations; of two with one path the one with the smaller address counts.
func Diff(want Want, have State) Plan {
	declared := map[string]*job.Job{}
	for i := range want.Jobs {
		j := &want.Jobs[i]
		if prev, ok := declared[j.Path()]; !ok || j.Address < prev.Address {
			declared[j.Path()] = j
		}
	}
	p := Plan{Stack: want.Stack, Ensemble: have.Ensemble, Unlisted: have.Unlisted}
	for path, j := range declared {
		row := Row{Path: path, New: j}
		if o, ok := have.Jobs[path]; ok {
			row.Old = &o
		}
		row.Reason = want.reason(row)
		p.Rows = append(p.Rows, row)
	}
	for path := range maps.Keys(have.Jobs) {
		if declared[path] == nil {
			o := have.Jobs[path]
			row := Row{Path: path, Old: &o}
			row.Reason = want.reason(row)
			p.Rows = append(p.Rows, row)
		}
	}
	slices.SortFunc(p.Rows, compareRows)
	return p
}

// compareRows: by action in the order of Actions, then address, then path.
func compareRows(a, b Row) int {
	return cmp.Or(
		cmp.Compare(slices.Index(Actions(), a.Action()), slices.Index(Actions(), b.Action())),
		cmp.Compare(a.Address(), b.Address()),
		cmp.Compare(a.Path, b.Path),
	)
}

// reason is the action table. Protection is asked last because it matters only to a row that would delete or replace.
// Whatever the tables say, no row deletes a job znode that has children.
func (w Want) reason(r Row) Reason {
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
	case deletes && r.Old.Live > 0: // all have completed, so the children are nobody's workers
		return StrangerChildren
	case reason.aboutLive() && len(r.Old.Strangers) > 0 && len(r.Old.Strangers) >= r.Old.Live: // nobody is live after all
		return StrangerChildren
	}
	return reason
}

// aboutLive reports whether a row is left alone because somebody is live.
func (r Reason) aboutLive() bool {
	return r == WorkersStopping || r == AlreadyRunning || r == ClassicLive || r == LiveDiffers || r == UndeclaredLive
}

// protected: the declaration decides, or the record where nothing is declared any more.
func (r Row) protected() bool {
	if r.New != nil {
		return r.New.Lifecycle.Protect
	}
	return r.Old.Record != nil && r.Old.Record.Job.Lifecycle.Protect
}

func (w Want) declaredReason(r Row) Reason {
	status := r.Old.Status()
	switch status {
	case Foreign:
		return IsForeign
	case Unreadable:
		return IsUnreadable
	case Missing:
		return NoJob
	}
	if rec := r.Old.Record; rec != nil && rec.Stack != w.Stack && !slices.Contains(w.TakeOver, rec.Stack) {
		return OtherStack
	}
	if status == Terminating {
		if r.Old.Live > 0 {
			return WorkersStopping
		}
		return TerminatedIdle
	}
	if status.live() && r.New.Lifecycle.OnRunning == job.Fail {
		return AlreadyRunning
	}
	if r.Old.Classic {
		if status.live() {
			return ClassicLive
		}
		return ClassicLeftover
	}
	if status == Stale {
		return StaleLeftover
	}
	return w.compare(r, status)
}

// compare decides a ready, live or completed job of ours by what differs.
func (w Want) compare(r Row, status Status) Reason {
	changes := r.Changes()
	immutable := slices.ContainsFunc(changes, func(c job.Change) bool { return c.Immutable })
	owner := r.Old.Record.Stack != w.Stack
	retained := status == Completed && r.New.Lifecycle.OnComplete == job.Retain
	switch {
	case status == Completed && (immutable || !retained):
		return CompletedDone
	case immutable && status == Ready:
		return ReadyDiffers
	case immutable:
		return LiveDiffers
	case len(changes) > 0:
		return MutableDiffers
	case owner:
		return OwnerDiffers
	case r.Old.Record.Edited():
		return RecordEdited
	case retained:
		return CompletedKept
	}
	return Equal
}

func (w Want) undeclaredReason(r Row) Reason {
	status := r.Old.Status()
	if status == Foreign || status == Unreadable || r.Old.Record == nil || r.Old.Record.Stack != w.Stack {
		return NotOurs
	}
	switch {
	case status.live():
		return UndeclaredLive
	case status == Terminating && r.Old.Live > 0:
		return WorkersStopping
	}
	return Undeclared
}

// After is the state that committing every change of p would leave behind. Generations, versions and times are the
// committer's, so they are empty here.
func (p Plan) After(s State) State {
	after := State{Ensemble: s.Ensemble, Jobs: maps.Clone(s.Jobs), Unlisted: s.Unlisted}
	if after.Jobs == nil {
		after.Jobs = map[string]Observed{}
	}
	for _, r := range p.Rows {
		switch r.Action() {
		case Create, Replace:
			rec := job.Record{Job: *r.New, Stack: p.Stack, State: job.Open}
			rec.Digest = rec.Sum()
			after.Jobs[r.Path] = Observed{Record: &rec}
		case Update:
			o := *r.Old
			rec := *o.Record
			rec.Job, rec.Stack = *r.New, p.Stack
			rec.Digest = rec.Sum()
			o.Record = &rec
			after.Jobs[r.Path] = o
		case Delete:
			delete(after.Jobs, r.Path)
		}
	}
	return after
}
