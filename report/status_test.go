package report_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"muster/apply/history"
	"muster/plan"
	"muster/plan/planfile"
	"muster/report"
	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/resource/queue"
	"muster/view"
)

func jobs() []view.Resource {
	last := recorded(declared("nightly", 8), 8, 0, 7)
	_ = job.SetLastRun(last.Record, job.Run{ID: "n-7", Generation: "g0", Completed: "2026-01-02T03:04:05Z"})
	last.Created = hour(-3)
	two := 2
	return []view.Resource{
		{Path: "/jobs/prod/nightly", Observed: last, Restarts: &two},
		{Path: "/jobs/prod/ready", Observed: recorded(declared("ready", 4), 0, 0, 0)},
		{Path: "/twister2/old", Observed: resource.Observed{Classic: true, Counts: job.Counts(3, 0), Live: 3}},
		{Path: "/jobs/prod/odd\x1b[2J", Observed: resource.Observed{Foreign: true, Problem: "no roll"}},
	}
}

// hour is so many hours after noon of a day.
func hour(n int) time.Time { return time.Date(2026, 1, 4, 12+n, 0, 0, 0, time.UTC) }

func TestStatusReturnsTheWritersError(t *testing.T) {
	if err := report.Status(&fullDisk{20}, jobs(), report.Options{}); !errors.Is(err, errFull) {
		t.Errorf("full disk: error = %v", err)
	}
}

// formingJob has workers in every state, and two barriers under way.
// TestStatusFitsItsWidth: tables fit the terminal.
func TestStatusFitsItsWidth(t *testing.T) {
	all := append(statusOfGroups(), append(jobs(), primes(t, 2), shopDetail())...)
	for _, width := range []int{30, 40, 80} {
		var b strings.Builder
		if err := report.Status(&b, all, report.Options{Width: width, Now: hour(0)}); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > width {
				t.Errorf("wider than %d columns: %s", width, line)
			}
		}
	}
}

func formingJob() view.Resource {
	j := view.Resource{Path: "/jobs/prod/nightly", Observed: recorded(declared("nightly", 9), 5, 1, 1)}
	j.Observed.Created = hour(-10)
	j.Barriers = []view.Barrier{
		{Name: ".start", Start: true, Attempt: 3, Workers: 9, Since: hour(-2),
			Arrived: make([]int, 7), Missing: []int{1, 4}},
		{Name: "loaded", Round: 20260102, Attempt: 1, Workers: 9, Since: hour(-1), Arrived: []int{0, 1},
			Missing: []int{2, 3, 4, 5, 6, 7, 8}},
	}
	never, once := 0, 1
	j.Workers = []view.Worker{
		{ID: 0, Identity: "w-0", Address: "10.0.0.1:7000", State: view.Live, Restarts: &once, LastExit: "1",
			Joined: hour(-9), Since: hour(-7), Rack: "r7", Datacenter: "eu-1"},
		{ID: 1, Identity: "w-1", State: view.Completed, Restarts: &once, LastExit: "0", Joined: hour(-8), Since: hour(-2)},
		{ID: 2, Identity: "w-2", State: view.Left, Restarts: &never, LastExit: "137"},
		{ID: 3, Identity: "w-3", State: view.Lost, Restarts: &never},
		{ID: 6, Identity: "w-6\u202e", State: view.Left, Restarts: &never, LastExit: "signal 9"},
		{ID: -1, Identity: "late", State: view.Live, Rack: "r8\x1b[1m"},
	}
	return j
}

// explainedJob is a row that replaces a job, and what is known of it.
func explainedJob() (plan.Row, string, report.Explanation) {
	r := sample().Rows[1]
	r.Old.Record.By, r.Old.Record.Applied, r.Old.Pzxid = "ann@host", "2026-01-02T03:04:05Z", 0x1f
	r.Old.Created, r.Old.Members = hour(-30), []string{"w-0", "late"}
	e := report.Explanation{
		Origins: map[string]string{"workers": "jobs.hcl:53", "timeouts.join": "default"},
		Resource: view.Resource{
			Workers: []view.Worker{{ID: 0, Identity: "w-0", State: view.Live, Since: hour(-7)}},
			Barriers: []view.Barrier{
				{Name: "loaded", Round: 4, Attempt: 2, Workers: 3, Since: hour(-1), Arrived: []int{1}, Missing: []int{0, 2}},
			},
		},
	}
	return r, stack, e
}

// TestEveryStatusIsExplained: every status has a meaning.
func TestEveryStatusIsExplained(t *testing.T) {
	for name, r := range map[string]plan.Row{
		"missing":     {Path: "/j/a", New: sample().Rows[0].New, Reason: plan.NotThere},
		"foreign":     {Path: "/j/a", Old: &resource.Observed{Foreign: true, Problem: "no roll"}, Reason: plan.NotOurs},
		"unreadable":  {Path: "/j/a", Old: &resource.Observed{Problem: "no permission"}, Reason: plan.NotOurs},
		"classic":     {Path: "/j/a", Old: &resource.Observed{Classic: true, Live: 2}, Reason: plan.NotOurs},
		"ready":       {Path: "/j/a", Old: sample().Rows[8].Old, Reason: plan.Undeclared},
		"undeclared":  sample().Rows[2],
		"live_differ": sample().Rows[3],
	} {
		t.Run(name, func(t *testing.T) {
			got := text(t, func(b *strings.Builder) error {
				return report.Explain(b, r, stack, report.Explanation{}, report.Options{})
			})
			if !strings.Contains(got, "status        "+string(r.Old.Status())+": ") {
				t.Errorf("explanation:\n%s", got)
			}
		})
	}
}

// shop is a group of two duties.
func shop(name string) group.Group {
	g := group.Default()
	g.Name, g.Root, g.Address, g.At = name, "/apps", "group."+name, "groups.hcl:4"
	g.Add(group.NewDuty(group.Leader, "main"))
	nightly := group.NewDuty(group.Cron, "nightly")
	nightly.Schedule = "0 2 * * *"
	g.Add(nightly)
	return g
}

func foundGroup(g group.Group, live, held int, saved ...resource.Saved) resource.Observed {
	rec := resource.Record{Stack: stack, Generation: "g1", State: resource.StateOpen, Op: "op1"}
	if err := rec.Declare(g); err != nil {
		panic(err) // a group always encodes
	}
	return resource.Observed{Record: &rec, Counts: group.Counts(held, 0, 0), Live: live, Saved: saved}
}

// groupPlan is a plan in which a duty is removed, a group is deleted, and a group and a job stay as they are.
func groupPlan() plan.Plan {
	less := shop("less")
	less.Duties = less.Duties[:1]
	same := declared("same", 4)
	want := plan.Want{Stack: stack, Declared: []resource.Declaration{shop("fine"), less, same}}
	p := plan.Diff(want, plan.State{Found: map[string]resource.Observed{
		"/apps/fine":      foundGroup(shop("fine"), 3, 1),
		"/apps/gone":      foundGroup(shop("gone"), 0, 0),
		"/apps/less":      foundGroup(shop("less"), 3, 2, resource.Saved{Section: "cron.nightly", Keys: 3, Bytes: 5000}),
		"/jobs/prod/same": recorded(same, 4, 0, 4),
	}})
	p.Roots = []string{"/apps", "/jobs/prod"}
	return p
}

// statusOfGroups are a degraded group, an idle one, and one that may not be read.
func statusOfGroups() []view.Resource {
	unreadable := foundGroup(shop("odd"), 0, 0)
	unreadable.Problem = "no permission"
	groups := []view.Resource{
		{Path: "/apps/shop", Observed: foundGroup(shop("shop"), 3, 1)},
		{Path: "/apps/idle", Observed: foundGroup(shop("idle"), 0, 0)},
		{Path: "/apps/odd", Observed: unreadable},
	}
	groups[0].Observed.Created = hour(-48)
	return groups
}

// TestReportsOfGroups: what is lost counts as deleted: it is named first, and is a warning.
func TestReportsOfGroups(t *testing.T) {
	p := groupPlan()
	run := report.Run{
		Command: "plan", Config: "apps", Version: "0.1.0", Plan: &p, ExitCode: 0,
		Kinds: []resource.Kind{job.Kind(), group.Kind()},
	}
	made := func(kind string) string {
		t.Helper()
		body, err := run.Make(kind)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	for kind, wants := range map[string][]string{
		"markdown":   {"live differs; loses cron.nightly (3 keys, 5 KiB)", "`cron.nightly removed (schedule 0 2 * * *)`"},
		"github":     {"::warning", "group.less"},
		"junit":      {`name="group.fine"`, `name="group.less"`},
		"html":       {"cron.nightly (3 keys, 5 KiB)", "removed (schedule 0 2 * * *)"},
		"prometheus": {`muster_groups{`, `status="running"} 1`, `muster_jobs{`},
	} {
		for _, want := range wants {
			if body := made(kind); !strings.Contains(body, want) {
				t.Errorf("%s lacks %s:\n%s", kind, want, body)
			}
		}
	}
	p.ID = "p1"
	saved := planfile.Saved{Plan: p}
	run.Saved = &saved
	if body := made("json"); !strings.Contains(body, `"section": "cron.nightly"`) {
		t.Errorf("json: %s", body)
	}
	drift := p.Drift(nil)
	got := text(t, func(b *strings.Builder) error { return report.Drift(b, p, drift, nil, report.Options{}) })
	for _, want := range []string{"degraded  group.fine", "3 live, 1 of 2 duties held", "orphan    /apps/gone",
		"cron.nightly  not declared (schedule 0 2 * * *)",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("drift lacks %s:\n%s", want, got)
		}
	}
}

// primes is the status of a queue with so many batches.
func primes(t *testing.T, batches int) view.Resource {
	t.Helper()
	q := queue.Default()
	q.Name, q.Root, q.Redis = "primes", "/queues", "redis://redis-1"
	rec := resource.Record{Stack: "maths", Generation: "g1", State: resource.StateOpen}
	if err := rec.Declare(q); err != nil {
		t.Fatal(err)
	}
	now := hour(0)
	d := &view.Queue{
		First: "w1", Lost: []string{"b1"}, Refused: "OOM",
		Processes: []view.Process{{Identity: "w1", Role: queue.Watcher, Since: now.Add(-time.Minute)}},
	}
	for i := range batches {
		d.Batches = append(d.Batches, view.Batch{
			ID: fmt.Sprint("b", i), State: "open", Tasks: 10, Bytes: 2048, Weight: 1, Results: queue.ResultsWatcher,
			By: "ann@desk", Since: now.Add(-time.Hour),
		})
	}
	return view.Resource{Path: "/queues/primes", Queue: d, Observed: resource.Observed{
		Record: &rec, Live: 1,
		Counts: queue.Found{Watchers: 1, Batches: batches, Waiting: batches, Lost: 1, Refused: true}.Counts(),
	}}
}

// foundApplies are one of each kind.
func foundApplies() []history.Found {
	at := time.Date(2026, 1, 31, 3, 4, 5, 0, time.UTC)
	found := func(name string, state history.State, e history.Entry) history.Found {
		number := int(name[2] - '0')
		return history.Found{Stack: "etl", Name: name, Number: number, State: state, Entry: e}
	}
	ann := history.Who{
		Actor: "ann", CI: "GitHub Actions", Commit: "c0ffee", URL: "https://ci.example/runs/7?a=1&b=<2>",
	}
	damaged := found("h-3", history.Damaged, history.Entry{Started: at})
	damaged.Problem = "no permission to read it"
	return []history.Found{
		found("h-6", history.Running, history.Entry{
			Started: at.Add(time.Hour), By: "bob@here", Who: history.Who{Actor: "bob@here"},
			Planned: map[string]int{"create": 2, "delete": 101}, More: 102,
			Changes: []history.Change{{Action: "delete", Path: "/jobs/a"}},
		}),
		found("h-5", history.Finished, history.Entry{
			Started: at, Finished: at.Add(time.Minute), By: "runner@build", Who: ann,
			Planned: map[string]int{"create": 1, "replace": 2, "delete": 3},
			Done:    map[string]int{"create": 1, "replace": 1, "delete": 1},
			Results: map[string]int{"applied": 3, "refused": 2, "unknown": 1, "of a newer muster": 4},
			Changes: []history.Change{
				{Action: "delete", Path: "/jobs/old"}, {Action: "delete", Path: "/jobs/\x1b[31mred"},
				{Action: "replace", Path: "/jobs/nightly", Fields: []resource.Change{
					{Name: "workers", Old: new("8"), New: new("12")}, {Name: "labels.team", Old: new("\x1b[2J")},
				}, MoreFields: 1},
				{Action: "create", Path: "/jobs/new", Fields: []resource.Change{{Name: "workers", New: new("4")}}},
				{Action: "update", Path: "/apps/shop", Fields: []resource.Change{
					{Name: "cron.new.schedule", New: new("@daily")}, {Name: "leader.a.prefer", New: new("any")},
					{Name: "cron", New: new("odd")}, {Name: "cron.old.schedule", Old: new("@daily")},
				}},
				{Action: "of a newer muster", Path: "/jobs/odd", Fields: []resource.Change{{}}},
			},
		}),
		found("h-4", history.Unfinished, history.Entry{
			Started: at, By: "x@y", Who: history.Who{Actor: strings.Repeat("long", 10)}, Planned: map[string]int{"update": 1},
		}),
		damaged,
		found("h-2", history.Finished, history.Entry{
			Started: at, Who: history.Who{Actor: "eve\x1b[2J"}, Results: map[string]int{"failed": 1},
		}),
		found("h-1", history.Settled, history.Entry{Started: at, Settled: at.Add(time.Hour), By: "x@y"}),
	}
}

// longApply has long names: they are cut, and leave room for what became of the apply, where there is none for all.
func longApply() []history.Found {
	long := foundApplies()[2:3]
	long[0].Stack, long[0].Actor = strings.Repeat("stack", 25), strings.Repeat("作", 60)
	return long
}
