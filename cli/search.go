package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"muster/resource"
	"muster/spec"
	"muster/zkstate"
	"muster/zkstate/zkconn"
)

// searchFlags are the flags of commands that look at jobs, declared or not.
type searchFlags struct {
	config string // the configuration that --file names; empty: that of the current directory, if it holds one
	vars   varFlags
	root   string
	named  bool // an argument is the path of a job
	whole  bool // the answer needs the configuration
}

func (f *searchFlags) addTo(fs *pflag.FlagSet) {
	f.addConfigTo(fs)
	fs.StringVar(&f.root, "root", "",
		"look below znode `PATH` (MUSTER_ROOT); default: where the configuration's stack has something, "+
			"else where any has")
}

// addConfigTo adds the flags that name a configuration.
func (f *searchFlags) addConfigTo(fs *pflag.FlagSet) {
	fs.StringVarP(&f.config, "file", "f", "",
		"read the configuration in `DIR`, or one file; default the current directory")
	f.vars.addTo(fs)
}

// takeConfig takes an argument that names a configuration as --file, and returns what is left of it. It leaves alone
// what may be the name, the path or a pattern of a job: a configuration is a file named like one, or a directory that
// is written with a slash and not as an absolute path.
func (p *process) takeConfig(f *searchFlags, arg string) (string, error) {
	info, err := os.Stat(p.path(arg))
	if arg == "" || err != nil || filepath.IsAbs(arg) && info.IsDir() {
		return arg, nil
	}
	if info.IsDir() && !slices.Contains([]string{".", ".."}, arg) && !strings.Contains(arg, "/") ||
		!info.IsDir() && !isConfigFile(arg) {
		return arg, nil
	}
	if f.config != "" {
		return "", usagef("name one of them", "%s and --file %s are two configurations", arg, f.config)
	}
	f.config = arg
	return "", nil
}

// searchScope is where such a command looks.
type searchScope struct {
	session *zkconn.Session
	cfg     *spec.Config // nil: no configuration was needed, or there is none
	roots   []string
	// unindexed says why the index of stacks could not be read. Jobs below a root that nothing names are not found
	// then.
	unindexed string
	paths     []string // declared jobs
	home      string
	target    target // of session
}

// search finds out where to look, and connects. It reads the configuration that --file names, or that of the current
// directory unless flags and the environment name the servers and the root and the answer does not need it. Of these it
// ignores a broken one if a root or a path is named: an operator must be able to look.
func (p *process) search(ctx context.Context, f searchFlags) (searchScope, error) {
	var scope searchScope
	p.called.config = f.config
	root := cmp.Or(f.root, p.environ.value("MUSTER_ROOT"))
	if root != "" {
		if err := resource.CheckRoot(root); err != nil {
			return scope, badRoot(root, err)
		}
	}
	enough := root != "" && (len(p.flags.servers) > 0 || p.environ.value("MUSTER_SERVERS") != "")
	declared := target{timeout: time.Duration(spec.DefaultSessionTimeout)}
	if f.config != "" || (!enough || f.whole) && p.hasConfiguration() {
		cfg, err := p.load(f.config, f.vars)
		switch {
		case err == nil:
			scope.cfg, declared, scope.home = cfg, p.declaredTarget(cfg, f.config), cfg.Home
			scope.roots, scope.paths = cfg.Searched(), wantOf(cfg).Paths()
		case errors.Is(err, errPrinted) && f.config == "" && (root != "" || f.named):
			fmt.Fprintf(p.err, "\nThe configuration is ignored; muster connects to %s.\n",
				strings.Join(p.target(declared).servers, ","))
		default:
			return scope, err
		}
	}
	if root != "" {
		scope.roots, scope.paths = []string{root}, nil
	}
	scope.target = p.target(declared)
	var err error
	if scope.session, err = p.connect(ctx, scope.target); err != nil {
		return scope, err
	}
	if root == "" {
		if err := scope.searchIndex(ctx); err != nil {
			_ = scope.session.Close()
			return scope, err
		}
	}
	return scope, nil
}

// reader reads where the scope looks.
func (scope searchScope) reader() *zkstate.Reader {
	return zkstate.NewReader(scope.session, scope.home, kinds()...)
}

// look connects, and calls do with where name is to be looked for. do may replace the session of the scope.
func (p *process) look(
	ctx context.Context, f searchFlags, name string, do func(ctx context.Context, scope *searchScope, name string) error,
) error {
	f.named = strings.HasPrefix(name, "/")
	scope, err := p.search(ctx, f)
	if err != nil {
		return err
	}
	defer func() { scope.session.Close() }()
	return do(ctx, &scope, name)
}

// lookCmd completes a command about something in ZooKeeper that its argument names: check is called before it connects.
func (p *process) lookCmd(
	cmd *cobra.Command, f *searchFlags, complete cobra.CompletionFunc, check func(name string) error,
	run func(ctx context.Context, scope *searchScope, name string) error,
) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := check(firstArg(args)); err != nil {
			return err
		}
		return p.look(cmd.Context(), *f, firstArg(args), run)
	}
	f.addTo(cmd.Flags())
	p.completeSearch(cmd, f)
	cmd.ValidArgsFunction = complete
	return cmd
}

// searchIndex adds the roots that the index of stacks lists: those of the configuration's stack, or without a
// configuration those of all stacks.
func (scope *searchScope) searchIndex(ctx context.Context) error {
	if scope.cfg != nil {
		var err error
		scope.roots, scope.unindexed, err = scope.reader().Searched(ctx, scope.cfg.Stack, scope.cfg.Searched())
		return err
	}
	listed, err := scope.reader().AllRoots(ctx)
	switch { // what is listed nevertheless is searched
	case err == nil:
	case errors.Is(err, zkconn.ErrNoAuth), !unreachable(err):
		scope.unindexed = err.Error()
	default:
		return err
	}
	scope.roots = append(listed, resource.DefaultRoot)
	slices.Sort(scope.roots)
	scope.roots = slices.Compact(scope.roots)
	return nil
}
