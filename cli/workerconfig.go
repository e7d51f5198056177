package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/spec"
	"muster/text"
	"muster/worker"
	"muster/wrap"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// workerConfig builds the configuration of a worker from the flags, the environment and the HCL of --file: who it is,
// which job it joins, how it connects, and what it prints.
func (p *process) workerConfig(o workerOptions) (c wrap.Config, err error) {
	root, err := p.workerRoot(o)
	if err != nil {
		return c, err
	}
	quiet := p.flags.quiet || len(o.command) == 0 // without a command, waitWithoutCommand prints it
	declared, t := job.Default(), p.target(target{})
	if o.declared {
		cfg, err := p.load(o.dir, o.vars)
		if err != nil {
			return c, err
		}
		if declared, err = declaredJob(cfg, o.job, root); err != nil {
			return c, err
		}
		root, t = declared.Root, p.target(p.declaredTarget(cfg, o.dir))
		c.Create = func(ctx context.Context, s *zkconn.Session) error {
			return p.createJob(ctx, s, cfg, declared, quiet)
		}
	}
	c.Life = p.life(o.lifeOptions, t, declared.Timeouts.Session)
	c.Start, c.OnLoss, c.Idle = wrap.Start(o.start), wrap.OnLoss(o.onLoss), p.waitWithoutCommand
	c.LocalIP = func(ctx context.Context) (net.IP, error) {
		ip, err := zkconn.LocalIP(ctx, t.servers)
		return ip, wrapDialError(err)
	}
	c.Unstable = func(identity string) {
		if !p.flags.quiet {
			fmt.Fprintf(p.err, "the identity is %s, which a restart may change: give --identity\n", identity)
		}
	}
	c.Joined = func(m *worker.Member) {
		if !quiet {
			fmt.Fprintln(p.err, joinedAs(m))
		}
	}
	c.Worker, err = p.workerIdentity(o)
	c.Worker.Root, c.Worker.Job = cmp.Or(root, resource.DefaultRoot), o.job
	c.Worker.Waiting = func(what string) { fmt.Fprintf(p.err, "waiting for %s\n", text.Escape(what)) }
	return c, err
}

// workerRoot returns the root of the flag or the environment; empty if neither is set.
func (p *process) workerRoot(o workerOptions) (string, error) {
	root := cmp.Or(o.root, p.environ.value("MUSTER_ROOT"))
	if root != "" {
		if err := resource.CheckRoot(root); err != nil {
			line := "muster worker --root " + meantRoot(root)
			if o.job != "" {
				line += " --job " + text.ShellWord(o.job)
			}
			return "", usagef(line, "root: %w", err)
		}
	}
	return root, nil
}

// workerIdentity returns who joins. An empty identity becomes the address. The address is empty without --advertise.
func (p *process) workerIdentity(o workerOptions) (c worker.Config, err error) {
	if c.Info, err = advertised(o.advertise); err != nil {
		return c, err
	}
	host, _ := os.Hostname() // an empty name is no stable identity
	identity, stable, err := worker.Identify(o.identity, p.environ.value, host, c.Info.Address())
	switch {
	case err != nil:
		return c, usagef("muster worker --identity NAME", "%w", err)
	case stable:
		c.Identity = identity
	}
	run, source := o.run, "--run"
	if run == "" {
		run, source = p.environ.value("MUSTER_RUN"), "MUSTER_RUN"
	}
	if run != "" {
		if err := job.CheckRun(run); err != nil {
			return c, usagef("muster worker --run 2026-11-21", "%s %q: %w", source, run, err)
		}
	}
	c.Run = run
	if o.takeover == "fail" {
		c.Takeover = worker.TakeoverFail
	}
	return c, nil
}

// declaredJob returns the declared job with this name, below root unless that is empty.
func declaredJob(cfg *spec.Config, name, root string) (job.Job, error) {
	var found []job.Job
	for _, j := range cfg.Jobs {
		if j.Name == name && (root == "" || j.Root == root) {
			found = append(found, j)
		}
	}
	switch len(found) {
	case 0:
		paths := cmp.Or(text.List(wantOf(cfg).Paths(), maxListed), "none")
		return job.Job{}, usagef("declare it there, or take one of: "+paths,
			"the configuration declares no job %q%s", name, below(root))
	case 1:
		return found[0], nil
	}
	return job.Job{}, usagef("muster worker --root "+found[0].Root,
		"the configuration declares %d jobs %q: say below which root", len(found), name)
}

func below(root string) string {
	if root == "" {
		return ""
	}
	return " below " + root
}

// createJob creates the job as an apply would, unless it exists.
func (p *process) createJob(ctx context.Context, s *zkconn.Session, cfg *spec.Config, j job.Job, quiet bool) error {
	store, err := zkstate.NewStore(s, p.storeConfig(cfg.Home, cfg.Stack, cfg.ZooKeeper.ACL))
	if err != nil {
		return err
	}
	o, err := store.Look(ctx, j.Path())
	if err != nil || o != nil {
		return err
	}
	err = store.Commit(ctx, plan.Row{Path: j.Path(), New: j, Reason: plan.NotThere})
	switch {
	case errors.Is(err, plan.ErrMoved), errors.Is(err, plan.ErrAlreadyDone): // another worker has created it
		return nil
	case err == nil && !quiet:
		fmt.Fprintf(p.err, "created %s as %s declares it\n", j.Path(), j.At)
	}
	return err
}

// advertised returns the address of --advertise; it is empty without the flag.
func advertised(address string) (znode.Worker, error) {
	if address == "" {
		return znode.Worker{}, nil
	}
	host, port, err := wrap.ParseAddress(address)
	if err != nil {
		return znode.Worker{}, usagef("muster worker --advertise 10.0.0.1:7000", "--advertise %w", err)
	}
	return znode.Worker{IP: host, Port: port}, nil
}
