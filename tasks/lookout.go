package tasks

import (
	"context"

	"github.com/redis/go-redis/v9"

	"muster/resource"
	"muster/resource/queue"
	"muster/tasks/store"
)

// Lookout reads what Redis holds of a queue, for who looks at it. It changes nothing, there or in ZooKeeper, needs no
// session, and does not wait: an error of Redis is returned.
type Lookout struct {
	client   *redis.Client
	st       *store.Queue
	maxBytes int64
}

// NewLookout connects to the Redis of the queue that has this Record. Close it at the end.
func NewLookout(ctx context.Context, rec *resource.Record, a Access) (*Lookout, error) {
	q := queue.Of(rec)
	client, err := a.connect(ctx, q)
	if err != nil {
		return nil, err
	}
	return &Lookout{client, open(client, q, rec.Generation), int64(q.MaxBytes)}, nil
}

// Close closes the connection.
func (l *Lookout) Close() { _ = l.client.Close() }

// Full is that of store.Queue.
func (l *Lookout) Full(ctx context.Context) (held int64, err error) {
	return l.st.Full(ctx, l.maxBytes)
}

// Batches reads the books of all unfinished batches, by id.
func (l *Lookout) Batches(ctx context.Context) (map[string]store.Batch, error) {
	return l.st.AllBatches(ctx)
}

// Hands counts the tasks in the hands of these seats, by seat and batch.
func (l *Lookout) Hands(ctx context.Context, seats []string) (map[string]map[string]int, error) {
	return l.st.Hands(ctx, seats)
}

// Dead reads the dead tasks of a batch, the oldest first, without the first skip ones: at most store.MaxItems. A Reason
// is what DecodeAnswer decodes.
func (l *Lookout) Dead(ctx context.Context, batch string, skip int64) ([]store.DeadTask, error) {
	return l.st.DeadTasks(ctx, batch, skip)
}
