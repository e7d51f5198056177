package history

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
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

// TestNamesAreBounded: those that are deleted come first, whole, and the others are counted.
func TestNamesAreBounded(t *testing.T) {
	many := func(prefix string, n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprint(prefix, i))
		}
		return all
	}
	for _, c := range []struct {
		name                   string
		replaced, deleted      []string
		wantRep, wantDel, more int
	}{
		{"all of few", many("/r", 3), many("/d", 2), 3, 2, 0},
		{"a hundred at most", many("/r", 80), many("/d", 70), 30, 70, 50},
		{"deleted ones come first", many("/r", 8), many("/d", 150), 0, 100, 58},
		{"long names", many("/"+strings.Repeat("r", 3000), 2), nil, 1, 0, 1},
		{"a name too long", []string{"/" + strings.Repeat("r", 6000), "/a"}, []string{"/d"}, 0, 1, 2},
	} {
		var e Entry
		e.SetNames(c.replaced, c.deleted)
		if len(e.Replaced) != c.wantRep || len(e.Deleted) != c.wantDel || e.More != c.more {
			t.Errorf("%s: %d replaced, %d deleted, %d more", c.name, len(e.Replaced), len(e.Deleted), e.More)
		}
		if !slices.Equal(e.Deleted, c.deleted[:len(e.Deleted)]) {
			t.Errorf("%s: deleted %q", c.name, e.Deleted)
		}
	}
}
