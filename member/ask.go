package member

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"muster/resource"
	"muster/resource/group"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// A request of an operator, to the assigner or for a run of a cron, writes:
//
//	run/<g>/{seat,assigner,duty,resigned,ask}   persistent   by the first request, if no member ever joined
//	run/<g>/ask                                 set          the log of requests, at the version read
//	run/<g>/ask/a-<10>                          persistent   sequential: the request
//
// or, instead of the last two,
//
//	run/<g>/duty/<d>              persistent   if nobody ever took the duty
//	run/<g>/duty/<d>/now          set          the log of requests, at the version read; the first time created
//	run/<g>/duty/<d>/now/n-<10>   persistent   sequential: the request, and later the record of its run
//
// That is one transaction, which checks the gate and the Record. A process that dies has written all or nothing. If the
// answer is lost, the log tells whether the request was committed: the request itself may have been decided upon and
// deleted by then, or have run and not be kept any more. So no request is ever written twice. The assigner deletes its
// own in the transaction that decides upon it.

// The errors of SendAsk and AskRun, besides ErrNoGroup, ErrNotOpen and those of the session. Nothing was written.
var (
	// ErrNoDuty means that the group declares no such duty. Check its name.
	ErrNoDuty = errors.New("no such duty")
	// ErrUnfit means that the member that was named is not live, or cannot do the duty. Name another.
	ErrUnfit = errors.New("this member cannot have the duty")
	// ErrManyAsks means that too many requests wait for the assigner. Find out why no assigner decides.
	ErrManyAsks = errors.New("too many requests wait for the assigner")
	// ErrNoCron means that the group declares no cron of this name. Check the name, or apply the group.
	ErrNoCron = errors.New("no such cron")
	// ErrAskedTooOften means that too many runs wait that operators asked for. Wait until some of them have ended.
	ErrAskedTooOften = errors.New("100 runs wait already that were asked for")

	errRunForgotten = errors.New("the reply was lost; it was asked for, and its record is deleted again: it has ended")
)

// maxAsked is how many runs of one duty that operators asked for wait at most.
const maxAsked = 100

type request struct {
	s                *zkconn.Session
	root, name, duty string
	id               string // with it its sender recognises its own write
	body             []byte
	folder, entry    func(root, g, duty string) string // where it is written
	idOf             func(body []byte) string
	check            func(ctx context.Context, rec *resource.Record) error // refuses what cannot be done

	generation string // as read by this attempt
	version    int32  // of the log, as read by this attempt; -1: it is not there yet
}

// SendAsk writes an operator's request to the assigner of the group, and returns its znode: AwaitAnswer waits for the
// assigner's decision. The path is empty if the assigner has decided already. a.ID is chosen here.
//
// It is written whether or not a member is live: the assigner of the members that join later decides then. An error
// that wraps ErrUnknown means that nobody knows whether the request was written: look at what it was for.
func SendAsk(ctx context.Context, s *zkconn.Session, root, name string, a znode.Ask) (at string, err error) {
	defer resource.Wrapf(&err, "%s %s/%s", a.Do, resource.Join(root, name), a.Duty)
	a.ID = zkstate.NewID()
	q := &request{
		s: s, root: root, name: name, duty: a.Duty, id: a.ID,
		folder: func(root, g, _ string) string { return znode.Asks(root, g) },
		entry:  func(root, g, _ string) string { return znode.NewAsk(root, g) },
		idOf: func(body []byte) string {
			a, _ := znode.Decode[znode.Ask](body)
			return a.ID
		},
	}
	q.check = func(ctx context.Context, rec *resource.Record) error { return q.checkAsk(ctx, rec, a) }
	if q.body, err = znode.Encode(a); err != nil {
		return "", err
	}
	return q.send(ctx)
}

// AskRun asks for a run of a cron duty now, for an operator: by is user@host. It returns the number of the request,
// from 1. It does not wait for the run: Runs tells what became of it.
//
// The holder runs it next, after the run that goes on. A duty without a holder runs it when it has one. So one that is
// paused runs it when the pause ends. While the assigner deletes what the duty had left before it was declared again,
// AskRun waits.
func AskRun(ctx context.Context, s *zkconn.Session, root, name, duty, by string) (number int64, err error) {
	defer resource.Wrapf(&err, "run %s/%s", resource.Join(root, name), duty)
	q := &request{
		s: s, root: root, name: name, duty: duty, id: zkstate.NewID(), folder: znode.Nows, entry: znode.NewNow,
		idOf: func(body []byte) string {
			r, _ := znode.Decode[znode.TickRecord](body)
			return r.Nonce
		},
	}
	q.check = q.checkRun
	q.body, err = znode.Encode(znode.TickRecord{
		State: znode.TickAsked, Asked: time.Now().UTC().Round(0), AskedBy: by, Nonce: q.id,
	})
	if err != nil {
		return 0, err
	}
	at, err := q.send(ctx)
	switch {
	case err != nil:
		return 0, err
	case at == "":
		return 0, errRunForgotten
	}
	return znode.NowNumber(at)
}

// send writes the request, and returns its path; empty if it was deleted since.
func (q *request) send(ctx context.Context) (at string, err error) {
	const most = 101
	if err := q.s.Sync(ctx, resource.Join(q.root, q.name)); err != nil {
		return "", err
	}
	for range most {
		if at, err = q.attempt(ctx); !errors.Is(err, errAgain) {
			return at, err
		}
	}
	// Others that write at the same time are soon through, but what somebody did by hand may stay.
	return "", fmt.Errorf("%w: a part of it was deleted by hand: muster apply puts it back: %w", ErrNotOpen, err)
}

// attempt writes the request once. errAgain means that nothing was written, because what was read has changed.
func (q *request) attempt(ctx context.Context) (at string, err error) {
	rec, stat, err := zkstate.ReadRecord(ctx, q.s, group.Kind(), resource.Join(q.root, q.name))
	if errors.Is(err, zkconn.ErrNoNode) {
		return "", ErrNoGroup
	}
	if err == nil {
		err = zkstate.CheckOwn(ctx, q.s, &rec)
	}
	if err == nil && rec.State == resource.StateTerminating {
		err = fmt.Errorf("%w: they were asked to stop", ErrNotOpen)
	}
	if err != nil {
		return "", err
	}
	q.generation = rec.Generation
	if err := q.check(ctx, &rec); err != nil {
		return "", err
	}
	ops, err := q.ops(ctx, &rec, stat.Version)
	if err != nil {
		return "", err
	}
	results, err := q.s.Multi(ctx, ops...)
	switch {
	case err == nil:
		return results[len(ops)-1].Path, nil
	case errors.Is(err, zkconn.ErrUnknown):
		return q.find(ctx, err)
	case zkconn.PreconditionFailed(err):
		return "", fmt.Errorf("%w: %w", errAgain, err)
	}
	return "", err
}

// checkAsk refuses a request that no assigner could follow.
func (q *request) checkAsk(ctx context.Context, rec *resource.Record, a znode.Ask) error {
	d, ok := group.Of(rec).Duty(a.Duty)
	if !ok {
		return ErrNoDuty
	}
	waiting, there, err := q.s.Exists(ctx, znode.Asks(q.root, q.generation))
	if err == nil && there && waiting.NumChildren >= znode.MaxAsks {
		err = fmt.Errorf("%w: %d do", ErrManyAsks, waiting.NumChildren)
	}
	if err != nil || a.To == "" {
		return err
	}
	body, stat, err := q.s.Get(ctx, znode.Live(q.root, q.name, a.To))
	switch {
	case errors.Is(err, zkconn.ErrNoNode) || err == nil && stat.EphemeralOwner == 0:
		return fmt.Errorf("%w: %s is not live", ErrUnfit, a.To)
	case err != nil:
		return err
	}
	p, err := znode.Decode[znode.Present](body)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %s: %w", ErrUnfit, a.To, err)
	case !slices.Contains(p.Can, a.Duty):
		return fmt.Errorf("%w: %s does not list it", ErrUnfit, a.To)
	case !d.Fits(p.Version):
		return fmt.Errorf("%w: %s has version %s, and the duty wants %s", ErrUnfit, a.To, p.Version, d.Versions)
	}
	return nil
}

// checkRun refuses a run of what is no cron, or if too many wait. It waits while the assigner deletes what the duty has
// left, which was taken out of the group and declared again: it would delete the request too. The assigner begins with
// that only while the duty is not declared, so it cannot begin after the Record was read that the request checks.
func (q *request) checkRun(ctx context.Context, rec *resource.Record) error {
	d, ok := group.Of(rec).Duty(q.duty)
	switch {
	case !ok:
		return fmt.Errorf("%w: the group declares no duty %q", ErrNoCron, q.duty)
	case d.Type != group.Cron:
		return fmt.Errorf("%w: %s is a leader, which runs as long as a member holds it", ErrNoCron, q.duty)
	}
	body, _, changed, err := q.s.GetW(ctx, znode.Assigner(q.root, q.generation))
	if err != nil && !errors.Is(err, zkconn.ErrNoNode) {
		return err
	}
	if memory, _ := znode.Decode[znode.AssignerMemory](body); slices.Contains(memory.Purge, q.duty) {
		select {
		case <-changed:
			return errAgain
		case <-ctx.Done():
		case <-time.After(damageCheck):
		}
		return fmt.Errorf("%w: what the duty has left is being deleted: try again", ErrNotOpen)
	}
	folder := znode.Nows(q.root, q.generation, q.duty)
	names, _, err := q.s.Children(ctx, folder)
	if err != nil && !errors.Is(err, zkconn.ErrNoNode) {
		return err
	}
	found, err := readTicks(ctx, q.s, recordPaths(folder, names))
	waiting := 0
	for _, r := range found {
		if r != nil && (r.State == znode.TickAsked || r.State == znode.TickWaiting && r.Attempt == 0) {
			waiting++
		}
	}
	if err == nil && waiting >= maxAsked {
		err = ErrAskedTooOften
	}
	return err
}

// ops is the transaction of the request, with which it adds itself to the log. It makes the folders if no member ever
// joined.
func (q *request) ops(ctx context.Context, rec *resource.Record, record int32) ([]zkconn.Op, error) {
	acl, err := zkstate.ParseACL(rec.ACL)
	if err != nil {
		return nil, err
	}
	run, dir := znode.Run(q.root, q.generation), q.folder(q.root, q.generation, q.duty)
	parts, _, err := q.s.Children(ctx, run) // before the next read: only then a missing folder is damage
	if err != nil && !errors.Is(err, zkconn.ErrNoNode) {
		return nil, err
	}
	body, stat, there, err := zkconn.IfThere(q.s.Get(ctx, dir))
	if err != nil {
		return nil, err
	}
	log, _ := znode.Decode[znode.AskLog](body) // none yet, or written by hand: nobody knows of any
	if body, err = znode.Encode(log.With(q.id)); err != nil {
		return nil, err
	}
	ops := []zkconn.Op{
		zkconn.CheckOp(znode.Gate(q.root, q.generation), -1),
		zkconn.CheckOp(znode.Record(group.KindName, q.root, q.name), record),
	}
	entry := zkconn.CreateOp(q.entry(q.root, q.generation, q.duty), q.body, zkconn.PersistentSequential, acl)
	if q.version = stat.Version; there {
		return append(ops, zkconn.SetOp(dir, body, stat.Version), entry), nil
	}
	q.version = -1
	missing, err := q.missing(ctx, run, dir, parts)
	for _, at := range missing {
		op := zkconn.CreateOp(at, nil, zkconn.Persistent, acl)
		if at == dir {
			op = zkconn.CreateOp(at, body, zkconn.Persistent, acl)
		}
		ops = append(ops, op)
	}
	return append(ops, entry), err
}

// missing are the znodes that have to be made for the folder of the request, parents first. parts are those of the
// generation.
func (q *request) missing(ctx context.Context, run, dir string, parts []string) (all []string, err error) {
	if len(parts) == 1 { // the gate: no member has joined yet
		for _, name := range znode.GroupFolders() {
			all = append(all, resource.Join(run, name))
		}
	}
	if slices.Contains(all, dir) {
		return all, nil
	}
	parent := path.Dir(dir)
	if parent == run {
		return nil, fmt.Errorf("%w: %s was deleted by hand: muster apply puts back what it can", ErrNotOpen, dir)
	}
	_, there, err := q.s.Exists(ctx, parent)
	if !there {
		all = append(all, parent)
	}
	return append(all, dir), err
}

// find finds out whether a request was committed whose answer was lost. If so it returns its path; empty if it was
// deleted since.
func (q *request) find(ctx context.Context, lost error) (at string, err error) {
	if err := q.s.Settled(ctx); err != nil {
		return "", fmt.Errorf("%w: %w", lost, err)
	}
	dir := q.folder(q.root, q.generation, q.duty)
	body, stat, err := q.s.Get(ctx, dir)
	switch {
	case errors.Is(err, zkconn.ErrNoNode): // the group was deleted
		return "", errAgain
	case err != nil:
		return "", fmt.Errorf("%w: %w", lost, err)
	}
	log, err := znode.DecodeOrZero[znode.AskLog](body)
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: %w", lost, err)
	case slices.Contains(log.Last, q.id):
	case stat.Version-q.version > znode.MaxAskLog: // the log may have forgotten it
		return "", lost
	default:
		return "", errAgain
	}
	names, _, err := q.s.Children(ctx, dir)
	if err != nil {
		return "", err
	}
	for _, name := range slices.Backward(names) { // the newest are last
		body, _, err := q.s.Get(ctx, resource.Join(dir, name))
		if err != nil && !errors.Is(err, zkconn.ErrNoNode) {
			return "", err
		}
		if q.idOf(body) == q.id {
			return resource.Join(dir, name), nil
		}
	}
	return "", nil
}

// AwaitAnswer waits until the assigner has decided upon a request, or until ctx or the session ends: it returns the
// cause then. An empty path is one that was decided upon.
func AwaitAnswer(ctx context.Context, s *zkconn.Session, path string) error {
	for path != "" {
		_, there, changed, err := s.ExistsW(ctx, path)
		if err != nil || !there {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
