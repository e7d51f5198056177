package tasks

import (
	"context"
	"errors"
	"time"
)

// Load is how much work a queue has.
type Load struct {
	Batches  int           // with keys in Redis
	Waiting  int64         // tasks that nobody has
	Hand     int64         // tasks that executors have
	Done     int64         // of these batches
	Dead     int64         // of these batches
	Attempts int64         // at tasks that have ended, of all batches ever
	Bytes    int64         // that Redis holds of the queue
	Oldest   time.Duration // since the oldest batch with waiting tasks was submitted; 0: nothing waits
}

// maxLoad is how many batches are counted, and loadPage how many of them one script reads.
const maxLoad, loadPage = 1000, 100

// Load counts the work of the queue. Of the tasks it counts those of the oldest 1,000 batches.
func (p *Process) Load(ctx context.Context) (Load, error) {
	books, err := p.store.Books(ctx)
	if err != nil {
		return Load{}, err
	}
	l := Load{Batches: books.Batches, Attempts: books.Finished, Bytes: books.Bytes}
	oldest := ""
	for skip := 0; skip < min(books.Batches, maxLoad); skip += loadPage {
		page, err := p.store.Batches(ctx, skip, loadPage)
		if err != nil {
			return Load{}, err
		}
		for _, b := range page {
			waiting := b.Waiting + b.Returned + b.Late
			l.Waiting, l.Hand, l.Done, l.Dead = l.Waiting+waiting, l.Hand+b.Out, l.Done+b.Done, l.Dead+b.Dead
			if oldest == "" && waiting > 0 {
				oldest = b.ID
			}
		}
	}
	if oldest != "" {
		l.Oldest, err = p.age(ctx, oldest)
	}
	return l, err
}

// age is the time since a batch was submitted; 0 if it has ended meanwhile.
func (p *Process) age(ctx context.Context, id string) (time.Duration, error) {
	m, err := p.Manifest(ctx, id)
	if errors.Is(err, ErrNoBatch) {
		return 0, nil
	}
	return max(time.Since(m.Since), 0), err
}
