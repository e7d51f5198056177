package report_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/plan"
	"muster/plan/planfile"
	"muster/report"
	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/view"
)

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
		"degraded": {foundGroup(shop("shop"), 3, 1), "/apps/shop  degraded\n3 live, 1 of 2 duties held\n\n"},
		"ready":    {foundGroup(shop("shop"), 0, 0), "/apps/shop  ready\n0 live, 0 of 2 duties held\n\n"},
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
