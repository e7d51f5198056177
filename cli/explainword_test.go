package cli_test

import (
	"strconv"
	"strings"
	"testing"

	"muster/exitcode"
	"muster/plan"
	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/resource/queue"
	"muster/view"
	"muster/zkstate/znode"
)

// TestEveryStateIsExplained: every word that is printed as a state has a section, without a server or a configuration.
func TestEveryStateIsExplained(t *testing.T) {
	var words []string
	for _, k := range []resource.Kind{job.Kind(), group.Kind(), queue.Kind()} {
		for _, s := range k.Statuses {
			words = append(words, string(s))
		}
	}
	for _, k := range plan.DriftKinds() {
		words = append(words, string(k))
	}
	for _, a := range plan.Actions() {
		words = append(words, string(a))
	}
	for _, s := range []view.WorkerState{view.Live, view.Completed, view.Left, view.Lost} {
		words = append(words, string(s))
	}
	for _, s := range []znode.BatchState{
		znode.BatchSubmitting, znode.BatchOpen, znode.BatchPaused, znode.BatchCancelled, "completed", "lost", "broken",
	} {
		words = append(words, string(s))
	}
	for _, s := range []znode.EndState{
		znode.EndCollected, znode.EndDiscarded, znode.EndCancelled, znode.EndUnattended,
	} {
		words = append(words, string(s))
	}
	for _, s := range []znode.TickState{
		znode.TickAsked, znode.TickWaiting, znode.TickRunning, znode.TickDone, znode.TickFailed, znode.TickLost,
		znode.TickMissed, znode.TickSkipped,
	} {
		words = append(words, string(s))
	}
	for _, word := range words {
		got := run(t, []string{"MUSTER_SERVERS=" + refusingAddr}, "explain", word)
		if got.code != 0 || !strings.HasPrefix(got.stdout, "# "+word+"\n") || len(got.stdout) < len(word)+40 {
			t.Errorf("explain %q: %+v", word, got)
		}
	}
	expect(t, run(t, nil, "explain", "stale"), 0, "`muster apply` replaces it")
}

// TestEveryExitCodeIsExplained: with its meaning and what to do. What is not in the table is a command's own code.
func TestEveryExitCodeIsExplained(t *testing.T) {
	for _, row := range exitcode.Table() {
		for _, code := range row.Codes {
			got := run(t, []string{"MUSTER_SERVERS=" + refusingAddr}, "explain", strconv.Itoa(code))
			flat := strings.ReplaceAll(got.stdout, "\n", " ")
			if got.code != 0 || !strings.Contains(flat, row.Meaning) || !strings.Contains(flat, row.Remedy) {
				t.Errorf("explain %d: %+v", code, got)
			}
			for line := range strings.Lines(got.stdout) {
				if len(line) > 81 && !strings.HasPrefix(line, "# ") {
					t.Errorf("explain %d: a line is wider than 80 columns: %s", code, line)
				}
			}
		}
	}
	expect(t, run(t, nil, "explain", "71"), 0, "# Exit code 71: a barrier was aborted\n", "## What to do\n", "--retry")
	expect(t, run(t, nil, "explain", "137"), 0, "# Exit code 137: ended by a signal: 9, SIGKILL\n")
	expect(t, run(t, nil, "explain", "42"), 0, "It is none of muster's")
	expect(t, run(t, nil, "explain", "200"), 0, "It is none of muster's")
	expect(t, run(t, nil, "explain", "256", "--servers", refusingAddr), exitcode.Unreachable)
}
