package planfile_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/plan"
	"muster/plan/planfile"
	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
)

// shop is a group with a leader and a cron.
func shop(name string) group.Group {
	g := group.Default()
	g.Name, g.Root, g.Address, g.At = name, "/apps", "group."+name, "groups.hcl:3"
	g.Add(group.NewDuty(group.Leader, "main"))
	nightly := group.NewDuty(group.Cron, "nightly")
	nightly.Schedule, nightly.Versions, nightly.Retries = "0 2 * * *", ">= 2.0, < 3", 0
	g.Add(nightly)
	return g
}

// savedGroups is a plan of groups: created, updated, deleted, and blocked by jobs.
func savedGroups(t *testing.T) planfile.Saved {
	t.Helper()
	applied := func(name string, live, held int, saved ...resource.Saved) resource.Observed {
		rec := resource.Record{
			Stack: stack, Home: resource.DefaultHome, Generation: "g1", State: resource.StateOpen, Op: "op1",
		}
		if err := rec.Declare(shop(name)); err != nil {
			t.Fatal(err)
		}
		return resource.Observed{Record: &rec, Live: live, Counts: group.Counts(held, 0, 0), Saved: saved}
	}
	update := shop("update")
	update.Duties = update.Duties[:1]
	jobAt := func(name string) resource.Observed {
		j := declared(func(j *job.Job) { j.Root, j.Name = "/apps", name })
		return *recorded(j, counts(4, 1, 3))
	}
	want := plan.Want{Stack: stack, Home: resource.DefaultHome, Declared: []resource.Declaration{
		shop("create"), update, shop("job"), shop("classic"),
	}}
	have := plan.State{Found: map[string]resource.Observed{
		"/apps/update": applied("update", 3, 1, resource.Saved{
			Section: "cron.nightly", Keys: 3, Bytes: 1 << 40, Open: []string{"checkpoint"},
		}),
		"/apps/gone":    applied("gone", 0, 0, resource.Saved{Section: "leader.main", Keys: 1}),
		"/apps/job":     jobAt("job"),
		"/apps/classic": {Classic: true, Counts: job.Counts(2, 0)},
	}}
	p := plan.Diff(want, have)
	p.ID = "p1"
	return planfile.Saved{Plan: p}
}

func bothKinds() []resource.Kind { return append(kinds(), group.Kind()) }

func TestPlanFileOfGroupsIsReadAsWritten(t *testing.T) {
	s := savedGroups(t)
	file, err := planfile.Encode(bothKinds(), s)
	if err != nil {
		t.Fatal(err)
	}
	got, err := planfile.Decode(bothKinds(), file)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range got.Plan.Rows {
		want := s.Plan.Rows[i]
		if r.Reason != want.Reason || r.Old.Status() != want.Old.Status() || r.LossText() != want.LossText() {
			t.Errorf("%s: %s, %s, %q", r.Address(), r.Title(), r.Old.Status(), r.LossText())
		}
		if d := cmp.Diff(want.New, r.New); d != "" {
			t.Errorf("%s (-written +read):\n%s", r.Address(), d)
		}
	}
	if len(got.Plan.Rows) != 5 {
		t.Errorf("%d rows", len(got.Plan.Rows))
	}
	if _, err := planfile.Decode(kinds(), file); !errors.Is(err, planfile.ErrDamaged) {
		t.Errorf("a muster without groups: error = %v", err)
	}
}

func TestDecodeRefusesWrongGroups(t *testing.T) {
	bytes, err := planfile.Encode(bothKinds(), savedGroups(t))
	if err != nil {
		t.Fatal(err)
	}
	file := string(bytes)
	for _, c := range []struct{ old, new, says string }{
		{`"retries": 0`, `"jitter": "5s", "retries": 0`, "not as plan wrote it"},
		{`"retries": 0`, `"keep": 20, "retries": 0`, "not as plan wrote it"},
		{`"retries": 0`, `"retries": "0"`, "cron.nightly.retries does not fit there"},
		{`"retries": 0`, `"retries": 101`, "cron.nightly.retries: 101 is not between 0 and 100"},
		{`"schedule": "0 2 * * *"`, `"schedule": "0 2 * *"`, "cron.nightly.schedule: "},
		{`"versions": ">= 2.0, < 3"`, `"versions": ">> 2"`, "cron.nightly.versions: "},
		{`"main": {}`, `"nightly": {}`, "leader.nightly: another duty has this name"},
		{`"settle": "5s"`, `"settle": "5s", "unsettle": "5s"`, "not as plan wrote it"},
		{`"held": 1`, `"held": 1, "joined": 1`, "not as plan wrote it"},
		{`"joined": 2`, `"joined": 2, "worked": 1`, "not as plan wrote it"},
		{`"keys": 3`, `"keys": 3, "kyes": 3`, "not as plan wrote it"},
		{`"action_reason": "undeclared"`, `"action_reason": "stale"`, "contradicts the row's facts"},
	} {
		if !strings.Contains(file, c.old) {
			t.Fatalf("the plan file holds no %s", c.old)
		}
		edited := sign([]byte(strings.Replace(file, c.old, c.new, 1)))
		_, err := planfile.Decode(bothKinds(), edited)
		if !errors.Is(err, planfile.ErrDamaged) || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%s instead of %s: error = %v, want %q", c.new, c.old, err, c.says)
		}
	}
}
