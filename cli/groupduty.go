package cli

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"muster/member"
	"muster/report"
	"muster/resource"
	"muster/resource/group"
	"muster/text"
	"muster/view"
	"muster/zkstate"
)

// cutDuty splits GROUP/DUTY at its last slash. The key in an address may hold slashes, and a duty's name holds no
// bracket.
func cutDuty(name string) (groupName, duty string, ok bool) {
	i := strings.LastIndexByte(name, '/')
	if i <= 0 || group.CheckDutyName(name[i+1:]) != nil {
		return "", "", false
	}
	return name[:i], name[i+1:], true
}

// foundDuty is a declared duty of a group that was read.
type foundDuty struct {
	path  string // of the group
	group *resource.Observed
	duty  group.Duty
}

// name is the path of the group and the name of the duty.
func (d foundDuty) name() string { return d.path + "/" + d.duty.Name }

// findDuty finds GROUP/DUTY: the group by its name, address or path.
func (scope searchScope) findDuty(ctx context.Context, name string) (foundDuty, error) {
	groupName, duty, ok := cutDuty(name)
	if !ok {
		return foundDuty{}, usagef("muster status shows the groups, and muster status GROUP its duties",
			"%q is not GROUP/DUTY", name)
	}
	at, err := scope.findGroup(ctx, groupName)
	if err != nil {
		return foundDuty{}, err
	}
	o, err := zkstate.NewReader(scope.session, scope.home, kinds()...).Look(ctx, at)
	switch {
	case err != nil:
		return foundDuty{}, err
	case o == nil:
		return foundDuty{}, noGroup(at, nil)
	case !view.IsGroup(o):
		err := fmt.Errorf("%s is not a group: it is %s", at, o.Status())
		if o.Record != nil {
			err = fmt.Errorf("%s is a %s, and has no duties", at, o.Record.Declaration.Kind().Name)
		}
		return foundDuty{}, &problem{errUsage, err, "muster explain " + text.ShellWord(at)}
	}
	d, ok := group.Of(o.Record).Duty(duty)
	if !ok {
		return foundDuty{}, noDuty(at, duty, group.Of(o.Record))
	}
	return foundDuty{at, o, d}, nil
}

// noGroup says that there is no group of this name, and suggests another of all.
func noGroup(name string, all []string) error {
	slices.Sort(all)
	err := fmt.Errorf("%s: %w", name, member.ErrNoGroup)
	if near := text.Nearest(name, all); near != "" {
		return &problem{err: fmt.Errorf("%w: did you mean %s?", err, near), next: "muster status " + text.ShellWord(near)}
	}
	return &problem{err: err, next: "muster status shows all groups; to look elsewhere: " + lookElsewhere}
}

// declares reports whether a group has a duty of this name.
func declares(g group.Group, duty string) bool {
	_, ok := g.Duty(duty)
	return ok
}

// noDuty says that a group has no duty of this name, and suggests another.
func noDuty(at, name string, g group.Group) error {
	var all []string
	for _, d := range g.Duties {
		all = append(all, d.Name)
	}
	err := fmt.Errorf("%s: %w: %s", at, member.ErrNoDuty, name)
	if near := text.Nearest(name, all); near != "" {
		err = fmt.Errorf("%w: did you mean %s?", err, near)
	}
	return &problem{err: err, next: "muster status " + text.ShellWord(at) + " shows its duties"}
}

// findGroup returns the path of the group that name stands for.
func (scope searchScope) findGroup(ctx context.Context, name string) (string, error) {
	return scope.findKind(ctx, name, group.KindName, noGroup)
}

// findKind returns the path of what name stands for: a path, or the address or name of something of this kind that is
// declared or found in the searched roots. missing makes the error if there is none; all are the names that there are.
func (scope searchScope) findKind(
	ctx context.Context, name, kind string, missing func(name string, all []string) error,
) (string, error) {
	if strings.HasPrefix(name, "/") {
		return scope.find(ctx, name)
	}
	var known []namedJob
	if scope.cfg != nil {
		for _, d := range scope.cfg.Declared() {
			if d.Kind().Name == kind {
				known = append(known, namedJob{d.ID().Address, d.ID().Path()})
			}
		}
	}
	found := pathsNamed(name, known)
	if len(found) == 0 {
		have, err := zkstate.NewReader(scope.session, scope.home, kinds()...).Read(ctx, scope.roots)
		if err != nil {
			return "", err
		}
		for at, o := range have.Found {
			if o.Record != nil && o.Record.Declaration.Kind().Name == kind {
				known = append(known, namedJob{o.Record.Declaration.ID().Address, at})
			}
		}
		found = pathsNamed(name, known)
	}
	switch len(found) {
	case 0:
		var all []string
		for _, one := range known {
			all = append(all, one.address, path.Base(one.path))
		}
		return "", missing(name, all)
	case 1:
		return found[0], nil
	}
	return "", usagef("name its path", "%q may be any of %s", name, strings.Join(found, ", "))
}

// namesDuty reports whether name is GROUP/DUTY. A path may also be that of a job or group, which is tried first.
func (scope searchScope) namesDuty(ctx context.Context, name string) (bool, error) {
	groupName, _, ok := cutDuty(name)
	if !ok || !strings.HasPrefix(name, "/") {
		return ok, nil
	}
	if scope.cfg != nil && slices.ContainsFunc(declaredNames(scope.cfg), func(j namedJob) bool { return j.path == name }) {
		return false, nil
	}
	if resource.CheckRoot(groupName) != nil {
		return false, nil
	}
	o, err := zkstate.NewReader(scope.session, scope.home, kinds()...).Look(ctx, groupName)
	return err == nil && view.IsGroup(o), err
}

// explainDuty says why a member has a duty, or why nobody has.
func (p *process) explainDuty(ctx context.Context, scope searchScope, name string, asJSON bool) error {
	found, err := scope.findDuty(ctx, name)
	if err != nil {
		return err
	}
	r := zkstate.NewReader(scope.session, scope.home, kinds()...)
	d, err := r.GroupState(ctx, found.group, time.Now())
	if err != nil {
		return err
	}
	var origins map[string]string
	if scope.cfg != nil {
		origins = scope.cfg.Origins[found.group.Record.Declaration.ID().Address]
	}
	i := slices.IndexFunc(d.Duties, func(duty view.Duty) bool { return duty.Name == found.duty.Name })
	if i < 0 {
		return noDuty(found.path, found.duty.Name, group.Of(found.group.Record))
	}
	if err := member.FillRuns(ctx, scope.session, found.group.Record, d.Duties[i:i+1], found.duty.Keep); err != nil {
		return err
	}
	if asJSON {
		return report.ExplainDutyJSON(p.out, found.path, found.group, *d, d.Duties[i])
	}
	opts := p.layout()
	opts.Now = time.Now()
	return report.ExplainDuty(p.out, found.path, found.group, *d, d.Duties[i], origins, opts)
}
