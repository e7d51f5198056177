package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"muster/member"
	"muster/resource/group"
	"muster/text"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

type runDutyOptions struct {
	searchFlags
	wait    bool
	timeout time.Duration
}

func newRunCmd(p *process) *cobra.Command {
	var o runDutyOptions
	cmd := p.lookCmd(&cobra.Command{
		Use:   "run GROUP/CRON",
		Short: "Run a cron of a group now",
		Long: `Asks for a run of a cron now, beside its schedule. Its holder runs it next,
after the run that goes on. With --wait it waits for the end, prints the end of
the output, and ends with 1 if the run failed or was lost. Stopping the wait
does not stop the run.`,
		Example: `  muster run shop/nightly-report
  muster run shop/nightly-report --wait`,
		Args: argCount(1, 1, "one cron, as GROUP/CRON"),
	}, &o.searchFlags, p.completeDuty(&o.searchFlags, group.Cron), func(string) error {
		if o.timeout <= 0 {
			return usagef("--timeout 30s", "--timeout %s leaves no member time to accept the run", o.timeout)
		}
		return nil
	}, func(ctx context.Context, scope *searchScope, name string) error {
		return runRun(ctx, p, *scope, o, name)
	})
	cmd.Flags().BoolVar(&o.wait, "wait", false, "wait for the end of the run")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 30*time.Second, "wait `DURATION` for a member to accept the run")
	return cmd
}

func runRun(ctx context.Context, p *process, scope searchScope, o runDutyOptions, name string) error {
	found, err := scope.findDuty(ctx, name)
	if err != nil {
		return err
	}
	if found.duty.Type != group.Cron {
		err := fmt.Errorf("%s is a leader, which runs as long as a member holds it", found.name())
		return &problem{errUsage, err, "muster explain " + text.ShellWord(found.name())}
	}
	id := found.group.Record.Declaration.ID()
	limited, cancel := context.WithTimeoutCause(ctx, o.timeout, errTimeUp)
	defer cancel()
	number, err := member.AskRun(limited, scope.session, id.Root, id.Name, found.duty.Name, p.user())
	if err != nil {
		return askRunError(err, found)
	}
	at := znode.Now(id.Root, found.group.Record.Generation, found.duty.Name, number)
	run, err := o.accepted(limited, scope, found, at)
	if err != nil {
		return err
	}
	if o.wait && !run.Final() {
		p.say("%s: %s; waiting for its end\n", found.name(), runText(run))
		if run, err = awaitRun(ctx, scope.session, at, znode.TickRecord.Final); err != nil {
			return runGone(err, found)
		}
	}
	p.say("%s: %s\n", found.name(), runText(run))
	if !o.wait {
		return nil
	}
	if run.Tail != "" {
		fmt.Fprint(p.out, text.EscapeLines(run.Tail))
		if run.Tail[len(run.Tail)-1] != '\n' {
			fmt.Fprintln(p.out)
		}
	}
	if run.State != znode.TickDone {
		return errPrinted
	}
	return nil
}

// say prints one line on standard error, where it does not mix with the output of a run, unless --quiet is given.
func (p *process) say(format, name, what string) {
	if !p.flags.quiet {
		fmt.Fprintf(p.err, format, text.Escape(name), text.Escape(what))
	}
}

// accepted waits, until the time of ctx is up, for the holder to accept a run: it runs, or waits for the run that goes
// on.
func (o runDutyOptions) accepted(
	ctx context.Context, scope searchScope, d foundDuty, at string,
) (znode.TickRecord, error) {
	now, err := scope.dutyNow(ctx, d)
	if err != nil {
		return znode.TickRecord{}, err
	}
	next := "muster explain " + text.ShellWord(d.name()) + " shows who could run it"
	switch {
	case len(now.Members) == 0:
		err = fmt.Errorf("%s: the run is written down, but no member of the group is live", d.name())
	case now.duty.PausedBy != "":
		err = fmt.Errorf("%s: the run is written down, but the duty is paused by %s", d.name(), now.duty.PausedBy)
		next = "muster resume " + text.ShellWord(d.name())
	}
	if err != nil {
		return znode.TickRecord{}, &problem{errIncomplete, err, next}
	}
	run, err := awaitRun(ctx, scope.session, at, func(r znode.TickRecord) bool { return r.State != znode.TickAsked })
	if errors.Is(err, errTimeUp) {
		err = fmt.Errorf("%s: the run is written down, but no member has accepted it within %s", d.name(), o.timeout)
		return run, &problem{errIncomplete, err, next}
	}
	return run, runGone(err, d)
}

// awaitRun waits until the record of a run is as it should be.
func awaitRun(
	ctx context.Context, s *zkconn.Session, at string, ok func(znode.TickRecord) bool,
) (znode.TickRecord, error) {
	for {
		body, _, changed, err := s.GetW(ctx, at)
		if err != nil {
			return znode.TickRecord{}, err
		}
		r, err := znode.Decode[znode.TickRecord](body)
		if err != nil || ok(r) {
			return r, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return r, context.Cause(ctx)
		}
	}
}

// runGone makes a problem of a record that is gone: it was forgotten since more runs ended than are kept.
func runGone(err error, d foundDuty) error {
	if !errors.Is(err, zkconn.ErrNoNode) {
		return err
	}
	return &problem{errIncomplete, fmt.Errorf("%s: what became of the run is forgotten: %w", d.name(), err),
		"muster explain " + text.ShellWord(d.name()) + " shows the last runs"}
}

// runText says how far a run is.
func runText(r znode.TickRecord) string {
	line := "the run is " + string(r.State)
	switch r.State {
	case znode.TickRunning:
		line += " on " + r.By
		if r.Attempt > 1 {
			line += fmt.Sprintf(", attempt %d", r.Attempt)
		}
	case znode.TickWaiting:
		line = "the run waits for its turn"
		if r.Attempt > 0 {
			line = fmt.Sprintf("the run failed on %s, and waits for attempt %d", r.By, r.Attempt+1)
		}
	case znode.TickDone, znode.TickFailed, znode.TickLost:
		if r.State == znode.TickFailed {
			line = "the run failed"
		}
		if r.By != "" {
			line += " on " + r.By
		}
		if r.Exit != nil {
			line += fmt.Sprintf(" with exit code %d", *r.Exit)
		}
		if !r.Started.IsZero() && !r.Ended.IsZero() {
			line += " after " + max(0, r.Ended.Sub(r.Started)).Round(time.Second).String()
		}
	}
	if r.Because != "" {
		line += ": " + r.Because
	}
	return line
}

// askRunError makes a problem of a refused request for a run.
func askRunError(err error, d foundDuty) error {
	return explain(err, []remedy{
		{errIncomplete, "muster explain {duty} shows its runs",
			of{member.ErrAskedTooOften, member.ErrNotOpen, member.ErrUnknown, errTimeUp}},
		{nil, "muster status {group}", of{member.ErrNoCron}},
	}, "{duty}", text.ShellWord(d.name()), "{group}", text.ShellWord(d.path))
}
