package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"muster/job"
)

// change is one row in a plan file. What a Row derives is written too, for readers that are not muster; a file in which
// it contradicts the reason is refused.
type change struct {
	Address      string        `json:"address"`
	Type         string        `json:"type"` // "job"
	Name         string        `json:"name"`
	Path         string        `json:"path"`
	DeclaredAt   string        `json:"declared_at,omitempty"`
	Status       Status        `json:"status"`
	ActionReason Reason        `json:"action_reason"`
	Change       beforeAfter   `json:"change"`
	BlockedBy    []obstacle    `json:"blocked_by"`
	Precondition *precondition `json:"precondition"` // null: there must be no job znode
	Recorded     *recorded     `json:"recorded,omitempty"`
	Workers      []string      `json:"workers,omitempty"`
	Strangers    []string      `json:"strangers,omitempty"`
}

// beforeAfter: what is recorded and what is declared. After is the declaration also where the row is blocked.
type beforeAfter struct {
	Actions []string `json:"actions"`
	Before  *job.Job `json:"before"`
	After   *job.Job `json:"after"`
}

// obstacle is what stands in the way of a blocked row, and what to do next.
type obstacle struct {
	Because   string `json:"because"`
	ToProceed string `json:"to_proceed"`
}

// precondition is the observed facts that must still hold when the row is committed.
type precondition struct {
	Generation    string   `json:"generation,omitempty"`
	Version       int32    `json:"version"`
	RecordVersion int32    `json:"record_version"`
	Pzxid         int64    `json:"pzxid"`
	Joined        int      `json:"joined"`
	Done          int      `json:"done"`
	Live          int      `json:"live"`
	Classic       bool     `json:"classic,omitempty"`
	Companions    []string `json:"companions,omitempty"`
	Foreign       bool     `json:"foreign,omitempty"`
	Problem       string   `json:"problem,omitempty"`
}

// recorded is the rest of the Record: who applied the job, when, and how it is owned.
type recorded struct {
	Stack   string          `json:"stack"`
	State   job.RecordState `json:"state"`
	By      string          `json:"by,omitempty"`
	Applied string          `json:"applied,omitempty"`
	Op      string          `json:"op"`
	Digest  string          `json:"digest"`
	ACL     []string        `json:"acl,omitempty"`
	Last    *job.Run        `json:"last,omitempty"`
	NoRoll  string          `json:"no_roll,omitempty"`
}

// verbs are Terraform's words for an action.
func (a Action) verbs() []string {
	switch a {
	case Create, Delete, Update:
		return []string{string(a)}
	case Replace:
		return []string{"delete", "create"}
	}
	return []string{"no-op"}
}

func (r Row) change() change {
	c := change{
		Address: r.Address(), Type: "job", Name: r.Name(), Path: r.Path, Status: r.Old.Status(), ActionReason: r.Reason,
		Change: beforeAfter{Actions: r.Action().verbs(), After: r.New}, BlockedBy: []obstacle{},
	}
	if r.New != nil {
		c.DeclaredAt = r.New.At
	}
	if r.Action() == Blocked {
		c.BlockedBy = append(c.BlockedBy, obstacle{r.Because(), r.Proceed()})
	}
	o := r.Old
	if o == nil {
		return c
	}
	c.Workers, c.Strangers = o.Workers, o.Strangers
	c.Precondition = &precondition{
		Version: o.Version, RecordVersion: o.RecordVersion, Pzxid: o.Pzxid, Joined: o.Joined, Done: o.Done, Live: o.Live,
		Classic: o.Classic, Companions: o.Companions, Foreign: o.Foreign, Problem: o.Problem,
	}
	if rec := o.Record; rec != nil {
		c.Precondition.Generation = rec.Generation
		c.Change.Before = &rec.Job
		c.Recorded = &recorded{rec.Stack, rec.State, rec.By, rec.Applied, rec.Op, rec.Digest, rec.ACL, rec.Last, rec.NoRoll}
	}
	return c
}

// row is the inverse of Row.change.
func (c change) row() Row {
	r := Row{Path: c.Path, New: c.Change.After, Reason: c.ActionReason}
	if r.New != nil {
		r.New.At = c.DeclaredAt
	}
	pre := c.Precondition
	if pre == nil {
		return r
	}
	r.Old = &Observed{
		Classic: pre.Classic, Companions: pre.Companions, Version: pre.Version, RecordVersion: pre.RecordVersion,
		Pzxid: pre.Pzxid, Joined: pre.Joined, Done: pre.Done, Live: pre.Live, Workers: c.Workers, Strangers: c.Strangers,
		Foreign: pre.Foreign, Problem: pre.Problem,
	}
	if rec := c.Recorded; rec != nil {
		r.Old.Record = &job.Record{
			Stack: rec.Stack, Generation: pre.Generation, State: rec.State, By: rec.By, Applied: rec.Applied, Op: rec.Op,
			Digest: rec.Digest, ACL: rec.ACL, Last: rec.Last, NoRoll: rec.NoRoll,
		}
		if c.Change.Before != nil {
			r.Old.Record.Job = *c.Change.Before
		}
	}
	return r
}

// check says what in c cannot be: a row whose parts contradict each other, or that no plan of stack would hold.
func (c change) check(stack string) error {
	r := c.row()
	switch {
	case !slices.Contains(Reasons(), r.Reason):
		return fmt.Errorf("action_reason %q is not known", r.Reason)
	case c.Type != "job":
		return fmt.Errorf("type %q is not known", c.Type)
	case r.Old == nil && r.New == nil:
		return errors.New("it is neither declared nor observed")
	}
	if err := r.checkNames(); err != nil {
		return err
	}
	is := r.change()
	for _, f := range []struct {
		name      string
		got, want any
	}{
		{"address", c.Address, is.Address}, {"name", c.Name, is.Name}, {"status", c.Status, is.Status},
		{"change.actions", c.Change.Actions, is.Change.Actions}, {"blocked_by", c.BlockedBy, is.BlockedBy},
	} {
		if got, want := fmt.Sprint(f.got), fmt.Sprint(f.want); got != want {
			return fmt.Errorf("%s is %q, which contradicts the row's facts: they say %q", f.name, got, want)
		}
	}
	// The file does not say which stacks may be taken over, so a row may have been made with or without.
	want := Want{Stack: stack, TakeOver: []string{r.owner()}}
	if r.Reason != want.reason(r) && r.Reason != (Want{Stack: stack}).reason(r) {
		return fmt.Errorf("action_reason %q contradicts the row's facts: they say %q", r.Reason, want.reason(r))
	}
	return nil
}

// checkNames refuses what could lead a commit to znodes that are not a job's.
func (r Row) checkNames() error {
	if !r.Action().Changes() && r.New == nil {
		return nil // only shown
	}
	slash := strings.LastIndex(r.Path, "/") + 1
	root, name := strings.TrimSuffix(r.Path[:slash], "/"), r.Path[slash:]
	if err := cmp.Or(job.CheckName(name), job.CheckRoot(root)); err != nil {
		return err
	}
	if r.New != nil {
		if err := r.New.Check(); err != nil {
			return err
		}
		if r.New.Path() != r.Path {
			return fmt.Errorf("it declares %s and changes %s", r.New.Path(), r.Path)
		}
	}
	if r.Old != nil && r.Old.Record != nil {
		rec := r.Old.Record
		if err := job.CheckName(rec.Generation); err != nil && r.Action().Changes() {
			return fmt.Errorf("generation %q cannot be: %w", rec.Generation, err)
		}
		if rec.Job.Path() != r.Path {
			return fmt.Errorf("it observed %s and changes %s", rec.Job.Path(), r.Path)
		}
	}
	for _, c := range r.companions() {
		if rest, ok := strings.CutPrefix(c, r.Path+"-"); !ok || strings.Contains(rest, "/") {
			return fmt.Errorf("%s is no companion of %s", c, r.Path)
		}
	}
	return nil
}

func (r Row) companions() []string {
	if r.Old == nil {
		return nil
	}
	return r.Old.Companions
}
