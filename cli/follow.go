package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"muster/member"
	"muster/resource"
	"muster/resource/group"
	"muster/text"
	"muster/wrap"
	"muster/zkstate/zkconn"
)

type followOptions struct {
	placeFlags
	json     bool
	once     bool
	onChange string
	grace    time.Duration
	command  []string

	passCredentials bool
}

func newFollowCmd(p *process) *cobra.Command {
	var o followOptions
	cmd := &cobra.Command{
		Use:   "follow GROUP/DUTY [-- COMMAND ARGS...]",
		Short: "Say who holds a duty, now and after each change",
		Long: `Prints a line for each holder of a duty: its address and the epoch. It only
reads, and goes on when a session is lost. While nobody holds the duty it prints
nothing. With a command: runs it with MUSTER_LEADER_ADDRESS, MUSTER_LEADER_EPOCH
and MUSTER_LEADER_IDENTITY, and restarts it when there is another holder, or
sends it SIGHUP. Without a holder it is stopped, or goes on, respectively.`,
		Example: `  muster follow shop/coordinator
  muster follow /apps/shop/coordinator --once --json
  muster follow shop/coordinator -- sh -c './work "$MUSTER_LEADER_ADDRESS"'`,
		Args:              beforeDash(argCount(1, 1, "GROUP/DUTY")),
		PersistentPreRunE: p.startLong,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.command = args[1:]
			return runFollow(cmd.Context(), p, o, args[0])
		},
	}
	fs := cmd.Flags()
	o.placeFlags.addTo(fs, "group", fromFile)
	fs.BoolVar(&o.json, "json", false, "one JSON object a line; without a holder it is {}")
	fs.BoolVar(&o.once, "once", false, "print who holds it now, and end: with 3 if nobody does")
	choose(cmd, fs, &o.onChange, "on-change", "`DO` that with the command when there is another holder: restart or hup",
		string(wrap.ChangeRestart), string(wrap.ChangeHup))
	addGrace(fs, &o.grace)
	addPassCredentials(fs, &o.passCredentials)
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		return p.completePart(new(o.searched()), text.Strings(group.Types())...)(cmd, args, typed)
	}
	return cmd
}

// dutyPath splits GROUP/DUTY, with or without the root in front.
func (p *process) dutyPath(name, root string) (inRoot, groupName, duty string, err error) {
	at, duty := path.Split(name)
	at = strings.TrimSuffix(at, "/")
	inRoot, groupName = cmp.Or(root, p.environ.value("MUSTER_ROOT"), resource.DefaultRoot), at
	const next = "muster follow GROUP/DUTY"
	if strings.HasPrefix(at, "/") {
		inRoot, groupName = path.Dir(at), path.Base(at)
		if inRoot == "/" {
			return "", "", "", usagef(next, "%q is not GROUP/DUTY: a group has a root, as in /apps/shop/coordinator", name)
		}
	}
	if err := resource.CheckRoot(inRoot); err != nil {
		return "", "", "", usagef(next, "root: %w", err)
	}
	if err := resource.CheckName("group", groupName); err != nil {
		return "", "", "", usagef(next, "%q is not GROUP/DUTY: %w", name, err)
	}
	if err := group.CheckDutyName(duty); err != nil {
		return "", "", "", usagef(next, "%q is not GROUP/DUTY: %w", name, err)
	}
	return inRoot, groupName, duty, nil
}

func runFollow(ctx context.Context, p *process, o followOptions, name string) error {
	switch {
	case o.once && len(o.command) > 0:
		return usagef("muster follow GROUP/DUTY --once", "--once runs no command")
	case o.grace < 0:
		return usagef("muster follow --grace 30s", "--grace %s: a duration is not negative", o.grace)
	}
	root, groupName, duty, err := p.dutyPath(name, o.root)
	if err != nil {
		return err
	}
	if o.root = cmp.Or(o.root, p.environ.value("MUSTER_ROOT")); path.IsAbs(name) {
		o.root = root
	}
	_, t, err := p.place(&o.placeFlags, group.KindName, groupName)
	if err != nil {
		return err
	}
	root = o.root
	t.timeout = time.Duration(group.Default().Timeouts.Session)
	f := follower{p, t, root, groupName, duty}
	if len(o.command) > 0 {
		return p.followWith(ctx, f, o)
	}
	var last member.Leader
	first := true
	err = f.follow(ctx, func(l member.Leader) error {
		if first || l != last {
			p.printLeader(l, o.json)
		}
		first, last = false, l
		if o.once {
			return errReached
		}
		return p.stdoutError()
	})
	switch {
	case !errors.Is(err, errReached):
		return err
	case last == (member.Leader{}):
		return foundAttention
	}
	return nil
}

// printLeader prints nothing for nobody, unless as JSON.
func (p *process) printLeader(l member.Leader, asJSON bool) {
	switch {
	case asJSON && l == (member.Leader{}):
		fmt.Fprintln(p.out, "{}")
	case asJSON:
		_ = p.printJSONLine(l) // stdoutError has the error
	case l != (member.Leader{}):
		fmt.Fprintf(p.out, "%s %d %s\n", text.Escape(cmp.Or(l.Address, "-")), l.Epoch, text.Escape(l.Identity))
	}
}

func (p *process) followWith(ctx context.Context, f follower, o followOptions) error {
	files, signals, release, err := p.streams()
	if err != nil {
		return err
	}
	defer release()
	ofCommand, stop := context.WithCancelCause(ctx)
	ofFollower, end := context.WithCancel(context.WithoutCancel(ctx))
	leaders := make(wrap.Leaders, 1)
	var following sync.WaitGroup
	following.Go(func() {
		stop(f.follow(ofFollower, func(l member.Leader) error {
			leaders.Set(l)
			return nil
		}))
	})
	result := wrap.RunFollower(ofCommand, wrap.FollowConfig{
		Command: o.command, Dir: p.flags.dir, Environ: p.commandEnviron(o.passCredentials), Files: files,
		OnChange: wrap.OnChange(o.onChange), Grace: o.grace, Signals: signals,
	}, leaders)
	end()
	following.Wait()
	return p.endCommand(ctx, result)
}

type follower struct {
	p                *process
	zooKeeper        target
	root, name, duty string
}

const followPause = time.Second

// follow calls each for every holder, in one session after the other, until ctx ends or each returns an error. What
// fails before the first answer is the error.
func (f follower) follow(ctx context.Context, each func(member.Leader) error) error {
	answered := false
	var stop error // of each
	for {
		err := f.inSession(ctx, func(l member.Leader) error {
			answered = true
			stop = each(l)
			return stop
		})
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case stop != nil:
			return stop
		case !answered && (errors.Is(err, member.ErrNoDuty) || errors.Is(err, member.ErrNoGroup)):
			return f.absent(ctx, err)
		case !answered && !errors.Is(err, zkconn.ErrSessionLost):
			return err
		}
		f.p.log.Warn("following again", "group", resource.Join(f.root, f.name), "duty", f.duty, "reason", err)
		zkconn.Pause(ctx, followPause)
	}
}

// absent adds to err, that there is no such group or duty, what was probably meant.
func (f follower) absent(ctx context.Context, err error) error {
	s, dialErr := f.p.connect(ctx, f.zooKeeper)
	if dialErr != nil {
		return err
	}
	defer s.Close()
	_, found := (&searchScope{p: f.p, session: s}).findDuty(ctx, resource.Join(f.root, f.name, f.duty))
	return cmp.Or(found, err)
}

func (f follower) inSession(ctx context.Context, each func(member.Leader) error) error {
	s, err := f.p.connect(ctx, f.zooKeeper)
	if err != nil {
		return err
	}
	defer s.Close()
	for l, err := range member.Follow(ctx, s, f.root, f.name, f.duty) {
		if err == nil {
			err = each(l)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
