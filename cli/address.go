package cli

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"muster/resource"
	"muster/text"
	"muster/zkstate"
)

// few names give an idea of a list.
const few = 5

// known is a job that a name may mean.
type known struct{ address, path string }

// find is the path of the job that is meant: by path; by the address or name of a declaration; by the address or name of
// a job in the roots that are searched; else by name below the one such root.
func (w where) find(ctx context.Context, name string) (string, error) {
	if strings.HasPrefix(name, "/") {
		// What is there may be a stranger's znode, which need not have a job's name.
		if err := cmp.Or(resource.CheckRoot(strings.TrimSuffix(path.Dir(name), "/")), resource.CheckRoot(name)); err != nil {
			return "", usagef("muster status shows all jobs", "%q is not the path of a job: %w", name, err)
		}
		return name, nil
	}
	var jobs []known
	if w.cfg != nil {
		for _, j := range w.cfg.Jobs {
			jobs = append(jobs, known{j.Address, j.Path()})
		}
	}
	found := named(name, jobs)
	if len(found) == 0 {
		have, err := zkstate.NewReader(w.session, w.home, kinds()...).Read(ctx, w.roots)
		if err != nil {
			return "", err
		}
		for at, o := range have.Found {
			address := at
			if o.Record != nil {
				address = cmp.Or(o.Record.Declaration.ID().Address, at)
			}
			jobs = append(jobs, known{address, at})
		}
		found = named(name, jobs)
	}
	switch len(found) {
	case 0:
		return w.unknown(name, jobs)
	case 1:
		return found[0], nil
	}
	return "", usagef("muster explain "+found[0], "%q may be any of %s", name, strings.Join(found, ", "))
}

// named are the paths, sorted, of the jobs with an address, or else with a name.
func named(name string, jobs []known) []string {
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

// unknown says what may have been meant. What could be the name of a job that is gone is one.
func (w where) unknown(name string, jobs []known) (string, error) {
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
	slices.Sort(all) // found jobs come in any order
	near := text.Nearest(name, all)
	if bare, key, ok := strings.Cut(strings.TrimSuffix(name, "]"), "["); ok { // the shell ate the quotes
		if quoted := fmt.Sprintf("%s[%q]", bare, strings.Trim(key, `"'`)); slices.Contains(all, quoted) {
			near = quoted
		}
	}
	switch {
	case len(instances) > 0:
		return "", usagef("muster explain "+text.ShellWord(instances[0]), "%q is %s: %s",
			name, text.Count(len(instances), "job"), text.List(instances, few))
	case near != "":
		return "", usagef("muster explain "+text.ShellWord(near), "no job is declared as %q: did you mean %s?", name, near)
	case resource.CheckName("job", name) == nil && len(w.roots) == 1:
		return resource.Join(w.roots[0], name), nil
	}
	return "", usagef("muster explain PATH, or muster plan --all to see the addresses", "no job is declared as %q", name)
}
