package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"muster/job"
	"muster/plan"
	"muster/spec"
	"muster/text"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// badge is what a worker shows when it joins, and the session that it joined in.
type badge struct {
	p       *process
	target  target
	config  worker.Config
	quiet   bool         // -q, or there is no command whose standard error this would be
	cfg     *spec.Config // nil: the job is not created if it is missing
	job     job.Job      // as declared there, or defaults
	session atomic.Pointer[zkconn.Session]

	joinTimeout time.Duration // 0: what the job says
}

// newBadge finds out who this worker is, and what for.
func (p *process) newBadge(o workerOptions) (*badge, error) {
	b := &badge{p: p, job: job.Default(), quiet: p.flags.quiet || len(o.command) == 0, joinTimeout: o.joinTimeout}
	root := cmp.Or(o.root, p.environ.value("MUSTER_ROOT"))
	if root != "" {
		if err := job.CheckRoot(root); err != nil {
			return nil, usagef("muster worker --root "+job.DefaultRoot, "root: %w", err)
		}
	}
	if o.declared {
		if err := b.declare(o, root); err != nil {
			return nil, err
		}
		root = b.job.Root
		b.target = p.target(p.declaredTarget(b.cfg, o.dir))
	} else {
		b.target = p.target(target{})
	}
	b.target.timeout = time.Duration(b.job.Timeouts.Session) // until the Record says so
	info, err := advertised(o.advertise)
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname() // without a name it is not a stable identity
	identity, stable, err := worker.Identify(o.identity, p.environ.value, host, info.Address())
	switch {
	case err != nil:
		return nil, usagef("muster worker --identity NAME", "%w", err)
	case !stable:
		identity = "" // the address that is advertised
	}
	run, source := o.run, "--run"
	if run == "" {
		run, source = p.environ.value("MUSTER_RUN"), "MUSTER_RUN"
	}
	if run != "" {
		if err := job.CheckRun(run); err != nil {
			return nil, usagef("muster worker --run 2026-11-21", "%s %q: %w", source, run, err)
		}
	}
	b.config = worker.Config{
		Root: cmp.Or(root, job.DefaultRoot), Job: o.job, Identity: identity, Info: info, Run: run,
		Waiting: b.waiting,
	}
	if o.takeover == "fail" {
		b.config.Takeover = worker.TakeoverFail
	}
	return b, nil
}

// waiting tells what this worker waits for.
func (b *badge) waiting(what string) {
	fmt.Fprintf(b.p.err, "waiting for %s\n", text.Escape(what))
}

// declare finds the job in the configuration.
func (b *badge) declare(o workerOptions, root string) (err error) {
	if b.cfg, err = b.p.load(o.dir, o.vars); err != nil {
		return err
	}
	var found []job.Job
	for _, j := range b.cfg.Jobs {
		if j.Name == o.job && (root == "" || j.Root == root) {
			found = append(found, j)
		}
	}
	switch len(found) {
	case 0:
		return usagef("declare it there, or take one of: "+cmp.Or(text.List(declaredPaths(b.cfg), few), "none"),
			"the configuration declares no job %q%s", o.job, below(root))
	case 1:
		b.job = found[0]
		return nil
	}
	return usagef("muster worker --root "+found[0].Root, "the configuration declares %d jobs %q: say below which root", len(found), o.job)
}

func below(root string) string {
	if root == "" {
		return ""
	}
	return " below " + root
}

// create commits what a plan would for the missing job alone. A job that is there stays as it is.
func (b *badge) create(ctx context.Context) error {
	store, err := zkstate.NewStore(b.session.Load(), b.p.storeConfig(b.cfg.Home, b.cfg.Stack, b.cfg.ZooKeeper.ACL))
	if err != nil {
		return err
	}
	o, err := store.Look(ctx, b.job.Path())
	if err != nil || o != nil {
		return err
	}
	err = store.Commit(ctx, plan.Row{Path: b.job.Path(), New: &b.job, Reason: plan.NoJob})
	switch {
	case errors.Is(err, plan.ErrMoved), errors.Is(err, plan.ErrAlreadyDone): // another worker did
		return nil
	case err == nil && !b.quiet:
		fmt.Fprintf(b.p.err, "created %s as %s declares it\n", b.job.Path(), b.job.At)
	}
	return err
}

// advertised is where peers reach this worker, as told; without an IP if nobody says.
func advertised(address string) (znode.Worker, error) {
	if address == "" {
		return znode.Worker{}, nil
	}
	host, text, err := net.SplitHostPort(address)
	port, convErr := strconv.ParseUint(text, 10, 16)
	if err != nil || convErr != nil || net.ParseIP(host) == nil {
		return znode.Worker{}, usagef("muster worker --advertise 10.0.0.1:7000", "--advertise %q is not IP:PORT", address)
	}
	return znode.Worker{IP: host, Port: int(port)}, nil
}
