package znode

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"muster/resource"
	"muster/resource/queue"
)

// The folders and the health of a queue. Its seats are those of a group: see Seats.
const (
	batchFolder  = "batch"
	endedFolder  = "ended"
	healthFolder = "health"
)

// QueueFolders lists the znodes that the first process of a queue, or the first submit, creates below the generation.
func QueueFolders() []string { return []string{"seat", batchFolder, endedFolder, healthFolder} }

// Batches is the folder of the unfinished batches. The delete of a queue deletes it, which fails if it has children: so
// a batch that is submitted meanwhile wins.
func Batches(root, g string) string { return resource.Join(Run(root, g), batchFolder) }

// Batch is one unfinished batch. Its body is a BatchManifest.
func Batch(root, g, id string) string { return resource.Join(Batches(root, g), id) }

// EndedDays is the folder of the batches that have ended, by day.
func EndedDays(root, g string) string { return resource.Join(Run(root, g), endedFolder) }

// EndedDay is the folder of the batches that ended on a day, in UTC.
func EndedDay(root, g string, day time.Time) string {
	return resource.Join(EndedDays(root, g), day.UTC().Format(time.DateOnly))
}

// ParseEndedDay reads the day from the name of its folder.
func ParseEndedDay(name string) (time.Time, error) { return time.Parse(time.DateOnly, name) }

// EndedBatch is a batch that ended on a day, in UTC. Its body is a BatchEnd.
func EndedBatch(root, g string, day time.Time, id string) string {
	return resource.Join(EndedDay(root, g, day), id)
}

// QueueHealth is what the process with the smallest seat has found to be amiss. Its body is a Health.
func QueueHealth(root, g string) string { return resource.Join(Run(root, g), healthFolder) }

// QueueProcess is the body of <root>/<queue>/<identity>, the ephemeral znode of a live process of a queue.
type QueueProcess struct {
	Nonce    string     `json:"nonce"` // random, of this process
	Role     queue.Role `json:"role"`  // a newer muster may know more roles
	Host     string     `json:"host,omitempty"`
	Parallel int        `json:"parallel,omitempty"` // tasks that an executor has at a time
}

// QueueSeat is the body of a seat of a queue. Redis names it by the hex czxid of its znode.
type QueueSeat struct {
	Identity string     `json:"identity"`
	Nonce    string     `json:"nonce"` // that of QueueProcess
	Role     queue.Role `json:"role"`
}

// BatchState is the state of an unfinished batch.
type BatchState string

// The states. Only what is open is executed. A batch that is completed stays open until it has ended: only Redis knows.
const (
	BatchSubmitting BatchState = "submitting" // its tasks are still being written to Redis
	BatchOpen       BatchState = "open"
	BatchPaused     BatchState = "paused"
	BatchCancelled  BatchState = "cancelled"
)

// BatchManifest is the body of an unfinished batch.
type BatchManifest struct {
	Tasks   int64         `json:"tasks"`   // how many
	Bytes   int64         `json:"bytes"`   // of all payloads
	SHA256  string        `json:"sha256"`  // in hex, of each payload as its length in decimal, a colon, and its bytes
	Weight  int           `json:"weight"`  // of its share; 1 to 1,000
	Results queue.Results `json:"results"` // what becomes of them
	By      string        `json:"by"`      // user@host
	Since   time.Time     `json:"since"`   // it was submitted
	State   BatchState    `json:"state"`

	// Completed is when the smallest seat saw that the batch was completed, by ZooKeeper's clock. It is noted only for
	// results that are kept for a time, or for their submitter.
	Completed time.Time `json:"completed,omitzero"`

	// Retrying is set while somebody makes dead tasks of the batch wait again: it is not ended meanwhile, unless it is
	// cancelled. The smallest seat unsets it when it has stood for long.
	Retrying bool `json:"retrying,omitempty"`

	// From is the batch that has ended whose dead tasks these are; empty: they were not in the queue before. They are
	// moved, so a batch of them that is being submitted is never given up.
	From string `json:"from,omitempty"`

	// What the batch has instead of the queue's; 0: the queue's.
	Attempts    int               `json:"attempts,omitempty"`
	TaskTimeout resource.Duration `json:"task_timeout,omitempty"`
}

// BatchEnd is the body of a batch that has ended.
type BatchEnd struct {
	BatchManifest           // as it was last
	How           EndState  `json:"how"`
	Done          int64     `json:"done"` // tasks with a result
	Dead          int64     `json:"dead"` // tasks that failed for good
	EndedBy       string    `json:"ended_by"`
	Ended         time.Time `json:"ended"`
}

// EndState says how a batch ended.
type EndState string

// Its results were collected, nobody wants them, it was cancelled, or nobody came for it in time.
const (
	EndCollected  EndState = "collected"
	EndDiscarded  EndState = "discarded"
	EndCancelled  EndState = "cancelled"
	EndUnattended EndState = "unattended"
)

// Health is what the process with the smallest seat has found to be amiss. It means nothing once that seat is gone.
type Health struct {
	Seat      string   `json:"seat"`                // name of the seat of who found it
	Completed int      `json:"completed,omitempty"` // batches that are completed, and whose results wait for a watcher
	Lost      []string `json:"lost,omitempty"`      // batches that Redis does not have, sorted; at most MaxHealth
	MoreLost  int      `json:"more_lost,omitempty"` // how many of these are not in the list
	Failed    []string `json:"failed,omitempty"`    // completed batches that no watcher gets, sorted; at most MaxHealth
	Redis     string   `json:"redis,omitempty"`     // why Redis refuses, for people; empty: it does not
	Full      int64    `json:"full,omitempty"`      // bytes in Redis, if these are more than twice max_bytes; else 0
}

// MaxHealth is how many batches Health names of each kind.
const MaxHealth = 100

// maxBy and maxRefusal are in bytes.
const (
	maxBy      = 300
	maxRefusal = 1000
)

func (p QueueProcess) check() error {
	if p.Parallel < 0 {
		return fmt.Errorf("parallel: %d is negative", p.Parallel)
	}
	return required("nonce", p.Nonce, "role", string(p.Role))
}

func (s QueueSeat) check() error {
	return required("identity", s.Identity, "nonce", s.Nonce, "role", string(s.Role))
}

func (b *BatchManifest) check() error {
	b.Since, b.Completed = b.Since.UTC(), b.Completed.UTC()
	sum, err := hex.DecodeString(b.SHA256)
	switch {
	case b.Tasks < 1:
		return fmt.Errorf("tasks: %d is less than 1", b.Tasks)
	case b.Bytes < 0:
		return fmt.Errorf("bytes: %d is negative", b.Bytes)
	case err != nil || len(sum) != 32:
		return fmt.Errorf("sha256: %q is not one", b.SHA256)
	case b.Weight < 1 || b.Weight > queue.MaxWeight:
		return fmt.Errorf("weight: %d is not between 1 and %d", b.Weight, queue.MaxWeight)
	case b.Attempts < 0 || b.TaskTimeout < 0:
		return fmt.Errorf("attempts or task_timeout: %d or %s is negative", b.Attempts, b.TaskTimeout)
	case len(b.By) > maxBy:
		return fmt.Errorf("by: %d bytes are more than the %d allowed", len(b.By), maxBy)
	case b.Since.IsZero():
		return fmt.Errorf("it has no since")
	case !slices.Contains([]BatchState{BatchSubmitting, BatchOpen, BatchPaused, BatchCancelled}, b.State):
		return fmt.Errorf("state: %q is not known", b.State)
	}
	return cmp.Or(resource.InField("results", b.Results.Check()), required("by", b.By))
}

func (b *BatchEnd) check() error {
	b.Ended = b.Ended.UTC()
	switch {
	case !slices.Contains([]EndState{EndCollected, EndDiscarded, EndCancelled, EndUnattended}, b.How):
		return fmt.Errorf("how: %q is not known", b.How)
	case b.Done < 0 || b.Dead < 0 || b.Done+b.Dead > b.Tasks:
		return fmt.Errorf("%d done and %d dead of %d tasks do not fit together", b.Done, b.Dead, b.Tasks)
	case b.Ended.IsZero():
		return fmt.Errorf("it has no ended")
	}
	return b.BatchManifest.check()
}

func (h Health) check() error {
	switch {
	case h.Completed < 0 || h.MoreLost < 0 || h.Full < 0:
		return fmt.Errorf("completed, more_lost or full: %d, %d or %d is negative", h.Completed, h.MoreLost, h.Full)
	case len(h.Lost) > MaxHealth || len(h.Failed) > MaxHealth:
		return fmt.Errorf("lost or failed: %d or %d are more than the %d allowed", len(h.Lost), len(h.Failed), MaxHealth)
	case len(h.Redis) > maxRefusal:
		return fmt.Errorf("redis: %d bytes are more than the %d allowed", len(h.Redis), maxRefusal)
	}
	_, err := SeatNumber(h.Seat)
	return cmp.Or(resource.InField("seat", err), checkSorted("failed", h.Failed), checkSorted("lost", h.Lost))
}
