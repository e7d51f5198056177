package cli

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"muster/member"
	"muster/plan"
	"muster/resource"
	"muster/resource/queue"
	"muster/tasks"
	"muster/text"
	"muster/view"
)

// maxListed is how many names of a list an error shows.
const maxListed = 5

// namedJob is a job and what it may be called by.
type namedJob struct{ address, path string }

// names lists what is declared and what have holds, of one kind, or of all if kind is empty.
func (scope searchScope) names(kind string, have plan.State) []namedJob {
	var all []namedJob
	if scope.cfg != nil {
		for _, d := range scope.cfg.Declared() {
			if kind == "" || d.Kind().Name == kind {
				all = append(all, namedJob{d.ID().Address, d.ID().Path()})
			}
		}
	}
	for at, o := range have.Found {
		if kind == "" || view.KindOf(&o).Name == kind {
			all = append(all, namedJob{addressOf(at, o), at})
		}
	}
	return all
}

// addressOf is the address of what was found at a path; the path itself if its record names none.
func addressOf(at string, o resource.Observed) string {
	if o.Record == nil {
		return at
	}
	return cmp.Or(o.Record.Declaration.ID().Address, at)
}

// find returns the path of the job that name stands for. It tries in this order: a path, the address or name of a
// declaration, the address or name of a job in the searched roots, a new name below the root if there is only one.
func (scope searchScope) find(ctx context.Context, name string) (string, error) {
	return scope.pathOf(ctx, name, "")
}

// pathOf is find for what is of one kind, which must be declared or there; empty is any.
func (scope searchScope) pathOf(ctx context.Context, name, kind string) (string, error) {
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
		return scope.noSuchJob(name, known)
	case len(found) == 0:
		return "", missing(kind, name, known...)
	case kind != "":
		return "", usagef("name its path", "%q may be any of %s", name, strings.Join(found, ", "))
	}
	return "", usagef("muster explain "+found[0], "%q may be any of %s", name, strings.Join(found, ", "))
}

// read finds a group or a queue by its name, address or path, and reads it. parts is what it has.
func (scope searchScope) read(ctx context.Context, name, kind, parts string) (string, *resource.Observed, error) {
	at, err := scope.pathOf(ctx, name, kind)
	if err != nil {
		return "", nil, err
	}
	o, err := scope.reader().Look(ctx, at)
	switch {
	case err != nil:
	case o == nil:
		err = missing(kind, at)
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
func missing(kind, name string, known ...namedJob) error {
	sentinel := member.ErrNoGroup
	if kind == queue.KindName {
		sentinel = tasks.ErrNoQueue
	}
	var all []string
	for _, one := range known {
		all = append(all, one.address, path.Base(one.path))
	}
	slices.Sort(all)
	err := fmt.Errorf("%s: %w", name, sentinel)
	if near := text.Nearest(name, all); near != "" {
		return &problem{err: fmt.Errorf("%w: did you mean %s?", err, near), next: "muster status " + text.ShellWord(near)}
	}
	return &problem{err: err, next: "muster status shows all " + kind + "s; to look elsewhere: " + lookElsewhere}
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
	slices.Sort(byName)
	return slices.Compact(byName)
}

// noSuchJob returns an error that suggests a job. A valid name is no error where only one root is searched: the job
// may have been deleted.
func (scope searchScope) noSuchJob(name string, jobs []namedJob) (string, error) {
	var all, instances []string
	for _, j := range jobs {
		block, _, _ := strings.Cut(j.address, "[")
		all = append(all, j.address, block, path.Base(j.path))
		if strings.HasPrefix(j.address, name+"[") {
			instances = append(instances, j.address)
		}
	}
	slices.Sort(instances)
	instances = slices.Compact(instances)
	slices.Sort(all) // jobs comes from a map
	near := text.Nearest(name, all)
	// A shell removes the quotes of an unquoted address.
	if bare, key, ok := strings.Cut(strings.TrimSuffix(name, "]"), "["); ok {
		if quoted := fmt.Sprintf("%s[%q]", bare, strings.Trim(key, `"'`)); slices.Contains(all, quoted) {
			near = quoted
		}
	}
	switch {
	case len(instances) > 0:
		return "", usagef("muster explain "+text.ShellWord(instances[0]), "%q is %s: %s",
			name, text.Count(len(instances), "job"), text.List(instances, maxListed))
	case near != "":
		return "", usagef("muster explain "+text.ShellWord(near),
			"no job is declared as %q: did you mean %s?", name, near)
	case resource.CheckName("job", name) == nil && len(scope.roots) == 1:
		return resource.Join(scope.roots[0], name), nil
	}
	return "", usagef("muster explain PATH, or muster plan --all to see the addresses",
		"no job is declared as %q", name)
}
