package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"muster/member"
	"muster/resource"
	"muster/resource/group"
	"muster/text"
	"muster/worker"
	"muster/wrap"
)

// memberOptions of "muster member".
type memberOptions struct {
	group, root       string
	version           string
	identity, address string
	duties            string // directory
	can               []string
	ready             string
	takeover          string
	onLoss            string
	lifeOptions
}

func newMemberCmd(p *process) *cobra.Command {
	var o memberOptions
	cmd := &cobra.Command{
		Use:   "member --group NAME --version V [-- COMMAND ARGS...]",
		Short: "Join a group, and do the duties that it is given",
		Long: `Joins the group as one of its members. While the member holds a duty, it runs
the file of that name in the directory --duties; the file is told what it is
for by MUSTER_DUTY, MUSTER_EPOCH and other variables. Duties of --can are held
for the command, which asks with "muster duty". With a command the member lives
as long as that, and the exit code is the command's; without one it stays until
it is stopped. A member with neither --duties nor --can holds nothing.

The commands of duties never outlive what the member holds: when it is frozen,
killed or cut off from ZooKeeper, they are ended before another member can have
the duty. It joins as a new member then.`,
		Example: `  muster member --group shop --version 2.1.0 --duties /opt/shop/duties
  muster member --group shop --version 2.1.0 --can coordinator -- ./server
  muster member --group shop --root /apps --version 2.1.0 --http :8080 -- ./web`,
		Args: func(cmd *cobra.Command, args []string) error {
			return p.argumentError(cmd.Context(), requireDash(cmd, args, "muster member --group NAME"))
		},
		PersistentPreRunE: func(cmd *cobra.Command, args []string) error {
			return p.argumentError(cmd.Context(), p.startLong(cmd, args))
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.command = args
			return p.endWorker(cmd.Context(), runMember(cmd.Context(), p, o))
		},
	}
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return p.argumentError(cmd.Context(), flagError(cmd, nil, err))
	})
	o.addTo(cmd)
	p.completeMember(cmd, &o)
	return cmd
}

func (o *memberOptions) addTo(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&o.group, "group", "", "`NAME` of the group (MUSTER_GROUP)")
	fs.StringVar(&o.root, "root", "",
		"znode `PATH` that the group is below (MUSTER_ROOT); default "+resource.DefaultRoot)
	fs.StringVar(&o.version, "version", "", "`VERSION` of the application, such as 2.1.0 (MUSTER_VERSION)")
	fs.StringVar(&o.identity, "identity", "",
		"`NAME` that survives a restart (MUSTER_IDENTITY); default the index of a container, else the address or host")
	fs.StringVar(&o.address, "address", "", "`HOST:PORT` at which followers reach this member (MUSTER_ADDRESS)")
	fs.StringVar(&o.duties, "duties", "", "an executable file in `DIR` for each duty (MUSTER_DUTIES)")
	fs.StringSliceVar(&o.can, "can", nil, "`LIST` of duties, with commas, that the command does itself (MUSTER_CAN)")
	fs.StringVar(&o.ready, "ready", "joined",
		"be given duties from `WHEN` on: joined, or explicit, which is \"muster ready\" in the command")
	fs.StringVar(&o.takeover, "takeover", "wait", "`DO` that while an older process has this identity: wait or fail")
	fs.StringVar(&o.onLoss, "on-loss", string(wrap.LossRejoin),
		"`DO` that with the command when the session is lost: rejoin, or stop, which kills it at once")
	fs.DurationVar(&o.grace, "grace", 30*time.Second,
		"kill the command if it has not ended `DURATION` after it was asked to")
	fs.DurationVar(&o.joinTimeout, "join-timeout", 0,
		"wait `DURATION` for ZooKeeper, the group and the identity; default: what the group says")
	fs.StringVar(&o.http, "http", "", "serve /live, /ready, /metrics and /duty/NAME at `ADDR`; port 0 is a free port")
	addPassCredentials(fs, &o.passCredentials)
}

// fill takes from the environment what no flag has set.
func (o *memberOptions) fill(e environ) {
	for name, to := range map[string]*string{
		"MUSTER_GROUP": &o.group, "MUSTER_ROOT": &o.root, "MUSTER_VERSION": &o.version, "MUSTER_ADDRESS": &o.address,
		"MUSTER_DUTIES": &o.duties,
	} {
		*to = cmp.Or(*to, e.value(name))
	}
	if can := e.value("MUSTER_CAN"); can != "" && len(o.can) == 0 {
		o.can = strings.Split(can, ",")
	}
	o.root = cmp.Or(o.root, resource.DefaultRoot)
}

func (o *memberOptions) check() error {
	for _, c := range []struct {
		flag, value string
		known       []string
	}{
		{"ready", o.ready, []string{"joined", "explicit"}},
		{"takeover", o.takeover, []string{"wait", "fail"}},
		{"on-loss", o.onLoss, []string{string(wrap.LossRejoin), string(wrap.LossStop)}},
	} {
		if !slices.Contains(c.known, c.value) {
			return usagef(fmt.Sprintf("--%s %s", c.flag, c.known[0]),
				"--%s %q is none of %q", c.flag, c.value, c.known)
		}
	}
	if err := o.lifeOptions.check("muster member"); err != nil {
		return err
	}
	switch {
	case o.version == "":
		return usagef("muster member --version 2.1.0", "--version is missing: which version of the application this is")
	case len(o.command) == 0 && len(o.can) > 0:
		return usagef("muster member --can NAME -- COMMAND", "--can is for the command, and there is none")
	case len(o.command) == 0 && o.ready == "explicit":
		return usagef("muster member --ready explicit -- COMMAND",
			"--ready explicit is said by the command, and there is none")
	}
	if err := resource.CheckName("group", o.group); err != nil {
		return usagef("muster member --group NAME", "--group: %w", err)
	}
	if err := resource.CheckRoot(o.root); err != nil {
		return usagef("muster member --root "+resource.DefaultRoot, "root: %w", err)
	}
	for _, duty := range o.can {
		if err := group.CheckDutyName(duty); err != nil {
			return usagef("muster member --can coordinator", "--can: %w", err)
		}
	}
	return checkMemberAddress(o.address)
}

func checkMemberAddress(address string) error {
	if address == "" {
		return nil
	}
	if _, _, err := wrap.ParseAddress(address); err != nil {
		return usagef("muster member --address shop-1:7000", "--address %w", err)
	}
	return nil
}

func runMember(ctx context.Context, p *process, o memberOptions) error {
	o.fill(p.environ)
	if err := o.check(); err != nil {
		return err
	}
	c, err := p.memberConfig(o)
	if err != nil {
		return err
	}
	life, release, err := p.life(o.lifeOptions, p.target(target{}), group.Default().Timeouts.Session)
	if err != nil {
		return err
	}
	defer release()
	c.Life = life
	result := wrap.RunMember(ctx, c)
	switch {
	case errors.Is(result.Err, wrap.ErrHealth):
		result.Err = badAddress("--http", o.http, result.Err)
	case errors.Is(result.Err, member.ErrVersion):
		result.Err = usagef("muster member --version 2.1.0", "--version: %w", result.Err)
	case errors.Is(result.Err, member.ErrNoGroup):
		result.Err = &problem{nil, result.Err, "muster status --root " + o.root +
			" lists the groups there; if this one is missing, declare it, then: muster apply"}
	case errors.Is(result.Err, member.ErrHeld):
		result.Err = &problem{nil, result.Err, "wait until the other process has ended, or give another --identity"}
	}
	return &workerResult{result}
}

// memberConfig builds the configuration of a member, without its Life, from the flags and the environment.
func (p *process) memberConfig(o memberOptions) (c wrap.MemberConfig, err error) {
	if c.Member, err = p.memberIdentity(o); err != nil {
		return c, err
	}
	if c.Duties, err = p.memberDuties(o); err != nil {
		return c, err
	}
	c.Can, c.OnLoss = o.can, wrap.OnLoss(o.onLoss)
	c.Joined = func(m *member.Member) {
		if !p.flags.quiet {
			fmt.Fprintf(p.err, "joined %s as %s, version %s\n",
				m.Group().Path(), text.Escape(m.Identity), text.Escape(o.version))
		}
	}
	return c, nil
}

func (p *process) memberIdentity(o memberOptions) (c member.Config, err error) {
	host, _ := os.Hostname() // an empty name is no stable identity
	fallback := cmp.Or(o.address, fmt.Sprintf("%s-%d", cmp.Or(host, "member"), os.Getpid()))
	identity, stable, err := worker.Identify(o.identity, p.environ.value, host, fallback)
	if err != nil {
		return c, usagef("muster member --identity NAME", "%w", err)
	}
	if !stable && !p.flags.quiet {
		fmt.Fprintf(p.err, "the identity is %s, which a restart may change: give --identity\n", text.Escape(identity))
	}
	c = member.Config{
		Root: o.root, Group: o.group, Identity: identity, Version: o.version, Address: o.address,
		NotReady: o.ready == "explicit",
		Waiting:  func(what string) { fmt.Fprintf(p.err, "waiting for %s\n", text.Escape(what)) },
	}
	if o.takeover == "fail" {
		c.Takeover = member.TakeoverFail
	}
	return c, nil
}

// memberDuties finds the commands of duties.
func (p *process) memberDuties(o memberOptions) (map[string]string, error) {
	if o.duties == "" {
		return nil, nil
	}
	files, warnings, err := wrap.ReadDuties(p.path(o.duties))
	if err != nil {
		return nil, usagef("give --duties a directory with an executable file for each duty", "--duties: %w", err)
	}
	for _, w := range warnings {
		fmt.Fprintf(p.err, "warning: %s\n", text.Escape(w))
	}
	for _, duty := range o.can {
		if files[duty] != "" {
			return nil, usagef("leave "+duty+" out of --can, or remove the file",
				"%s is in --can, and there is a file for it: who does it?", duty)
		}
	}
	if len(files) == 0 && len(o.can) == 0 {
		return nil, usagef("put an executable file for each duty there, called as the duty", "%s holds no duty", o.duties)
	}
	return files, nil
}

// completeMember registers the words that the flags of a member take.
func (p *process) completeMember(cmd *cobra.Command, o *memberOptions) {
	completeWith(cmd, "ready", "joined", "explicit")
	completeWith(cmd, "takeover", "wait", "fail")
	completeWith(cmd, "on-loss", "rejoin", "stop")
	_ = cmd.MarkFlagDirname("duties")
	completeFlag(cmd, "group", func(ctx context.Context, _ []string, typed string) []string {
		return p.groupNames(ctx, o.root, typed)
	})
}
