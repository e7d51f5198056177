package tasks

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster/resource"
	"muster/resource/queue"
	"muster/tasks/store"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

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

// submission is a Submit under way.
type submission struct {
	join    *join
	c       SubmitConfig
	given   bool // the id was given
	source  Source
	from    string // the batch whose dead tasks these are; "": none
	content content
	out     Submitted

	made    bool      // this Submit has made the manifest
	folders bool      // the folders are missing, as the last attempt found
	touched time.Time // when this Submit last wrote the manifest
	fails   int       // of Redis, in a row
}

func newSubmission(s *zkconn.Session, c SubmitConfig, source Source) *submission {
	return &submission{c: c, source: source, given: c.ID != "", join: newJoin(s, Config{
		Root: c.Root, Queue: c.Queue, Redis: c.Redis, Waiting: c.Waiting,
	})}
}

// check completes and checks the configuration.
func (x *submission) check() error {
	if x.c.ID == "" {
		x.c.ID = newBatchID(time.Now())
	}
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
	timer := time.NewTimer(backoff(failures))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// attempt does what is left to do. errAgain: something has changed.
func (x *submission) attempt(ctx context.Context) error {
	if err := x.join.read(ctx); err != nil {
		return err
	}
	x.out.Queue, x.out.Generation = x.join.queue, x.join.rec.Generation
	if x.content.tasks == 0 {
		var err error
		if x.content, err = measure(ctx, x.source, x.join.queue); err != nil {
			return err
		}
	}
	if err := x.fits(); err != nil {
		return err
	}
	if err := x.join.connect(ctx); err != nil {
		return err
	}
	x.join.waiter.Begun = time.Now() // from here on, another wait for the queue is a wait of its own
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
	root, g := x.c.Root, x.out.Generation
	m, err := manifest(ctx, x.join.s, root, g, x.c.ID)
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
		e, err := endedBatch(ctx, x.join.s, root, g, x.c.ID)
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

// noDead refuses an id of which Redis has dead tasks.
func (x *submission) noDead(ctx context.Context) error {
	var dead []store.DeadTask
	err := x.call(ctx, func(ctx context.Context, st *store.Queue) (err error) {
		dead, err = st.DeadTasks(ctx, x.c.ID, 0)
		return err
	})
	if err == nil && len(dead) > 0 {
		err = store.ErrDead
	}
	return err
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

// create makes the manifest.
func (x *submission) create(ctx context.Context) error {
	root, g, at := x.c.Root, x.out.Generation, znode.Batch(x.c.Root, x.out.Generation, x.c.ID)
	stat, _, err := x.join.s.Exists(ctx, znode.Batches(root, g))
	if err != nil {
		return err
	}
	if stat.NumChildren >= queue.MaxBatches {
		return fmt.Errorf("%w: %d, which is the limit", ErrManyBatches, stat.NumChildren)
	}
	acl, err := zkstate.ParseACL(x.join.rec.ACL)
	if err != nil {
		return err
	}
	m := x.content.manifest(x.c, time.Now())
	m.From = x.from
	body, err := znode.Encode(m)
	if err != nil {
		return err
	}
	ops := []zkconn.Op{zkconn.CheckOp(znode.Gate(root, g), -1), zkconn.CheckOp(x.join.record(), x.join.stat.Version)}
	if x.folders {
		for _, path := range batchFolders(root, g) {
			ops = append(ops, zkconn.CreateOp(path, nil, zkconn.Persistent, acl))
		}
	}
	_, err = x.join.s.Multi(ctx, append(ops, zkconn.CreateOp(at, body, zkconn.Persistent, acl))...)
	switch {
	case errors.Is(err, zkconn.ErrUnknown):
		x.made, x.touched = true, time.Now() // it may be
		return settled(ctx, x.join.s, err)
	case err == nil:
		x.made, x.touched = true, time.Now()
		return errAgain
	}
	return x.refused(ctx, err, at)
}

// batchFolders are the folders of a queue, that of the batches first: if it exists, another process has made them.
func batchFolders(root, g string) []string {
	var paths []string
	for _, name := range znode.QueueFolders() {
		paths = append(paths, resource.Join(znode.Run(root, g), name))
	}
	first := slices.Index(paths, znode.Batches(root, g))
	paths[0], paths[first] = paths[first], paths[0]
	return paths
}

// refused says what to do after a write of the manifest at a path was refused.
func (x *submission) refused(ctx context.Context, err error, at string) error {
	var refused *zkconn.Error
	if !errors.As(err, &refused) {
		return err
	}
	folder := znode.Batches(x.c.Root, x.out.Generation)
	switch {
	case refused.Path == at && errors.Is(err, zkconn.ErrNoNode) && !x.folders && !x.out.made():
		x.folders = true
		return errAgain
	case changed(err) && (refused.Path == at || refused.Path == x.join.record()):
		return errAgain // another was faster
	case refused.Path == folder && errors.Is(err, zkconn.ErrNodeExists): // another made the folders
		x.folders = false
		return errAgain
	case errors.Is(err, zkconn.ErrNodeExists): // some of the folders are there: that of the batches was deleted by hand
		x.folders = false
		return x.join.awaitRepair(ctx, folder)
	case errors.Is(err, zkconn.ErrNoNode):
		return x.join.awaitRepair(ctx, refused.Path)
	}
	return err
}

// changed reports whether a write was refused because what it writes or checks is not as it was read.
func changed(err error) bool {
	return errors.Is(err, zkconn.ErrBadVersion) || errors.Is(err, zkconn.ErrNoNode) || errors.Is(err, zkconn.ErrNodeExists)
}

func (o Submitted) made() bool { return o.Manifest.Life != "" }

// unmake deletes the manifest of a batch of which Redis has nothing.
func (x *submission) unmake(ctx context.Context) error {
	m := x.out.Manifest
	err := x.join.s.Delete(ctx, znode.Batch(x.c.Root, x.out.Generation, x.c.ID), m.Version)
	switch {
	case errors.Is(err, zkconn.ErrUnknown):
		return settled(ctx, x.join.s, err)
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
		body, err := znode.Encode(next)
		if err != nil {
			return err
		}
		at := znode.Batch(x.c.Root, x.out.Generation, x.c.ID)
		stat, err := x.join.s.Set(ctx, at, body, m.Version)
		if errors.Is(err, zkconn.ErrUnknown) {
			return settled(ctx, x.join.s, err)
		}
		if err != nil {
			return x.refused(ctx, err, at)
		}
		m.BatchManifest, m.Version, m.Modified = next, stat.Version, stat.Mtime
	}
	err := x.call(ctx, func(ctx context.Context, st *store.Queue) error {
		_, err := st.Set(ctx, x.c.ID, m.Life, int64(m.Version), m.Weight, string(m.State))
		return err
	})
	if errors.Is(err, store.ErrNoBatch) || errors.Is(err, store.ErrLife) || errors.Is(err, store.ErrState) {
		return nil // it has ended, or is cancelled, since
	}
	return err
}
