package report_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/report"
	"muster/resource/group"
	"muster/view"
)

// noon is the time of these tests.
var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) *time.Time {
	t := noon.Add(-d)
	return &t
}

// detail is a group of 4 members of two versions. Of its duties one is held, one is handed over, one is paused, two can
// be done by nobody, and one was given up.
func detail() view.Resource {
	g := group.Default()
	g.Name, g.Root, g.Address = "shop", "/apps", "group.shop"
	for _, name := range []string{"billing", "coordinator", "export-a", "export-b", "index"} {
		g.Add(group.NewDuty(group.Leader, name))
	}
	nightly := group.NewDuty(group.Cron, "nightly-report")
	nightly.Schedule, nightly.Versions = "0 2 * * *", ">= 2.0"
	g.Add(nightly)
	member := func(n int, version string, age time.Duration, can ...string) view.Member {
		at := fmt.Sprintf("10.0.3.%d:7000", n)
		return view.Member{
			Identity: at, Version: version, Address: at, Since: *ago(age), Ready: n != 14, Seat: "s", Can: can,
		}
	}
	d := &view.Group{
		Assigner: "10.0.3.11:7000",
		Members: []view.Member{
			member(11, "1.9.0", 3*24*time.Hour, "coordinator", "nightly-report", "index"),
			member(12, "10.0", 5*time.Minute, "coordinator", "nightly-report"),
			member(13, "10.0", 12*time.Second, "billing"), member(14, "10.0", -time.Second, "nightly-report"),
		},
		Requests: []view.Request{
			{Duty: "index", What: "handover", To: "10.0.3.11:7000", By: "ann@ops", Since: *ago(40 * time.Second)},
			{Duty: "index", What: "resigned", By: "10.0.3.11:7000", Because: "exit code 1", Since: *ago(time.Second)},
		},
		Waiting: 3,
	}
	d.Members[0].Duties, d.Members[1].Duties = []string{"coordinator"}, []string{"nightly-report"}
	for _, declared := range g.Duties {
		d.Duties = append(d.Duties, view.Duty{Declared: declared, Name: declared.Name, Type: declared.Type})
	}
	holds := func(i int, who string, age time.Duration) *view.Duty {
		duty := &d.Duties[i]
		duty.Holder, duty.Version, duty.Address, duty.Since, duty.Epoch = who, "1.9.0", who, ago(age), 4294967338
		duty.Given = who
		return duty
	}
	d.Duties[0].PausedBy, d.Duties[0].Why = "bob@ops", "the duty is paused"
	coordinator := holds(1, "10.0.3.11:7000", 3*time.Hour)
	coordinator.Given, coordinator.Why = "10.0.3.12:7000", "the duty is pinned to it"
	coordinator.Pinned = "10.0.3.12:7000"
	d.Duties[2].Why, d.Duties[3].Why = "no member can do it (not listed: 4)", "no member can do it (not listed: 4)"
	d.Duties[4].Why = "every member that can do it has just given it up"
	d.Duties[4].Failures = []view.Failure{{
		Identity: "10.0.3.11:7000", Count: 3, Until: noon.Add(4 * time.Second), Because: "exit code 1",
	}}
	cron := holds(5, "10.0.3.12:7000", 4*time.Minute)
	cron.Why = "it has the preferred version, 10.0"
	next, zero, tick := noon.Add(14*time.Hour), 0, noon.Add(-10*time.Hour)
	cron.NextTick = &next
	cron.Runs = []view.Run{{
		Tick: &tick, State: "done", By: "10.0.3.12:7000", Started: &tick, Ended: ago(10*time.Hour - 75*time.Second),
		Exit: &zero, Attempt: 1,
	}}
	return view.Resource{Path: "/apps/shop", Observed: foundGroup(g, 4, 2), Group: d}
}

func TestGroupDetail(t *testing.T) {
	const want = `/apps/shop  degraded
4 live, 2 of 6 duties held
4 members: 3 of 10.0, 1 of 1.9.0; the assigner is 10.0.3.11:7000

version  member          address         age  ready  duties
10.0     10.0.3.12:7000  10.0.3.12:7000  5m   yes    1
10.0     10.0.3.13:7000  10.0.3.13:7000  12s  yes    0
10.0     10.0.3.14:7000  10.0.3.14:7000  0s   no     0
1.9.0    10.0.3.11:7000  10.0.3.11:7000  3d   yes    1

duty            holder          version  held for  epoch       address
billing         -               -        -         -           -
coordinator     10.0.3.11:7000  1.9.0    3h        4294967338  10.0.3.11:7000
export-a        -               -        -         -           -
export-b        -               -        -         -           -
index           -               -        -         -           -
nightly-report  10.0.3.12:7000  1.9.0    4m        4294967338  10.0.3.12:7000

cron            last run           state  age  exit  took   next tick
nightly-report  2026-07-01T02:00Z  done   10h  0     1m15s  2026-07-02T02:00Z

waits
  billing: paused by bob@ops
  coordinator: 10.0.3.12:7000 gets it when 10.0.3.11:7000 has handed it over:
    the duty is pinned to it
  coordinator: pinned to 10.0.3.12:7000
  export-a, export-b: nobody has it: no member can do it (not listed: 4)
  index: nobody has it: every member that can do it has just given it up
  index: 10.0.3.11:7000 gave it up, to blame 3 times: exit code 1; it may have
    it again in 4s
  handover of index to 10.0.3.11:7000 for ann@ops, waits for the assigner for
    40s
  10.0.3.11:7000 gave up index: exit code 1, waits for the assigner for 1s
  1 more wait for the assigner

next: muster explain /apps/shop/export-a
`
	j := detail()
	got := text(t, func(b *strings.Builder) error { return report.Detail(b, j, report.Options{Now: noon}) })
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("group (-want +got):\n%s", d)
	}
	for line := range strings.Lines(got) {
		if n := len(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("a line has %d columns: %s", n, line)
		}
	}
}

// TestGroupDetailWithoutAges changes only when something happens: for a pipe that watches.
func TestGroupDetailWithoutAges(t *testing.T) {
	j := detail()
	got := text(t, func(b *strings.Builder) error { return report.Detail(b, j, report.Options{}) })
	for _, want := range []string{
		"10.0     10.0.3.12:7000  10.0.3.12:7000  2026-07-01T11:55Z     yes    1\n", "2026-07-01T09:00Z  4294967338",
		"it may have\n    it again from 2026-07-01T12:00:04Z", "since\n    2026-07-01T11:59:20Z",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("it lacks %q:\n%s", want, got)
		}
	}
}

// TestOddThingsOfCrons: ticks that did not run, and a run by hand.
func TestOddThingsOfCrons(t *testing.T) {
	j := detail()
	cron := &j.Group.Duties[5]
	cron.Runs = append([]view.Run{
		{Asked: 3, State: "running", Started: ago(time.Minute)}, {Tick: ago(time.Hour), State: "missed", Count: 3},
		{Tick: ago(time.Hour), State: "skipped", Count: 1000, More: true},
	}, cron.Runs...)
	status := text(t, func(b *strings.Builder) error { return report.Detail(b, j, report.Options{Now: noon}) })
	explained := text(t, func(b *strings.Builder) error {
		return report.ExplainDuty(b, j.Path, &j.Observed, *j.Group, *cron, nil, report.Options{Now: noon})
	})
	for _, want := range []string{
		"nightly-report  by hand 3  running  1m   -     -     2026",
	} {
		if !strings.Contains(status, want) {
			t.Errorf("status lacks %q:\n%s", want, status)
		}
	}
	for _, want := range []string{"2026-07-01T11:00Z  missed 3 ", "skipped 1000 or more"} {
		if !strings.Contains(explained, want) {
			t.Errorf("the explanation lacks %q:\n%s", want, explained)
		}
	}
}

// TestSilentAssigners: who was passed over, and who decides nothing and cannot be passed over.
func TestSilentAssigners(t *testing.T) {
	j := detail()
	j.Group.Passed, j.Group.Silent = []string{"old"}, ago(3*time.Minute)
	for now, since := range map[time.Time]string{noon: "for 3m", {}: "since 2026-07-01T11:57Z"} {
		var text strings.Builder
		if err := report.Detail(&text, j, report.Options{Now: now}); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			"old was passed over as the assigner, because it decided nothing: look at that process",
			"the assigner, 10.0.3.11:7000, has decided nothing " + since + ": end that process",
		} {
			if !strings.Contains(strings.Join(strings.Fields(text.String()), " "), want) {
				t.Errorf("it does not say %q:\n%s", want, text.String())
			}
		}
	}
}

// TestGroupsThatNeedNothing: nothing waits, or nobody is live.
func TestGroupsThatNeedNothing(t *testing.T) {
	idle := view.Resource{Path: "/apps/shop", Observed: foundGroup(shop("shop"), 0, 0), Group: &view.Group{
		Duties:   []view.Duty{{Name: "main", Type: group.Leader, PausedBy: "c@d"}},
		Requests: []view.Request{{Duty: "main", What: "pause", By: "a@b", Since: *ago(time.Minute)}}, Waiting: 1,
	}}
	const want = `/apps/shop  ready
0 live, 0 of 2 duties held

duty  holder  version  held for  epoch  address
main  -       -        -         -      -

waits
  main: paused by c@d
  pause of main for a@b, waits for the assigner for 1m
  no member is live: what waits for the assigner waits for the first one

next: muster member --group shop --root /apps --version VERSION joins it
`
	got := text(t, func(b *strings.Builder) error { return report.Detail(b, idle, report.Options{Now: noon}) })
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("nobody is live (-want +got):\n%s", d)
	}
	paused := detail()
	paused.Group.Duties = paused.Group.Duties[:1]
	got = text(t, func(b *strings.Builder) error { return report.Detail(b, paused, report.Options{Now: noon}) })
	if !strings.HasSuffix(got, "next: muster resume /apps/shop/billing\n") {
		t.Errorf("the next step of a paused duty:\n%s", got)
	}
}

func TestExplainDuty(t *testing.T) {
	const cron = `/apps/shop/nightly-report
      type          cron
      group         degraded: 4 live, 2 of 6 duties held
      holder        10.0.3.12:7000 (1.9.0, 10.0.3.12:7000) for 4m, epoch
                    4294967338
      because       it has the preferred version, 10.0
      assigner      10.0.3.11:7000
      next tick     2026-07-02T02:00Z

  members
      holds it                         10.0.3.12:7000 (10.0)
      is not ready                     10.0.3.14:7000 (10.0)
      has a version that does not fit  10.0.3.11:7000 (1.9.0)
      does not list it                 10.0.3.13:7000 (10.0)

run                state  age  exit  took   attempt  by
2026-07-01T02:00Z  done   10h  0     1m15s  1        10.0.3.12:7000

  declared
      schedule        0 2 * * *  (groups.hcl:9)
      timezone        UTC
      versions        >= 2.0
      prefer          newest
      start_deadline  1m
      missed          latest
      overlap         skip
      lost            rerun
      retries         2
      timeout         1h
      keep            20
`
	const index = `/apps/shop/index
      type          leader
      group         degraded: 4 live, 2 of 6 duties held
      holder        nobody
      because       every member that can do it has just given it up
      assigner      10.0.3.11:7000

  what waits
    nobody has it: every member that can do it has just given it up
    10.0.3.11:7000 gave it up, to blame 3 times: exit code 1; it may have it
    again in 4s
    handover of index to 10.0.3.11:7000 for ann@ops, waits for the assigner for
    40s
    10.0.3.11:7000 gave up index: exit code 1, waits for the assigner for 1s

  members
      waits             10.0.3.11:7000 (1.9.0)
      does not list it  10.0.3.12:7000 (10.0), 10.0.3.13:7000 (10.0),
                        10.0.3.14:7000 (10.0)

  declared
      versions      ""
      prefer        any
`
	j := detail()
	explain := func(i int) string {
		return text(t, func(b *strings.Builder) error {
			origins := map[string]string{"cron.nightly-report.schedule": "groups.hcl:9"}
			return report.ExplainDuty(b, j.Path, &j.Observed, *j.Group, j.Group.Duties[i], origins, report.Options{Now: noon})
		})
	}
	if d := cmp.Diff(cron, explain(5)); d != "" {
		t.Errorf("a cron (-want +got):\n%s", d)
	}
	if d := cmp.Diff(index, explain(4)); d != "" {
		t.Errorf("a leader (-want +got):\n%s", d)
	}
}

// TestHostileNamesInGroups: nothing of ZooKeeper's reaches a terminal with control characters.
func TestHostileNamesInGroups(t *testing.T) {
	const evil = "\x1b[2Jevil\n\u202e"
	j := detail()
	d := j.Group
	d.Assigner, d.Unread = evil, []string{evil}
	for i := range d.Members {
		d.Members[i].Identity, d.Members[i].Version, d.Members[i].Address = evil, evil, evil
	}
	for i := range d.Duties {
		duty := &d.Duties[i]
		duty.Holder, duty.Version, duty.Address, duty.Why = evil, evil, evil, evil
		duty.Given, duty.PausedBy, duty.Pinned = evil+"2", evil, evil
		duty.Failures = []view.Failure{{Identity: evil, Because: evil}}
		duty.Runs = []view.Run{{State: evil, By: evil}}
	}
	d.Requests = []view.Request{{Duty: evil, What: evil, To: evil, By: evil, Because: evil}}
	texts := []string{
		text(t, func(b *strings.Builder) error { return report.Detail(b, j, report.Options{Now: noon}) }),
		text(t, func(b *strings.Builder) error {
			return report.ExplainDuty(b, j.Path, &j.Observed, *d, d.Duties[0], nil, report.Options{Now: noon})
		}),
		text(t, func(b *strings.Builder) error { return report.StatusJSON(b, []view.Resource{j}) }),
	}
	for _, got := range texts {
		if strings.ContainsAny(got, "\x1b\u202e") || !strings.Contains(got, "evil") {
			t.Errorf("%q", got)
		}
	}
}

func TestGroupDetailAsJSON(t *testing.T) {
	doc := text(t, func(b *strings.Builder) error { return report.StatusJSON(b, []view.Resource{detail()}) })
	var got struct {
		Groups []struct {
			Path, Assigner string
			Duties         int
			Members        []struct {
				Identity, Version string
				Since             time.Time
			}
			DutyStates []struct {
				Name, Holder, Why string
				GivenTo           string `json:"given_to"`
				PausedBy          string `json:"paused_by"`
				Epoch             int64
				NextTick          *time.Time `json:"next_tick"`
				Runs              []struct{ State string }
			} `json:"duty_states"`
			Waiting int
		}
	}
	if err := json.Unmarshal([]byte(doc), &got); err != nil {
		t.Fatal(err)
	}
	g := got.Groups[0]
	if g.Assigner != "10.0.3.11:7000" || g.Duties != 6 || len(g.Members) != 4 || g.Waiting != 3 ||
		g.DutyStates[1].Holder != "10.0.3.11:7000" || g.DutyStates[1].GivenTo != "10.0.3.12:7000" ||
		g.DutyStates[1].Epoch != 4294967338 || g.DutyStates[0].PausedBy != "bob@ops" ||
		g.DutyStates[5].NextTick.IsZero() || g.DutyStates[5].Runs[0].State != "done" {
		t.Errorf("%s", doc)
	}
}
