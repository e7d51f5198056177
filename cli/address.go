package cli

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"muster/resource"
	"muster/spec"
	"muster/text"
	"muster/zkstate"
)

// maxListed is how many names of a list an error shows.
const maxListed = 5

// namedJob is a job and what it may be called by.
type namedJob struct{ address, path string }

// declaredNames lists what a configuration declares.
func declaredNames(cfg *spec.Config) []namedJob {
	var all []namedJob
	for _, d := range cfg.Declared() {
		all = append(all, namedJob{d.ID().Address, d.ID().Path()})
	}
	return all
}

// find returns the path of the job that name stands for. It tries in this order: a path, the address or name of a
// declaration, the address or name of a job in the searched roots, a new name below the root if there is only one.
func (scope searchScope) find(ctx context.Context, name string) (string, error) {
	if strings.HasPrefix(name, "/") {
		// A stranger's znode need not have a job's name, so only the path is checked.
		root := strings.TrimSuffix(path.Dir(name), "/")
		if err := cmp.Or(resource.CheckRoot(root), resource.CheckRoot(name)); err != nil {
			return "", usagef("muster status shows all jobs", "%q is not the path of a job: %w", name, err)
		}
		return name, nil
	}
	var jobs []namedJob
	if scope.cfg != nil {
		jobs = declaredNames(scope.cfg)
	}
	found := pathsNamed(name, jobs)
	if len(found) == 0 {
		have, err := zkstate.NewReader(scope.session, scope.home, kinds()...).Read(ctx, scope.roots)
		if err != nil {
			return "", err
		}
		for at, o := range have.Found {
			address := at
			if o.Record != nil {
				address = cmp.Or(o.Record.Declaration.ID().Address, at)
			}
			jobs = append(jobs, namedJob{address, at})
		}
		found = pathsNamed(name, jobs)
	}
	switch len(found) {
	case 0:
		return scope.noSuchJob(name, jobs)
	case 1:
		return found[0], nil
	}
	return "", usagef("muster explain "+found[0], "%q may be any of %s", name, strings.Join(found, ", "))
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
