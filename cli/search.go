package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"muster/resource"
	"muster/spec"
	"muster/zkstate"
	"muster/zkstate/zkconn"
)

// searchFlags are those of the commands that look at jobs whether they are declared or not.
type searchFlags struct {
	vars  varFlags
	root  string
	named bool // an argument is the path of a job
	whole bool // the configuration is part of the answer
}

func (f *searchFlags) addTo(fs *pflag.FlagSet) {
	f.vars.addTo(fs)
	fs.StringVar(&f.root, "root", "",
		"look below znode `PATH` (MUSTER_ROOT); default: where the configuration's stack has something, else where any has")
}

// where is what such a command looks at.
type where struct {
	session *zkconn.Session
	cfg     *spec.Config // nil: no configuration was needed, or there is none
	roots   []string
	// unindexed says why the index of stacks could not be read: what is below a root that nobody names is unseen.
	unindexed string
	paths     []string // declared jobs
	home      string
	target    target // of session
}

// search finds out where to look, and connects. The configuration where muster was started is read unless everything is
// said without it and it is not part of the answer, and a broken one is left aside when the place is named: it must not
// keep an operator from looking.
func (p *process) search(ctx context.Context, f searchFlags) (where, error) {
	var w where
	root := cmp.Or(f.root, p.environ.value("MUSTER_ROOT"))
	if root != "" {
		if err := resource.CheckRoot(root); err != nil {
			return w, usagef("--root "+resource.DefaultRoot, "root: %w", err)
		}
	}
	enough := root != "" && (len(p.flags.servers) > 0 || p.environ.value("MUSTER_SERVERS") != "")
	declared := target{timeout: time.Duration(spec.DefaultSessionTimeout)}
	if (!enough || f.whole) && p.configured() {
		cfg, err := p.load("", f.vars)
		switch {
		case err == nil:
			w.cfg, declared, w.home = cfg, p.declaredTarget(cfg, ""), cfg.Home
			w.roots, w.paths = cfg.Searched(), declaredPaths(cfg)
		case errors.Is(err, errSaid) && (root != "" || f.named):
			fmt.Fprintf(p.err, "\nThe configuration is left aside; ZooKeeper is looked for at %s.\n", strings.Join(p.target(declared).servers, ","))
		default:
			return w, err
		}
	}
	if root != "" {
		w.roots, w.paths = []string{root}, nil
	}
	w.target = p.target(declared)
	var err error
	if w.session, err = p.connect(ctx, w.target); err != nil {
		return w, err
	}
	if root == "" {
		if err := w.searchIndex(ctx, p); err != nil {
			_ = w.session.Close()
			return w, err
		}
	}
	return w, nil
}

// searchIndex adds the roots that the index of stacks lists: those of the configuration's stack, or without a configuration
// those of all stacks.
func (w *where) searchIndex(ctx context.Context, p *process) error {
	r := zkstate.NewReader(w.session, w.home, kinds()...)
	var listed []string
	var err error
	if w.cfg != nil {
		w.roots, w.unindexed, err = searched(ctx, w.cfg, r)
		return err
	}
	listed, err = r.AllRoots(ctx)
	switch {
	case err == nil:
	case errors.Is(err, zkconn.ErrNoAuth), !unreachable(err):
		w.unindexed = err.Error()
	default:
		return err
	}
	w.roots = append(listed, resource.DefaultRoot)
	slices.Sort(w.roots)
	w.roots = slices.Compact(w.roots)
	return nil
}
