package tasks

import (
	"errors"
	"fmt"
	"time"

	"muster/resource"
	"muster/resource/queue"
	"muster/zkstate/znode"
)

// SubmitConfig says what is submitted to which queue.
type SubmitConfig struct {
	Root, Queue string
	ID          string        // "": one is chosen, which grows with the time
	Weight      int           // of its share, up to queue.MaxWeight; 0 is 1
	Results     queue.Results // "": of a new batch, queue.ResultsWatcher
	Attempts    int           // 0: the queue's
	TaskTimeout time.Duration // 0: the queue's
	By          string        // user@host
	Redis       Access
	// Waiting, unless nil, is called when Submit begins to wait: for what.
	Waiting func(what string)
	// Progress, unless nil, is called when tasks were written: how many of how many are there.
	Progress func(written, tasks int64)
}

// The errors of Submit, besides those of Join, of the session, and of package store. Nothing was written, except after
// the last two.
var (
	// ErrNoTasks means that there is nothing to submit.
	ErrNoTasks = errors.New("a batch needs at least one task")
	// ErrTooLarge means that a task, all tasks, or their number are beyond a limit. Submit smaller ones, or parts.
	ErrTooLarge = errors.New("too large")
	// ErrManyBatches means that the queue has as many unfinished batches as it may. Find out why they do not end.
	ErrManyBatches = errors.New("too many unfinished batches")
	// ErrOtherBatch means that another batch has this id, or had it lately. Use another id.
	ErrOtherBatch = errors.New("another batch has this id")
	// ErrChanged means that the source yielded other tasks than before. The batch was ended. Submit what stays the same.
	ErrChanged = errors.New("the tasks changed while they were read")
	// ErrCancelled means that somebody cancelled the batch.
	ErrCancelled = errors.New("the batch was cancelled")
)

// LargeTask says which task is too large. It is an ErrTooLarge.
type LargeTask struct {
	Index int64
	Most  resource.Size // the queue's max_task
}

func (e *LargeTask) Error() string {
	return fmt.Sprintf("task %d is larger than the queue's max_task, %s", e.Index, e.Most)
}

// Unwrap returns ErrTooLarge.
func (e *LargeTask) Unwrap() error { return ErrTooLarge }

// Submitted is a batch as Submit left it.
type Submitted struct {
	ID         string
	Generation string
	Queue      queue.Queue // as it is declared
	Manifest   Manifest    // as it was last seen; without a Life: there is none
	Found      bool        // another Submit has made the manifest
	// Ended says how the batch has ended; nil: it has not.
	Ended *znode.BatchEnd
}
