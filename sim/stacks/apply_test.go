package stacks_test

import (
	"context"
	"errors"
	"slices"
	"time"

	"muster/apply"
	"muster/exitcode"
	"muster/plan"
	"muster/plan/planfile"
	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/resource/queue"
	"muster/zkstate"
	"muster/zkstate/zkconn"
)

// The znodes of all worlds.
const (
	root = "/r"
	home = resource.DefaultHome
)

// lockTimeout is how long an apply waits for another one.
const lockTimeout = time.Minute

// config is what a directory of *.hcl files declares.
type config struct {
	stack    string
	takeOver []string
	declared []resource.Declaration
	by       string // who applies; default: the stack
	user     string // whose credentials apply has; empty: nobody's
	acl      []string
	unlinks  func(rec *resource.Record) error // is told what is deleted in Redis; may be nil
}

func (c config) want() plan.Want {
	return plan.Want{Stack: c.stack, Home: home, TakeOver: c.takeOver, Declared: c.declared}
}

// kinds are those that muster has. What a queue keeps in Redis is deleted at once.
func kinds() []zkstate.Kind {
	all := []zkstate.Kind{zkstate.Job(), zkstate.Group(), zkstate.Queue()}
	all[2].Unlink = func(context.Context, *resource.Record) error { return nil }
	return all
}

func (c config) kinds() []zkstate.Kind {
	all := kinds()
	if c.unlinks != nil {
		all[2].Unlink = func(_ context.Context, rec *resource.Record) error { return c.unlinks(rec) }
	}
	return all
}

// store is what apply writes with.
func (c config) store(s *zkconn.Session) (*zkstate.Store, error) {
	by := c.by
	if by == "" {
		by = c.stack
	}
	return zkstate.NewStore(s, zkstate.Config{
		Home: home, Stack: c.stack, By: by + "@here", At: time.Now(), ACL: c.acl, Kinds: c.kinds(),
	})
}

// compare makes a plan as "muster plan" does.
func (c config) compare(ctx context.Context, r *zkstate.Reader) (plan.Plan, error) {
	listed, err := r.Roots(ctx, c.stack)
	if err != nil {
		return plan.Plan{}, err
	}
	roots := append(listed, root)
	var paths []string
	for _, d := range c.declared {
		roots, paths = append(roots, d.ID().Root), append(paths, d.ID().Path())
	}
	slices.Sort(roots)
	roots = slices.Compact(roots)
	want := c.want()
	have, err := r.ReadFor(ctx, roots, paths, want.Settled())
	if err != nil {
		return plan.Plan{}, err
	}
	p := plan.Diff(want, have)
	if more, err := addDetails(ctx, r, p, have); err != nil {
		return plan.Plan{}, err
	} else if more {
		p = plan.Diff(want, have)
	}
	p.ID, p.Roots = zkstate.NewID(), roots
	return p, nil
}

// addDetails reads who is live, and what was saved, as "muster plan" does, but for one row after the other.
func addDetails(ctx context.Context, r *zkstate.Reader, p plan.Plan, have plan.State) (more bool, err error) {
	for _, row := range p.Rows {
		if row.Old == nil || row.Action() == plan.None || row.Action() == plan.Unmanaged {
			continue
		}
		more = true
		o := *row.Old
		row.Old = &o
		err := r.FillSaved(ctx, row)
		if a := row.Action(); err == nil && (a == plan.Blocked || a == plan.LeftRunning) {
			err = r.FillMembers(ctx, row.Path, &o)
		}
		if err != nil {
			return more, err
		}
		have.Found[row.Path] = o
	}
	return more, nil
}

// result is how an apply ended.
type result struct {
	plan     plan.Plan
	outcomes []apply.Outcome
	err      error
	garbage  error // that was left for the next apply, and why
	// unrecorded: why the history could not be written.
	unrecorded error
}

// apply is "muster apply --yes". It tells planned the plan before it writes anything.
func (c config) apply(ctx context.Context, s *zkconn.Session, planned func(plan.Plan)) result {
	store, err := c.store(s)
	if err != nil {
		return result{err: err}
	}
	started := time.Now()
	p, err := c.compare(ctx, store.Reader)
	if err != nil {
		return result{err: err}
	}
	planned(p)
	return commit(ctx, store, p, started, false)
}

// save is "muster plan --out": the bytes of the file.
func (c config) save(ctx context.Context, s *zkconn.Session) ([]byte, error) {
	started := time.Now()
	p, err := c.compare(ctx, zkstate.NewReader(s, home, kinds()...))
	if err != nil {
		return nil, err
	}
	return planfile.Encode(planfileKinds(), planfile.Saved{
		Created: started.UTC().Truncate(time.Second), MusterVersion: "1.0.0", Servers: []string{"sim"}, Plan: p,
	})
}

func planfileKinds() []resource.Kind { return []resource.Kind{job.Kind(), group.Kind(), queue.Kind()} }

// applyFile is "muster apply FILE".
func (c config) applyFile(
	ctx context.Context, s *zkconn.Session, file []byte, planned func(plan.Plan),
) result {
	saved, err := planfile.Decode(planfileKinds(), file)
	if err != nil {
		return result{err: err}
	}
	store, err := c.store(s)
	if err == nil {
		err = apply.CheckSaved(ctx, store, saved.Plan)
	}
	if err != nil {
		return result{plan: saved.Plan, err: err}
	}
	planned(saved.Plan)
	return commit(ctx, store, saved.Plan, saved.Created, true)
}

// commit is the second half of both.
func commit(ctx context.Context, store *zkstate.Store, p plan.Plan, observed time.Time, saved bool) result {
	r := result{plan: p}
	r.outcomes, r.err = apply.Run(ctx, store, p, apply.Options{
		CommitOptions: apply.CommitOptions{ObservedAt: observed}, Saved: saved, LockTimeout: lockTimeout,
		CleanupFailed: func(err error) { r.garbage = err }, Unrecorded: func(err error) { r.unrecorded = err },
	})
	return r
}

// exit is the exit code of "muster apply".
func (r result) exit() int {
	had := map[apply.Result]bool{}
	err := r.err
	for _, o := range r.outcomes {
		had[o.Result] = true
		if unreachable(o.Err) {
			err = o.Err
		}
	}
	switch {
	case errors.Is(err, zkstate.ErrLocked):
		return exitcode.Locked
	case errors.As(err, new(*apply.RefusedError)):
		return exitcode.Refused
	case unreachable(err):
		return exitcode.Unreachable
	case errors.Is(err, apply.ErrLockLost),
		had[apply.Refused], had[apply.Failed], had[apply.Unknown], had[apply.NotStarted]:
		return exitcode.Incomplete
	case err != nil:
		return exitcode.Error
	case had[apply.Waiting], slices.ContainsFunc(r.plan.Rows, needsAttention):
		return exitcode.Attention
	}
	return exitcode.Done
}

func unreachable(err error) bool {
	return errors.Is(err, zkconn.ErrUnreachable) || errors.Is(err, zkconn.ErrSessionLost)
}

func needsAttention(r plan.Row) bool {
	return r.New != nil && r.Action() == plan.Blocked || r.Old.Class() == resource.Unreadable
}
