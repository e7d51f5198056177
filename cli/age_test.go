package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/plan"
	"muster/plan/planfile"
	"muster/resource"
	"muster/resource/job"
)

// TestPlanIsRefusedByItsDate: apply checks the date before it connects. A plan from the future would pass every
// --max-age. A plan without an ensemble's id is refused, too, unless it names the servers that it was made from.
func TestPlanIsRefusedByItsDate(t *testing.T) {
	t.Parallel()
	here := []string{refusingAddr}
	for name, c := range map[string]struct {
		age     time.Duration
		servers []string
		code    int
		stderr  string
	}{
		"old":        {25 * time.Hour, here, 5, "the plan is 25h"},
		"future":     {-6 * time.Minute, here, 5, "in the future: the clock here or there is wrong; nothing was written"},
		"far_future": {-290 * 365 * 24 * time.Hour, here, 5, "in the future"},
		"clock_skew": {-4 * time.Minute, here, 8, "connection refused"},
		"no_servers": {0, nil, 5, "it does not say which servers it was made from; nothing was written"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file, err := planfile.Encode([]resource.Kind{job.Kind()}, planfile.Saved{
				Created: time.Now().Add(-c.age), Servers: c.servers, Plan: plan.Plan{ID: "p1", Stack: "tests"},
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
