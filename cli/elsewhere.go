package cli

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"muster/member"
	"muster/resource"
	"muster/resource/queue"
	"muster/spec"
	"muster/tasks"
	"muster/text"
	"muster/worker"
	"muster/zkstate"
	"muster/zkstate/znode"
)

// What is not where a command looks may be below another root. These bound the search for it.
const (
	maxElsewhere  = 20   // roots: 10,000 workers that wait for a job may all search
	maxBeside     = 1000 // names that are compared with one that is not there
	elsewhereTime = 2 * time.Second
)

// elsewhere is the next step if what is called name, a path or below a searched root, is below another root: as the
// configuration of the current directory declares it, or in a root that the index of stacks lists. Else it is empty.
// It is of a kind; an empty kind is any.
func (scope *searchScope) elsewhere(ctx context.Context, kind, name string) string {
	roots := scope.roots
	if strings.HasPrefix(name, "/") {
		roots, name = []string{path.Dir(name)}, path.Base(name)
	}
	if resource.CheckName(kind, name) != nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(ctx, elsewhereTime)
	defer cancel()
	cfg := scope.configHere()
	type place struct{ root, at string }
	var found []place
	for _, d := range cfg.Declared {
		if id := d.ID(); id.Name == name && (kind == "" || d.Kind().Name == kind) && !slices.Contains(roots, id.Root) {
			found = append(found, place{id.Root, id.Path() + " (declared here)"})
		}
	}
	listed, _ := zkstate.NewReader(scope.session, cmp.Or(cfg.Home, scope.home)).AllRoots(ctx) // a hint needs not all
	listed = slices.DeleteFunc(listed, func(root string) bool {
		return slices.Contains(roots, root) || slices.ContainsFunc(found, func(p place) bool { return p.root == root })
	})
	there, _ := zkstate.Filter(ctx, listed[:min(len(listed), maxElsewhere)],
		func(ctx context.Context, root string) (exists bool, err error) {
			for _, k := range kindNames(kind) {
				if _, exists, err = scope.session.Exists(ctx, znode.Record(k, root, name)); exists || err != nil {
					return exists, err
				}
			}
			return false, nil
		})
	for _, root := range there {
		found = append(found, place{root, resource.Join(root, name)})
	}
	switch len(found) {
	case 0:
		return ""
	case 1:
		return "there is " + found[0].at + ": give --root " + text.ShellWord(found[0].root)
	}
	return "there are " + text.List(text.Each(found, func(p place) string { return p.at }), maxListed) +
		": give the --root of one"
}

// beside returns the path of what has nearly the name of at, in the same root; else it is empty.
func (scope *searchScope) beside(ctx context.Context, kind, at string) string {
	ctx, cancel := context.WithTimeout(ctx, elsewhereTime)
	defer cancel()
	root := path.Dir(at)
	var all []string
	for _, d := range scope.configHere().Declared {
		if id := d.ID(); id.Root == root && (kind == "" || d.Kind().Name == kind) {
			all = append(all, id.Name)
		}
	}
	for _, k := range kindNames(kind) {
		dir := znode.RecordDir(k, root)
		stat, there, err := scope.session.Exists(ctx, dir)
		if err == nil && there && stat.NumChildren <= maxBeside {
			names, _, _ := scope.session.Children(ctx, dir) // a hint needs not all
			all = append(all, names...)
		}
	}
	if near := text.Nearest(path.Base(at), all); near != "" {
		return resource.Join(root, near)
	}
	return ""
}

func kindNames(kind string) []string {
	if kind != "" {
		return []string{kind}
	}
	return text.Each(declarable(), func(k resource.Kind) string { return k.Name })
}

// configHere returns the configuration of the scope, or else that of the current directory. One with errors is empty.
func (scope *searchScope) configHere() *spec.Config {
	if scope.cfg == nil && scope.p.hasConfiguration() {
		if cfg, diags, err := scope.p.parse("", nil, time.Time{}); err == nil && !diags.HasErrors() {
			return cfg
		}
	}
	return cmp.Or(scope.cfg, new(spec.Config))
}

// waitingFor says for what a process waits, and where that is if it is elsewhere. What is not there may be a wrong name
// or root.
func (p *process) waitingFor(what string) {
	kind, at, _ := strings.Cut(strings.TrimPrefix(what, "the "), zkstate.ToBeCreated)
	at, _, _ = strings.Cut(at, " (")
	if s := p.session.Load(); at != "" && s != nil {
		scope := &searchScope{p: p, session: s}
		hint := scope.elsewhere(s.Context(), kind, at)
		if hint == "" {
			if near := scope.beside(s.Context(), kind, at); near != "" {
				hint = "did you mean " + near + "?"
			}
		}
		p.hint.Store(new(hint))
		if kind == queue.KindName {
			hint = cmp.Or(hint, "muster status shows which there are")
		}
		if hint != "" {
			what += "; " + hint
		}
	}
	fmt.Fprintf(p.err, "waiting for %s\n", text.Escape(what))
}

// withHint adds to the error of who waited in vain what waitingFor found.
func (p *process) withHint(err error) error {
	hint := p.hint.Load()
	if hint == nil || *hint == "" || !isAny(err, worker.ErrNoJob, member.ErrNoGroup, tasks.ErrNoQueue) {
		return err
	}
	return &problem{err: err, next: *hint}
}

// fromFile is the help of --file where it only says where something is.
const fromFile = "take root and servers from the configuration in `DIR`, or one file (MUSTER_FILE)"

// placeFlags say where something is that a command takes part in.
type placeFlags struct {
	root string
	file string // the configuration that declares it
	vars varFlags
}

func (f *placeFlags) addTo(fs *pflag.FlagSet, noun, file string) {
	fs.StringVar(&f.root, "root", "", "znode `PATH` that the "+noun+" is below (MUSTER_ROOT); default with --file what "+
		"that says, else "+resource.DefaultRoot)
	fs.StringVarP(&f.file, "file", "f", "", file)
	f.vars.addTo(fs)
}

// searched are the flags with which completion looks there.
func (f *placeFlags) searched() searchFlags {
	return searchFlags{config: f.file, vars: f.vars, root: f.root}
}

// place returns the configuration that --file names, if any, and the ZooKeeper. It sets the root, unless one is given,
// to that in which the configuration declares what is called name, or without one to the default.
func (p *process) place(f *placeFlags, kind, name string) (*spec.Config, target, error) {
	if f.file == "" {
		f.root = cmp.Or(f.root, resource.DefaultRoot)
		return nil, p.target(target{}), nil
	}
	cfg, err := p.load(f.file, f.vars)
	if err != nil {
		return nil, target{}, err
	}
	if f.root == "" {
		d, err := declaredAs(cfg, kind, name, "")
		if err != nil {
			return nil, target{}, err
		}
		f.root = d.ID().Root
	}
	return cfg, p.target(p.declaredTarget(cfg, f.file)), nil
}

// declaredAs returns what is declared of a kind with this name, below root unless that is empty.
func declaredAs(cfg *spec.Config, kind, name, root string) (resource.Declaration, error) {
	var found []resource.Declaration
	var of []string
	for _, d := range cfg.Declared {
		id := d.ID()
		if d.Kind().Name != kind {
			continue
		}
		of = append(of, id.Path())
		if id.Name == name && (root == "" || id.Root == root) {
			found = append(found, d)
		}
	}
	switch len(found) {
	case 0:
		below := ""
		if root != "" {
			below = " below " + root
		}
		return nil, usagef("declare it there, or take one of: "+cmp.Or(text.List(of, maxListed), "none"),
			"the configuration declares no %s %q%s", kind, name, below)
	case 1:
		return found[0], nil
	}
	return nil, usagef("--root "+text.ShellWord(found[0].ID().Root),
		"the configuration declares %d %ss %q: say below which root", len(found), kind, name)
}
