package report_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/apply"
	"muster/plan"
	"muster/report"
)

// outcomes returns a plan of the sample's changes, and an outcome of each result for them.
func outcomes() (plan.Plan, []apply.Outcome) {
	p := sample()
	create, replace, remove := p.Rows[0], p.Rows[1], p.Rows[2]
	p.Rows = []plan.Row{create, replace, remove, create, remove, replace, create}
	return p, []apply.Outcome{
		{Row: create, Result: apply.Applied, Took: 12 * time.Millisecond},
		{Row: replace, Result: apply.Applied, Took: 12345 * time.Millisecond},
		{Row: remove, Result: apply.Refused,
			Err: fmt.Errorf("job %s: %w: a worker joined: 10.0.3.40:7000", remove.Path, plan.ErrMoved)},
		{Row: create, Result: apply.Failed, Err: errors.New("create /jobs/prod: no permission\x1b[2J")},
		{Row: remove, Result: apply.Unknown,
			Err: fmt.Errorf("job %s: %w: connection lost", remove.Path, plan.ErrUnknown)},
		{Row: replace, Result: apply.Waiting},
		{Row: create, Result: apply.NotStarted},
		{Row: create, Result: apply.AlreadyDone,
			Err: fmt.Errorf("job %s: %w: the job exists", create.Path, plan.ErrAlreadyDone)},
	}
}

func TestProgressLines(t *testing.T) {
	p, all := outcomes()
	got := text(t, func(b *strings.Builder) error {
		progress := report.NewProgress(b, p, report.Options{})
		for _, o := range all {
			if err := progress.Line(o); err != nil {
				return err
			}
		}
		return nil
	})
	want := `  [1/7] job.ingest["us"]         created       12 ms
  [2/7] job.nightly              replaced      12.3 s
  [3/7] /jobs/prod/tmp-backfill  REFUSED       a worker joined: 10.0.3.40:7000
  [4/7] job.ingest["us"]         FAILED        create /jobs/prod: no permission\x1b[2J
  [5/7] /jobs/prod/tmp-backfill  UNKNOWN       connection lost
  [6/7] job.nightly              waiting       stale, but not seen unchanged for 30s
  [7/7] job.ingest["us"]         not started
  [8/7] job.ingest["us"]         already done  the job exists
`
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("lines (-want +got):\n%s", d)
	}
}

func TestProgressReturnsTheWritersError(t *testing.T) {
	p, all := outcomes()
	progress := report.NewProgress(&fullDisk{60}, p, report.Options{})
	var err error
	for _, o := range all {
		err = progress.Line(o)
	}
	if !errors.Is(err, errFull) {
		t.Errorf("error = %v", err)
	}
}

func TestApplySummary(t *testing.T) {
	_, all := outcomes()
	got := text(t, func(b *strings.Builder) error { return report.ApplySummary(b, all, report.Options{}) })
	want := `  already done  job.ingest["us"]         nothing had to be created
  refused       /jobs/prod/tmp-backfill  nothing was deleted; plan again
  failed        job.ingest["us"]         nothing was created: create /jobs/prod:
                                         no permission\x1b[2J
  unknown       /jobs/prod/tmp-backfill  it may have been deleted; the next plan
                                         tells
  waiting       job.nightly              plan and apply again without --no-wait,
                                         which waits for it
  not started   job.ingest["us"]         plan and apply again
` + "Applied 2 of 8: 1 created, 1 replaced, 0 deleted, 0 updated; " +
		"1 already done, 1 refused, 1 failed, 1 unknown, 1 waiting, 1 not started.\n"
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("summary (-want +got):\n%s", d)
	}
}

func TestApplySummaryLeavesOutWhatDidNotHappen(t *testing.T) {
	_, all := outcomes()
	for n, want := range map[int]string{
		2: "Applied 2 of 2: 1 created, 1 replaced, 0 deleted, 0 updated.",
		3: "Applied 2 of 3: 1 created, 1 replaced, 0 deleted, 0 updated; 1 refused.",
	} {
		if got := report.ApplyCounts(all[:n]); got != want {
			t.Errorf("%d outcomes: %s, want %s", n, got, want)
		}
	}
}
