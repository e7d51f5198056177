package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/job"
	"muster/plan"
	"muster/planfile"
	"muster/resource"
)

// TestPlanIsRefusedByItsDate: apply checks the date before it connects. A plan from the future would pass every
// --max-age.
func TestPlanIsRefusedByItsDate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		age    time.Duration
		code   int
		stderr string
	}{
		"old":        {25 * time.Hour, 5, "the plan is 25h"},
		"future":     {-6 * time.Minute, 5, "in the future: the clock here or there is wrong; nothing was written"},
		"far_future": {-290 * 365 * 24 * time.Hour, 5, "in the future"},
		"clock_skew": {-4 * time.Minute, 8, "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, err := planfile.Encode([]resource.Kind{job.Kind()}, planfile.Saved{
				Created: time.Now().Add(-c.age), Servers: []string{refusingAddr}, Plan: plan.Plan{ID: "p1", Stack: "tests"},
			})
			if err != nil {
				t.Fatal(err)
			}
			at := filepath.Join(t.TempDir(), "plan.json")
			if err := os.WriteFile(at, file, 0o644); err != nil {
				t.Fatal(err)
			}
			got := run(t, []string{"MUSTER_SERVERS=" + refusingAddr}, "apply", at)
			if got.code != c.code || !strings.Contains(got.stderr, c.stderr) {
				t.Errorf("got %+v, want code %d and %q", got, c.code, c.stderr)
			}
		})
	}
}
