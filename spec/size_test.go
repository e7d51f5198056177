package spec_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/spec"
)

// TestManyFindings: a text that is wrong in every line has as many findings as somebody may read, and says how many
// more.
func TestManyFindings(t *testing.T) {
	ds := findings(t, "x.hcl", strings.Repeat("a {}\n", 120_000), patient())
	if len(ds) != 1001 || ds[1000].Code != "M1005" || ds[1000].Summary != "there are 119000 more findings" {
		t.Errorf("%d findings, the last %+v", len(ds), ds[len(ds)-1])
	}
}

// TestSetsOfMany: to make a set or a list of many texts takes about as long as to make a map of them: no element is
// compared with each. The limit is a share of what comparing takes, on this machine and at this time.
func TestSetsOfMany(t *testing.T) {
	var list, mixed, objects, keys strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&list, "\"h%d\", ", i)
		fmt.Fprintf(&mixed, "\"h%d\", %d, ", i, i)
		fmt.Fprintf(&objects, "{ a = %d }, ", i)
		fmt.Fprintf(&keys, "h%d = 1, ", i)
	}
	cost := func(expr string) time.Duration {
		before := used(t)
		if ds := findings(t, "x.hcl", local(expr), patient()); len(ds) != 0 {
			t.Errorf("%.100s: %v", expr, first(ds))
		}
		return used(t) - before
	}
	limit := 16 * cost("{"+keys.String()+"}")
	for name, expr := range map[string]string{
		"toset":          "toset([" + list.String() + "])",
		"tolist":         "tolist([" + list.String() + "])",
		"toset_mixed":    "toset([" + mixed.String() + "])",
		"tolist_objects": "tolist([" + objects.String() + "])",
		"distinct":       "distinct([" + list.String() + "])",
	} {
		if took := cost(expr); took > limit {
			t.Errorf("%s takes %s; 16 times a map takes %s", name, took, limit)
		}
	}
}

// used is how much processor time this process has taken.
func used(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestCollections: what is made at once is what the library makes.
func TestCollections(t *testing.T) {
	for expr, want := range map[string]string{
		`jsonencode(tolist(["b", "a", "b"]))`:           `["b","a","b"]`,
		`jsonencode(toset(["b", "a", "b"]))`:            `["a","b"]`,
		`jsonencode(tolist([1, "a", true]))`:            `["1","a","true"]`,
		`jsonencode(toset([{ a = 1 }, { a = 1 }]))`:     `[{"a":1}]`,
		`jsonencode(tolist([{ a = 1 }, { a = "" }]))`:   `[{"a":"1"},{"a":""}]`,
		`jsonencode(tolist(["a", null]))`:               `["a",null]`,
		`jsonencode(distinct(["b", "a", "b", "a"]))`:    `["b","a"]`,
		`jsonencode(distinct([1, "1", 2]))`:             `["1","2"]`,
		`jsonencode(distinct([]))`:                      `[]`,
		`jsonencode(distinct(tolist([[1], [2], [1]])))`: `[[1],[2]]`,
		`jsonencode(distinct([null, "a", null]))`:       `[null,"a"]`,
	} {
		c := load(t, map[string]string{"a.hcl": one + "job \"b\" {\n  workers = 1\n  labels  = { x = " + expr + " }\n}\n"},
			spec.Options{})
		if got := c.Jobs[1].Labels["x"]; got != want {
			t.Errorf("%s is %s, want %s", expr, got, want)
		}
	}
}
