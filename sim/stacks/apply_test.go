package stacks_test

import (
	"context"
	"errors"
	"fmt"
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
	"muster/sim"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
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

// stackScenes are those of several applies, of saved plans, and of the index of a stack.
func stackScenes() map[string]scene {
	return map[string]scene{
		"two-applies": {
			declare: twoApplies, must: []string{"joined", "immutable_differs_ready applied", "missing applied"},
		},
		"no-lock": {
			declare: twoAppliesUnlocked,
			must:    []string{"joined", "immutable_differs_ready refused", "missing refused"},
		},
		"saved-plan": {declare: savedPlan, must: []string{"exit 5", "saved plan applied", "joined"}},
		"prune": {
			declare: prune, end: 2 * month, must: []string{"saved plan applied"},
			faults: sim.Faults{Crashes: 2}, // after any other, a mark may be left to the next apply
		},
		"delete-owners": {declare: deleteOwners, must: []string{"undeclared applied", "mutable_differs applied"}},
		"two-stacks": {
			declare: twoStacks, must: []string{"joined", "mutable_differs applied", "mutable_differs refused"},
		},
	}
}

// twoApplies of one stack at once: only the one that holds the lock writes.
func twoApplies(w *world) {
	w.given(declares(aJob("a", 1), aJob("d", 1)))
	c := declares(aJob("a", 2), aJob("b", 1, label("1")), aJob("c", 1))
	w.apply("one", 1, c)
	w.apply("two", 1, declares(aJob("a", 3), aJob("b", 1, label("2"))))
	w.worker(shift{name: "w", job: "a", lives: 1, works: hours})
	w.last(c)
}

// twoAppliesUnlocked: somebody deletes places in the queue for the lock by hand. Each change is still safe.
func twoAppliesUnlocked(w *world) {
	w.noLock = true
	w.hand("hand", unlockOften)
	twoApplies(w)
}

// unlockOften deletes places in the queue for the lock of stack s.
func unlockOften(p *sim.Process, s *zkconn.Session) error {
	dir := znode.Lock(home, "s")
	for range 8 {
		places, _, err := s.Children(p.Context(), dir)
		if err != nil && !errors.Is(err, zkconn.ErrNoNode) {
			return err
		}
		for _, place := range places {
			if err := remove(p.Context(), s, dir+"/"+place); err != nil {
				return err
			}
		}
		if err := rest(p, 20*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// savedPlan: a saved plan is applied twice, one apply after the other or both at once, while somebody joins and
// another apply changes what the plan says.
func savedPlan(w *world) {
	w.given(declares(aJob("a", 1), aJob("b", 1)))
	c := declares(aJob("a", 2), aJob("b", 1, label("new")), aJob("c", 1))
	file := w.saved(c)
	w.applyFile("one", 1, c, file)
	w.applyFile("two", 1, c, file)
	w.apply("other", 1, declares(aJob("a", 1), aJob("b", 1, label("other"))))
	w.worker(shift{name: "w", job: "a", lives: 1, works: hours})
	w.last(c)
}

// month is when a saved plan is certainly too old.
const month = 31 * 24 * time.Hour

// prune: the mark of a saved plan goes when the plan is too old to be applied.
func prune(w *world) {
	w.given(declares(aJob("b", 1)))
	c := declares(aJob("b", 1, label("new")), aJob("c", 1))
	file := w.saved(c)
	w.applyFile("one", 1, c, file)
	w.applyFile("two", 1, c, file)
	w.later = month
	w.last(c)
	w.AtEnd(func() error {
		if marks := w.now.below(znode.AppliedDir(home)); len(marks) > 0 {
			return fmt.Errorf("after a month there is the mark of an applied plan: %q", marks)
		}
		return nil
	})
}

// saved makes a plan file before everything else. The file is in what it returns.
func (w *world) saved(c config) *[]byte {
	file := new([]byte)
	w.Setup(func(ctx context.Context, s *zkconn.Session) (err error) {
		*file, err = c.save(ctx, s)
		return err
	})
	return file
}

// applyFile declares a process that is "muster apply FILE".
func (w *world) applyFile(name string, lives int, c config, file *[]byte) {
	w.process(name, lives, func(p *sim.Process) error {
		who := &actor{config: &c, saved: true}
		s, err := w.dial(p, who)
		if err != nil {
			return err
		}
		defer s.Close()
		r := c.applyFile(p.Context(), s, *file, w.planned(p, who))
		if r.exit() == exitcode.Done {
			w.seen.add("saved plan applied")
		}
		return w.ended(p, who, r)
	})
}

// twoStacks declare one job, and each may take it from the other.
func twoStacks(w *world) {
	w.given(declares(aJob("a", 1)))
	s := config{stack: "s", takeOver: []string{"t"}, declared: []resource.Declaration{aJob("a", 1, label("s"))}}
	t := config{stack: "t", takeOver: []string{"s"}, declared: []resource.Declaration{aJob("a", 1, label("t"))}}
	w.apply("apply", 1, s)
	w.apply("other", 1, t)
	w.worker(shift{name: "w", job: "a", lives: 1, works: hours})
	w.last(s)
}

// deleteOwners: a stack deletes a job, which another one takes from it meanwhile.
func deleteOwners(w *world) {
	w.given(declares(aJob("a", 1)))
	s := declares()
	t := config{stack: "t", takeOver: []string{"s"}, declared: []resource.Declaration{aJob("a", 1, label("t"))}}
	w.apply("apply", 1, s)
	w.apply("other", 1, t)
	w.last(t)
}

// rivalScenes are those of one apply and somebody who acts between its second look and its transaction.
func rivalScenes() map[string]scene {
	all := map[string]scene{
		"owners-replace": {
			declare: ownersReplace, must: []string{"immutable_differs_ready applied", "immutable_differs_ready refused"},
		},
		"rewritten-copy": {declare: copyRewritten, must: []string{"damaged applied", "damaged already done"}},
		"stale-run":      {declare: staleRunReplaced, must: []string{"completed", "stale applied", "stale refused"}},
		"stale-pair":     {declare: stalePairReplaced, must: []string{"completed", "stale applied", "stale refused"}},
		"stale-run-goes": {
			declare: staleRunDeleted, must: []string{"completed", "undeclared applied", "undeclared refused"},
		},
		"stale-pair-goes": {
			declare: stalePairDeleted, must: []string{"completed", "undeclared applied", "undeclared refused"},
		},
	}
	for name, d := range map[string]damage{
		"record": {resource.PartRecord}, "gate": {resource.PartGate}, "znode": {resource.PartZnode},
		"folder": {"assigner"},
	} {
		all["removed-"+name] = scene{declare: d.removed, must: []string{"damaged applied", "damaged refused"}}
	}
	return all
}

// removed: a part of a group is put back while a person removes the rest of it, as "muster status" says.
func (d damage) removed(w *world) {
	c := declares(aGroup("g", "main"))
	w.given(c)
	var rest []string
	w.Setup(func(ctx context.Context, s *zkconn.Session) error {
		w.actors[s.ID()] = &actor{byHand: true}
		o, err := zkstate.NewReader(s, home, kinds()...).Look(ctx, root+"/g")
		if err != nil {
			return err
		}
		rest = damage{resource.PartGate, resource.PartRecord, resource.PartZnode}.paths(o.Record)
		for _, name := range znode.GroupFolders() { // as if somebody had joined
			folder := resource.Join(znode.Run(root, o.Record.Generation), name)
			if _, err := s.Create(ctx, folder, nil, zkconn.Persistent, anyone()); err != nil {
				return err
			}
		}
		return remove(ctx, s, d.paths(o.Record)...)
	})
	begin := shift{after: w.sends("apply")}
	w.hand("hand", func(p *sim.Process, s *zkconn.Session) error {
		if err := begin.wait(p); err != nil {
			return err
		}
		return remove(p.Context(), s, rest...)
	})
	w.apply("apply", 1, c)
	w.last(c)
}

// copyRewritten: a copy of a record is put right while somebody writes record and copy anew, by hand.
func copyRewritten(w *world) {
	c := declares(aJob("a", 1))
	w.given(c)
	w.garbled = true
	var rec resource.Record
	w.Setup(func(ctx context.Context, s *zkconn.Session) error {
		w.actors[s.ID()] = &actor{byHand: true}
		o, err := zkstate.NewReader(s, home, kinds()...).Look(ctx, root+"/a")
		if err != nil {
			return err
		}
		rec = *o.Record
		_, err = s.Set(ctx, znode.Run(root, rec.Generation), []byte("{"), -1)
		return err
	})
	begin := shift{after: w.sends("apply")}
	w.hand("hand", func(p *sim.Process, s *zkconn.Session) error {
		err := begin.wait(p)
		if err == nil {
			err = rec.Declare(aJob("a", 1, label("by hand")))
		}
		if err != nil {
			return err
		}
		ops, err := zkstate.SetRecordOps(rec, -1)
		if err == nil {
			_, err = s.Multi(p.Context(), ops...)
		}
		return err
	})
	w.apply("apply", 1, c)
	w.last(c)
}

// ownersReplace: a job is replaced while another stack takes it.
func ownersReplace(w *world) {
	w.given(declares(aJob("a", 1)))
	s := declares(aJob("a", 2))
	t := config{stack: "t", takeOver: []string{"s"}, declared: []resource.Declaration{aJob("a", 1, label("t"))}}
	w.apply("apply", 1, s)
	w.apply("other", 1, t)
	w.last(t)
}

// staleRunReplaced: a job that its only worker had joined and left is replaced while it comes back and completes.
func staleRunReplaced(w *world) { staleCompletes(w, aJob("a", 1, retained), true, "w") }

// staleRunDeleted: it is deleted.
func staleRunDeleted(w *world) { staleCompletes(w, aJob("a", 1, retained), false, "w") }

// stalePairReplaced: a job that one of its two workers had joined and left is replaced while both come and complete.
func stalePairReplaced(w *world) { staleCompletes(w, aJob("a", 2, retained), true, "w", "x") }

// stalePairDeleted: it is deleted.
func stalePairDeleted(w *world) { staleCompletes(w, aJob("a", 2, retained), false, "w", "x") }

func retained(j *job.Job) { j.Lifecycle.OnComplete = job.Retain }

// staleCompletes is a job that worker w had joined and left. Apply replaces or deletes it while these workers come, one
// after the other, and complete.
func staleCompletes(w *world, j job.Job, replace bool, workers ...string) {
	w.given(declares(j))
	w.Setup(func(ctx context.Context, s *zkconn.Session) error {
		m, err := joinJob(ctx, s, j.Name, "w")
		if err == nil && j.Workers == 1 {
			_, err = m.Roll(ctx) // which is written then
		}
		if err == nil {
			err = m.Leave(ctx, worker.End{})
		}
		return err
	})
	c := declares()
	if replace {
		c = declares(j)
	}
	begin := shift{after: w.sends("apply")}
	w.session("workers", 0, begin, actor{}, func(p *sim.Process, s *zkconn.Session) error {
		for _, name := range workers {
			ctx, cancel := context.WithTimeout(p.Context(), patience)
			m, err := joinJob(ctx, s, j.Name, name)
			if err == nil {
				err = m.Complete(ctx, 0)
			}
			if cancel(); err != nil && !errors.Is(err, worker.ErrDone) {
				return w.notJoined(err)
			}
		}
		w.seen.add("completed")
		return nil
	})
	w.apply("apply", 1, c)
	w.last(c)
}
