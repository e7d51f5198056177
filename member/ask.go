package member

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"muster/group"
	"muster/resource"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// A request of an operator writes:
//
//	run/<g>/{seat,assigner,duty,resigned,ask}   persistent   by the first request, if no member ever joined
//	run/<g>/ask                              set          the log of requests, at the version read
//	run/<g>/ask/a-<10>                       persistent   sequential: the request
//
// That is one transaction, which checks the gate and the Record. A process that dies has written all or nothing. If the
// answer is lost, the log tells whether the request was committed: the request itself may have been decided upon and
// deleted by then. So no request is ever written twice. The assigner deletes it in the transaction that decides upon
// it.

// The errors of SendAsk, besides ErrNoGroup, ErrNotOpen and those of the session. Nothing was written.
var (
	// ErrNoDuty means that the group declares no such duty. Check its name.
	ErrNoDuty = errors.New("no such duty")
	// ErrUnfit means that the member that was named is not live, or cannot do the duty. Name another.
	ErrUnfit = errors.New("this member cannot have the duty")
	// ErrManyAsks means that too many requests wait for the assigner. Find out why no assigner decides.
	ErrManyAsks = errors.New("too many requests wait for the assigner")
)

// SendAsk writes an operator's request to the assigner of the group, and returns its znode: AwaitAnswer waits for the
// assigner's decision. The path is empty if the assigner has decided already. a.ID is chosen here.
//
// It is written whether or not a member is live: the assigner of the members that join later decides then. An error
// that wraps ErrUnknown means that nobody knows whether the request was written: look at what it was for.
func SendAsk(ctx context.Context, s *zkconn.Session, root, name string, a znode.Ask) (path string, err error) {
	a.ID = zkstate.NewID()
	q := &request{s: s, root: root, name: name, ask: a}
	if q.body, err = znode.Encode(a); err == nil {
		err = s.Sync(ctx, resource.Join(root, name))
	}
	for tries := 0; err == nil; tries++ {
		if path, err = q.attempt(ctx); err == nil {
			return path, nil
		}
		if errors.Is(err, errAgain) {
			err = again(err, tries)
		}
	}
	return "", fmt.Errorf("%s %s/%s: %w", a.Do, resource.Join(root, name), a.Duty, err)
}

// again returns nil while it is worth while to try again after errAgain. Others that write at the same time are soon
// through, but a znode that somebody put in the way may stay.
func again(err error, tries int) error {
	const most = 100
	if tries < most {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrNotOpen, err)
}

// request is a SendAsk under way.
type request struct {
	s          *zkconn.Session
	root, name string
	ask        znode.Ask
	body       []byte
	generation string // as read by this attempt
	version    int32  // of the log, as read by this attempt; -1: it is not there yet
}

// attempt writes the request once. errAgain means that nothing was written, because what was read has changed.
func (q *request) attempt(ctx context.Context) (path string, err error) {
	at := znode.Record(group.KindName, q.root, q.name)
	body, stat, err := q.s.Get(ctx, at)
	switch {
	case errors.Is(err, zkconn.ErrNoNode):
		return "", ErrNoGroup
	case err != nil:
		return "", err
	}
	rec, err := znode.DecodeRecordAt(group.Kind(), resource.Join(q.root, q.name), body)
	if err == nil {
		err = zkstate.CheckOwn(ctx, q.s, &rec)
	}
	if err != nil {
		return "", err
	}
	q.generation = rec.Generation
	if err := q.check(ctx, &rec); err != nil {
		return "", err
	}
	acl, err := zkstate.ParseACL(rec.ACL)
	if err != nil {
		return "", err
	}
	log, err := q.logOps(ctx, acl)
	if err != nil {
		return "", err
	}
	gate := zkconn.CheckOp(znode.Gate(q.root, q.generation), -1)
	ops := append([]zkconn.Op{gate, zkconn.CheckOp(at, stat.Version)}, log...)
	results, err := q.s.Multi(ctx, append(ops,
		zkconn.CreateOp(znode.NewAsk(q.root, q.generation), q.body, zkconn.PersistentSequential, acl))...)
	switch {
	case err == nil:
		return results[len(ops)].Path, nil
	case errors.Is(err, zkconn.ErrUnknown):
		return q.find(ctx, err)
	case refusedAt(err, znode.Gate(q.root, q.generation), zkconn.ErrNoNode):
		return "", q.refusedGate(ctx, at, stat.Version, err)
	case errors.Is(err, zkconn.ErrBadVersion), errors.Is(err, zkconn.ErrNoNode), errors.Is(err, zkconn.ErrNodeExists):
		return "", fmt.Errorf("%w: %w", errAgain, err)
	}
	return "", err
}

// check refuses a request that no assigner could follow.
func (q *request) check(ctx context.Context, rec *resource.Record) error {
	if rec.State == resource.StateTerminating {
		return fmt.Errorf("%w: they were asked to stop", ErrNotOpen)
	}
	d, ok := group.Of(rec).Duty(q.ask.Duty)
	if !ok {
		return ErrNoDuty
	}
	if q.ask.To == "" {
		return nil
	}
	body, stat, err := q.s.Get(ctx, znode.Live(q.root, q.name, q.ask.To))
	switch {
	case errors.Is(err, zkconn.ErrNoNode) || err == nil && stat.EphemeralOwner == 0:
		return fmt.Errorf("%w: %s is not live", ErrUnfit, q.ask.To)
	case err != nil:
		return err
	}
	p, err := znode.Decode[znode.Present](body)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %s: %w", ErrUnfit, q.ask.To, err)
	case !slices.Contains(p.Can, q.ask.Duty):
		return fmt.Errorf("%w: %s does not list it", ErrUnfit, q.ask.To)
	case !d.Fits(p.Version):
		return fmt.Errorf("%w: %s has version %s, and the duty wants %s", ErrUnfit, q.ask.To, p.Version, d.Versions)
	}
	return nil
}

// logOps adds the request to the log. It makes the folders if no member ever joined.
func (q *request) logOps(ctx context.Context, acl []zkconn.ACL) ([]zkconn.Op, error) {
	run, dir := znode.Run(q.root, q.generation), znode.Asks(q.root, q.generation)
	parts, _, err := q.s.Children(ctx, run) // before the next read: only then a missing folder is damage
	if err != nil && !errors.Is(err, zkconn.ErrNoNode) {
		return nil, err
	}
	body, stat, err := q.s.Get(ctx, dir)
	switch {
	case errors.Is(err, zkconn.ErrNoNode) && len(parts) != 1:
		return nil, fmt.Errorf("%w: %s was deleted by hand: muster apply puts back what it can", ErrNotOpen, dir)
	case errors.Is(err, zkconn.ErrNoNode):
		stat = zkconn.Stat{Version: -1}
	case err != nil:
		return nil, err
	case stat.NumChildren >= znode.MaxAsks:
		return nil, fmt.Errorf("%w: %d do", ErrManyAsks, stat.NumChildren)
	}
	q.version = stat.Version
	next, err := withRequest(body, q.ask.ID)
	if err != nil || stat.Version >= 0 {
		return []zkconn.Op{zkconn.SetOp(dir, next, stat.Version)}, err
	}
	var ops []zkconn.Op
	for _, name := range znode.GroupFolders() {
		at := resource.Join(run, name)
		if at == dir {
			ops = append(ops, zkconn.CreateOp(at, next, zkconn.Persistent, acl))
			continue
		}
		ops = append(ops, zkconn.CreateOp(at, nil, zkconn.Persistent, acl))
	}
	return ops, nil
}

// find finds out whether a request was committed whose answer was lost.
func (q *request) find(ctx context.Context, lost error) (path string, err error) {
	dir := znode.Asks(q.root, q.generation)
	if err := inLog(ctx, q.s, dir, q.version, q.ask.ID, lost); err != nil {
		return "", err
	}
	return q.findEntry(ctx, dir)
}

// withRequest adds a request to the log of requests that a folder has.
func withRequest(folder []byte, id string) ([]byte, error) {
	log, err := znode.DecodeAskLog(folder)
	if err != nil {
		log = znode.AskLog{} // written by hand
	}
	return znode.Encode(log.With(id))
}

// inLog returns nil if a request was committed whose answer was lost, and errAgain if it was not. version is that of
// the folder when it was asked.
func inLog(ctx context.Context, s *zkconn.Session, folder string, version int32, id string, lost error) error {
	if err := s.Settled(ctx); err != nil {
		return fmt.Errorf("%w: %w", lost, err)
	}
	body, stat, err := s.Get(ctx, folder)
	switch {
	case errors.Is(err, zkconn.ErrNoNode): // the group was deleted
		return errAgain
	case err != nil:
		return fmt.Errorf("%w: %w", lost, err)
	}
	log, err := znode.DecodeAskLog(body)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", lost, err)
	case slices.Contains(log.Last, id):
		return nil
	case stat.Version-version > znode.MaxAskLog: // the log may have forgotten it
		return lost
	}
	return errAgain
}

// findEntry returns the path of the request, which was committed; empty if the assigner has deleted it.
func (q *request) findEntry(ctx context.Context, dir string) (path string, err error) {
	names, _, err := q.s.Children(ctx, dir)
	if err != nil {
		return "", err
	}
	for _, name := range slices.Backward(names) { // the newest are last
		body, _, err := q.s.Get(ctx, resource.Join(dir, name))
		if errors.Is(err, zkconn.ErrNoNode) {
			continue
		}
		if err != nil {
			return "", err
		}
		if a, err := znode.Decode[znode.Ask](body); err == nil && a.ID == q.ask.ID {
			return resource.Join(dir, name), nil
		}
	}
	return "", nil
}

// refusedGate says why the gate is gone: the Record has changed, or somebody deleted the gate by hand.
func (q *request) refusedGate(ctx context.Context, record string, version int32, err error) error {
	stat, there, readErr := q.s.Exists(ctx, record)
	switch {
	case readErr != nil:
		return readErr
	case !there || stat.Version != version:
		return errAgain
	}
	return fmt.Errorf("%w: %w: muster apply puts it back", ErrNotOpen, err)
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
