package member

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"muster/group"
	"muster/resource"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// maxAsked is how many runs of one duty that operators asked for wait at most.
const maxAsked = 100

var (
	// ErrNoCron means that the group declares no cron of this name. Check the name, or apply the group.
	ErrNoCron = errors.New("no such cron")
	// ErrAskedTooOften means that too many runs wait that operators asked for. Wait until some of them have ended.
	ErrAskedTooOften = errors.New("100 runs wait already that were asked for")

	errRunForgotten = errors.New("the reply was lost; it was asked for, and its record is deleted again: it has ended")
)

// RunRecord is what is recorded of a run, of a range of ticks that did not run, or of a run that an operator asked for.
type RunRecord struct {
	Tick  time.Time // of a range: the last one. Zero: an operator asked for the run
	Asked int64     // the number of that request, from 1; 0: it is a tick
	znode.TickRecord
}

// Runs returns what is recorded of a cron duty, the newest first, at most n. What an operator asked for comes where it
// began, or was asked for. The duty needs no holder.
func Runs(ctx context.Context, s zkstate.Source, root, generation, duty string, n int) ([]RunRecord, error) {
	var paths []string
	for folder, pathsOf := range map[string]func(string, []string) []string{
		znode.Ticks(root, generation, duty): tickPaths, znode.Nows(root, generation, duty): nowPaths,
	} {
		names, _, err := s.Children(ctx, folder)
		if err != nil && !errors.Is(err, zkconn.ErrNoNode) {
			return nil, err
		}
		newest := pathsOf(folder, names)
		slices.SortFunc(newest, func(a, b string) int { return cmp.Compare(b, a) }) // both kinds of names sort by age
		paths = append(paths, newest[:min(n, len(newest))]...)
	}
	found, err := readTicks(ctx, s, paths)
	if err != nil {
		return nil, err
	}
	var runs []RunRecord
	for i, path := range paths {
		if entry := found[i]; entry != nil && entry.State != "" {
			r := RunRecord{TickRecord: *entry}
			r.Tick, r.Asked = tickOf(path)
			runs = append(runs, r)
		}
	}
	slices.SortStableFunc(runs, func(a, b RunRecord) int {
		return cmp.Or(b.when().Compare(a.when()), cmp.Compare(b.Asked, a.Asked))
	})
	return runs[:min(n, len(runs))], nil
}

// when orders records.
func (r RunRecord) when() time.Time {
	if r.Asked == 0 {
		return r.Tick
	}
	return cmp.Or(r.Started, r.TickRecord.Asked)
}

// readTicks reads records; nil for one that is gone.
func readTicks(ctx context.Context, s zkstate.Source, paths []string) ([]*znode.TickRecord, error) {
	found := make([]*znode.TickRecord, len(paths))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxReads)
	for i, path := range paths {
		g.Go(func() (err error) {
			found[i], err = readTick(ctx, s, path)
			return err
		})
	}
	return found, g.Wait()
}

// AskRun asks for a run of a cron duty now, for an operator: by is user@host. It writes
//
//	run/<g>/duty/<d>/now          set          the log of requests, at the version read
//	run/<g>/duty/<d>/now/n-<10>   persistent   sequential: the request, and later the record of its run
//
// and what that lies in, in one transaction that checks the gate and the Record. It returns the number of the request,
// from 1. It does not wait for the run: Runs tells what became of it. After a lost reply the log tells whether it was
// written, even if its run has ended and is not kept any more.
//
// The holder runs it next, after the run that goes on. A duty without a holder runs it when it has one. So one that is
// paused runs it when the pause ends. While the assigner deletes what the duty had left before it was declared again,
// AskRun waits.
//
// Its errors, besides those of the session: ErrNoGroup, ErrNotOpen, ErrNoCron and ErrAskedTooOften. Nothing was written
// then.
func AskRun(ctx context.Context, s *zkconn.Session, root, name, duty, by string) (number int64, err error) {
	a := &ask{s: s, root: root, name: name, duty: duty, id: zkstate.NewID()}
	a.body, err = znode.Encode(znode.TickRecord{
		State: znode.TickAsked, Asked: time.Now().UTC().Round(0), AskedBy: by, Nonce: a.id,
	})
	for tries := 0; err == nil; tries++ {
		if number, err = a.attempt(ctx); err == nil {
			return number, nil
		}
		if errors.Is(err, errAgain) {
			err = again(err, tries)
		}
	}
	return 0, fmt.Errorf("run %s/%s: %w", resource.Join(root, name), duty, err)
}

// ask is an AskRun under way.
type ask struct {
	s                *zkconn.Session
	root, name, duty string
	id               string
	body             []byte
	version          int32 // of the log, as read by this attempt; -1: it is not there yet
}

// attempt asks once. errAgain means that something has changed meanwhile.
func (a *ask) attempt(ctx context.Context) (int64, error) {
	rec, version, err := a.record(ctx)
	if err != nil {
		return 0, err
	}
	if err := a.awaitPurge(ctx, rec.Generation); err != nil {
		return 0, err
	}
	if err := a.room(ctx, rec.Generation); err != nil {
		return 0, err
	}
	ops, err := a.ops(ctx, rec, version)
	if err != nil {
		return 0, err
	}
	results, err := a.s.Multi(ctx, ops...)
	switch {
	case err == nil:
		return znode.NowNumber(results[len(results)-1].Path)
	case errors.Is(err, zkconn.ErrUnknown):
		return a.find(ctx, rec.Generation, err)
	case refusedAt(err, znode.Gate(a.root, rec.Generation), zkconn.ErrNoNode):
		return 0, fmt.Errorf("%w: a part of it was deleted by hand: apply again", ErrNotOpen)
	}
	if errors.Is(err, zkconn.ErrBadVersion) || errors.Is(err, zkconn.ErrNodeExists) || errors.Is(err, zkconn.ErrNoNode) {
		err = fmt.Errorf("%w: %w", errAgain, err)
	}
	return 0, err
}

// record reads the Record, and refuses what cannot be run.
func (a *ask) record(ctx context.Context) (rec resource.Record, version int32, err error) {
	body, stat, err := a.s.Get(ctx, znode.Record(group.KindName, a.root, a.name))
	if errors.Is(err, zkconn.ErrNoNode) {
		return rec, 0, fmt.Errorf("%w: apply it, or check its name and root", ErrNoGroup)
	}
	if err != nil {
		return rec, 0, err
	}
	if rec, err = znode.DecodeRecordAt(group.Kind(), resource.Join(a.root, a.name), body); err != nil {
		return rec, 0, err
	}
	d, ok := group.Of(&rec).Duty(a.duty)
	switch {
	case rec.State == resource.StateTerminating:
		err = fmt.Errorf("%w: it is being terminated", ErrNotOpen)
	case !ok:
		err = fmt.Errorf("%w: the group declares no duty %q", ErrNoCron, a.duty)
	case d.Type != group.Cron:
		err = fmt.Errorf("%w: %s is a leader, which runs as long as a member holds it", ErrNoCron, a.duty)
	default:
		err = zkstate.CheckOwn(ctx, a.s, &rec)
	}
	return rec, stat.Version, err
}

// awaitPurge waits while the assigner deletes what the duty has left, which was taken out of the group and declared
// again: it would delete the request too. The assigner begins with that only while the duty is not declared, so it
// cannot begin after the Record was read that the request checks.
func (a *ask) awaitPurge(ctx context.Context, g string) error {
	body, _, changed, err := a.s.GetW(ctx, znode.Assigner(a.root, g))
	if errors.Is(err, zkconn.ErrNoNode) {
		return nil
	}
	if err != nil {
		return err
	}
	if memory, err := znode.DecodeAssigner(body); err != nil || !slices.Contains(memory.Purge, a.duty) {
		return nil
	}
	select {
	case <-changed:
		return errAgain
	case <-after(ctx, damageCheck):
		return fmt.Errorf("%w: what the duty has left is being deleted: try again", ErrNotOpen)
	}
}

// room refuses a request if too many wait.
func (a *ask) room(ctx context.Context, g string) error {
	found, _, err := a.requests(ctx, g)
	waiting := 0
	for _, entry := range found {
		if entry != nil && (entry.State == znode.TickAsked || entry.State == znode.TickWaiting && entry.Attempt == 0) {
			waiting++
		}
	}
	if err == nil && waiting >= maxAsked {
		err = ErrAskedTooOften
	}
	return err
}

// requests reads all requests of the duty.
func (a *ask) requests(ctx context.Context, g string) (found []*znode.TickRecord, paths []string, err error) {
	folder := znode.Nows(a.root, g, a.duty)
	names, _, err := a.s.Children(ctx, folder)
	if errors.Is(err, zkconn.ErrNoNode) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	paths = nowPaths(folder, names)
	found, err = readTicks(ctx, a.s, paths)
	return found, paths, err
}

// find looks for the own request after a lost reply.
func (a *ask) find(ctx context.Context, g string, lost error) (number int64, err error) {
	if err := inLog(ctx, a.s, znode.Nows(a.root, g, a.duty), a.version, a.id, lost); err != nil {
		return 0, err
	}
	entries, paths, err := a.requests(ctx, g)
	for i, entry := range entries {
		if entry != nil && entry.Nonce == a.id {
			_, number = tickOf(paths[i])
			return number, err
		}
	}
	return 0, cmp.Or(err, errRunForgotten)
}

// ops is the transaction of a request.
func (a *ask) ops(ctx context.Context, rec resource.Record, version int32) ([]zkconn.Op, error) {
	acl, err := zkstate.ParseACL(rec.ACL)
	if err != nil {
		return nil, err
	}
	g := rec.Generation
	ops := []zkconn.Op{
		zkconn.CheckOp(znode.Gate(a.root, g), -1),
		zkconn.CheckOp(znode.Record(group.KindName, a.root, a.name), version),
	}
	var missing []string
	_, there, err := a.s.Exists(ctx, znode.Duties(a.root, g))
	if err == nil && !there { // no member has joined yet
		for _, folder := range znode.GroupFolders() {
			missing = append(missing, resource.Join(znode.Run(a.root, g), folder))
		}
	}
	duty, nows := znode.Duty(a.root, g, a.duty), znode.Nows(a.root, g, a.duty)
	if err == nil {
		if _, there, err = a.s.Exists(ctx, duty); err == nil && !there {
			missing = append(missing, duty)
		}
	}
	for _, path := range missing {
		ops = append(ops, zkconn.CreateOp(path, nil, zkconn.Persistent, acl))
	}
	if err != nil {
		return nil, err
	}
	body, stat, err := a.s.Get(ctx, nows)
	if err != nil && !errors.Is(err, zkconn.ErrNoNode) {
		return nil, err
	}
	log, encoding := withRequest(body, a.id)
	if a.version = stat.Version; err == nil {
		ops = append(ops, zkconn.SetOp(nows, log, stat.Version))
	} else {
		a.version, ops = -1, append(ops, zkconn.CreateOp(nows, log, zkconn.Persistent, acl))
	}
	return append(ops,
		zkconn.CreateOp(znode.NewNow(a.root, g, a.duty), a.body, zkconn.PersistentSequential, acl)), encoding
}
