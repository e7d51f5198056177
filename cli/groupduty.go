package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster/member"
	"muster/plan"
	"muster/report"
	"muster/resource"
	"muster/resource/group"
	"muster/text"
	"muster/view"
)

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

// namesDuty reports whether name is GROUP/DUTY. A path may also be that of a job or group, which is tried first.
func (scope searchScope) namesDuty(ctx context.Context, name string) (bool, error) {
	groupName, _, ok := cutPart(name, group.CheckDutyName)
	if !ok || !strings.HasPrefix(name, "/") {
		return ok, nil
	}
	declared := func(j namedJob) bool { return j.path == name }
	if slices.ContainsFunc(scope.names("", plan.State{}), declared) || resource.CheckRoot(groupName) != nil {
		return false, nil
	}
	o, err := scope.reader().Look(ctx, groupName)
	return err == nil && view.IsGroup(o), err
}

// explainDuty says why a member has a duty, or why nobody has.
func (p *process) explainDuty(ctx context.Context, scope searchScope, name string, asJSON bool) error {
	found, err := scope.findDuty(ctx, name)
	if err != nil {
		return err
	}
	now, err := scope.dutyNow(ctx, found)
	if err != nil {
		return err
	}
	var origins map[string]string
	if scope.cfg != nil {
		origins = scope.cfg.Origins[found.group.Record.Declaration.ID().Address]
	}
	duty := []view.Duty{now.duty}
	if err := member.FillRuns(ctx, scope.session, found.group.Record, duty, found.duty.Keep); err != nil {
		return err
	}
	if asJSON {
		return report.ExplainDutyJSON(p.out, found.path, found.group, *now.Group, duty[0])
	}
	opts := p.layout()
	opts.Now = time.Now()
	return report.ExplainDuty(p.out, found.path, found.group, *now.Group, duty[0], origins, opts)
}
