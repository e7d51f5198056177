package apply

import (
	"context"
	"fmt"

	"muster/apply/history"
	"muster/plan"
)

// beginEntry writes the entry of this apply into the history of its stack, with what is planned. Nothing that muster
// decides depends on the history, so an entry that cannot be written is no reason not to apply: somebody who mends
// things at night must not have to mend the history first.
func (a *applying) beginEntry(held context.Context) {
	a.entry = history.Entry{Plan: a.plan.ID, Saved: a.opts.Saved, Planned: map[string]int{}}
	var replaced, deleted []string
	for _, r := range a.plan.Changes() {
		act := r.Action()
		a.entry.Planned[string(act)]++
		replaced, deleted = addName(replaced, deleted, r)
	}
	a.entry.SetNames(replaced, deleted)
	var err error
	// An entry that is begun is ended, also if the lock is lost meanwhile.
	a.entryPath, err = a.to.BeginEntry(context.WithoutCancel(held), &a.entry)
	if err != nil && held.Err() == nil {
		a.unrecorded(err)
	}
}

// endEntry sets what became of this apply, also if the lock is lost by now: only this apply writes its entry.
func (a *applying) endEntry(held context.Context, outcomes []Outcome) {
	if a.entryPath == "" {
		return
	}
	done, results := map[string]int{}, map[string]int{}
	var replaced, deleted []string
	for _, o := range outcomes {
		results[string(o.Result)]++
		if o.Result == Applied {
			done[string(o.Row.Action())]++
		}
		if o.Result == Applied || o.Result == Unknown {
			replaced, deleted = addName(replaced, deleted, o.Row)
		}
	}
	a.entry.Done, a.entry.Results = done, results
	a.entry.SetNames(replaced, deleted)
	if err := a.to.EndEntry(context.WithoutCancel(held), a.entryPath, a.entry); err != nil {
		a.unrecorded(fmt.Errorf("it says that this apply has not finished: %w", err))
	}
}

// addName adds the path of r to those that are replaced or deleted.
func addName(replaced, deleted []string, r plan.Row) (rep, del []string) {
	switch r.Action() {
	case plan.Replace:
		replaced = append(replaced, r.Path)
	case plan.Delete:
		deleted = append(deleted, r.Path)
	}
	return replaced, deleted
}

func (a *applying) unrecorded(err error) {
	if a.opts.Unrecorded != nil {
		a.opts.Unrecorded(err)
	}
}
