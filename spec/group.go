package spec

import (
	"slices"

	"muster/group"
)

// groups is the kind of group blocks.
func groups() kindOf[group.Group, *group.Group] {
	return kindOf[group.Group, *group.Group]{
		table: table[group.Group]{
			blockType: group.KindName, properties: group.Properties(),
			words: map[string]words{"promote_after": {code: codePromoteAfter}},
		},
		inside: "members", initial: group.Default(),
		add:    func(c *Config, g group.Group) { c.Groups = append(c.Groups, g) },
		limits: group.Group.CheckSize, tooLarge: codeDuties,
		parts: parts[group.Group]{
			one: "duty", many: "duties", most: group.MaxDuties, twice: codeDutyTwice, tooBig: codeDuties,
			checkName: group.CheckDutyName,
			types:     []part[group.Group]{duties(group.Leader), duties(group.Cron)},
		},
	}
}

// duties are the blocks of one type of duty.
func duties(t group.Type) part[group.Group] {
	return partOf[group.Group, group.Duty]{
		table: table[group.Duty]{
			blockType: string(t), properties: group.DutyProperties(t),
			words: map[string]words{
				"versions": {code: codeVersions},
				"timezone": {code: codeSchedule},
				"schedule": {
					code:    codeSchedule,
					missing: "cron %q does not say when it runs",
					add:     `add: schedule = "0 2 * * *"`,
				},
				"retries": {code: codeDutyNumber, less: "to run it once only, write 0"},
				"keep":    {code: codeDutyNumber, less: "the last run is always remembered"},
			},
		},
		initial: func(name string) group.Duty { return group.NewDuty(t, name) },
		name:    func(d group.Duty) string { return d.Name },
		all: func(g *group.Group) []group.Duty {
			return slices.DeleteFunc(slices.Clone(g.Duties), func(d group.Duty) bool { return d.Type != t })
		},
		add: (*group.Group).Add,
	}.part()
}
