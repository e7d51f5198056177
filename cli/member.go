package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"muster/member"
	"muster/resource"
	"muster/resource/group"
	"muster/text"
	"muster/worker"
	"muster/wrap"
	"muster/wrap/command"
)

type memberOptions struct {
	lifeOptions
	memberFlags
	group, version string
	address        string
	duties         string // directory
	can            []string
	ready          string
}

func newMemberCmd(p *process) *cobra.Command {
	var o memberOptions
	cmd := p.lifeCmd(&cobra.Command{
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
	}, requireDash("muster member --group NAME"), func(cmd *cobra.Command, args []string) error {
		o.command = args
		return runMember(cmd.Context(), p, o)
	})
	o.addTo(cmd)
	_ = cmd.MarkFlagDirname("duties")
	completeFlag(cmd, "group", func(ctx context.Context, _ []string, _ string) []string {
		return p.jobNames(ctx, o.searched())
	})
	return cmd
}

func (o *memberOptions) addTo(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringVar(&o.group, "group", "", "`NAME` of the group (MUSTER_GROUP)")
	o.placeFlags.addTo(fs, "group", fromFile)
	o.lifeOptions.addTo(fs, "group",
		"that survives a restart (MUSTER_IDENTITY); default the index of a container, else the address or host",
		"group and the identity", ", /metrics and /duty/NAME")
	fs.StringVar(&o.version, "version", "", "`VERSION` of the application, such as 2.1.0 (MUSTER_VERSION)")
	fs.StringVar(&o.address, "address", "", "`HOST:PORT` at which followers reach this member (MUSTER_ADDRESS)")
	fs.StringVar(&o.duties, "duties", "", "an executable file in `DIR` for each duty (MUSTER_DUTIES)")
	fs.StringSliceVar(&o.can, "can", nil, "`LIST` of duties, with commas, that the command does itself (MUSTER_CAN)")
	choose(cmd, fs, &o.ready, "ready",
		"be given duties from `WHEN` on: joined, or explicit, which is \"muster ready\" in the command",
		"joined", "explicit")
	o.memberFlags.addTo(cmd)
	addGrace(fs, &o.grace)
}

// fill takes from the environment what no flag has set.
func (o *memberOptions) fill(e environ) {
	for name, to := range map[string]*string{
		"MUSTER_GROUP": &o.group, "MUSTER_VERSION": &o.version, "MUSTER_ADDRESS": &o.address, "MUSTER_DUTIES": &o.duties,
	} {
		*to = cmp.Or(*to, e.value(name))
	}
	if can := e.value("MUSTER_CAN"); can != "" && len(o.can) == 0 {
		o.can = strings.Split(can, ",")
	}
}

func (o *memberOptions) check(e environ) error {
	if err := o.lifeOptions.check("muster member", e); err != nil {
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
	for _, duty := range o.can {
		if err := group.CheckDutyName(duty); err != nil {
			return usagef("muster member --can coordinator", "--can: %w", err)
		}
	}
	if o.address != "" {
		if _, _, err := wrap.ParseAddress(o.address); err != nil {
			return usagef("muster member --address shop-1:7000", "--address %w", err)
		}
	}
	return nil
}

func runMember(ctx context.Context, p *process, o memberOptions) error {
	o.fill(p.environ)
	if err := o.check(p.environ); err != nil {
		return err
	}
	_, t, err := p.place(&o.placeFlags, group.KindName, o.group)
	if err != nil {
		return err
	}
	c, err := p.memberConfig(o, t)
	if err != nil {
		return err
	}
	return p.live(&c.Life, func() command.Result { return wrap.RunMember(ctx, c) }, func(err error) error {
		if errors.Is(err, member.ErrVersion) {
			return usagef("muster member --version 2.1.0", "--version: %w", err)
		}
		return withRemedy(err, []remedy{
			{nil, "muster status --root {root} lists the groups there; if this one is missing, declare it, then: muster apply",
				errorSet{member.ErrNoGroup}},
			{nil, "wait until the other process has ended, or give another --identity", errorSet{member.ErrHeld}},
		}, "{root}", o.root)
	})
}

func (p *process) memberConfig(o memberOptions, t target) (c wrap.MemberConfig, err error) {
	if c.Member, err = p.memberIdentity(o); err != nil {
		return c, err
	}
	if c.Duties, err = p.memberDuties(o); err != nil {
		return c, err
	}
	c.Life = p.life(o.lifeOptions, t, group.Default().Timeouts.Session)
	c.Life.GuardGroups = nil // that guard would kill muster duty, which has to end what it runs
	c.Can, c.OnLoss = o.can, wrap.OnLoss(o.onLoss)
	c.Joined = func(m *member.Member) {
		p.say("joined %s as %s, version %s", m.Group().Path(), m.Identity, o.version)
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
	if !stable {
		p.warnUnstable(identity)
	}
	return member.Config{
		Root: o.root, Group: o.group, Identity: identity, Version: o.version, Address: o.address,
		NotReady: o.ready == "explicit", FailHeld: o.takeover == "fail", Waiting: p.waitingFor,
	}, nil
}

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
