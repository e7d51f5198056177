package zkstate_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"muster/plan"
	"muster/resource/job"
)

// snapshot lists every znode below path with the transaction that last wrote it.
func (f *fixture) snapshot(path string) []string {
	f.t.Helper()
	var all []string
	for _, name := range f.tree(path) {
		stat, _, err := f.session.Exists(f.t.Context(), path+"/"+name)
		if err != nil {
			f.t.Fatal(err)
		}
		all = append(all, fmt.Sprintf("%s written by %x", name, stat.Mzxid))
	}
	return all
}

// row is the row of one job in a plan.
func (f *fixture) row(name string, declared []job.Job) plan.Row {
	f.t.Helper()
	for _, r := range f.plan(declared...).Rows {
		if strings.HasSuffix(r.Path, "/"+name) {
			return r
		}
	}
	f.t.Fatalf("no row for %s", name)
	return plan.Row{}
}

// TestRowWithTwoPathsIsRefused: a row that observed one job and declares another changes neither.
func TestRowWithTwoPathsIsRefused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.apply(f.declare("a", 2), f.declare("other", 2))
	row := f.row("a", []job.Job{f.declare("a", 3)})
	row.New = f.declare("other", 3)
	before := f.snapshot(f.root)
	if err := f.store.Commit(t.Context(), row); err == nil {
		t.Error("it was committed")
	}
	if d := cmp.Diff(before, f.snapshot(f.root)); d != "" {
		t.Errorf("it wrote (-before +after):\n%s", d)
	}
}

// TestRowChangesOnlyItsPath: a Record of another job in a row, as in an edited plan file, does not change that job.
func TestRowChangesOnlyItsPath(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	other := f.declare("other", 2)
	f.apply(f.declare("a", 2), other)
	row := f.row("a", nil)
	if err := row.Old.Record.Declare(other); err != nil {
		t.Fatal(err)
	}
	if err := f.store.Commit(t.Context(), row); err != nil {
		t.Error(err)
	}
	f.expect(map[string]plan.Reason{"other": plan.Equal}, other)
}
