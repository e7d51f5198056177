package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"muster/apply"
	"muster/plan"
	"muster/planfile"
	"muster/spec"
	"muster/text"
	"muster/zkstate"
	"muster/zkstate/zkconn"
)

// planFlags are those of every command that makes a plan.
type planFlags struct {
	vars       varFlags
	filter     filter
	maxDelete  int
	allowEmpty bool
	all        bool
}

func (f *planFlags) addTo(fs *pflag.FlagSet) {
	f.vars.addTo(fs)
	fs.StringArrayVar(&f.filter.only, "only", nil, "plan only the jobs that fit `GLOB`; may be repeated")
	fs.StringArrayVar(&f.filter.skip, "skip", nil, "leave out the jobs that fit `GLOB`; may be repeated")
	fs.IntVar(&f.maxDelete, "max-delete", 10, "refuse to delete more than `N` jobs")
	fs.BoolVar(&f.allowEmpty, "allow-empty", false, "allow a configuration that declares no job")
	fs.BoolVar(&f.all, "all", false, "list unchanged and unmanaged jobs too")
}

func (f planFlags) check() error {
	if f.maxDelete < 0 {
		return usagef("muster plan --max-delete 10", "--max-delete %d is negative", f.maxDelete)
	}
	return nil
}

// comparison is a plan and what it was made from.
type comparison struct {
	plan    plan.Plan
	saved   planfile.Saved // plan, with all that is needed to apply it elsewhere
	started time.Time      // before anything was read
	took    time.Duration
}

// compare reads what is declared and observed, and compares. The plan has an id of its own.
func compare(ctx context.Context, cfg *spec.Config, t target, r *zkstate.Reader, f filter) (comparison, error) {
	c := comparison{started: time.Now()}
	want := wanted(cfg)
	roots, unindexed, err := searched(ctx, cfg, r)
	if err != nil {
		return c, err
	}
	have, err := r.Read(ctx, roots, declaredPaths(cfg)...)
	if err != nil {
		return c, err
	}
	have.Unindexed = unindexed
	if err := nameLive(ctx, r, plan.Diff(want, have), have); err != nil {
		return c, err
	}
	c.plan = plan.Diff(want, have)
	c.plan.ID, c.plan.Roots = zkstate.NewID(), roots
	if c.plan, err = f.apply(c.plan); err != nil {
		return c, err
	}
	c.took = time.Since(c.started)
	c.saved = planfile.Saved{
		Created: c.started.UTC().Truncate(time.Second), MusterVersion: Version, Servers: t.servers,
		ACL: cfg.ZooKeeper.ACL, SessionTimeout: cfg.ZooKeeper.SessionTimeout, ConfigDigest: cfg.Digest, TLS: t.tls, Plan: c.plan,
	}
	return c, nil
}

// wanted is what a configuration declares.
func wanted(cfg *spec.Config) plan.Want {
	return plan.Want{Stack: cfg.Stack, Home: cfg.Home, TakeOver: cfg.TakeOver, Declared: cfg.Declared()}
}

// searched are the roots of a configuration, and those in which its stack has declared something before. An index that
// cannot be read is no reason to see nothing: unindexed says why.
func searched(ctx context.Context, cfg *spec.Config, r *zkstate.Reader) (roots []string, unindexed string, err error) {
	roots, err = r.Roots(ctx, cfg.Stack)
	switch {
	case errors.Is(err, zkconn.ErrNoAuth), err != nil && !unreachable(err):
		unindexed = err.Error()
	case err != nil:
		return nil, "", err
	}
	roots = slices.Concat(cfg.Searched(), roots)
	slices.Sort(roots)
	return slices.Compact(roots), unindexed, nil
}

// declaredPaths lists the declared jobs.
func declaredPaths(cfg *spec.Config) []string {
	paths := make([]string, len(cfg.Jobs))
	for i, j := range cfg.Jobs {
		paths[i] = j.Path()
	}
	return paths
}

// nameLive fills in who is live where a row is blocked by it or left running: the user must be told whom to ask.
func nameLive(ctx context.Context, r *zkstate.Reader, p plan.Plan, have plan.State) error {
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(apply.DefaultParallel)
	for _, row := range p.Rows {
		if a := row.Action(); row.Old == nil || row.Old.Live == 0 || a != plan.Blocked && a != plan.LeftRunning {
			continue
		}
		g.Go(func() error {
			o := *row.Old
			err := r.Name(ctx, row.Path, &o)
			mu.Lock()
			defer mu.Unlock()
			have.Found[row.Path] = o
			return err
		})
	}
	return g.Wait()
}

// guard refuses plans that look like an accident: a configuration from which every job was lost, or too many deletes.
func (f planFlags) guard(cfg *spec.Config, p plan.Plan) error {
	if len(cfg.Jobs) == 0 && !f.allowEmpty {
		return &problem{errDeclined, fmt.Errorf("the configuration declares no job"), "give --allow-empty if that is meant"}
	}
	if n := len(rowsOf(p, plan.Delete)); n > f.maxDelete {
		err := fmt.Errorf("the plan deletes %s, more than --max-delete %d", text.Count(n, "job"), f.maxDelete)
		return &problem{errDeclined, err, fmt.Sprintf("give --max-delete %d if that is meant", n)}
	}
	return nil
}

// rowsOf lists the rows of p with one of the actions.
func rowsOf(p plan.Plan, actions ...plan.Action) []plan.Row {
	var rows []plan.Row
	for _, r := range p.Rows {
		if slices.Contains(actions, r.Action()) {
			rows = append(rows, r)
		}
	}
	return rows
}
