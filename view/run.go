package view

import (
	"fmt"
	"strings"
)

// Failed reports whether a run has failed, or its last attempt that ended.
func (r Run) Failed() bool { return r.State == "failed" || r.Exit != nil && *r.Exit != 0 }

// Summary says in a line what became of a run: "2026-07-01T02:00Z failed, exit 3, took 2s, attempt 2: timeout".
func (r Run) Summary() string {
	all := []string{r.Title() + " " + r.StateText()}
	if r.Exit != nil {
		all = append(all, "exit "+r.ExitText())
	}
	if r.Started != nil && r.Ended != nil {
		all = append(all, "took "+r.Took())
	}
	if r.Attempt > 1 {
		all = append(all, fmt.Sprintf("attempt %d", r.Attempt))
	}
	return strings.Join(all, ", ") + because(r.Because)
}
