package report

import (
	"encoding/json"
	"io"
)

// BatchRow is one unfinished batch, as ZooKeeper and Redis have it. Its State is also "completed", "lost", "broken", or
// "stopped": it has tasks that wait, and nothing of the queue is executed, since Redis holds too much.
type BatchRow struct {
	Batch
	*BatchCounts
}

// BatchCounts is what only Redis knows of a batch; absent if it is not known.
type BatchCounts struct {
	Waiting  int64  `json:"waiting"` // for an executor, also after a failure
	InHand   int64  `json:"in_hand"`
	Done     int64  `json:"done"`
	Dead     int64  `json:"dead"`
	Attempts int    `json:"attempts"`          // of a task, and of a watcher
	Tries    int    `json:"tries,omitempty"`   // of watchers that failed
	Because  string `json:"because,omitempty"` // why the last of them did
	Watched  bool   `json:"watched,omitempty"` // a watcher has it
	Broken   string `json:"broken,omitempty"`  // keys in Redis do not fit
}

// BatchesJSON writes the batches of a queue as one JSON document.
func BatchesJSON(w io.Writer, rows []BatchRow) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(append([]BatchRow{}, rows...))
}
