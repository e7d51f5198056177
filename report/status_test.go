package report_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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

func TestStatusTable(t *testing.T) {
	got := text(t, func(b *strings.Builder) error { return report.Status(b, jobs(), report.Options{Now: hour(0)}) })
	want := `job                    status             age  joined  live  done  restarts  last run
/jobs/prod/nightly     degraded           3h   8 of 8  7     0     2         2d ago (n-7)
/jobs/prod/ready       ready              -    0 of 4  0     0     -         -
/twister2/old          running (classic)  -    3       3     0     -         -
/jobs/prod/odd\x1b[2J  foreign            -    -       -     -     -         -
`
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("status (-want +got):\n%s", d)
	}
	if err := report.Status(&fullDisk{20}, jobs(), report.Options{}); !errors.Is(err, errFull) {
		t.Errorf("full disk: error = %v", err)
	}
}

func TestStatusJSON(t *testing.T) {
	got := text(t, func(b *strings.Builder) error {
		all := jobs()
		for i := range all {
			if all[i].Path == "/twister2/old" {
				all[i].Workers = []view.Worker{{ID: 1, Identity: "a", State: view.Live}}
			}
		}
		return report.StatusJSON(b, all)
	})
	var doc struct {
		Jobs []struct {
			Path, Status string
			Restarts     *int
			LastRun      string `json:"last_run"`
			Workers      []view.Worker
		}
	}
	if err := json.Unmarshal([]byte(got), &doc); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, j := range doc.Jobs {
		lines = append(lines, fmt.Sprint(j.Path, " ", j.Status, " ", j.Restarts != nil, " ", j.LastRun,
			" ", len(j.Workers)))
	}
	want := []string{
		"/jobs/prod/nightly degraded true 2026-01-02T03:04:05Z 0", "/jobs/prod/ready ready false  0",
		"/twister2/old running false  1", "/jobs/prod/odd\x1b[2J foreign false  0",
	}
	if d := cmp.Diff(want, lines); d != "" {
		t.Errorf("jobs (-want +got):\n%s", d)
	}
}

func TestWorkersNamesWhoIsMissing(t *testing.T) {
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
			Joined: hour(-9), Since: hour(-7)},
		{ID: 1, Identity: "w-1", State: view.Completed, Restarts: &once, LastExit: "0", Joined: hour(-8), Since: hour(-2)},
		{ID: 2, Identity: "w-2", State: view.Left, Restarts: &never, LastExit: "137"},
		{ID: 3, Identity: "w-3", State: view.Lost, Restarts: &never},
		{ID: 6, Identity: "w-6\u202e", State: view.Left, Restarts: &never, LastExit: "signal 9"},
		{ID: -1, Identity: "late", State: view.Live},
	}
	got := text(t, func(b *strings.Builder) error { return report.Detail(b, j, report.Options{Now: hour(0)}) })
	want := `/jobs/prod/nightly  forming
fewer than all have joined: 5 of 9 joined, 1 live, 1 completed, 3 left without
  completing

id  identity   address        state      age  restarts  last exit
0   w-0        10.0.0.1:7000  live       7h   1         1
1   w-1        -              completed  2h   1         0
2   w-2        -              left       -    0         137
3   w-3        -              lost       -    0         -
6   w-6\u202e  -              left       -    0         signal 9
-   late       -              live       -    -         -

barrier  round     attempt  age  arrived  missing
(start)  0         3        2h   7 of 9   id 1 (w-1, completed), id 4 (not joined)
loaded   20260102  1        60m  2 of 9   id 2-8

2 workers left without completing: id 2, 6
1 worker was lost without completing (killed or cut off): id 3
4 workers have not joined yet: id 4-5, 7-8
created 10h ago; the first worker joined 9h ago
next: muster status /jobs/prod/nightly --watch
      or start the workers that have not joined
`
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("workers (-want +got):\n%s", d)
	}
}

func TestExplain(t *testing.T) {
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
	got := text(t, func(b *strings.Builder) error {
		return report.Explain(b, r, stack, e, report.Options{Now: hour(0)})
	})
	want := `job.nightly
      path          /jobs/prod/nightly
      status        stale: nobody is live and somebody left without completing:
                    8 of 8 joined, 0 live, 5 completed, 3 left without
                    completing
      action        replace (stale delete, then create)
      because       workers have joined and none is live (apply makes sure for
                    30 s)
      grace         committed only after nobody joined or left for 30s

  observed in ZooKeeper
      job znode     version 0, last join or leave 0x1f
      created       30h ago
      record        version 0, state open
      stack         etl-prod
      generation    g1
      applied       by ann@host at 2026-01-02T03:04:05Z (2d ago)
      declared as   job.nightly
      last run      -
      joined        8 of 8
      completed     5
      live          0
      workers       w-0 (7h), late

  barriers under way
    loaded, round 4, attempt 2: 1 of 3 arrived, the first 60m ago; missing: id 0
    (w-0), id 2 (not joined)

  declared at jobs.hcl:52
      workers                12  (jobs.hcl:53)
      roll_format            protobuf
      timeouts.session       30s
      timeouts.join          1m40s  (default)
      timeouts.barrier       1m40s
      timeouts.stale         30s
      lifecycle.on_complete  reset
      lifecycle.on_running   keep
      lifecycle.protect      false

  differs
      workers       8 -> 12
`
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("explanation (-want +got):\n%s", d)
	}
}

// TestWorkersShowsTheLastRun of a job that nobody has joined since.
func TestWorkersShowsTheLastRun(t *testing.T) {
	o := recorded(declared("nightly", 8), 0, 0, 0)
	_ = job.SetLastRun(o.Record, job.Run{ID: "n-7", Generation: "g0", Completed: "2026-01-02T03:04:05Z"})
	got := text(t, func(b *strings.Builder) error {
		return report.Detail(b, view.Resource{Path: "/jobs/prod/nightly", Observed: o}, report.Options{})
	})
	want := `/jobs/prod/nightly  ready
nobody has joined this generation

8 workers have not joined yet: id 0-7
the last run completed 2026-01-02T03:04:05Z (n-7)
next: muster worker --job nightly --root /jobs/prod
      or the same with -- COMMAND at its end
`
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("job (-want +got):\n%s", d)
	}
}

// TestExplainWithoutConfiguration says nothing of what only a configuration decides.
func TestExplainWithoutConfiguration(t *testing.T) {
	got := text(t, func(b *strings.Builder) error {
		return report.Explain(b, sample().Rows[2], "", report.Explanation{}, report.Options{})
	})
	if strings.Contains(got, "action  ") || strings.Contains(got, "because  ") || strings.Contains(got, "not declared") {
		t.Errorf("it speaks of a configuration:\n%s", got)
	}
	if !strings.Contains(got, "no configuration was read") {
		t.Errorf("it does not say that none was read:\n%s", got)
	}
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
	return resource.Observed{Record: &rec, Counts: group.Counts(held), Live: live, Saved: saved}
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

func TestStatusOfGroups(t *testing.T) {
	unreadable := foundGroup(shop("odd"), 0, 0)
	unreadable.Problem = "no permission"
	groups := []view.Resource{
		{Path: "/apps/shop", Observed: foundGroup(shop("shop"), 3, 1)},
		{Path: "/apps/idle", Observed: foundGroup(shop("idle"), 0, 0)},
		{Path: "/apps/odd", Observed: unreadable},
	}
	groups[0].Observed.Created = hour(-48)
	status := func(all []view.Resource) string {
		return text(t, func(b *strings.Builder) error { return report.Status(b, all, report.Options{Now: hour(0)}) })
	}
	const table = `group       status      age  members and duties
/apps/shop  degraded    2d   3 live, 1 of 2 duties held
/apps/idle  ready       -    0 live, 0 of 2 duties held
/apps/odd   unreadable  -    -
`
	if d := cmp.Diff(table, status(groups)); d != "" {
		t.Errorf("status (-want +got):\n%s", d)
	}
	const beside = `job               status  age  joined  live  done  restarts  last run
/jobs/prod/ready  ready   -    0 of 4  0     0     -         -

`
	ready := view.Resource{Path: "/jobs/prod/ready", Observed: recorded(declared("ready", 4), 0, 0, 0)}
	if d := cmp.Diff(beside+table, status(append(groups, ready))); d != "" {
		t.Errorf("status of both kinds (-want +got):\n%s", d)
	}
	doc := text(t, func(b *strings.Builder) error { return report.StatusJSON(b, append(groups, ready)) })
	var got struct {
		Jobs   []struct{ Path string }
		Groups []struct {
			Path, Status string
			Duties       int
			Live, Held   *int
		}
	}
	if err := json.Unmarshal([]byte(doc), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Jobs) != 1 || len(got.Groups) != 3 || got.Groups[0].Duties != 2 || *got.Groups[0].Held != 1 ||
		*got.Groups[0].Live != 3 || got.Groups[2].Live != nil {
		t.Errorf("%s", doc)
	}
}

func TestOneGroup(t *testing.T) {
	stopping := foundGroup(shop("shop"), 2, 1)
	stopping.Record.State = resource.StateTerminating
	for status, c := range map[string]struct {
		o    resource.Observed
		want string
	}{
		"degraded": {foundGroup(shop("shop"), 3, 1), "/apps/shop  degraded\n3 live, 1 of 2 duties held\n"},
		"ready":    {foundGroup(shop("shop"), 0, 0), "/apps/shop  ready\n0 live, 0 of 2 duties held\n"},
		"terminating": {stopping, "/apps/shop  terminating\nits record says that the members have been asked to stop; " +
			"2 live\n\nnext: muster status /apps/shop --watch, until all have left\n"},
	} {
		got := text(t, func(b *strings.Builder) error {
			return report.Detail(b, view.Resource{Path: "/apps/shop", Observed: c.o}, report.Options{})
		})
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", status, d)
		}
	}
}

func TestExplainGroup(t *testing.T) {
	p := groupPlan()
	p.Rows[1].Old.Members = []string{"10.0.3.11:7000", "10.0.3.12:7000", "10.0.3.13:7000"}
	got := text(t, func(b *strings.Builder) error {
		e := report.Explanation{Origins: map[string]string{"leader.main.prefer": "default"}}
		return report.Explain(b, p.Rows[1], stack, e, report.Options{})
	})
	want := `group.less
      path          /apps/less
      status        running: 3 live, 2 of 2 duties held
      action        update in place
      because       only what may change while members are live differs
      loses         cron.nightly (3 keys, 5 KiB)

  observed in ZooKeeper
      group znode   version 0, last join or leave 0x0
      record        version 0, state open
      stack         etl-prod
      generation    g1
      declared as   group.less
      held          2
      live          3
      members       10.0.3.11:7000, 10.0.3.12:7000, 10.0.3.13:7000

  declared at groups.hcl:4
      settle                5s
      promote_after         1
      timeouts.session      10s
      timeouts.join         1m40s
      timeouts.drain        30s
      timeouts.stale        30s
      lifecycle.protect     false
      leader.main.versions  ""
      leader.main.prefer    any  (default)

  differs
      cron.nightly.schedule  0 2 * * * -> (none)
`
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("explanation (-want +got):\n%s", d)
	}
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
		"markdown":   {"live differs; loses cron.nightly (3 keys, 5 KiB)", "loses                  cron"},
		"github":     {"::warning", "group.less"},
		"junit":      {`name="group.fine"`, `name="group.less"`},
		"html":       {"cron.nightly (3 keys, 5 KiB)"},
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
	for _, want := range []string{"degraded  group.fine", "3 live, 1 of 2 duties held", "orphan    /apps/gone"} {
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

func TestQueue(t *testing.T) {
	var b strings.Builder
	if err := report.Detail(&b, primes(t, 22), report.Options{Width: 120, Now: hour(0)}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"/queues/primes  degraded\n", "22 batches wait and nobody executes", "redis: redis://redis-1\n",
		"watcher  w1       -     -         1m\n", "b19", "and 2 more", "Redis does not have b1: submit", "Redis refuses: OOM",
		"next: muster executor primes --root /queues -- CMD executes what waits\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("lacks %q:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "\nb20 ") {
		t.Errorf("shows more than 20 batches:\n%s", b.String())
	}
}

// TestStatusOfQueues: queues have a table of their own, and a list in JSON.
func TestStatusOfQueues(t *testing.T) {
	var text, doc strings.Builder
	all := []view.Resource{primes(t, 2)}
	all[0].Observed.Created = hour(-48)
	if err := report.Status(&text, all, report.Options{Now: hour(0)}); err != nil {
		t.Fatal(err)
	}
	if err := report.StatusJSON(&doc, all); err != nil {
		t.Fatal(err)
	}
	const line = "/queues/primes  degraded  2d   0 executors, 1 watcher, 2 unfinished batches; 2 batches wait"
	if !strings.HasPrefix(text.String(), "queue           status    age  members and batches\n") ||
		!strings.Contains(text.String(), line) {
		t.Errorf("%s", text.String())
	}
	for _, want := range []string{`"queues"`, `"batches": 2`, `"redis_refuses": "OOM"`, `"role": "watcher"`} {
		if !strings.Contains(doc.String(), want) {
			t.Errorf("lacks %s:\n%s", want, doc.String())
		}
	}
}

// applies are one of each kind.
func applies() []history.Found {
	at := time.Date(2026, 1, 31, 3, 4, 5, 0, time.UTC)
	found := func(name string, state history.State, e history.Entry) history.Found {
		return history.Found{Stack: "etl", Name: name, State: state, Entry: e}
	}
	ann := history.Who{
		Actor: "ann", CI: "GitHub Actions", Commit: "c0ffee", URL: "https://ci.example/runs/7?a=1&b=<2>",
	}
	damaged := found("h-3", history.Damaged, history.Entry{Started: at})
	damaged.Problem = "no permission to read it"
	return []history.Found{
		found("h-6", history.Running, history.Entry{
			Started: at.Add(time.Hour), By: "bob@here", Who: history.Who{Actor: "bob@here"},
			Planned: map[string]int{"create": 2, "delete": 101}, Deleted: []string{"/jobs/a"}, More: 100,
		}),
		found("h-5", history.Finished, history.Entry{
			Started: at, Finished: at.Add(time.Minute), By: "runner@build", Who: ann,
			Planned: map[string]int{"create": 1, "replace": 2, "delete": 3},
			Done:    map[string]int{"create": 1, "replace": 1, "delete": 1},
			Results: map[string]int{"applied": 3, "refused": 2, "unknown": 1, "of a newer muster": 4},
			Deleted: []string{"/jobs/old", "/jobs/\x1b[31mred"}, Replaced: []string{"/jobs/nightly"},
		}),
		found("h-4", history.Unfinished, history.Entry{
			Started: at, By: "x@y", Who: history.Who{Actor: strings.Repeat("long", 10)}, Planned: map[string]int{"update": 1},
		}),
		damaged,
		found("h-2", history.Finished, history.Entry{
			Started: at, Who: history.Who{Actor: "eve\x1b[2J"}, Results: map[string]int{"failed": 1},
		}),
	}
}

func TestHistory(t *testing.T) {
	want := `when               stack  by                        what
2026-01-31 04:04Z  etl    bob@here                  running: 2 to create, 101 to
                                                    delete
                   to delete /jobs/a
                   and 100 more
2026-01-31 03:04Z  etl    ann                       1 created, 1 replaced, 1
                                                    deleted; 2 refused, 1
                                                    unknown
                   deleted /jobs/old /jobs/\x1b[31mred
                   replaced /jobs/nightly
                   commit c0ffee
                   https://ci.example/runs/7?a=1&b=<2>
2026-01-31 03:04Z  etl    longlonglonglonglonglon…  unfinished: 1 to update
2026-01-31 03:04Z  etl    -                         damaged: no permission to
                                                    read it
2026-01-31 03:04Z  etl    eve\x1b[2J                nothing changed; 1 failed
`
	got := text(t, func(b *strings.Builder) error { return report.History(b, applies(), report.Options{}) })
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("history (-want +got):\n%s", d)
	}
	colored := text(t, func(b *strings.Builder) error {
		return report.History(b, applies()[2:3], report.Options{Color: true, Width: 200})
	})
	if !strings.Contains(colored, "\x1b[33munfinished: 1 to update\x1b[0m") {
		t.Errorf("in color: %q", colored)
	}
}

// TestHistoryFitsATerminal: long names of a stack and an actor are cut, and leave room for what became of an apply.
func TestHistoryFitsATerminal(t *testing.T) {
	long := applies()[2:3]
	long[0].Stack, long[0].Actor = strings.Repeat("stack", 25), strings.Repeat("作", 60)
	want := `when               stack           by               what
2026-01-31 03:04Z  stackstacksta…  作作作作作作作…  unfinished: 1 to update
`
	got := text(t, func(b *strings.Builder) error { return report.History(b, long, report.Options{Width: 80}) })
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("history (-want +got):\n%s", d)
	}
	got = text(t, func(b *strings.Builder) error { return report.History(b, long, report.Options{Width: 300}) })
	if !strings.Contains(got, "  "+long[0].Stack+"  "+long[0].Actor+"  unfinished") {
		t.Errorf("it is cut where there is room:\n%s", got)
	}
	got = text(t, func(b *strings.Builder) error { return report.HistoryJSON(b, long) })
	if !strings.Contains(got, long[0].Stack) || strings.Count(got, `\u4f5c`) != 60 {
		t.Errorf("JSON does not have all:\n%s", got)
	}
}

func TestLastApplies(t *testing.T) {
	want := `
last apply of stack etl: by bob@here, 3m ago: running: 2 to create, 101 to delete
last apply of stack etl: by ann, 63m ago: 1 created, 1 replaced, 1 deleted; 2 refused, 1 unknown` +
		` (https://ci.example/runs/7?a=1&b=<2>)
last apply of stack etl: by longlonglonglonglonglonglonglonglonglong, 63m ago: unfinished: 1 to update
last apply of stack etl: damaged: no permission to read it
last apply of stack etl: by eve\x1b[2J, 63m ago: nothing changed; 1 failed
`
	now := time.Date(2026, 1, 31, 4, 7, 6, 0, time.UTC)
	got := text(t, func(b *strings.Builder) error { return report.LastApplies(b, applies(), report.Options{Now: now}) })
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("last applies (-want +got):\n%s", d)
	}
}
