package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"muster/plan"
	"muster/report"
	"muster/spec"
	"muster/text"
	"muster/zkstate"
	"muster/zkstate/zkconn"
)

type driftOptions struct {
	vars     varFlags
	reports  reportFlags
	failOn   []string
	waitLock time.Duration
	all      bool
}

func newDriftCmd(p *process) *cobra.Command {
	var o driftOptions
	cmd := &cobra.Command{
		Use:   "drift [DIR | FILE]",
		Short: "Check that ZooKeeper still is as it was applied",
		Long: `Compares like "muster plan" and sorts what differs by who must act. It never
writes, and waits until no apply of the stack is under way. Exits 2 for drift of
the kinds in --fail-on, 3 when it could not see everything.

  missing    declared, and there is no znode of it
  stale      a run died and left its job behind
  damaged    a part of it was deleted by hand
  changed    somebody other than muster edited the record
  pending    the declaration or the stack differs, or members were asked to stop
  orphan     this stack's, and no longer declared
  degraded   some workers left without completing, or nobody holds some duty
  failing    the last runs of some cron have failed
  foreign    declared, and what is there is not this stack's
  unmanaged  neither declared nor this stack's`,
		Example: `  muster drift -q                               for cron: silent when clean
  muster drift --fail-on missing,stale,degraded
  muster drift --report prometheus=/var/lib/node_exporter/muster.prom`,
		Args: argCount(0, 1, "one directory or file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			run := p.newRun("drift", firstArg(args))
			return p.withReports(cmd.Context(), o.reports, run, func() error {
				return runDrift(cmd.Context(), p, o, firstArg(args), run)
			})
		},
	}
	o.vars.addTo(cmd.Flags())
	cmd.Flags().StringSliceVar(&o.failOn, "fail-on", text.Strings(plan.FailingKinds()),
		"exit 2 for these kinds, a `LIST` with commas; empty for none")
	cmd.Flags().DurationVar(&o.waitLock, "wait-lock", time.Minute, "wait `DURATION` for an apply of the stack")
	cmd.Flags().BoolVar(&o.all, "all", false, "list what is ignored and what is unmanaged too")
	completeList(cmd, "fail-on", text.Strings(plan.DriftKinds()))
	cmd.ValidArgsFunction = completeConfig
	o.reports.addTo(cmd)
	return cmd
}

func runDrift(ctx context.Context, p *process, o driftOptions, dir string, run *report.Run) error {
	failOn, err := o.kinds()
	if err != nil {
		return err
	}
	cfg, err := p.loadAt(dir, o.vars, time.Now())
	if err != nil {
		return err
	}
	t := p.target(p.declaredTarget(cfg, dir))
	run.Stack, run.Servers = cfg.Stack, t.servers
	s, err := p.connect(ctx, t)
	if err != nil {
		return err
	}
	defer s.Close()
	// From here on drift has only a Reader, which has no method that writes.
	w := &driftCheck{p: p, o: o, cfg: cfg, target: t, reader: zkstate.NewFollower(s, cfg.Home, kinds()...)}
	c, err := w.compareBetweenApplies(ctx)
	if err != nil {
		return err
	}
	d := c.plan.Drift(cfg.Ignores)
	run.Plan, run.Drift, run.FailOn, run.Servers = &c.plan, &d, failOn, t.servers
	var found error
	switch { // differences come before what could not be read
	case len(d.Of(failOn...)) > 0:
		found = foundDifferences
	case d.Incomplete():
		found = foundAttention
	}
	if found == nil && p.flags.quiet {
		return nil
	}
	opts := p.layout()
	opts.All, opts.Servers, opts.Took = o.all, t.servers, c.took
	if err := report.Drift(p.out, c.plan, d, failOn, opts); err != nil {
		return err
	}
	return found
}

func (o driftOptions) kinds() ([]plan.DriftKind, error) {
	if o.waitLock < 0 {
		return nil, usagef("muster drift --help", "a duration is not negative")
	}
	all := text.Strings(plan.DriftKinds())
	var kinds []plan.DriftKind
	for _, name := range o.failOn {
		name = strings.TrimSpace(name)
		if !slices.Contains(all, name) {
			return nil, usagef("muster drift --help", "--fail-on: %q is no kind of drift: %s", name, meant(name, all))
		}
		kinds = append(kinds, plan.DriftKind(name))
	}
	return slices.Compact(slices.Sorted(slices.Values(kinds))), nil
}

type driftCheck struct {
	p      *process
	o      driftOptions
	cfg    *spec.Config
	target target
	reader *zkstate.Follower
}

// compareBetweenApplies compares while no apply of the stack is under way, because half an apply would look like drift.
// It starts again if an apply took the lock during the comparison.
func (w *driftCheck) compareBetweenApplies(ctx context.Context) (comparison, error) {
	deadline := time.Now().Add(w.o.waitLock)
	before, err := w.awaitNoApply(ctx, deadline)
	for err == nil {
		var c comparison
		var after int64
		if c, err = compare(ctx, w.cfg, w.target, w.reader.Reader, filter{}); err != nil {
			return c, err
		}
		if after, err = w.awaitNoApply(ctx, deadline); err == nil && after == before {
			return c, nil
		}
		if before = after; err == nil && time.Now().After(deadline) {
			err = fmt.Errorf("%w: one apply follows the other", zkstate.ErrLocked)
		}
	}
	if errors.Is(err, zkstate.ErrLocked) {
		err = fmt.Errorf("drift waited %s for an apply: %w", w.o.waitLock, err)
		err = &problem{nil, err, "wait for it, or raise --wait-lock"}
	}
	return comparison{}, err
}

// awaitNoApply waits until no apply of the stack is under way, until the deadline or for a second, whichever is longer.
// It returns a number that changes with every apply.
func (w *driftCheck) awaitNoApply(ctx context.Context, deadline time.Time) (int64, error) {
	if soon := time.Now().Add(time.Second); deadline.Before(soon) {
		deadline = soon
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	last, err := w.reader.WaitUnlocked(ctx, w.cfg.Stack, func(holder string) {
		fmt.Fprintf(w.p.err, "waiting up to %s for an apply of stack %s: %s\n",
			w.o.waitLock, w.cfg.Stack, text.Escape(holder))
	})
	if errors.Is(err, context.DeadlineExceeded) { // no server answered: that is not a lock that is held
		err = fmt.Errorf("%w: no answer whether an apply is under way: %w", zkconn.ErrUnreachable, text.Plain(err))
	}
	return last, err
}
