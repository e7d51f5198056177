package tasks

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"strings"
	"time"

	"muster/resource"
	"muster/resource/queue"
	"muster/tasks/store"
	"muster/zkstate/zkconn"
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

// Submitting writes, in the generation g that the Record names:
//
//	run/<g>/{seat,batch,ended,health}   persistent   by the first process, or by the first submit
//	run/<g>/batch/<id>                  persistent   the manifest: submitting
//	Redis                               begin, append …, open
//	run/<g>/batch/<id>                  set          the manifest: open
//
// The first two are one transaction, which checks the gate and the version of the Record. From then on the manifest
// keeps the queue from being deleted. Every step can be repeated: who finds the manifest goes on where the other
// stopped, also at the same time. So a process that dies leaves something that another submit with the same id and
// content completes; without one, the process with the smallest seat ends it an hour after the manifest was last
// written.
//
// Redis may begin a batch whose manifest was deleted in the meantime. So the manifest is read after begin and before
// the first task, and if it is gone the batch is removed again.
//
// Redis refuses to begin a batch while dead tasks of an earlier one of its name are there. So they are looked for
// before the manifest is made. It could be taken back, but others may go on with it: if somebody else then makes it
// again for other tasks, it has the same version, and they would write into that.

// Submit puts a batch into a queue. It returns when executors can have all of its tasks. After an error with which the
// Submitted has a Manifest, and after ErrUnknown, call it again with the Submitted's ID and the same tasks: it goes on
// where it stopped.
//
// A batch of the same id and content is the same batch: Submit completes it if its submitter, or Redis, left it
// incomplete, and otherwise only says that it is there, or how it has ended. What else is configured must be as it was,
// except the weight and what is not set here.
//
// Submit waits for the queue to be created and for Redis as Join does; later, for Redis and for room in it, until ctx
// or the session ends.
func Submit(ctx context.Context, s *zkconn.Session, c SubmitConfig, source Source) (Submitted, error) {
	x := newSubmission(s, c, source)
	defer x.join.disconnect()
	if err := x.run(ctx); err != nil {
		return x.out, fmt.Errorf("submit %s to %s: %w", x.out.ID, resource.Join(c.Root, c.Queue), err)
	}
	return x.out, nil
}

type submission struct {
	join    *join
	c       SubmitConfig
	given   bool // the id was given
	source  Source
	from    string // the batch whose dead tasks these are; "": none
	content content
	out     Submitted

	made    bool      // this Submit has made the manifest
	touched time.Time // when this Submit last wrote the manifest
	fails   int       // of Redis, in a row
}

func newSubmission(s *zkconn.Session, c SubmitConfig, source Source) *submission {
	return &submission{c: c, source: source, given: c.ID != "", join: newJoin(s, Config{
		Root: c.Root, Queue: c.Queue, Redis: c.Redis, Waiting: c.Waiting,
	})}
}

func (x *submission) check() error {
	x.c.ID = cmp.Or(x.c.ID, newBatchID(time.Now()))
	x.out.ID = x.c.ID
	x.c.Weight = cmp.Or(x.c.Weight, 1)
	switch {
	case x.c.Weight < 1 || x.c.Weight > queue.MaxWeight:
		return fmt.Errorf("weight: %d is not between 1 and %d", x.c.Weight, queue.MaxWeight)
	case x.c.Attempts < 0 || x.c.TaskTimeout < 0:
		return errors.New("attempts and task timeout cannot be negative")
	}
	if x.c.Results != "" {
		if err := x.c.Results.Check(); err != nil {
			return err
		}
	}
	return queue.CheckBatchID(x.c.ID)
}

// newBatchID is an id that nobody has. Ids grow with the time.
func newBatchID(now time.Time) string {
	var r [4]byte
	rand.Read(r[:])
	return fmt.Sprintf("%s-%x", now.UTC().Format("20060102T150405"), r)
}

// run makes attempts until one ends.
func (x *submission) run(ctx context.Context) error {
	if err := x.check(); err != nil {
		return err
	}
	for tries := 0; ; tries++ {
		err := x.attempt(ctx)
		if !errors.Is(err, errAgain) {
			return err
		}
		if tries < 5 { // somebody else was faster
			continue
		}
		if err := Rest(ctx, tries-5); err != nil {
			return err
		}
	}
}

// Rest waits a while after so many failures in a row, up to 5 s and not always as long. The error is why ctx ended.
func Rest(ctx context.Context, failures int) error {
	pause(ctx, backoff(failures), nil)
	return context.Cause(ctx)
}

// pause waits, at most until an event, or the end of ctx. It reports whether there was an event.
func pause(ctx context.Context, d time.Duration, event <-chan struct{}) bool {
	select {
	case <-event:
		return true
	case <-time.After(d):
	case <-ctx.Done():
	}
	return false
}

// attempt does what is left to do. errAgain: something has changed.
func (x *submission) attempt(ctx context.Context) error {
	if err := x.join.read(ctx); err != nil {
		return err
	}
	x.out.Queue, x.out.Generation = x.join.queue, x.join.Record.Generation
	if x.content.tasks == 0 {
		var err error
		if x.content, err = measure(ctx, x.source, x.join.queue); err != nil {
			return err
		}
	}
	if most := x.join.queue.MaxBytes; x.content.cost > int64(most) && x.from == "" { // it would never be worked on
		return fmt.Errorf("%w: its %d tasks need %s in Redis, and the queue's max_bytes is %s: submit it in parts",
			ErrTooLarge, x.content.tasks, resource.Size(x.content.cost), most)
	}
	if err := x.join.connect(ctx); err != nil {
		return err
	}
	x.join.Begun = time.Now() // from here on, another wait for the queue is a wait of its own
	if err := x.manifest(ctx); err != nil || x.out.Ended != nil {
		return err
	}
	if err := x.fill(ctx); err != nil {
		return err
	}
	return x.open(ctx)
}

// manifest makes sure that there is a manifest of this batch, or finds out how it has ended.
func (x *submission) manifest(ctx context.Context) error {
	m, err := x.ledger().Manifest(ctx, x.c.ID)
	there := err == nil
	if err != nil && !errors.Is(err, ErrNoBatch) {
		return err
	}
	x.out.Manifest, x.out.Found = m, there && !x.made
	if there {
		if err := x.same(m.BatchManifest, "it"); err != nil {
			return err
		}
	}
	// What has ended is looked for after the manifest was made: then it cannot end unseen.
	if (x.given || x.made) && (!there || m.State == znode.BatchSubmitting) {
		e, err := x.ledger().Ended(ctx, x.c.ID)
		if err != nil {
			return err
		}
		if e != nil {
			return x.hasEnded(ctx, e, there)
		}
	}
	switch {
	case !there && x.given:
		if err := x.noDead(ctx); err != nil {
			return err
		}
		fallthrough
	case !there:
		return x.create(ctx)
	case m.State == znode.BatchCancelled:
		return fmt.Errorf("%w: it ends soon", ErrCancelled)
	}
	return nil
}

// noDead refuses an id of which Redis has dead tasks of an earlier batch. Another submit may have made the batch since
// this one looked for it: then they are those of that one, also if it has ended. So it is looked for again.
func (x *submission) noDead(ctx context.Context) error {
	var dead []store.DeadTask
	err := x.call(ctx, func(st *store.Queue) (err error) {
		dead, err = st.DeadTasks(ctx, x.c.ID, 0)
		return err
	})
	if err != nil || len(dead) == 0 {
		return err
	}
	_, err = x.ledger().Manifest(ctx, x.c.ID)
	if errors.Is(err, ErrNoBatch) {
		var e *znode.BatchEnd
		if e, err = x.ledger().Ended(ctx, x.c.ID); err == nil && e == nil {
			return store.ErrDead
		}
	}
	if err != nil {
		return err
	}
	return errAgain
}

// hasEnded notes how the batch has ended. A manifest that was made since is deleted again.
func (x *submission) hasEnded(ctx context.Context, e *znode.BatchEnd, again bool) error {
	if again {
		if err := x.unmake(ctx); err != nil {
			return err
		}
	}
	if err := x.same(e.BatchManifest, "it ended "+e.Ended.Format(time.RFC3339)+", and"); err != nil {
		return err
	}
	x.out.Ended, x.out.Found = e, true
	return nil
}

// same refuses another batch of this id, and says what differs.
func (x *submission) same(m znode.BatchManifest, it string) error {
	var differs []string
	note := func(differ bool, format string, args ...any) {
		if differ {
			differs = append(differs, fmt.Sprintf(format, args...))
		}
	}
	switch n := x.content; {
	case m.Tasks != n.tasks:
		note(true, "has %d tasks, not %d", m.Tasks, n.tasks)
	case m.Bytes != n.bytes:
		note(true, "has tasks of %d bytes, not %d", m.Bytes, n.bytes)
	default:
		note(m.SHA256 != n.sum, "has other tasks, as many and as large")
	}
	c := x.c
	note(c.Results != "" && m.Results != c.Results, "has the results for %q, not %q", m.Results, c.Results)
	note(c.Attempts != 0 && m.Attempts != c.Attempts, "has %d attempts, not %d (0: the queue's)", m.Attempts, c.Attempts)
	note(c.TaskTimeout != 0 && m.TaskTimeout != resource.Duration(c.TaskTimeout),
		"has the task timeout %s, not %s (0: the queue's)", m.TaskTimeout, resource.Duration(c.TaskTimeout))
	if len(differs) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s %s", ErrOtherBatch, it, strings.Join(differs, "; "))
}

func (x *submission) create(ctx context.Context) error {
	stat, _, err := x.join.Session.Exists(ctx, znode.Batches(x.c.Root, x.out.Generation))
	if err != nil {
		return err
	}
	if stat.NumChildren >= queue.MaxBatches {
		return fmt.Errorf("%w: %d, which is the limit", ErrManyBatches, stat.NumChildren)
	}
	n, c := x.content, x.c
	body, err := znode.Encode(znode.BatchManifest{
		Tasks: n.tasks, Bytes: n.bytes, SHA256: n.sum, Weight: c.Weight,
		Results: cmp.Or(c.Results, queue.ResultsWatcher), By: c.By, Since: time.Now(), State: znode.BatchSubmitting,
		Attempts: c.Attempts, TaskTimeout: resource.Duration(c.TaskTimeout), From: x.from,
	})
	if err != nil {
		return err
	}
	create := zkconn.CreateOp(x.ledger().batch(x.c.ID), body, zkconn.Persistent, x.join.ACL)
	_, err = x.join.Write(ctx, []zkconn.Op{x.join.asRead()}, create)
	if err == nil || errors.Is(err, zkconn.ErrUnknown) {
		x.made, x.touched = true, time.Now() // or it may be
	}
	switch {
	case err == nil, errors.Is(err, zkconn.ErrNodeExists): // or another was faster
		return errAgain
	case errors.Is(err, zkconn.ErrUnknown):
		return settled(ctx, x.join.Session, err)
	}
	return err
}

// unmake deletes the manifest of a batch of which Redis has nothing.
func (x *submission) unmake(ctx context.Context) error {
	m := x.out.Manifest
	err := x.join.Session.Delete(ctx, x.ledger().batch(x.c.ID), m.Version)
	switch {
	case errors.Is(err, zkconn.ErrUnknown):
		return settled(ctx, x.join.Session, err)
	case errors.Is(err, zkconn.ErrBadVersion):
		return errAgain
	case err == nil, errors.Is(err, zkconn.ErrNoNode):
		x.out.Manifest, x.made = Manifest{}, false
		return nil
	}
	return err
}

// open says in ZooKeeper that all tasks are there. Then it tells Redis the version of that.
func (x *submission) open(ctx context.Context) error {
	m := &x.out.Manifest
	if m.State == znode.BatchSubmitting {
		next := m.BatchManifest
		next.State = znode.BatchOpen
		if err := x.ledger().set(ctx, x.c.ID, m, next); err != nil {
			return err
		}
	}
	err := x.call(ctx, func(st *store.Queue) error { return m.tell(ctx, st, x.c.ID) })
	if isAny(err, store.ErrNoBatch, store.ErrLife, store.ErrState) {
		return nil // it has ended, or is cancelled, since
	}
	return err
}

// content is what a source yields.
type content struct {
	tasks int64
	bytes int64  // of the payloads
	cost  int64  // in Redis
	sum   string // see znode.BatchManifest
}

type digest struct {
	content
	hash hash.Hash
}

func newDigest() *digest { return &digest{hash: sha256.New()} }

func (d *digest) add(payload []byte) {
	d.tasks++
	d.bytes += int64(len(payload))
	d.cost += store.Cost(payload)
	fmt.Fprintf(d.hash, "%d:", len(payload))
	d.hash.Write(payload)
}

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
	return moved(x.call(ctx, func(st *store.Queue) error {
		return st.Open(ctx, x.c.ID, x.out.Manifest.Life, x.content.tasks)
	}))
}

// moved makes errAgain of a refusal because the batch is not as it was.
func moved(err error) error {
	if isAny(err, store.ErrNoBatch, store.ErrLife, store.ErrOffset, store.ErrState) {
		return errAgain
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
	err := x.call(ctx, func(st *store.Queue) error { return st.Begin(ctx, b, most) })
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
	m, err := x.ledger().Manifest(ctx, x.c.ID)
	switch {
	case err == nil && m.Life == life:
		return errAgain
	case err != nil && !errors.Is(err, ErrNoBatch):
		return err
	}
	err = x.call(ctx, func(st *store.Queue) error { return st.Remove(ctx, x.c.ID, life) })
	if err == nil {
		err = errAgain
	}
	return moved(err)
}

// append writes the tasks that Redis does not have yet.
func (x *submission) append(ctx context.Context) error {
	w := &writer{x: x, all: newDigest()}
	err := w.send(ctx) // which tells how many there are
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
		w.chunk = append(w.chunk, bytes.Clone(payload))
		w.bytes += len(payload)
		if len(w.chunk) < store.MaxItems && w.bytes < store.MaxBytes {
			continue
		}
		if err := w.send(ctx); err != nil {
			return err
		}
	}
	if got := w.all.end(); got != x.content {
		return x.changed(ctx)
	}
	return w.send(ctx)
}

// changed ends a batch that has other tasks than its manifest says.
func (x *submission) changed(ctx context.Context) error {
	err := x.cancel(ctx)
	x.out.Manifest = Manifest{}
	return errors.Join(ErrChanged, err)
}

func (x *submission) cancel(ctx context.Context) error {
	return x.ledger().end(ctx, x.store(), x.c.ID, x.out.Manifest, znode.EndCancelled, x.c.By)
}

func (x *submission) ledger() ledger { return ledger{x.join.Session, x.c.Root, x.out.Generation} }

func (x *submission) store() *store.Queue { return open(x.join.client, x.join.queue, x.out.Generation) }

type writer struct {
	x     *submission
	all   *digest // of all tasks that were read
	at    int64   // how many Redis has
	chunk [][]byte
	bytes int
}

// send appends the chunk. It can be repeated, also after a lost reply.
func (w *writer) send(ctx context.Context) error {
	x := w.x
	err := x.call(ctx, func(st *store.Queue) error {
		length, err := st.Append(ctx, x.c.ID, x.out.Manifest.Life, w.at, w.chunk)
		if err == nil {
			w.at = max(w.at+int64(len(w.chunk)), length)
		}
		return err
	})
	if err != nil {
		return err
	}
	w.chunk, w.bytes = w.chunk[:0], 0
	if x.c.Progress != nil {
		x.c.Progress(w.at, x.content.tasks)
	}
	return x.touch(ctx)
}

// call makes a call of Redis that can be repeated, until it is answered. It waits for room.
func (x *submission) call(ctx context.Context, f func(st *store.Queue) error) error {
	err := until(func(err error) error {
		what := "Redis: " + err.Error()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, store.ErrFull):
			what = fmt.Sprintf("room in Redis: the queue's max_bytes is %s", x.join.queue.MaxBytes)
		case errors.Is(err, store.ErrMemory):
		case refused(err), hopeless(err):
			return err
		}
		return x.await(ctx, what)
	}, func() error { return f(x.store()) })
	if err == nil {
		x.fails = 0
	}
	return err
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
	m, err := x.ledger().Manifest(ctx, x.c.ID)
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
	if err := x.ledger().set(ctx, x.c.ID, m, m.BatchManifest); err != nil {
		return err
	}
	x.touched = time.Now()
	return nil
}
