package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"muster/apply"
	"muster/plan"
	"muster/plan/planfile"
	"muster/spec"
	"muster/text"
	"muster/zkstate"
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
	fs         *pflag.FlagSet // that these are in
}

func (f *planFlags) addTo(fs *pflag.FlagSet) {
	f.fs = fs
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
	for _, word := range given(f.fs, "only", "skip", "max-delete", "allow-empty") {
		b.WriteString(" " + text.ShellWord(word))
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
	var err error
	if c.plan, err = apply.Compare(ctx, r, wantOf(cfg), cfg.Searched()); err != nil {
		return c, err
	}
	c.plan.ID = zkstate.NewID()
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
