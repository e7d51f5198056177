package group

import (
	"sync"

	"muster/resource"
)

// Properties is the table of a group's arguments, except its name, its root and its labels. Do not change it.
func Properties() []resource.Property[Group] { return properties() }

// properties makes the table once: every Record that is read needs it several times.
var properties = sync.OnceValue(func() []resource.Property[Group] {
	settle := resource.DurationOf("settle", "5s", "a duty moves without need only to a member of at least this age",
		func(g *Group) *resource.Duration { return &g.Settle })
	settle.Min = 0
	return []resource.Property[Group]{
		settle,
		{
			Name: "promote_after", Doc: "so many members of a newer version make it the newest",
			Type: resource.TypeText, Default: "1", Valid: checkPromoteAfter,
			Form: "1 to 5000, or 1% to 100% of the holder's version",
			Ref:  func(g *Group) any { return (*string)(&g.PromoteAfter) },
		},
		resource.SessionOf("10s", "a crashed member is gone after this",
			func(g *Group) *resource.Duration { return &g.Timeouts.Session }),
		resource.DurationOf("timeouts.join", "100s", "how long a member waits for the group",
			func(g *Group) *resource.Duration { return &g.Timeouts.Join }),
		resource.DurationOf("timeouts.drain", "30s", "a leader's command that is handed over gets TERM, and KILL after this",
			func(g *Group) *resource.Duration { return &g.Timeouts.Drain }),
		resource.DurationOf("timeouts.stale", "30s", "how long nobody is live before apply may delete",
			func(g *Group) *resource.Duration { return &g.Timeouts.Stale }),
		{
			Name: "lifecycle.protect", Doc: "never delete the group", Type: resource.TypeBool, Default: "false",
			Ref: func(g *Group) any { return &g.Lifecycle.Protect },
		},
	}
})

// DutyProperties is the table of the arguments of one type of duty, except its name.
func DutyProperties(t Type) []resource.Property[Duty] {
	if t == Cron {
		return cronProperties()
	}
	return leaderProperties()
}

func leaderProperties() []resource.Property[Duty] {
	return []resource.Property[Duty]{versions(), prefer(Any)}
}

// versions is empty by default: a member of any version may have the duty.
func versions() resource.Property[Duty] {
	return resource.Property[Duty]{
		Name: "versions", Doc: "only members of these versions", Type: resource.TypeText,
		Form: "a version constraint", Valid: checkVersions, Ref: func(d *Duty) any { return &d.Versions },
	}
}

func prefer(usual Prefer) resource.Property[Duty] {
	p := word("prefer", "stay while the holder lives, or move to the newest version",
		func(d *Duty) *string { return (*string)(&d.Prefer) }, string(Any), string(Newest))
	p.Default = string(usual)
	return p
}

// word is a property that is one of choices, the first of which is the default.
func word(name, doc string, ref func(*Duty) *string, choices ...string) resource.Property[Duty] {
	return resource.Property[Duty]{
		Name: name, Doc: doc, Type: resource.TypeEnum, Default: choices[0], Choices: choices,
		Ref: func(d *Duty) any { return ref(d) },
	}
}

func cronProperties() []resource.Property[Duty] {
	return []resource.Property[Duty]{
		{
			Name: "schedule", Doc: "when it runs", Type: resource.TypeText, Required: true,
			Form:  "five fields, `@daily` and the like, or `@every 10m`",
			Valid: func(text string) error { return checkSchedule(text, utc) },
			Ref:   func(d *Duty) any { return &d.Schedule },
		},
		{
			Name: "timezone", Doc: "of the schedule", Type: resource.TypeText, Default: utc,
			Form:  "a name such as Europe/Berlin",
			Valid: func(zone string) error { return checkSchedule(anySchedule, zone) },
			Ref:   func(d *Duty) any { return &d.Timezone },
		},
		versions(),
		prefer(Newest),
		resource.DurationOf("start_deadline", "60s", "a tick that has not begun after this is missed",
			func(d *Duty) *resource.Duration { return &d.StartDeadline }),
		word("missed", "which missed ticks are run", func(d *Duty) *string { return (*string)(&d.Missed) },
			string(MissedLatest), string(MissedSkip), string(MissedAll)),
		word("overlap", "what a tick does while the last run goes on",
			func(d *Duty) *string { return (*string)(&d.Overlap) }, string(OverlapSkip), string(OverlapWait)),
		word("lost", "what happens to a run whose holder was lost",
			func(d *Duty) *string { return (*string)(&d.Lost) }, string(LostRerun), string(LostSkip)),
		{
			Name: "retries", Doc: "how often a run that failed is tried again", Type: resource.TypeInt, Default: "2",
			Min: 0, Max: 100, Ref: func(d *Duty) any { return &d.Retries },
		},
		resource.DurationOf("timeout", "1h", "a run is ended after this",
			func(d *Duty) *resource.Duration { return &d.Timeout }),
		{
			Name: "keep", Doc: "how many runs are remembered", Type: resource.TypeInt, Default: "20",
			Min: 1, Max: 100, Ref: func(d *Duty) any { return &d.Keep },
		},
	}
}
