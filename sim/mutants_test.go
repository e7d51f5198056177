package sim

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"muster/zkstate/zkconn"
)

// guarded makes a transaction with two guards. Only the version of /y matters.
func guarded(w *World) {
	for _, name := range []string{"p", "q"} {
		w.Process(name, 0, InSession(time.Minute, func(p *Process, s *zkconn.Session) error {
			s.Multi(p.Context(),
				zkconn.CreateOp("/x", nil, zkconn.Persistent, open), zkconn.CreateOp("/y", nil, zkconn.Persistent, open))
			_, err := s.Multi(p.Context(), zkconn.CheckOp("/x", 0), zkconn.SetOp("/y", []byte(name), 0))
			if err != nil {
				return nil
			}
			data, _, err := s.Get(p.Context(), "/y")
			if err == nil && string(data) != name {
				return fmt.Errorf("%s was overwritten", name)
			}
			return err
		}))
	}
}

// mutate runs Mutants on a table and returns what it complains about, and the table afterwards.
func mutate(t *testing.T, text string, rewrite bool) (complaints, after string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "guards.txt")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	table, err := readTable(file)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	m := &mutants{
		t: t, file: file, table: table, guards: regexp.MustCompile(""), update: rewrite, limit: 50,
		worlds: []Named{{Name: "guarded", Options: Options{Seeds: 20}, World: guarded}},
		errorf: func(format string, args ...any) { fmt.Fprintf(&all, format+"\n", args...) },
	}
	m.collect()
	m.each(m.run)
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return all.String(), strings.TrimPrefix(string(written), tableHead)
}

func TestMutantsTable(t *testing.T) {
	const kind = "\ncheck /x@v, set /y@v\n"
	complaints, table := mutate(t, "", true)
	if complaints != "" || !strings.HasPrefix(table, kind+"\tcheck /x@v | - | \n\tset /y@v | guarded | ") {
		t.Errorf("%s%s", complaints, table)
	}
	if _, after := mutate(t, table+"\nset /gone@v\n\tset /gone@v | - | \n", true); after != table {
		t.Errorf("%s\nis not\n%s", after, table)
	}
	// A guard that is still looked for is found, or stays so.
	_, after := mutate(t, kind+"\tcheck /x@v | - | ?\n\tset /y@v | - | ?\n", true)
	if !strings.HasPrefix(after, kind+"\tcheck /x@v | - | ?\n\tset /y@v | guarded | ") {
		t.Errorf("looked for:\n%s", after)
	}
	for name, c := range map[string]struct{ table, complaint string }{
		"complete":       {kind + "\tcheck /x@v | - | for fun\n\tset /y@v | guarded | 1\n", ""},
		"missing":        {kind + "\tset /y@v | guarded | 1\n", "a guard is missing"},
		"looked for":     {kind + "\tcheck /x@v | - | ?\n\tset /y@v | - | ?\n", ""},
		"without reason": {kind + "\tcheck /x@v | - | \n\tset /y@v | guarded | 1\n", "no world fails without a guard"},
		"not caught":     {kind + "\tcheck /x@v | guarded | 1\n\tset /y@v | guarded | 1\n", "world guarded no longer fails"},
		"no such world":  {kind + "\tcheck /x@v | - | x\n\tset /y@v | lost | 1\n", "world lost no longer fails"},
	} {
		complaints, _ := mutate(t, c.table, false)
		if (complaints == "") != (c.complaint == "") || !strings.Contains(complaints, c.complaint) {
			t.Errorf("%s: %q", name, complaints)
		}
	}
}

func TestAGuardStandsForWiderTransactions(t *testing.T) {
	narrow := guard{"check /x@v, set /y@v", "check /x@v"}
	for _, c := range []struct {
		a, b   guard
		covers bool
	}{
		{narrow, narrow, true},
		{narrow, guard{"create /z, set /y@v, check /x@v", "check /x@v"}, true},
		{narrow, guard{"create /z, set /y@v, check /x@v", "set /y@v"}, false},
		{narrow, guard{"create /z, check /x@v", "check /x@v"}, false},
		{guard{"create /z, set /y@v, check /x@v", "check /x@v"}, narrow, false},
		{guard{"check /x@v", "check /x@v"}, narrow, false}, // it only checks
	} {
		if got := c.a.covers(c.b); got != c.covers {
			t.Errorf("%v covers %v: %v", c.a, c.b, got)
		}
	}
}

// A row that stands for another takes what was found for it.
func TestRowsOfWiderTransactionsAreMerged(t *testing.T) {
	wide := "\ncheck /x@v, create /z, set /y@v\n\tcheck /x@v | - | why\n\tset /y@v | guarded | 1\n"
	_, after := mutate(t, wide+"\ncheck /x@v, set /y@v\n\tcheck /x@v | - | for fun\n\tset /y@v | - | ?\n", true)
	if !strings.HasPrefix(after, "\ncheck /x@v, set /y@v\n\tcheck /x@v | - | for fun\n\tset /y@v | guarded | ") {
		t.Error(after)
	}
}

// A guard that only luck shows does not fail a test.
func TestARareGuardIsNotMissing(t *testing.T) {
	var complaints []string
	m := &mutants{t: t, errorf: func(format string, _ ...any) { complaints = append(complaints, format) }}
	m.where = map[guard][]Named{}
	for n := range newFrom + 1 {
		m.saw(guard{"set /y@v", "set /y@v"}, Named{Name: "w"}, n)
	}
	if len(complaints) != 1 {
		t.Errorf("%d complaints", len(complaints))
	}
}

func TestMutantsAreCounted(t *testing.T) {
	counted := table{{world: "w"}, {world: "w"}, {world: "w", gone: true}, {reason: "why"}, {reason: notYet}, {}}.count()
	const want = "5 guards: 2 that a world needs, 1 that stay for another reason, 2 still looked for (?)"
	if counted != want {
		t.Errorf("%s, want %s", counted, want)
	}
}
