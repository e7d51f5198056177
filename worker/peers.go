package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/resource"
	"muster/resource/job"
	"muster/text"
	"muster/view"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// The live workers are exactly the children of the job znode. Each worker keeps its newest address in id/n-<id>.
// Nothing is written here.

// ErrNoWorker means that nobody has joined under this id yet. Wait for all, or ask again later.
var ErrNoWorker = errors.New("no such worker")

// Worker is a worker as its peers see it. One that tells of itself what cannot be read, or more than is allowed, has
// its id and a Problem, and no address: see unreadable.
type Worker struct {
	Identity string `json:"identity,omitempty"` // only of a live worker
	znode.Worker
	Problem string `json:"problem,omitempty"`
}

// unreadable is a worker whose WorkerInfo is not one, or breaks its limits: a program of somebody else wrote it. The
// others go on without its address.
func unreadable(identity string, id int, err error) Worker {
	return Worker{identity, znode.Worker{ID: id}, err.Error()}
}

// Live returns the workers that are live now, in the order of their ids. It costs a read for each of them, and about
// 14 for one that has joined a few seconds ago. The error is ErrFenced or ErrSessionLost if the membership has ended.
func (m *Member) Live(ctx context.Context) ([]Worker, error) {
	names, _, err := m.session.Children(ctx, m.Job.Path())
	if err != nil {
		return nil, fmt.Errorf("the live workers: %w", m.whyMissing(err))
	}
	return m.describe(ctx, names)
}

// Changes yields the live workers now, and again whenever a worker has become live or has gone. Changes that follow
// each other closely may come as one. It ends when the loop does, or with an error: ctx's, or why the membership
// ended.
func (m *Member) Changes(ctx context.Context) iter.Seq2[[]Worker, error] {
	return func(yield func([]Worker, error) bool) {
		for {
			names, _, changed, err := m.session.ChildrenW(ctx, m.Job.Path())
			var ws []Worker
			if err == nil {
				ws, err = m.describe(ctx, names)
			}
			if err != nil {
				yield(nil, fmt.Errorf("the live workers: %w", m.whyMissing(err)))
				return
			}
			if !yield(ws, nil) {
				return
			}
			if err := m.await(ctx, changed); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// Joined returns everybody who has joined, whether live or not, in the order of their ids, each with its newest
// address. It costs a read for each of them.
func (m *Member) Joined(ctx context.Context) ([]Worker, error) {
	ids, err := m.joinedIDs(ctx)
	if err != nil {
		return nil, fmt.Errorf("the joined workers: %w", err)
	}
	ws, err := zkstate.ForEach(ctx, ids, m.Lookup)
	if err != nil {
		return nil, fmt.Errorf("the joined workers: %w", err)
	}
	return ws, nil
}

// joinedIDs are the ids of those who have joined.
func (m *Member) joinedIDs(ctx context.Context) ([]int, error) {
	at := znode.IDs(m.Job.Root, m.Generation)
	if m.Job.IDs != job.ByIndex {
		stat, _, err := m.session.Exists(ctx, at)
		return m.ids(int(stat.NumChildren)), err
	}
	names, _, err := m.session.Children(ctx, at)
	var ids []int
	for _, name := range names {
		if id, err := znode.IDNumber(name); err == nil && id < m.Job.Workers {
			ids = append(ids, id)
		}
	}
	return ids, err
}

// Lookup returns the worker with this id, by its newest address. It costs one read.
func (m *Member) Lookup(ctx context.Context, id int) (Worker, error) {
	if id < 0 || id >= m.Job.Workers {
		return Worker{}, fmt.Errorf("worker %d: %w: the job has %d", id, ErrNoWorker, m.Job.Workers)
	}
	body, _, err := m.session.Get(ctx, znode.ID(m.Job.Root, m.Generation, id))
	if errors.Is(err, zkconn.ErrNoNode) {
		err = ErrNoWorker
	}
	if err != nil {
		return Worker{}, fmt.Errorf("worker %d: %w", id, err)
	}
	w, err := znode.DecodeWorker(body)
	if err != nil {
		return unreadable("", id, err), nil
	}
	w.ID, w.Identity = id, "" // it need not be live
	return Worker{Worker: w}, nil
}

// describe reads the live znodes with these names. It leaves out those that are gone meanwhile or no worker's.
func (m *Member) describe(ctx context.Context, names []string) ([]Worker, error) {
	ws, err := zkstate.ForEach(ctx, names, m.readLive)
	if err != nil {
		return nil, err
	}
	live := make([]Worker, 0, len(ws))
	for _, w := range ws {
		if w != nil {
			live = append(live, *w)
		}
	}
	slices.SortFunc(live, func(a, b Worker) int {
		return cmp.Or(cmp.Compare(uint(a.ID), uint(b.ID)), cmp.Compare(a.Identity, b.Identity)) // NoID sorts last
	})
	return live, nil
}

// readLive reads one live znode. It is nil if there is none, or if it is not a member's.
func (m *Member) readLive(ctx context.Context, identity string) (*Worker, error) {
	body, stat, _, err := zkconn.IfThere(m.session.Get(ctx, znode.Live(m.Job.Root, m.Job.Name, identity)))
	if err != nil || stat.EphemeralOwner == 0 {
		return nil, err
	}
	worker := Worker{Identity: identity}
	claim, made := znode.Claim{}, stat.Czxid // in the first life one transaction made the live znode and the id
	if worker.Worker, err = znode.DecodeWorker(body); err != nil {
		worker = unreadable(identity, znode.NoID, err)
		by := znode.ByIdentity(m.Job.Root, m.Generation, identity)
		body, stat, _, err := zkconn.IfThere(m.session.Get(ctx, by))
		if err != nil {
			return nil, err
		}
		claim, _ = znode.Decode[znode.Claim](body)
		made = stat.Czxid
	}
	if worker.ID == znode.NoID {
		search := join{s: m.session, job: m.Job, rec: resource.Record{Generation: m.Generation}}
		id, err := search.idOf(ctx, claim, made)
		switch {
		case err == nil:
			worker.ID = id
		case !errors.Is(err, errAgain) && !errors.Is(err, errNoID):
			return nil, err
		}
	}
	if worker.ID >= m.Job.Workers { // its join came too late: it is about to withdraw
		return nil, nil
	}
	return &worker, nil
}

// whyMissing is err, or why the job znode is missing: the generation has ended.
func (m *Member) whyMissing(err error) error {
	if !errors.Is(err, zkconn.ErrNoNode) {
		return err
	}
	if m.ctx.Err() == nil {
		m.end(m.generationEnded())
	}
	return context.Cause(m.ctx)
}

// Waiting for all needs no znode of its own: id/n-<N-1> exists as soon as all N have joined, and is never deleted
// while the generation lives; or joined/j-<N-1>, if the job takes ids from its workers. Each worker that waits watches
// that one znode. It writes nothing, so it may die at any time.

const maxNamed = 8

// AbsentError means that not all workers joined in time. It is a context.DeadlineExceeded. Start the workers that are
// missing, then wait again.
type AbsentError struct {
	Workers int `json:"workers"` // how many have to join
	Joined  int `json:"joined"`  // how many did
	// NotLive are identities that joined and are not live now: they may have left, completed or crashed.
	NotLive []string `json:"not_live"`
	// Missing are identities that never joined; known if those that did share a prefix before an index below N. In a job
	// that takes ids from its workers they are indexes: "index 3".
	Missing []string `json:"missing"`
}

func (e *AbsentError) Error() string {
	s := fmt.Sprintf("%d of %d workers have joined", e.Joined, e.Workers)
	if len(e.Missing) > 0 {
		s += "; missing: " + text.List(e.Missing, maxNamed)
	}
	if len(e.NotLive) > 0 {
		s += "; joined, but not live: " + text.List(e.NotLive, maxNamed)
	}
	return s
}

// Unwrap makes it a context.DeadlineExceeded.
func (e *AbsentError) Unwrap() error { return context.DeadlineExceeded }

// WaitAll waits until all N workers have joined, whether or not they are live now. It fails with AbsentError after the
// job's join timeout, or at the deadline of ctx if that is earlier. If no server answers then, the error is only
// context.DeadlineExceeded.
func (m *Member) WaitAll(ctx context.Context) error {
	err := m.waitAll(ctx)
	return m.ifLate(ctx, err, func(ctx context.Context) error {
		absent, e := m.Absent(ctx)
		switch {
		case e != nil:
			return fmt.Errorf("it is not known whether all %d workers have joined: %w", m.Job.Workers, err)
		case absent.Joined == m.Job.Workers: // the event had not come yet
			return nil
		}
		return absent
	})
}

// ifLate is err. If that says that the time of a wait is over, it is what look says, which has time for a last read.
func (m *Member) ifLate(ctx context.Context, err error, look func(context.Context) error) error {
	if !errors.Is(err, context.DeadlineExceeded) || m.ctx.Err() != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastRead)
	defer cancel()
	return look(ctx)
}

func (m *Member) waitAll(ctx context.Context) error {
	late := time.After(time.Duration(m.Job.Timeouts.Join))
	last := m.lastToJoin()
	for {
		_, joined, changed, created, err := m.session.CreatedW(ctx, last)
		if err != nil || joined {
			return err
		}
		select {
		case <-changed:
		case <-late:
			return context.DeadlineExceeded
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-m.ctx.Done():
			return context.Cause(m.ctx)
		}
		if created() {
			return nil
		}
	}
}

// lastToJoin is the znode that exists as soon as all have joined.
func (m *Member) lastToJoin() string {
	return znode.LastJoined(m.Job.Root, m.Generation, m.Job.Workers, m.Job.IDs == job.ByIndex)
}

// Absent finds out who is not there. It costs two reads, or three, however many workers there are.
func (m *Member) Absent(ctx context.Context) (*AbsentError, error) {
	joined, _, err := m.session.Children(ctx, znode.By(m.Job.Root, m.Generation))
	if err != nil {
		return nil, err
	}
	live, _, err := m.session.Children(ctx, m.Job.Path())
	if err != nil && !errors.Is(err, zkconn.ErrNoNode) {
		return nil, err
	}
	n := m.Job.Workers
	e := &AbsentError{Workers: n, Joined: min(len(joined), n), Missing: missing(joined, n)}
	if m.Job.IDs == job.ByIndex {
		ids, err := m.joinedIDs(ctx)
		if err != nil {
			return nil, err
		}
		e.Missing = nil
		for _, id := range m.ids(n) {
			if _, there := slices.BinarySearch(ids, id); !there {
				e.Missing = append(e.Missing, fmt.Sprintf("index %d", id))
			}
		}
	}
	for _, identity := range joined {
		if _, is := slices.BinarySearch(live, identity); !is {
			e.NotLive = append(e.NotLive, identity)
		}
	}
	return e, nil
}

// missing lists the identities that are not among joined, which is sorted, if all of those are one prefix and an index
// below n.
func missing(joined []string, n int) []string {
	if len(joined) == 0 {
		return nil
	}
	prefix := strings.TrimRight(joined[0], "0123456789")
	var absent []string
	for i := range n {
		identity := prefix + strconv.Itoa(i)
		if _, is := slices.BinarySearch(joined, identity); !is {
			absent = append(absent, identity)
		}
	}
	if prefix == "" || n-len(absent) != len(joined) { // others have joined too
		return nil
	}
	return absent
}

// Rounds lists the barriers of the job that are under way, and who is missing at each. See zkstate.Reader.Rounds.
func (m *Member) Rounds(ctx context.Context) ([]view.Barrier, error) {
	r := zkstate.NewReader(m.session, "", zkstate.Job())
	o, err := r.Look(ctx, m.Job.Path())
	if err != nil {
		return nil, err
	}
	return r.Rounds(ctx, o)
}

// The roll is the body of <job>: every worker by id, with its address at that time. It is written once, as version 1,
// by the last worker to join, before it leaves. If that process dies before it, any worker that joins again and finds
// the job full and the roll empty writes it. A roll that does not fit is not written: the Record then says so, and
// peers are looked up by id. A worker whose WorkerInfo cannot be read, or does not fit into the format, is in it with
// its id alone.

// writeRoll writes the roll if all have joined and nobody has written it. It is content if another worker does
// meanwhile.
func (m *Member) writeRoll(ctx context.Context) error {
	return m.untilWritten(ctx, func() error {
		stat, exists, err := m.session.Exists(ctx, m.Job.Path())
		switch {
		case err != nil || stat.Version > 0:
			return err
		case !exists:
			return m.generationEnded()
		}
		body, err := m.makeRoll(ctx)
		switch {
		case errors.Is(err, ErrNoWorker):
			return nil // not all have joined: the last to do so writes it
		case errors.Is(err, znode.ErrRollTooLarge):
			return m.recordNoRoll(ctx)
		case err != nil:
			return err
		}
		return m.writeAt(ctx, zkconn.SetOp(m.Job.Path(), body, 0))
	})
}

// writeAt is write of what has a version of its own: errAgain if that has changed.
func (m *Member) writeAt(ctx context.Context, ops ...zkconn.Op) error {
	_, err := m.write(ctx, ops...)
	if errors.Is(err, zkconn.ErrBadVersion) {
		return fmt.Errorf("%w: %w", errAgain, err)
	}
	return err
}

// makeRoll is ErrNoWorker while somebody is missing.
func (m *Member) makeRoll(ctx context.Context) ([]byte, error) {
	switch _, all, err := m.session.Exists(ctx, m.lastToJoin()); {
	case err != nil:
		return nil, err
	case !all:
		return nil, ErrNoWorker
	}
	joined, err := m.Joined(ctx)
	if err != nil {
		return nil, err
	}
	ws := make([]znode.Worker, len(joined))
	for i, w := range joined {
		ws[i] = w.Worker
		if _, err := znode.EncodeRoll(m.Job.RollFormat, ws[i:i+1]); err != nil { // a program of somebody else wrote it
			ws[i] = znode.Worker{ID: w.ID}
		}
	}
	return znode.EncodeRoll(m.Job.RollFormat, ws)
}

func (m *Member) recordNoRoll(ctx context.Context) error {
	rec, stat, err := zkstate.ReadRecord(ctx, m.session, job.Kind(), m.Job.Path())
	if err != nil || rec.Generation != m.Generation || job.NoRoll(&rec) == m.Generation {
		return err
	}
	if err := job.SetNoRoll(&rec, m.Generation); err != nil {
		return err
	}
	ops, err := zkstate.SetRecordOps(rec, stat.Version)
	if err != nil {
		return err
	}
	return m.writeAt(ctx, ops...)
}

// awaitRoll waits before a member leaves until it has tried to write the roll, if that is up to it, but for at most
// half of the time that is left.
func (m *Member) awaitRoll(ctx context.Context) {
	if m.rollTried == nil {
		return
	}
	limit := rollWait
	if end, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(end)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_ = m.await(ctx, m.rollTried) // it leaves in any case
}

// rollWait is how long Roll waits for a roll once all have joined: the worker that should write it may have died.
const rollWait = 10 * time.Second

// Roll waits until all N workers have joined, and returns them by id, each with the address that it had then. It
// costs one read of what the last worker to join has written. If that is too large, or was never written, it is what
// Joined returns.
func (m *Member) Roll(ctx context.Context) ([]Worker, error) {
	if err := m.WaitAll(ctx); err != nil {
		return nil, err
	}
	patience, cancel := context.WithTimeout(ctx, rollWait)
	defer cancel()
	var changed <-chan struct{}
	for {
		body, stat, err := m.session.Get(ctx, m.Job.Path())
		if err != nil {
			return nil, fmt.Errorf("the roll: %w", m.whyMissing(err))
		}
		if stat.Version > 0 || patience.Err() != nil {
			return m.readRoll(ctx, body)
		}
		none, err := m.noRoll(ctx)
		if err == nil && none {
			return m.Joined(ctx)
		}
		if err == nil {
			_, stat, changed, err = m.session.GetW(ctx, m.Job.Path())
		}
		if err != nil {
			return nil, fmt.Errorf("the roll: %w", m.whyMissing(err))
		}
		if stat.Version > 0 {
			continue
		}
		select {
		case <-changed:
		case <-patience.Done():
		case <-m.ctx.Done():
			return nil, context.Cause(m.ctx)
		}
	}
}

// RollVersion changes whenever the roll does; 0: nobody has written it.
func (m *Member) RollVersion(ctx context.Context) (int64, error) {
	stat, _, err := m.session.Exists(ctx, m.Job.Path())
	if stat.Version == 0 {
		return 0, err
	}
	return stat.Mzxid, err
}

// readRoll reads a roll. It falls back on Joined for one that no worker of muster can have written.
func (m *Member) readRoll(ctx context.Context, body []byte) ([]Worker, error) {
	rows, odd := znode.DecodeRoll(body)
	var ws []Worker
	for id, w := range rows {
		if w.ID == id {
			ws = append(ws, Worker{Worker: w})
		}
	}
	if len(odd) > 0 || len(ws) != len(rows) || len(ws) != m.Job.Workers {
		return m.Joined(ctx)
	}
	return ws, nil
}

// noRoll reads whether the roll of this generation was too large.
func (m *Member) noRoll(ctx context.Context) (bool, error) {
	rec, _, err := zkstate.ReadRecord(ctx, m.session, job.Kind(), m.Job.Path())
	return err == nil && job.NoRoll(&rec) == m.Generation, err
}
