package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"muster/apply"
	"muster/plan"
	"muster/plan/planfile"
	"muster/spec"
	"muster/text"
	"muster/zkstate"
	"muster/zkstate/zkconn"
)

// defaultMaxDelete is how much a plan deletes at most without --max-delete.
const defaultMaxDelete = 10

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
	fs.StringArrayVar(&f.filter.only, "only", nil, "plan only what fits `GLOB`; may be repeated")
	fs.StringArrayVar(&f.filter.skip, "skip", nil, "leave out what fits `GLOB`; may be repeated")
	fs.IntVar(&f.maxDelete, "max-delete", defaultMaxDelete, "refuse to delete more than `N` jobs, groups and queues")
	fs.BoolVar(&f.allowEmpty, "allow-empty", false, "allow a configuration that declares nothing")
	fs.BoolVar(&f.all, "all", false, "list what is unchanged and unmanaged too")
}

// repeated is the flags that decide which changes a plan has, as one types them, each after a space.
func (f planFlags) repeated() string {
	var b strings.Builder
	for _, pattern := range f.filter.only {
		b.WriteString(" --only " + text.ShellWord(pattern))
	}
	for _, pattern := range f.filter.skip {
		b.WriteString(" --skip " + text.ShellWord(pattern))
	}
	if f.maxDelete != defaultMaxDelete {
		fmt.Fprintf(&b, " --max-delete %d", f.maxDelete)
	}
	if f.allowEmpty {
		b.WriteString(" --allow-empty")
	}
	return b.String()
}

func (f planFlags) check() error {
	if f.maxDelete < 0 {
		return usagef("muster plan --max-delete 10", "--max-delete %d is negative", f.maxDelete)
	}
	return nil
}

// comparison is a plan, with when and how it was made.
type comparison struct {
	plan    plan.Plan
	saved   planfile.Saved // the plan as a file keeps it
	started time.Time      // before anything was read
	took    time.Duration
}

// compare reads ZooKeeper and makes a plan, with a new id, of how it differs from the configuration.
func compare(ctx context.Context, cfg *spec.Config, t target, r *zkstate.Reader, f filter) (comparison, error) {
	c := comparison{started: time.Now()}
	want := wantOf(cfg)
	roots, unindexed, err := rootsToSearch(ctx, cfg, r)
	if err != nil {
		return c, err
	}
	have, err := r.ReadFor(ctx, roots, declaredPaths(cfg), want.Settled())
	if err != nil {
		return c, err
	}
	have.Unindexed = unindexed
	c.plan = plan.Diff(want, have)
	if more, err := addDetails(ctx, r, c.plan, have); err != nil {
		return c, err
	} else if more {
		c.plan = plan.Diff(want, have)
	}
	c.plan.ID, c.plan.Roots = zkstate.NewID(), roots
	if c.plan, err = f.apply(c.plan); err != nil {
		return c, err
	}
	c.took = time.Since(c.started)
	c.saved = planfile.Saved{
		Created: c.started.UTC().Truncate(time.Second), MusterVersion: version().Version, Servers: t.servers,
		ACL: cfg.ZooKeeper.ACL, SessionTimeout: cfg.ZooKeeper.SessionTimeout, ConfigDigest: cfg.Digest, TLS: t.tls,
		Plan: c.plan,
	}
	return c, nil
}

// wantOf returns what a configuration declares.
func wantOf(cfg *spec.Config) plan.Want {
	return plan.Want{Stack: cfg.Stack, Home: cfg.Home, TakeOver: cfg.TakeOver, Declared: cfg.Declared()}
}

// rootsToSearch returns the roots of a configuration and those in which its stack has declared something before. If the
// index of these cannot be read, unindexed says why, and the configuration's roots are returned alone.
func rootsToSearch(ctx context.Context, cfg *spec.Config, r *zkstate.Reader) (
	roots []string, unindexed string, err error,
) {
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

// declaredPaths lists the paths of what is declared.
func declaredPaths(cfg *spec.Config) []string {
	var paths []string
	for _, d := range cfg.Declared() {
		paths = append(paths, d.ID().Path())
	}
	return paths
}

// addDetails adds to have what is read only for some rows. Where live members block a row or are left running, it adds
// their names: the user has to know whom to ask. Where a row deletes what members have saved, it adds how much. It
// reports whether there are such rows.
func addDetails(ctx context.Context, r *zkstate.Reader, p plan.Plan, have plan.State) (more bool, err error) {
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(apply.DefaultParallel)
	for _, row := range p.Rows {
		if row.Old == nil || row.Action() == plan.None || row.Action() == plan.Unmanaged {
			continue
		}
		more = true
		g.Go(func() error {
			o := *row.Old
			row.Old = &o
			err := r.FillSaved(ctx, row)
			if a := row.Action(); err == nil && (a == plan.Blocked || a == plan.LeftRunning) {
				err = r.FillMembers(ctx, row.Path, &o)
			}
			mu.Lock()
			defer mu.Unlock()
			have.Found[row.Path] = o
			return err
		})
	}
	return more, g.Wait()
}

// guard refuses a plan that looks like an accident: its configuration declares nothing, or it deletes too much.
func (f planFlags) guard(cfg *spec.Config, p plan.Plan) error {
	if len(cfg.Declared()) == 0 && !f.allowEmpty {
		err := errors.New("the configuration declares nothing")
		return &problem{errDeclined, err, "give --allow-empty if that is meant"}
	}
	if n := len(plan.Deletions(p.Rows)); n > f.maxDelete {
		err := fmt.Errorf("the plan deletes %s, more than --max-delete %d", plan.DeletionsText(p.Rows), f.maxDelete)
		return &problem{errDeclined, err, fmt.Sprintf("give --max-delete %d if that is meant", n)}
	}
	return nil
}
