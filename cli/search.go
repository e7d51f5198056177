package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"muster/member"
	"muster/plan"
	"muster/resource"
	"muster/resource/group"
	"muster/resource/queue"
	"muster/spec"
	"muster/tasks"
	"muster/text"
	"muster/view"
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
	none   bool // the configuration of the current directory is not read
}

func (f *searchFlags) addTo(fs *pflag.FlagSet) {
	f.addConfigTo(fs)
	fs.StringVar(&f.root, "root", "",
		"look below znode `PATH` (MUSTER_ROOT); default: where the configuration's stack has something, "+
			"else where any has")
}

func (f *searchFlags) addConfigTo(fs *pflag.FlagSet) {
	fs.StringVarP(&f.config, "file", "f", "",
		"read the configuration in `DIR`, or one file (MUSTER_FILE); default the current directory")
	f.vars.addTo(fs)
}

// takeConfig takes an argument that names a configuration as --file, and returns what is left of it. It leaves alone
// what may be the name, the path or a pattern of a job: a configuration is a file named like one, or a directory that
// is written with a slash and not as an absolute path.
func (p *process) takeConfig(f *searchFlags, arg string) (string, error) {
	switch info, err := os.Stat(p.path(arg)); {
	case arg == "", err != nil, !info.IsDir() && !isConfigFile(arg),
		info.IsDir() && (filepath.IsAbs(arg) || !strings.Contains(arg, "/") && arg != "." && arg != ".."):
		return arg, nil
	case f.config != "" && f.config != p.environ.value("MUSTER_FILE"):
		return "", usagef("name one of them", "%s and --file %s are two configurations", arg, f.config)
	}
	f.config = arg
	return "", nil
}

type searchScope struct {
	p       *process
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
func (p *process) search(ctx context.Context, f searchFlags) (*searchScope, error) {
	scope := &searchScope{p: p}
	p.called.config = f.config
	root := cmp.Or(f.root, p.environ.value("MUSTER_ROOT"))
	if root != "" {
		if err := resource.CheckRoot(root); err != nil {
			return scope, badRoot(root, err)
		}
	}
	enough := root != "" && (len(p.flags.servers) > 0 || p.environ.value("MUSTER_SERVERS") != "")
	declared := target{timeout: time.Duration(spec.DefaultSessionTimeout)}
	if f.config != "" || !f.none && (!enough || f.whole) && p.hasConfiguration() {
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

func (scope *searchScope) reader() *zkstate.Reader {
	return zkstate.NewReader(scope.session, scope.home, kinds()...)
}

// action is what a command does with what is called name. It looks for that in the scope, whose session it may replace.
type action func(ctx context.Context, p *process, scope *searchScope, name string) error

func (p *process) look(ctx context.Context, f searchFlags, name string, do action) error {
	f.named = strings.HasPrefix(name, "/")
	scope, err := p.search(ctx, f)
	if err != nil {
		return err
	}
	defer func() { scope.session.Close() }()
	return do(ctx, p, scope, name)
}

// askFlags are the flags of commands that look for something, and ask somebody about it.
type askFlags struct {
	searchFlags
	timeout time.Duration
}

// lookCmd completes a command that asks whom about something that its arguments name: a whole and a part are one name
// with a slash between, or two arguments. check is called before it connects; it may be nil.
func (p *process) lookCmd(
	cmd *cobra.Command, f *askFlags, whom string, complete cobra.CompletionFunc, check func(name string) error, do action,
) *cobra.Command {
	cmd.Flags().DurationVar(&f.timeout, "timeout", 30*time.Second, "wait `DURATION` for "+whom)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if f.timeout <= 0 {
			return usagef("--timeout 30s", "--timeout %s leaves no time for %s", f.timeout, whom)
		}
		name := strings.Join(args, "/")
		if check != nil {
			if err := check(name); err != nil {
				return err
			}
		}
		p.operates = true
		return p.look(cmd.Context(), f.searchFlags, name, do)
	}
	p.addSearch(cmd, &f.searchFlags, partApart(complete))
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
	scope.roots = slices.Compact(slices.Sorted(slices.Values(append(listed, resource.DefaultRoot))))
	return nil
}

const maxListed = 5

// namedJob is a job, group or queue and what it may be called by.
type namedJob struct {
	address, path string
	declared      resource.Declaration // nil if there is no record
}

// names lists what is declared and what have holds, of one kind, or of all if kind is empty.
func (scope *searchScope) names(kind string, have plan.State) []namedJob {
	var all []namedJob
	if scope.cfg != nil {
		for _, d := range scope.cfg.Declared {
			if kind == "" || d.Kind().Name == kind {
				all = append(all, namedJob{d.ID().Address, d.ID().Path(), d})
			}
		}
	}
	for at, o := range have.Found {
		if kind == "" || view.KindOf(&o).Name == kind || o.Class() == resource.Unreadable {
			one := namedJob{at, at, nil}
			if o.Record != nil {
				one.declared = o.Record.Declaration
				one.address = cmp.Or(one.declared.ID().Address, at)
			}
			all = append(all, one)
		}
	}
	return all
}

// find returns the path of what name stands for. It tries in this order: a path, the address or name of a declaration,
// the address or name of a job in the searched roots, a new name below the root if there is only one. What is to be of
// one kind must be declared or there; an empty kind is any.
func (scope *searchScope) find(ctx context.Context, name, kind string) (string, error) {
	if strings.HasPrefix(name, "/") {
		// A stranger's znode need not have a job's name, so only the path is checked.
		root := strings.TrimSuffix(path.Dir(name), "/")
		if err := cmp.Or(resource.CheckRoot(root), resource.CheckRoot(name)); err != nil {
			return "", usagef("muster status shows all jobs", "%q is not the path of a job: %w", name, err)
		}
		return name, nil
	}
	known := scope.names(kind, plan.State{})
	found := pathsNamed(name, known)
	if len(found) == 0 {
		have, err := scope.reader().Read(ctx, scope.roots)
		if err != nil {
			return "", err
		}
		known = scope.names(kind, have)
		found = pathsNamed(name, known)
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) == 0 && kind == "":
		return scope.noSuchJob(ctx, name, known)
	case len(found) == 0:
		return "", scope.missing(ctx, kind, name, known...)
	case kind != "":
		return "", usagef("name its path", "%q may be any of %s", name, strings.Join(found, ", "))
	}
	return "", usagef("muster explain "+found[0], "%q may be any of %s", name, strings.Join(found, ", "))
}

// read finds a group or a queue by its name, address or path, and reads it. parts is what it has.
func (scope *searchScope) read(ctx context.Context, name, kind, parts string) (string, *resource.Observed, error) {
	at, err := scope.find(ctx, name, kind)
	if err != nil {
		return "", nil, err
	}
	o, err := scope.reader().Look(ctx, at)
	switch class := o.Class(); {
	case err != nil:
	case o == nil:
		err = scope.missing(ctx, kind, at)
	case class == resource.Unreadable, class == resource.Damaged && o.Record == nil:
		err = &problem{errUnreadable, fmt.Errorf("%s is %s: %s", at, o.Status(),
			cmp.Or(o.Problem, "its record was deleted by hand")), "muster explain " + text.ShellWord(at)}
	case o.Record == nil:
		err = &problem{errUsage, fmt.Errorf("%s is not a %s: it is %s", at, kind, o.Status()),
			"muster explain " + text.ShellWord(at)}
	case view.KindOf(o).Name != kind:
		err = &problem{errUsage, fmt.Errorf("%s is a %s, and has no %s", at, o.Record.Declaration.Kind().Name, parts),
			"muster explain " + text.ShellWord(at)}
	}
	return at, o, err
}

// missing says that there is no group or queue of this name, and suggests another.
func (scope *searchScope) missing(ctx context.Context, kind, name string, known ...namedJob) error {
	sentinel := member.ErrNoGroup
	if kind == queue.KindName {
		sentinel = tasks.ErrNoQueue
	}
	return scope.absent(ctx, fmt.Errorf("%s: %w", name, sentinel), kind, name, "muster status shows all "+kind+"s", known)
}

// absent adds to an error that nothing is called name where that is, or what was probably meant, or else the command
// that shows what there is.
func (scope *searchScope) absent(
	ctx context.Context, err error, kind, name, shows string, known []namedJob,
) error {
	var all []string
	for _, one := range known {
		all = append(all, one.address, path.Base(one.path))
	}
	where, near := scope.elsewhere(ctx, kind, name), ""
	switch {
	case where != "":
	case strings.HasPrefix(name, "/"):
		near = scope.beside(ctx, kind, name)
	default:
		slices.Sort(all)
		near = text.Nearest(name, all)
	}
	switch {
	case near == name && where == "":
		err, where = fmt.Errorf("%w: it is declared, and not there", err), "muster apply makes it"
	case near != "":
		err, where = fmt.Errorf("%w: did you mean %s?", err, near), "muster status "+text.ShellWord(near)
	}
	return &problem{errAbsent, err, cmp.Or(where, shows+"; to look elsewhere: "+lookElsewhere)}
}

// cutPart splits GROUP/DUTY or QUEUE/BATCH at its last slash. The key in an address may hold slashes, and no name of a
// part holds a bracket.
func cutPart(name string, check func(string) error) (whole, part string, ok bool) {
	i := strings.LastIndexByte(name, '/')
	if i <= 0 || check(name[i+1:]) != nil {
		return "", "", false
	}
	return name[:i], name[i+1:], true
}

// pathsNamed returns the sorted paths of the jobs with this address or, if there is none, with this name.
func pathsNamed(name string, jobs []namedJob) []string {
	var byAddress, byName []string
	for _, j := range jobs {
		switch name {
		case j.address:
			byAddress = append(byAddress, j.path)
		case path.Base(j.path):
			byName = append(byName, j.path)
		}
	}
	if len(byAddress) > 0 {
		byName = byAddress
	}
	return slices.Compact(slices.Sorted(slices.Values(byName)))
}

// noSuchJob returns an error that suggests a job. A valid name is no error where only one root is searched: the job
// may have been deleted.
func (scope *searchScope) noSuchJob(ctx context.Context, name string, jobs []namedJob) (string, error) {
	var all, instances []string
	for _, j := range jobs {
		block, _, _ := strings.Cut(j.address, "[")
		all = append(all, j.address, block, path.Base(j.path))
		if strings.HasPrefix(j.address, name+"[") {
			instances = append(instances, j.address)
		}
	}
	instances = slices.Compact(slices.Sorted(slices.Values(instances)))
	slices.Sort(all) // jobs comes from a map
	near := text.Nearest(name, all)
	// A shell removes the quotes of an unquoted address.
	if bare, key, ok := strings.Cut(strings.TrimSuffix(name, "]"), "["); ok {
		if quoted := fmt.Sprintf("%s[%q]", bare, strings.Trim(key, `"'`)); slices.Contains(all, quoted) {
			near = quoted
		}
	}
	if len(instances) > 0 {
		return "", usagef("muster explain "+text.ShellWord(instances[0]), "%q is %s: %s",
			name, text.Count(len(instances), "job"), text.List(instances, maxListed))
	}
	where := scope.elsewhere(ctx, "", name)
	switch {
	case near != "" && where == "":
		return "", usagef("muster explain "+text.ShellWord(near),
			"no job is declared as %q: did you mean %s?", name, near)
	case resource.CheckName("job", name) == nil && len(scope.roots) == 1:
		return resource.Join(scope.roots[0], name), nil
	}
	err := fmt.Errorf("no job is declared as %q", name)
	if where != "" {
		return "", &problem{errAbsent, err, where}
	}
	return "", &problem{errUsage, err, "muster explain PATH, or muster plan --all to see the addresses"}
}

// foundDuty is a declared duty of a group that was read.
type foundDuty struct {
	path  string // of the group
	group *resource.Observed
	duty  group.Duty
}

func (d foundDuty) name() string { return d.path + "/" + d.duty.Name }

// findDuty finds GROUP/DUTY: the group by its name, address or path.
func (scope *searchScope) findDuty(ctx context.Context, name string) (foundDuty, error) {
	groupName, duty, ok := cutPart(name, group.CheckDutyName)
	if !ok {
		return foundDuty{}, usagef("muster status shows the groups, and muster status GROUP its duties",
			"%q is not GROUP/DUTY", name)
	}
	at, o, err := scope.read(ctx, groupName, group.KindName, "duties")
	if err != nil {
		return foundDuty{}, err
	}
	d, ok := group.Of(o.Record).Duty(duty)
	if !ok {
		return foundDuty{}, noDuty(at, duty, group.Of(o.Record))
	}
	return foundDuty{at, o, d}, nil
}

// noDuty says that a group has no duty of this name, and suggests another.
func noDuty(at, name string, g group.Group) error {
	all := text.Each(g.Duties, func(d group.Duty) string { return d.Name })
	err := fmt.Errorf("%s: %w: %s", at, member.ErrNoDuty, name)
	if near := text.Nearest(name, all); near != "" {
		err = fmt.Errorf("%w: did you mean %s?", err, near)
	}
	return &problem{err: err, next: "muster status " + text.ShellWord(at) + " shows its duties"}
}

// namesDuty reports whether name is GROUP/DUTY. A path may also be that of a job or group, which is tried first.
func (scope *searchScope) namesDuty(ctx context.Context, name string) (bool, error) {
	groupName, _, ok := cutPart(name, group.CheckDutyName)
	if !ok || !strings.HasPrefix(name, "/") {
		return ok, nil
	}
	declared := func(j namedJob) bool { return j.path == name }
	if slices.ContainsFunc(scope.names("", plan.State{}), declared) || resource.CheckRoot(groupName) != nil {
		return false, nil
	}
	o, err := scope.reader().Look(ctx, groupName)
	return err == nil && view.KindOf(o).Name == group.KindName, err
}

// foundQueue is a queue that was read, and maybe the id of a batch of it.
type foundQueue struct {
	path  string
	queue *resource.Observed
	id    string // "": the queue itself
}

func (f foundQueue) name() string {
	if f.id == "" {
		return f.path
	}
	return f.path + "/" + f.id
}

func (f foundQueue) words() string { return text.ShellWord(f.name()) }

// findQueue finds a queue by its name, address or path.
func (scope *searchScope) findQueue(ctx context.Context, name string) (foundQueue, error) {
	at, o, err := scope.read(ctx, name, queue.KindName, "batches")
	return foundQueue{path: at, queue: o}, err
}

// findBatch finds QUEUE/BATCH, of which the batch need not exist.
func (scope *searchScope) findBatch(ctx context.Context, name string) (foundQueue, error) {
	queueName, id, ok := cutPart(name, queue.CheckBatchID)
	if !ok {
		return foundQueue{}, notABatch(name)
	}
	f, err := scope.findQueue(ctx, queueName)
	f.id = id
	return f, err
}

func notABatch(name string) error {
	return usagef("muster queue batches QUEUE lists the batches of a queue", "%q is not QUEUE/BATCH", name)
}

// findQueueOrBatch finds QUEUE or QUEUE/BATCH. A path is that of a queue if there is one.
func (scope *searchScope) findQueueOrBatch(ctx context.Context, name string) (foundQueue, error) {
	at, _, isPart := cutPart(name, queue.CheckBatchID)
	if isPart && resource.CheckRoot(path.Dir(at)) == nil { // a path, of which one read tells
		if o, err := scope.reader().Look(ctx, name); err == nil && o == nil {
			return scope.findBatch(ctx, name)
		}
	}
	f, err := scope.findQueue(ctx, name)
	if !isPart || !errors.Is(err, tasks.ErrNoQueue) {
		return f, err
	}
	return scope.findBatch(ctx, name)
}
