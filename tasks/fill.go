package tasks

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"strconv"
	"time"

	"muster/resource"
	"muster/resource/queue"
	"muster/tasks/store"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// content is what a source yields.
type content struct {
	tasks int64
	bytes int64  // of the payloads
	cost  int64  // in Redis
	sum   string // see znode.BatchManifest
}

// manifest is that of a batch with this content.
func (n content) manifest(c SubmitConfig, now time.Time) znode.BatchManifest {
	return znode.BatchManifest{
		Tasks: n.tasks, Bytes: n.bytes, SHA256: n.sum, Weight: c.Weight,
		Results: cmp.Or(c.Results, queue.ResultsWatcher), By: c.By, Since: now, State: znode.BatchSubmitting,
		Attempts: c.Attempts, TaskTimeout: resource.Duration(c.TaskTimeout),
	}
}

// digest sums payloads up.
type digest struct {
	content
	hash hash.Hash
	head []byte
}

func newDigest() *digest { return &digest{hash: sha256.New()} }

func (d *digest) add(payload []byte) {
	d.tasks++
	d.bytes += int64(len(payload))
	d.cost += store.Cost(payload)
	d.head = append(strconv.AppendInt(d.head[:0], int64(len(payload)), 10), ':')
	d.hash.Write(d.head)
	d.hash.Write(payload)
}

// end is the content that was added.
func (d *digest) end() content {
	d.sum = fmt.Sprintf("%x", d.hash.Sum(nil))
	return d.content
}

// measure reads a source for the first time. It refuses what the queue does not take.
func measure(ctx context.Context, source Source, q queue.Queue) (content, error) {
	d := newDigest()
	for payload, err := range source(ctx, q) {
		switch {
		case err != nil:
			return content{}, err
		case ctx.Err() != nil:
			return content{}, context.Cause(ctx)
		case int64(len(payload)) > int64(q.MaxTask):
			return content{}, &LargeTask{d.tasks, q.MaxTask}
		case d.tasks == queue.MaxTasks:
			return content{}, fmt.Errorf("%w: a batch has at most %d tasks: submit it in parts", ErrTooLarge,
				queue.MaxTasks)
		}
		d.add(payload)
	}
	if d.tasks == 0 {
		return content{}, ErrNoTasks
	}
	return d.end(), nil
}

// fits refuses a batch that would never be worked on.
func (x *submission) fits() error {
	if most := x.join.queue.MaxBytes; x.content.cost > int64(most) && x.from == "" {
		return fmt.Errorf("%w: its %d tasks need %s in Redis, and the queue's max_bytes is %s: submit it in parts",
			ErrTooLarge, x.content.tasks, resource.Size(x.content.cost), most)
	}
	return nil
}

// fill makes sure that Redis has all tasks of the batch, and that they are runnable.
func (x *submission) fill(ctx context.Context) error {
	if err := x.begin(ctx); err != nil {
		return err
	}
	write := x.append
	if x.from != "" {
		write = x.move
	}
	if err := write(ctx); err != nil {
		return moved(err)
	}
	return moved(x.call(ctx, func(ctx context.Context, st *store.Queue) error {
		_, err := st.Open(ctx, x.c.ID, x.out.Manifest.Life, x.content.tasks)
		return err
	}))
}

// moved makes errAgain of a refusal because the batch is not as it was.
func moved(err error) error {
	for _, e := range []error{store.ErrNoBatch, store.ErrLife, store.ErrOffset, store.ErrState} {
		if errors.Is(err, e) {
			return errAgain
		}
	}
	return err
}

// begin puts the batch among those of Redis, unless it is there.
func (x *submission) begin(ctx context.Context) error {
	m, q := x.out.Manifest, x.join.queue
	b := store.NewBatch{
		ID: x.c.ID, Life: m.Life, Weight: m.Weight, Attempts: cmp.Or(m.Attempts, q.Attempts),
		Results: string(m.Results), Bytes: x.content.cost,
	}
	most := int64(q.MaxBytes)
	if x.from != "" {
		most += b.Bytes // they are there already
	}
	err := x.call(ctx, func(ctx context.Context, st *store.Queue) error {
		_, err := st.Begin(ctx, b, most)
		return err
	})
	var r *store.Refusal
	switch {
	case errors.Is(err, store.ErrLife) && errors.As(err, &r):
		return x.displace(ctx, r.Detail)
	case refused(err):
		return x.unbegun(ctx, err)
	case err != nil:
		return err
	}
	if err = x.stillThere(ctx); errors.Is(err, errAgain) {
		return x.displace(ctx, m.Life)
	}
	return err
}

// unbegun says what follows from a refused begin. The batch may have ended since its manifest was read: then the dead
// tasks are its own. Or another submit goes on with it, which was not refused any more.
func (x *submission) unbegun(ctx context.Context, why error) error {
	read := x.out.Manifest.Version
	if err := x.stillThere(ctx); err != nil {
		return err
	}
	if x.out.Manifest.Version != read {
		return errAgain
	}
	if x.made {
		if err := x.unmake(ctx); err != nil {
			return err
		}
	}
	return why
}

// displace removes a batch of this name from Redis that has no manifest any more, or finds that it has one.
func (x *submission) displace(ctx context.Context, life string) error {
	m, err := manifest(ctx, x.join.s, x.c.Root, x.out.Generation, x.c.ID)
	switch {
	case err == nil && m.Life == life:
		return errAgain
	case err != nil && !errors.Is(err, ErrNoBatch):
		return err
	}
	err = x.call(ctx, func(ctx context.Context, st *store.Queue) error {
		_, err := st.Remove(ctx, x.c.ID, life)
		return err
	})
	if err == nil {
		err = errAgain
	}
	return moved(err)
}

// append writes the tasks that Redis does not have yet.
func (x *submission) append(ctx context.Context) error {
	w := &writer{x: x, all: newDigest()}
	err := w.send(ctx, nil) // which tells how many there are
	if err != nil || w.at == x.content.tasks {
		return err
	}
	for payload, err := range x.source(ctx, x.join.queue) {
		if err != nil {
			return err
		}
		w.all.add(payload)
		if w.all.tasks <= w.at {
			continue
		}
		if err := w.add(ctx, payload); err != nil {
			return err
		}
	}
	if got := w.all.end(); got != x.content {
		return x.changed(ctx)
	}
	return w.send(ctx, w.chunk)
}

// changed ends a batch that has other tasks than its manifest says.
func (x *submission) changed(ctx context.Context) error {
	s, m := x.join.s, x.out.Manifest
	st := open(x.join.client, x.join.queue, x.out.Generation)
	err := EndBatch(ctx, s, st, x.c.Root, x.out.Generation, x.c.ID, m, znode.EndCancelled, x.c.By)
	x.out.Manifest = Manifest{}
	return errors.Join(ErrChanged, err)
}

// writer appends tasks in chunks.
type writer struct {
	x     *submission
	all   *digest // of all tasks that were read
	at    int64   // how many Redis has
	chunk [][]byte
	bytes int
}

// add adds a task, and sends the chunk if it is full.
func (w *writer) add(ctx context.Context, payload []byte) error {
	w.chunk = append(w.chunk, bytes.Clone(payload))
	w.bytes += len(payload)
	if len(w.chunk) < store.MaxItems && w.bytes < store.MaxBytes {
		return nil
	}
	chunk := w.chunk
	w.chunk, w.bytes = w.chunk[:0], 0
	return w.send(ctx, chunk)
}

// send appends a chunk. It can be repeated, also after a lost reply.
func (w *writer) send(ctx context.Context, chunk [][]byte) error {
	x := w.x
	err := x.call(ctx, func(ctx context.Context, st *store.Queue) error {
		length, err := st.Append(ctx, x.c.ID, x.out.Manifest.Life, w.at, chunk)
		if err == nil {
			w.at = max(w.at+int64(len(chunk)), length)
		}
		return err
	})
	if err == nil && x.c.Progress != nil {
		x.c.Progress(w.at, x.content.tasks)
	}
	if err == nil {
		err = x.touch(ctx)
	}
	return err
}

// call makes a call of Redis that can be repeated, until it is answered. It waits for room.
func (x *submission) call(ctx context.Context, f func(ctx context.Context, st *store.Queue) error) error {
	for {
		err := f(ctx, open(x.join.client, x.join.queue, x.out.Generation))
		if err == nil {
			x.fails = 0
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		what := "Redis: " + err.Error()
		switch {
		case errors.Is(err, store.ErrFull):
			what = fmt.Sprintf("room in Redis: the queue's max_bytes is %s", x.join.queue.MaxBytes)
		case errors.Is(err, store.ErrMemory):
		case refused(err), hopeless(err):
			return err
		}
		if err := x.await(ctx, what); err != nil {
			return err
		}
	}
}

// await waits a while for something in Redis, and looks whether somebody has ended or cancelled the batch meanwhile.
func (x *submission) await(ctx context.Context, what string) error {
	if x.fails == 0 && x.c.Waiting != nil {
		x.c.Waiting(what)
	}
	x.fails++
	if err := Rest(ctx, x.fails); err != nil {
		return err
	}
	if err := x.stillThere(ctx); err != nil {
		return err
	}
	return x.touch(ctx)
}

// stillThere returns errAgain if the manifest is not the one that was read, or is cancelled.
func (x *submission) stillThere(ctx context.Context) error {
	m, err := manifest(ctx, x.join.s, x.c.Root, x.out.Generation, x.c.ID)
	switch {
	case errors.Is(err, ErrNoBatch):
		return errAgain
	case err != nil:
		return err
	case m.Life != x.out.Manifest.Life, m.State == znode.BatchCancelled:
		return errAgain
	}
	x.out.Manifest = m
	return nil
}

// touchEvery is how often a submitter that works writes its manifest: one that has not for an hour is given up.
const touchEvery = 10 * time.Minute

// touch writes the manifest as it is, if that was long ago.
func (x *submission) touch(ctx context.Context) error {
	m := &x.out.Manifest
	if m.State != znode.BatchSubmitting || time.Since(x.touched) < touchEvery {
		return nil
	}
	body, err := znode.Encode(m.BatchManifest)
	if err != nil {
		return err
	}
	stat, err := x.join.s.Set(ctx, znode.Batch(x.c.Root, x.out.Generation, x.c.ID), body, m.Version)
	switch {
	case errors.Is(err, zkconn.ErrUnknown):
		return settled(ctx, x.join.s, err)
	case errors.Is(err, zkconn.ErrBadVersion), errors.Is(err, zkconn.ErrNoNode):
		return errAgain
	case err != nil:
		return err
	}
	m.Version, m.Modified, x.touched = stat.Version, stat.Mtime, time.Now()
	return nil
}
