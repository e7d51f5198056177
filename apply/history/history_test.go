package history

import (
	"slices"
	"strings"
	"testing"
	"time"

	"muster/resource"
)

func TestCleanURLKeepsOnlyAddressesOfPages(t *testing.T) {
	for given, want := range map[string]string{
		"https://ci.example/runs/7":                       "https://ci.example/runs/7",
		" http://ci.example:8080/job/a%20b/?x=1&y#z":      "http://ci.example:8080/job/a%20b/?x=1&y#z",
		"https://ann:secret@ci.example/runs/7":            "https://ci.example/runs/7",
		"https://token@ci.example/":                       "https://ci.example/",
		"HTTPS://ci.example/":                             "https://ci.example/",
		"":                                                "",
		"ci.example/runs/7":                               "",
		"javascript:alert(1)":                             "",
		"file:///etc/passwd":                              "",
		"https:opaque":                                    "",
		"https://":                                        "",
		"https://ci.example/\nHost: other":                "",
		"https://ci.example/\x1b[31m":                     "",
		"https://ci.example/\u202egnp.exe":                "https://ci.example/%E2%80%AEgnp.exe",
		"https://ci.example/?q=\u202e":                    "",
		"https://ci.example/" + strings.Repeat("a", 1100): "",
	} {
		if got := CleanURL(given); got != want {
			t.Errorf("%q becomes %q, want %q", given, got, want)
		}
		if again := CleanURL(want); again != want {
			t.Errorf("%q is not kept, but becomes %q", want, again)
		}
	}
}

func TestActorIsCutAndHasNoControlCharacters(t *testing.T) {
	a := Who{Actor: " ann\x1b[2J\nroot ", CI: strings.Repeat("ü", 200), Commit: "\xff", URL: "nowhere"}.Clean()
	if a.Actor != "ann\uFFFD[2J\uFFFDroot" || a.Commit != "\uFFFD" || a.URL != "" {
		t.Errorf("cleaned: %q", a)
	}
	if len(a.CI) > MaxText || !strings.HasSuffix(a.CI, "ü…") {
		t.Errorf("cut to %d bytes: %q", len(a.CI), a.CI)
	}
}

func TestBeginFallsBackToTheProcess(t *testing.T) {
	now := time.Date(2026, 1, 31, 3, 4, 5, 999, time.FixedZone("", 3600))
	e := Entry{Plan: "p"}.Begin("ann@here", "1.0", Who{Actor: " \t"}, now)
	if e.By != "ann@here" || e.Actor != "ann@here" || e.Plan != "p" ||
		!e.Started.Equal(time.Date(2026, 1, 31, 2, 4, 5, 0, time.UTC)) {
		t.Errorf("%+v", e)
	}
	if e = (Entry{}).Begin("ann@here", "1.0", Who{Actor: "bob"}, now); e.Actor != "bob" || e.Check() != nil {
		t.Errorf("%+v: %v", e, e.Check())
	}
}

// TestChangesAreBounded: names come first, whole; then fields, of which a long value is cut; and what has no room is
// counted.
func TestChangesAreBounded(t *testing.T) {
	many := func(n int, path string, fields ...resource.Change) []Change {
		return slices.Repeat([]Change{{Action: "update", Path: path, Fields: fields}}, n)
	}
	value := func(n int) *string { return new(strings.Repeat("v", n)) }
	short, long := resource.Change{Name: "f", New: value(1)}, resource.Change{Name: "f", Old: value(999), New: value(999)}
	for _, c := range []struct {
		name                          string
		given                         []Change
		names, more, fields, noFields int
	}{
		{"all of few", many(3, "/r", short), 3, 0, 3, 0},
		{"a hundred at most", many(150, "/r", short), 100, 50, 100, 0},
		{"two hundred fields", many(80, "/r", short, short, short), 80, 0, 200, 40},
		{"long names", many(9, "/"+strings.Repeat("r", 7000), short), 2, 7, 2, 0},
		{"long values", many(80, "/r", long), 80, 0, 31, 49},
		{"a name too long", append(many(1, "/"+strings.Repeat("r", 17_000)), many(1, "/a")...), 0, 2, 0, 0},
	} {
		var e Entry
		e.SetChanges(c.given)
		fields, noFields := 0, 0
		for _, one := range e.Changes {
			fields, noFields = fields+len(one.Fields), noFields+one.MoreFields
		}
		if len(e.Changes) != c.names || e.More != c.more || fields != c.fields || noFields != c.noFields {
			t.Errorf("%s: %d names and %d more, %d fields and %d more", c.name, len(e.Changes), e.More, fields, noFields)
		}
	}
	if len(*long.Old) != 999 {
		t.Error("what was given was cut")
	}
}
