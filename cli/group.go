package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"muster/member"
	"muster/resource/group"
	"muster/text"
	"muster/view"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

type askOptions struct {
	askFlags
	do    znode.AskKind
	to    string
	unpin bool
}

func newGroupCmd(p *process) *cobra.Command {
	return newNounCmd("group", "Hand over, pause, resume or run the duties of a group",
		`Asks the members of a group to do something with one of its duties. The duty is
GROUP/DUTY, as muster prints it, or two words: the group and the duty.`,
		newHandoverCmd(p), newPauseCmd(p), newResumeCmd(p), newRunCmd(p))
}

func newHandoverCmd(p *process) *cobra.Command {
	o := askOptions{do: znode.AskHandover}
	cmd := p.newAskCmd(&o, &cobra.Command{
		Use:   "handover GROUP/DUTY",
		Short: "Move a duty of a group to another member",
		Long: `Moves a duty to another member: to any that may have it, or with --to to this
one. --to also pins the duty: it stays there until that member leaves, or until
--unpin. The holder is asked first: a leader's command gets TERM, and a run of a
cron is finished.`,
		Example: `  muster group handover shop/coordinator
  muster group handover shop/coordinator --to 10.0.3.12:7000
  muster group handover shop/coordinator --unpin`,
	})
	cmd.Flags().StringVar(&o.to, "to", "", "give it to the member with this `IDENTITY`, and pin it there")
	cmd.Flags().BoolVar(&o.unpin, "unpin", false, "take the pin away; nothing moves for that")
	completeFlag(cmd, "to", func(ctx context.Context, args []string, typed string) []string {
		return withPrefix(typed, p.memberCandidates(ctx, o.searchFlags, strings.Join(args, "/")))
	})
	return cmd
}

func newPauseCmd(p *process) *cobra.Command {
	return p.newAskCmd(&askOptions{do: znode.AskPause}, &cobra.Command{
		Use:   "pause GROUP/DUTY",
		Short: "Take a duty of a group away until it is resumed",
		Long: `Takes a duty away from its holder, and gives it to nobody until "muster group
resume". The holder is asked first: a leader's command gets TERM, and a run of a
cron is finished. Ticks of a cron that fall due meanwhile are forgotten.`,
		Example: `  muster group pause shop/nightly-report`,
	})
}

func newResumeCmd(p *process) *cobra.Command {
	return p.newAskCmd(&askOptions{do: znode.AskResume}, &cobra.Command{
		Use:   "resume GROUP/DUTY",
		Short: "End the pause of a duty of a group",
		Long: `Ends a pause: the duty is given to a member again. A cron goes on with its next
tick.`,
		Example: `  muster group resume shop/nightly-report`,
	})
}

func (p *process) newAskCmd(o *askOptions, cmd *cobra.Command) *cobra.Command {
	cmd.Args = argCount(1, 2, "one duty, as GROUP/DUTY")
	duty := p.completePart(&o.searchFlags, text.Strings(group.Types())...)
	return p.lookCmd(cmd, &o.askFlags, "the assigner of the group", duty, o.check, o.run)
}

func (o *askOptions) check(string) error {
	switch {
	case o.unpin && o.to != "":
		return usagef("name one of them", "--to pins the duty, and --unpin takes the pin away")
	case o.unpin:
		o.do = znode.AskUnpin
	}
	return nil
}

func (o *askOptions) run(ctx context.Context, p *process, scope *searchScope, name string) error {
	found, err := scope.findDuty(ctx, name)
	if err != nil {
		return err
	}
	before, err := scope.dutyNow(ctx, found)
	if err != nil {
		return err
	}
	id := found.group.Record.Declaration.ID()
	limited, cancel := context.WithTimeoutCause(ctx, o.timeout, errTimeUp)
	defer cancel()
	sent, err := member.SendAsk(limited, scope.session, id.Root, id.Name,
		znode.Ask{Do: o.do, Duty: found.duty.Name, To: o.to, By: p.user()})
	if err != nil {
		return askError(err, found)
	}
	if err := o.awaitAssigner(limited, scope, found, sent, len(before.Members) > 0); err != nil {
		return err
	}
	after, err := scope.dutyNow(ctx, found)
	if err != nil {
		return err
	}
	line, done := o.outcome(found, before.duty, after.duty)
	p.announce(found.name(), "%s", line)
	if !done {
		return foundIncomplete
	}
	return nil
}

// dutyAt is a group at one time, and one of its duties.
type dutyAt struct {
	*view.Group
	duty view.Duty
}

func (scope *searchScope) dutyNow(ctx context.Context, d foundDuty) (dutyAt, error) {
	_, o, err := scope.read(ctx, d.path, group.KindName, "duties")
	if err != nil {
		return dutyAt{}, err
	}
	all, err := scope.reader().GroupState(ctx, o, time.Now())
	if err != nil {
		return dutyAt{}, err
	}
	i := slices.IndexFunc(all.Duties, func(duty view.Duty) bool { return duty.Name == d.duty.Name })
	if i < 0 {
		return dutyAt{}, noDuty(d.path, d.duty.Name, group.Of(o.Record))
	}
	return dutyAt{all, all.Duties[i]}, nil
}

func askError(err error, d foundDuty) error {
	return withRemedy(err, []remedy{
		{errIncomplete, "muster explain {duty} shows who can have it", errorSet{member.ErrUnfit}},
		{errIncomplete, "muster status {group} shows what waits and why",
			errorSet{member.ErrManyAsks, member.ErrNotOpen, member.ErrUnknown, errTimeUp}},
		{nil, "muster status {group}", errorSet{member.ErrNoDuty, member.ErrNoGroup}},
	}, "{duty}", text.ShellWord(d.name()), "{group}", text.ShellWord(d.path))
}

// awaitAssigner waits until the assigner has decided, or until the time of ctx is up. Without a live member there is
// none.
func (o *askOptions) awaitAssigner(
	ctx context.Context, scope *searchScope, d foundDuty, sent string, live bool,
) error {
	next := "muster status " + text.ShellWord(d.path) + " shows what waits"
	if !live {
		err := fmt.Errorf("%s: the %s is written down, but no member of the group is live: the first one does it",
			d.name(), o.do)
		return &problem{errIncomplete, err, next}
	}
	err := member.AwaitAnswer(ctx, scope.session, sent)
	if errors.Is(err, errTimeUp) {
		err = fmt.Errorf("%s: the assigner has not answered within %s; it still may do the %s", d.name(), o.timeout, o.do)
		return &problem{errIncomplete, err, next}
	}
	return err
}

// outcome says what came of a request, as the end of a sentence, and whether it is what was asked for.
func (o *askOptions) outcome(d foundDuty, before, after view.Duty) (line string, done bool) {
	switch o.do {
	case znode.AskPause:
		line = "paused, and nobody has it"
		if after.Holder != "" {
			line = "paused; " + asked(after.Holder, d.duty)
		}
		return line, after.PausedBy != ""
	case znode.AskResume:
		return "resumed; " + possession(after, d.duty), after.PausedBy == ""
	case znode.AskUnpin:
		return "not pinned; " + possession(after, d.duty), after.Pinned == ""
	}
	switch {
	case o.to != "" && after.Given != o.to:
		return "pinned to " + o.to + ", which cannot have it now; " + possession(after, d.duty), false
	case o.to == "" && after.Given != "" && after.Given == before.Given:
		return possession(after, d.duty) + ", and no other member may have it now", false
	}
	return possession(after, d.duty), after.Given != ""
}

func possession(d view.Duty, declared group.Duty) string {
	switch {
	case d.Holder == "" && d.Given == "":
		if d.Why == "" {
			return "nobody has it"
		}
		return "nobody has it: " + d.Why
	case d.Holder == "":
		return "given to " + d.Given + ", which has not taken it yet"
	case d.Given == "" || d.Given == d.Holder:
		return d.Holder + " has it"
	}
	return "given to " + d.Given + "; " + asked(d.Holder, declared)
}

func asked(holder string, d group.Duty) string {
	if d.Type == group.Cron {
		return holder + " was asked to hand it over, and finishes its run first"
	}
	return holder + " was asked to hand it over"
}

type runDutyOptions struct {
	askFlags
	wait bool
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
		Example: `  muster group run shop/nightly-report
  muster group run shop/nightly-report --wait`,
		Args: argCount(1, 2, "one cron, as GROUP/CRON"),
	}, &o.askFlags, "a member to accept the run", p.completePart(&o.searchFlags, string(group.Cron)), nil, o.run)
	cmd.Flags().BoolVar(&o.wait, "wait", false, "wait for the end of the run")
	return cmd
}

func (o *runDutyOptions) run(ctx context.Context, p *process, scope *searchScope, name string) error {
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
		p.say("%s: %s; waiting for its end", found.name(), runText(run))
		if run, err = awaitRun(ctx, scope.session, at, znode.TickRecord.Final); err != nil {
			return runGone(err, found)
		}
	}
	p.say("%s: %s", found.name(), runText(run))
	if !o.wait {
		return nil
	}
	for _, line := range text.Output(run.Tail) {
		fmt.Fprintln(p.out, text.Escape(line))
	}
	if run.State != znode.TickDone {
		return errPrinted
	}
	return nil
}

// accepted waits, until the time of ctx is up, for the holder to accept a run: it runs, or waits for the run that goes
// on.
func (o *runDutyOptions) accepted(
	ctx context.Context, scope *searchScope, d foundDuty, at string,
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
		err = fmt.Errorf("%s: the run is written down and begins when the duty is resumed: it is paused by %s", d.name(),
			now.duty.PausedBy)
		next = "muster group resume " + text.ShellWord(d.name())
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
	if errors.Is(err, zkconn.ErrSessionLost) || errors.Is(err, zkconn.ErrUnreachable) {
		return &problem{err: fmt.Errorf("%s: the run is written down, and goes on without this command: %w", d.name(), err),
			next: "muster explain " + text.ShellWord(d.name()) + " shows the last runs"}
	}
	if !errors.Is(err, zkconn.ErrNoNode) {
		return err
	}
	return &problem{errIncomplete, fmt.Errorf("%s: what became of the run is forgotten: %w", d.name(), err),
		"muster explain " + text.ShellWord(d.name()) + " shows the last runs"}
}

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

func askRunError(err error, d foundDuty) error {
	return withRemedy(err, []remedy{
		{errIncomplete, "muster explain {duty} shows its runs",
			errorSet{member.ErrAskedTooOften, member.ErrNotOpen, member.ErrUnknown, errTimeUp}},
		{nil, "muster status {group}", errorSet{member.ErrNoCron}},
	}, "{duty}", text.ShellWord(d.name()), "{group}", text.ShellWord(d.path))
}
