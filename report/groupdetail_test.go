package report_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

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

// shopDetail is a group of 4 members of two versions. Of its duties one is held, one is handed over, one is paused,
// two can be done by nobody, and one was given up.
func shopDetail() view.Resource {
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

// failedTick has more output than is shown at once, with what terminals and pipelines would obey.
func failedTick() view.Run {
	return view.Run{
		Asked: 2, State: "failed", By: "10.0.3.12:7000", Started: ago(time.Hour), Ended: ago(59 * time.Minute),
		Exit: new(3), Attempt: 2, AskedBy: "ann@ops", Because: "timeout",
		Output: strings.Repeat("a line of which there are many, so it is longer than eighty columns of a terminal\n", 9) +
			"\x1b[31mred\x1b[0m <b>\x1b]0;evil\a\u202e\r\n\n::error::50%\r100%\n",
	}
}

// oddCrons has ticks that did not run, and a run by hand.
func oddCrons(duties []view.Duty) []view.Duty {
	cron := duties[5]
	cron.Runs = append([]view.Run{
		{Asked: 3, State: "running", Started: ago(time.Minute)}, {Tick: ago(time.Hour), State: "missed", Count: 3},
		{Tick: ago(time.Hour), State: "skipped", Count: 1000, More: true},
	}, cron.Runs...)
	ticks := cron
	ticks.Name, ticks.Runs = "ticks", cron.Runs[1:]
	more := cron
	more.Name, more.Runs = "more", cron.Runs[2:]
	return []view.Duty{cron, ticks, more}
}

// idleGroup has nobody who is live, and a request that waits.
func idleGroup() view.Resource {
	return view.Resource{Path: "/apps/shop", Observed: foundGroup(shop("shop"), 0, 0), Group: &view.Group{
		Duties:   []view.Duty{{Name: "main", Type: group.Leader, PausedBy: "c@d"}},
		Requests: []view.Request{{Duty: "main", What: "pause", By: "a@b", Since: *ago(time.Minute)}}, Waiting: 1,
	}}
}

// TestHostileNamesInGroups: nothing of ZooKeeper's reaches a terminal with control characters.
func TestHostileNamesInGroups(t *testing.T) {
	const evil = "\x1b[2Jevil\n\u202e"
	j := shopDetail()
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
		duty.Runs = []view.Run{{State: evil, By: evil, Exit: new(1), Because: evil, Output: evil}}
	}
	d.Requests = []view.Request{{Duty: evil, What: evil, To: evil, By: evil, Because: evil}}
	texts := []string{
		text(t, func(b *strings.Builder) error { return report.Detail(b, j, report.Options{Now: noon}) }),
		text(t, func(b *strings.Builder) error {
			return report.ExplainDuty(b, j.Path, &j.Observed, *d, d.Duties[0], nil, report.Options{Now: noon})
		}),
		text(t, func(b *strings.Builder) error {
			return report.ExplainRun(b, evil, d.Duties[0].Runs[0], report.Options{Now: noon})
		}),
		text(t, func(b *strings.Builder) error { return report.StatusJSON(b, []view.Resource{j}) }),
	}
	for _, got := range texts {
		if strings.ContainsAny(got, "\x1b\u202e") || !strings.Contains(got, "evil") {
			t.Errorf("%q", got)
		}
	}
}
