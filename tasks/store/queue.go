package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// Limits of one call, each way. The last item may go over MaxBytes.
const (
	MaxItems = 1000
	MaxBytes = 1 << 20
)

// itemCost is what an item counts for beside its bytes.
const itemCost = 32

// Cost is what a task counts for in the queue's bytes.
func Cost(task []byte) int64 { return int64(len(task)) + itemCost }

// Queue is one life of a queue in Redis. Its methods may be called concurrently; a seat has one call in flight.
type Queue struct {
	client  *redis.Client
	scripts scripts
	prefix  string
	id      string
}

// New is the queue with this id whose keys begin with muster:{generation}:. The caller closes the client.
func New(client *redis.Client, generation, id string) *Queue {
	return &Queue{client, standard(), "muster:{" + generation + "}:", id}
}

// call runs a script once. A Refusal changed nothing; after any other error the outcome is unknown.
func (q *Queue) call(ctx context.Context, script string, args ...any) (any, error) {
	reply, err := q.scripts[script].Run(ctx, q.client, []string{q.prefix + "q"}, args...).Result()
	if r := refusal(err); r != nil {
		err = r
	}
	return reply, q.failed(script, err)
}

// failed is an error of a call; nil if err is.
func (q *Queue) failed(call string, err error) error {
	if err == nil {
		return nil
	}
	if err = strange(err); errors.Is(err, ErrReply) {
		return fmt.Errorf("redis at %s: %s: %w", q.client.Options().Addr, call, err)
	}
	return fmt.Errorf("redis: %s: %w", call, err)
}

// count runs a script whose answer is a number.
func (q *Queue) count(ctx context.Context, script string, args ...any) (int64, error) {
	reply, err := q.call(ctx, script, args...)
	if err != nil {
		return 0, err
	}
	var s shape
	n := s.count(reply)
	return n, q.failed(script, s.err)
}

// Role is what a seat does: it executes or it watches.
type Role string

// The roles.
const (
	Executor Role = "e"
	Watcher  Role = "w"
)

// Hello lets a seat in whose znode stands. slots is how many commands an executor runs at once. A repeat changes
// nothing. It returns the seat's last seq. ErrNoSeat: the seat was shut for ever.
func (q *Queue) Hello(ctx context.Context, seat string, role Role, slots int) (seq int64, err error) {
	return q.count(ctx, "hello", seat, q.id, string(role), slots)
}

// End is how processes came to their end.
type End int

// The ends.
const (
	Left End = iota // nothing follows for what they hold
	Died            // each task in their hands has one more death; see docs/queues.md for what follows
)

// Evict shuts seats, at most MaxItems, and gives back one page of what they hold. Those that died at the same time go
// in one call: it decides whether suspects are charged. Call it again while more is true. damaged are seats that cannot
// be read.
func (q *Queue) Evict(ctx context.Context, how End, seats ...string) (more bool, damaged []string, err error) {
	args := []any{int(how)}
	for _, s := range seats {
		args = append(args, s)
	}
	reply, err := q.call(ctx, "evict", args...)
	if err != nil {
		return false, nil, err
	}
	var shaped shape
	l := shaped.list(reply, 1, 1+len(seats))
	more = shaped.number(l[0], 0, 1) == 1
	for _, name := range l[1:] {
		damaged = append(damaged, shaped.text(name, maxText))
	}
	return more && shaped.err == nil, damaged, q.failed("evict", shaped.err)
}

// NewBatch is what Begin tells of a batch.
type NewBatch struct {
	ID       string
	Life     string // of its manifest; never used again for this ID
	Weight   int    // 1 to 1,000
	Attempts int    // of a task, and of a watcher
	Results  string // "watcher": watchers may claim it
	Bytes    int64  // the sum of its tasks' Cost; set aside until Open knows it
}

// Begin puts a batch among the queue's batches. ErrFull: the queue holds something, and with the batch would hold more
// than maxBytes. A repeat changes nothing.
func (q *Queue) Begin(ctx context.Context, b NewBatch, maxBytes int64) (begun bool, err error) {
	n, err := q.count(ctx, "begin", b.ID, q.id, b.Life, b.Weight, b.Attempts, b.Results, b.Bytes, maxBytes)
	return n == 1, err
}

// Append adds tasks to a batch that is being submitted, at an offset, and returns the batch's length. It changes
// nothing if the tasks are there. ErrOffset: the batch is shorter, or it ends among the tasks.
func (q *Queue) Append(ctx context.Context, batch, life string, at int64, tasks [][]byte) (length int64, err error) {
	args := make([]any, 0, 3+len(tasks))
	args = append(args, batch, life, at)
	for _, t := range tasks {
		args = append(args, t)
	}
	return q.count(ctx, "append", args...)
}

// Open makes a batch runnable that has exactly count tasks. It returns false if it was open.
func (q *Queue) Open(ctx context.Context, batch, life string, count int64) (opened bool, err error) {
	n, err := q.count(ctx, "open", batch, life, count)
	return n == 1, err
}

// Set changes the weight and state (open, paused, cancelled) of a batch, unless a version at least as new was set. The
// version is that of the manifest.
func (q *Queue) Set(ctx context.Context, batch, life string, version int64, weight int, state string) (bool, error) {
	n, err := q.count(ctx, "set", batch, life, version, weight, state)
	return n == 1, err
}

// Retry makes up to n dead tasks of a batch wait again, with all their attempts, that died before a time of Redis. It
// also lets watchers claim a batch again that they failed at.
func (q *Queue) Retry(ctx context.Context, batch, life string, n int, before time.Time) (int64, error) {
	return q.count(ctx, "retry", batch, n, before.UnixMilli(), batch, life, 0)
}

// RetryAs appends up to n dead tasks of a batch to another one that is being submitted, at an offset. A repeat moves
// nothing.
func (q *Queue) RetryAs(ctx context.Context, batch, to, life string, at int64, n int, before time.Time) (int64, error) {
	return q.count(ctx, "retry", batch, n, before.UnixMilli(), to, life, at)
}

// Drop deletes up to n dead tasks of a batch that died before a time of Redis.
func (q *Queue) Drop(ctx context.Context, batch string, n int, before time.Time) (int64, error) {
	return q.count(ctx, "drop", batch, n, before.UnixMilli())
}

// Remove unlinks a batch in any state, except its dead tasks. life is "" for a batch that is broken. It returns false
// if there was no such batch.
func (q *Queue) Remove(ctx context.Context, batch, life string) (bool, error) {
	n, err := q.count(ctx, "remove", batch, life)
	return n == 1, err
}

func flag(on bool) int {
	if on {
		return 1
	}
	return 0
}
