package group_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/resource"
	"muster/resource/group"
)

func valid() group.Group {
	g := group.Default()
	g.Name = "shop"
	nightly := group.NewDuty(group.Cron, "nightly")
	nightly.Schedule = "0 2 * * *"
	g.Add(nightly)
	g.Add(group.NewDuty(group.Leader, "coordinator"))
	return g
}

// edited is a group whose duty of this name is changed.
func edited(name string, edit func(*group.Duty)) group.Group {
	g := valid()
	for i := range g.Duties {
		if g.Duties[i].Name == name {
			edit(&g.Duties[i])
		}
	}
	return g
}

func TestCheckNamesTheValue(t *testing.T) {
	if err := valid().Check(); err != nil {
		t.Errorf("a valid group: %v", err)
	}
	nightly := func(edit func(*group.Duty)) group.Group { return edited("nightly", edit) }
	with := func(edit func(*group.Group)) group.Group {
		g := valid()
		edit(&g)
		return g
	}
	for field, g := range map[string]group.Group{
		"name":                      with(func(g *group.Group) { g.Name = "" }),
		"root":                      with(func(g *group.Group) { g.Root = "/" }),
		"settle":                    with(func(g *group.Group) { g.Settle = -1 }),
		"promote_after":             with(func(g *group.Group) { g.PromoteAfter = "0" }),
		"timeouts.drain":            with(func(g *group.Group) { g.Timeouts.Drain = -1 }),
		"cron.nightly.schedule":     nightly(func(d *group.Duty) { d.Schedule = "" }),
		"cron.nightly.timezone":     nightly(func(d *group.Duty) { d.Timezone = "Local" }),
		"cron.nightly.versions":     nightly(func(d *group.Duty) { d.Versions = ">> 2" }),
		"cron.nightly.prefer":       nightly(func(d *group.Duty) { d.Prefer = "oldest" }),
		"cron.nightly.retries":      nightly(func(d *group.Duty) { d.Retries = -1 }),
		"cron.nightly.keep":         nightly(func(d *group.Duty) { d.Keep = 0 }),
		"leader.coordinator.prefer": edited("coordinator", func(d *group.Duty) { d.Prefer = "" }),
		"leader.nightly":            with(func(g *group.Group) { g.Add(group.NewDuty(group.Leader, "nightly")) }),
		"leader.a/b":                with(func(g *group.Group) { g.Add(group.NewDuty(group.Leader, "a/b")) }),
	} {
		if err := g.Check(); err == nil || !strings.HasPrefix(err.Error(), field+": ") {
			t.Errorf("%s: error = %v", field, err)
		}
	}
}

func TestLimits(t *testing.T) {
	g := group.Default()
	g.Name = "full"
	for i := range group.MaxDuties {
		d := group.NewDuty(group.Cron, fmt.Sprintf("nightly-report-%04d", i))
		d.Schedule = "*/15 * * * *"
		g.Add(d)
	}
	if err := g.Check(); err != nil {
		t.Errorf("%d duties: %v", group.MaxDuties, err)
	}
	g.Add(group.NewDuty(group.Leader, "one-more"))
	if err := g.Check(); err == nil || !strings.Contains(err.Error(), "at most 1000 duties; this one has 1001") {
		t.Errorf("a duty too many: %v", err)
	}
	large := valid()
	large.Labels = map[string]string{"text": strings.Repeat("x", group.MaxSize)}
	if err := large.Check(); err == nil || !strings.Contains(err.Error(), "at most 100 KiB as JSON; this one has 101") {
		t.Errorf("a large group: %v", err)
	}
	for name, want := range map[string]bool{
		strings.Repeat("n", 64): true, strings.Repeat("n", 65): false,
		"nightly.eu": true, "": false, ".muster": false, "a b": false,
	} {
		if err := group.CheckDutyName(name); (err == nil) != want {
			t.Errorf("duty %q: %v", name, err)
		}
	}
}

// TestJSON: of a duty only what is not the default is written, and all is read back. A newer muster's types of duties
// and fields are skipped.
func TestJSON(t *testing.T) {
	g := edited("nightly", func(d *group.Duty) {
		d.Versions, d.Retries, d.Keep, d.Lost = ">= 2.0", 0, 5, group.LostSkip
	})
	g.Labels = map[string]string{"team": "shop"}
	body, err := json.Marshal(g)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"name":"shop","root":"/muster","settle":"5s","promote_after":"1",` +
		`"timeouts":{"session":"10s","join":"1m40s","drain":"30s","stale":"30s"},"lifecycle":{"protect":false},` +
		`"labels":{"team":"shop"},"leader":{"coordinator":{}},"cron":{"nightly":{"schedule":"0 2 * * *",` +
		`"versions":"\u003e= 2.0","lost":"skip","retries":0,"keep":5}}}`
	if d := cmp.Diff(want, string(body)); d != "" {
		t.Errorf("JSON (-want +got):\n%s", d)
	}
	newer := strings.NewReplacer(`"leader":`, `"queue":{"q":1},"leader":`, `"retries":`, `"jitter":"5s","retries":`)
	for _, text := range []string{want, newer.Replace(want)} {
		back, err := group.Kind().Decode([]byte(text), "")
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(g, back); d != "" {
			t.Errorf("read back (-written +read):\n%s", d)
		}
	}
}

// TestWrongTypesAreNamed: the error of a value of a wrong type names the field as HCL does.
func TestWrongTypesAreNamed(t *testing.T) {
	for field, body := range map[string]string{
		"settle":               `{"name":"a","root":"/r","settle":5}`,
		"timeouts.drain":       `{"name":"a","root":"/r","timeouts":{"drain":[]}}`,
		"cron":                 `{"name":"a","root":"/r","cron":[]}`,
		"cron.nightly.retries": `{"name":"a","root":"/r","cron":{"nightly":{"schedule":"@daily","retries":"x"}}}`,
	} {
		_, err := group.Kind().Decode([]byte(body), "")
		if err == nil || !strings.HasPrefix(err.Error(), field+" does not fit there: ") {
			t.Errorf("%s: error = %v", field, err)
		}
	}
}

func TestChangesAreByFieldOfADuty(t *testing.T) {
	a, b := valid(), edited("nightly", func(d *group.Duty) { d.Schedule, d.Keep = "0 3 * * *", 30 })
	report := group.NewDuty(group.Cron, "report")
	report.Schedule, report.Timezone = "@hourly", "Europe/Berlin"
	b.Add(report)
	a.Add(group.NewDuty(group.Leader, "janitor"))
	b.PromoteAfter, b.Settle = "50%", resource.Duration(time.Minute)
	b.Labels = map[string]string{"team": "shop"}
	b.Address, b.At = "group.b", "groups.hcl:3" // neither is compared
	var got []string
	for _, c := range resource.Changes(a, b) {
		side := func(s *string) string {
			if s == nil {
				return "nil"
			}
			return *s
		}
		got = append(got, c.Name+" "+side(c.Old)+" -> "+side(c.New))
		if c.Immutable {
			t.Errorf("%s cannot change while members are live", c.Name)
		}
	}
	want := []string{
		"settle 5s -> 1m", "promote_after 1 -> 50%", "cron.nightly.schedule 0 2 * * * -> 0 3 * * *",
		"cron.nightly.keep 20 -> 30", "cron.report.schedule nil -> @hourly", "cron.report.timezone nil -> Europe/Berlin",
		"labels.team nil -> shop", "leader.janitor.prefer any -> nil",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("changes (-want +got):\n%s", d)
	}
	if cs := resource.Changes(b, b); len(cs) > 0 {
		t.Errorf("a group differs from itself: %v", cs)
	}
}

func TestStatus(t *testing.T) {
	rec := resource.Record{State: resource.StateOpen}
	if err := rec.Declare(valid()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		live, held, paused, failed int
		class                      resource.Class
		status                     resource.Status
		health                     string
	}{
		{0, 0, 0, 0, resource.Idle, resource.StatusReady, "0 live, 0 of 2 duties held"},
		{1, 0, 0, 0, resource.Degraded, group.Degraded, "1 live, 0 of 2 duties held"},
		{3, 1, 0, 2, resource.Degraded, group.Degraded,
			"3 live, 1 of 2 duties held; cron nightly failed 2 times in a row"},
		{3, 1, 1, 0, resource.Live, group.Running, "3 live, 1 of 2 duties held, 1 paused"},
		{3, 2, 0, 0, resource.Live, group.Running, "3 live, 2 of 2 duties held"},
		{3, 1, 1, 1, resource.Live, group.Failing, "3 live, 1 of 2 duties held, 1 paused; cron nightly failed"},
		{0, 0, 0, 1, resource.Idle, resource.StatusReady, "0 live, 0 of 2 duties held; cron nightly failed"},
	} {
		o := &resource.Observed{
			Record: &rec, Live: c.live, Counts: group.Counts(c.held, c.paused, min(1, c.failed)),
			Results: []resource.Results{{Section: "cron.nightly", InARow: c.failed}, {Section: "cron.gone", InARow: 9}},
		}
		if o.Class() != c.class || o.Status() != c.status || valid().Health(o) != c.health {
			t.Errorf("%d live, %d held: %v, %s, %s", c.live, c.held, o.Class(), o.Status(), valid().Health(o))
		}
	}
}

// TestNobodyAssigns: a group of which every duty is held is degraded if none of its live members assigns duties.
func TestNobodyAssigns(t *testing.T) {
	rec := resource.Record{Declaration: valid()}
	o := &resource.Observed{Record: &rec, Live: 3, Counts: group.Counts(2, 0, 0)}
	group.WithoutAssigner(o.Counts)
	want := "3 live, 2 of 2 duties held, nobody assigns duties"
	if o.Class() != resource.Degraded || o.Status() != group.Degraded || valid().Health(o) != want {
		t.Errorf("%v, %s, %q", o.Class(), o.Status(), valid().Health(o))
	}
	if o.Live = 0; o.Status() != resource.StatusReady {
		t.Errorf("without live members it is %s", o.Status())
	}
}

func TestPromoteAfter(t *testing.T) {
	for _, c := range []struct {
		after         group.PromoteAfter
		holders, need int
	}{
		{"1", 0, 1}, {"3", 10, 3}, {"50%", 0, 1}, {"50%", 1, 1}, {"50%", 3, 2}, {"50%", 4, 2}, {"1%", 5000, 50},
		{"100%", 7, 7},
	} {
		if got := c.after.Members(c.holders); got != c.need {
			t.Errorf("%s of %d members is %d, want %d", c.after, c.holders, got, c.need)
		}
	}
	for _, text := range []string{"", "0", "-1", "1.5", "05", "5001", "0%", "101%", "50 %", "%", "many"} {
		g := valid()
		g.PromoteAfter = group.PromoteAfter(text)
		if g.Check() == nil {
			t.Errorf("promote_after can be %q", text)
		}
	}
}

// TestPropertiesAreConsistent: every default can be parsed and is within the limits, and everything has documentation.
func TestPropertiesAreConsistent(t *testing.T) {
	g := group.Default()
	if err := resource.Check(group.Properties(), &g); err != nil {
		t.Error(err)
	}
	for _, p := range group.Properties() {
		if p.Doc == "" || p.Limits() == "" || p.Required || p.Immutable || p.Text(&g) == "" {
			t.Errorf("%s: %+v", p.Name, p)
		}
	}
	for _, typ := range group.Types() {
		d := group.NewDuty(typ, "a")
		d.Schedule = "@daily"
		if err := resource.Check(group.DutyProperties(typ), &d); err != nil {
			t.Error(err)
		}
		for _, p := range group.DutyProperties(typ) {
			if p.Doc == "" || p.Limits() == "" || p.Required != (p.Name == "schedule") || strings.Contains(p.Name, ".") {
				t.Errorf("%s: %+v", p.Name, p)
			}
		}
	}
}

// TestAssign: a Record without a method, or with one that cannot be read, wants the first.
func TestAssign(t *testing.T) {
	for text, want := range map[string]int{"": 1, "3": 3, "0": 1, `"x"`: 1} {
		rec := &resource.Record{}
		if text != "" {
			rec.Extra = map[string]json.RawMessage{"assign": json.RawMessage(text)}
		}
		if got := group.Assign(rec); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func TestFits(t *testing.T) {
	for _, c := range []struct {
		versions, member string
		want             bool
	}{
		{"", "1.0", true}, {"", "anything", true},
		{">= 2.0", "2.0", true}, {">= 2.0", "1.9.9", false}, {">= 2.0", "anything", false},
		{">= 2.0", "2.1.0-rc1", false}, // as the roster says
	} {
		if got := (group.Duty{Versions: c.versions}).Fits(c.member); got != c.want {
			t.Errorf("%q fits %q: %v", c.member, c.versions, got)
		}
	}
}

func TestCompareVersions(t *testing.T) {
	versions := []string{"10.0", "odd", "2.0", "1.9.0", "2.0-rc1", "even"}
	slices.SortFunc(versions, group.CompareVersions)
	if d := cmp.Diff([]string{"even", "odd", "1.9.0", "2.0-rc1", "2.0", "10.0"}, versions); d != "" {
		t.Errorf("in order (-want +got):\n%s", d)
	}
}
