package tasks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"muster/tasks/store"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// Nobody tells a submitter that a batch is completed, so it asks Redis: at first after firstAsk, then half as often
// each time until askEvery.
const (
	firstAsk = 20 * time.Millisecond
	askEvery = time.Second
)

// attendEvery is how often who waits for a batch writes its manifest: results that nobody waits for are removed a day
// after it was last written.
const attendEvery = time.Hour

// Await waits until all tasks of a batch are done or dead, and returns its books. each, unless nil, is called with the
// books whenever they were read. If the batch has ended, it returns how; ErrNoBatch: that is forgotten, too. ErrLost:
// Redis does not have it.
func (o *Operator) Await(
	ctx context.Context, id string, m Manifest, each func(store.Batch),
) (store.Batch, *znode.BatchEnd, error) {
	wait, attended := firstAsk, time.Now()
	for {
		b, err := o.Books(ctx, id)
		if err == nil && b.Broken != "" {
			err = fmt.Errorf("%w: %s", store.ErrBroken, b.Broken)
		}
		if errors.Is(err, store.ErrNoBatch) || err == nil && (b.Life != m.Life || b.State == string(znode.BatchCancelled)) {
			end, err := o.whyGone(ctx, id, m)
			return b, end, err
		}
		if err != nil {
			return b, nil, fmt.Errorf("batch %s: %w", id, err)
		}
		if each != nil {
			each(b)
		}
		if completed(b) {
			return b, nil, nil
		}
		if b.Out == 0 && b.Waiting+b.Returned > 0 {
			if err := o.tellFull(ctx); err != nil {
				return b, nil, err
			}
		}
		if time.Since(attended) > attendEvery {
			attended = time.Now()
			if err := o.Attend(ctx, id); err != nil {
				return b, nil, err
			}
		}
		timer := time.NewTimer(wait/2 + rand.N(wait/2))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return b, nil, context.Cause(ctx)
		case <-o.s.Context().Done():
			timer.Stop()
			return b, nil, context.Cause(o.s.Context())
		}
		wait = min(2*wait, askEvery)
	}
}

// tellFull says that nothing is executed, if Redis holds too much.
func (o *Operator) tellFull(ctx context.Context) error {
	held, err := o.Full(ctx)
	if err == nil && held > 0 {
		o.wait(fmt.Sprintf("room in Redis: it holds %.1f MiB, more than twice max_bytes (%s), and nothing is executed "+
			"until a batch ends; raise max_bytes and apply, or cancel a batch", float64(held)/(1<<20), o.Queue.MaxBytes))
	}
	return err
}

// Full is that of store.Queue.
func (o *Operator) Full(ctx context.Context) (held int64, err error) {
	err = o.call(ctx, func(st *store.Queue) (err error) {
		held, err = st.Full(ctx, int64(o.Queue.MaxBytes))
		return err
	})
	return held, err
}

// whyGone says why Redis does not have a batch.
func (o *Operator) whyGone(ctx context.Context, id string, m Manifest) (*znode.BatchEnd, error) {
	now, err := o.Manifest(ctx, id)
	switch {
	case errors.Is(err, ErrNoBatch), err == nil && now.Life != m.Life:
		end, err := o.Ended(ctx, id)
		if err == nil && end == nil {
			err = ErrNoBatch
		}
		return end, err
	case err != nil:
		return nil, err
	case now.State == znode.BatchCancelled:
		return nil, ErrCancelled
	}
	return nil, ErrLost
}

// Attend writes the manifest of a batch as it is: somebody waits for its results.
func (o *Operator) Attend(ctx context.Context, id string) error {
	m, err := o.Manifest(ctx, id)
	if err != nil {
		return err
	}
	body, err := znode.Encode(m.BatchManifest)
	if err != nil {
		return err
	}
	_, err = o.s.Set(ctx, znode.Batch(o.c.Root, o.Generation, id), body, m.Version)
	if errors.Is(err, zkconn.ErrBadVersion) || errors.Is(err, zkconn.ErrUnknown) {
		return nil // somebody has just written it; or the next time does
	}
	return err
}
