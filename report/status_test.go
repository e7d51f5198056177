package report_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/plan"
	"muster/report"
	"muster/resource"
	"muster/resource/job"
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
