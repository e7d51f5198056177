package report_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/apply/history"
	"muster/report"
)

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
