package queue

import (
	"fmt"
	"strings"
	"time"

	"muster/resource"
)

// Limits of batches.
const (
	MaxBatchID = 64   // bytes
	MaxWeight  = 1000 // the least is 1
	MaxTasks   = 10_000_000

	// MaxKeep is the maximum time for which the results of a batch are kept.
	MaxKeep = 30 * 24 * time.Hour
)

// CheckBatchID says why id is not a valid id of a batch, or returns nil. It has the characters of every name, and at
// most 64 of them.
func CheckBatchID(id string) error { return resource.CheckShortName("batch", id, MaxBatchID) }

// Results says what becomes of the results of a batch: one of the constants, or KeepResults and a duration.
type Results string

// A watcher gets the results, or the submitter that waits for them, or nobody. KeepResults is followed by how long they
// are kept: "keep:24h".
const (
	ResultsWatcher   Results = "watcher"
	ResultsSubmitter Results = "submitter"
	ResultsDiscard   Results = "discard"
	KeepResults      Results = "keep:"
)

// Check says why r is not valid, or returns nil.
func (r Results) Check() error {
	switch r {
	case ResultsWatcher, ResultsSubmitter, ResultsDiscard:
		return nil
	}
	if _, ok := r.Keep(); !ok {
		return fmt.Errorf("%q is not what can become of results: write %s, %s, %s or keep:24h", string(r),
			ResultsWatcher, ResultsSubmitter, ResultsDiscard)
	}
	return nil
}

// Keep is for how long the results are kept, and whether they are.
func (r Results) Keep() (time.Duration, bool) {
	text, ok := strings.CutPrefix(string(r), string(KeepResults))
	if !ok {
		return 0, false
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 || d > MaxKeep {
		return 0, false
	}
	return d, true
}

// Role is what a process does in a queue.
type Role string

const (
	Executor Role = "executor"
	Watcher  Role = "watcher"
)
