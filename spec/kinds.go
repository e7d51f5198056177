package spec

import (
	"bytes"
	"fmt"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"muster/resource/group"
	"muster/resource/job"
	"muster/resource/queue"
)

// kinds lists the kinds of what can be declared, in the order in which their blocks are read.
func kinds() []kind { return []kind{jobs(), groups(), queues()} }

func jobs() kindOf[job.Job, *job.Job] {
	return kindOf[job.Job, *job.Job]{
		table: table[job.Job]{
			blockType: job.KindName, properties: job.Properties(),
			words: map[string]words{"workers": {
				code:    codeWorkers,
				missing: "job %q does not say how many workers it has",
				add:     "add: workers = 4",
				unknown: "1 # not recorded: how many workers does this job have?",
				null:    "a job has no default number of workers: write one",
				more:    fmt.Sprintf("a job has at most %d workers: split it into several jobs", job.MaxWorkers),
				less:    "a job needs at least one worker; to have none, remove the job",
			}},
		},
		members: "workers", initial: job.Default(),
		limits: func(job.Job) error { return nil },
		parts:  parts[job.Job]{types: []part[job.Job]{gang()}, most: 1},
	}
}

func gang() part[job.Job] {
	t := table[job.Gang]{
		blockType: job.GangBlock, properties: job.GangProperties(),
		words: map[string]words{
			"restarts": {code: codeGang, less: "to stop all at the first loss, write 0"},
			"final":    {code: codeGang},
		},
	}
	return part[job.Job]{
		schema: blockType{name: t.blockType, args: t.names(), part: true},
		read: func(s *scope, b *hcl.Block) decoder[job.Job] {
			decode := t.readPart(s, b)
			return func(s *scope, j *job.Job, from origins) {
				g := job.DefaultGang()
				decode(s, &g, from)
				switch err := g.CheckReplace(); {
				case err != nil:
					s.add(codeGang, &b.DefRange, "%s", err)
				case g.HasSpares() && g.Restarts == 0:
					d := s.add(codeGang, &b.DefRange, "with restarts 0 the first loss ends the gang, and spares do nothing")
					d.Severity, d.Help = Warning, "write restarts = 3, say, or leave spares out"
				}
				j.Gang, from[job.GangBlock] = &g, at(b.DefRange)
			}
		},
		export: func(b *bytes.Buffer, j *job.Job) {
			if usual := job.DefaultGang(); j.Gang != nil {
				fmt.Fprintf(b, "\n%s {\n", t.blockType)
				t.export(b, j.Gang, &usual)
				b.WriteString("}\n")
			}
		},
		value: func(j *job.Job) cty.Value {
			if j.Gang == nil {
				return cty.NullVal(cty.DynamicPseudoType)
			}
			return cty.ObjectVal(t.values(j.Gang))
		},
	}
}

func groups() kindOf[group.Group, *group.Group] {
	return kindOf[group.Group, *group.Group]{
		table: table[group.Group]{
			blockType: group.KindName, properties: group.Properties(),
			words: map[string]words{"promote_after": {code: codePromoteAfter}},
		},
		members: "members", initial: group.Default(),
		limits: group.Group.CheckSize, tooLarge: codeDuties,
		parts: parts[group.Group]{
			one: "duty", many: "duties", most: group.MaxDuties, twice: codeDutyTwice, tooBig: codeDuties,
			checkName: group.CheckDutyName,
			types:     []part[group.Group]{duties(group.Leader), duties(group.Cron)},
		},
	}
}

func duties(t group.Type) part[group.Group] {
	duty := table[group.Duty]{
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
	}
	return part[group.Group]{
		schema: blockType{name: duty.blockType, label: "name", args: duty.names(), part: true},
		read: func(s *scope, b *hcl.Block) decoder[group.Group] {
			decode := duty.readPart(s, b)
			return func(s *scope, g *group.Group, from origins) {
				d := group.NewDuty(t, b.Labels[0])
				decode(s, &d, from)
				g.Add(d)
			}
		},
		export: func(b *bytes.Buffer, g *group.Group) {
			for _, d := range g.Duties {
				if usual := group.NewDuty(t, d.Name); d.Type == t {
					fmt.Fprintf(b, "\n%s %s {\n", t, literal(d.Name))
					duty.export(b, &d, &usual)
					b.WriteString("}\n")
				}
			}
		},
		value: func(g *group.Group) cty.Value {
			named := map[string]cty.Value{}
			for _, d := range g.Duties {
				if d.Type == t {
					named[d.Name] = cty.ObjectVal(duty.values(&d))
				}
			}
			return cty.ObjectVal(named)
		},
	}
}

func queues() kindOf[queue.Queue, *queue.Queue] {
	return kindOf[queue.Queue, *queue.Queue]{
		table: table[queue.Queue]{
			blockType: queue.KindName, properties: queue.Properties(),
			words: map[string]words{
				"redis": {
					code:    codeRedis,
					missing: "queue %q does not say which Redis holds its tasks",
					add:     `add: redis = "redis://redis-1:6379/0"`,
					secret:  queue.ErrCredentials, secretCode: codeCredentials,
				},
				"attempts": {
					code: codeAttempts,
					less: "to try each task once only, write 1",
					more: "a task that has failed so often fails again",
				},
			},
		},
		members: "executors and watchers", initial: queue.Default(),
		limits: queue.Queue.CheckSizes, tooLarge: codeSizes,
	}
}
