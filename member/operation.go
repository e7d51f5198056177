package member

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/semaphore"

	"muster/resource"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// An operation is work in steps that another holder goes on with if this one dies. Its journal:
//
//	duty/<d>/op/<name>             persistent   created: the opening, which names the folder of the steps
//	duty/<d>/op/<name>/<id>        persistent   created in the same transaction
//	duty/<d>/op                    set empty in the same transaction: apply sees by its version that one was opened
//	duty/<d>/op/<name>/<id>/<key>  persistent   created when a step begins, set when it is done; see Step
//	duty/<d>/op/<name>             set empty: closed. Then all of it is deleted, from below, some znodes at a time
//
// Each write checks that the writer is the holder. A process that dies between two of them leaves the operation open;
// the next holder resumes it. One that dies after the opening was set empty leaves a closed one, whose remains the next
// Open, of any operation, deletes. A new opening has another id, so it never finds old steps.

var (
	// ErrOperationBusy means that another runner in this process has opened the operation. Wait until it ends.
	ErrOperationBusy = errors.New("another runner has opened this operation")
	// ErrOtherScript means that another script opened the operation. Run that one, or adopt the operation, if the
	// steps that are done mean the same in this script.
	ErrOtherScript = errors.New("another script opened this operation")
	// ErrNoOperation means that no operation of this name is open.
	ErrNoOperation = errors.New("no such operation is open")
	// ErrOperationLimit means that the duty has too many open operations, or the operation too many steps or too much
	// output. Nothing was written.
	ErrOperationLimit = errors.New("a limit of operations is reached")
	// ErrOperationOver means that this Operation was closed, left or aborted. Open it again.
	ErrOperationOver = errors.New("the operation is over")
)

// opDepth is how many levels are below the znode of an operation.
const opDepth = 2

// Operation is an open operation and its one runner in this process. Its methods may be called concurrently.
type Operation struct {
	Name    string
	ID      string
	Resumed bool // somebody opened it before

	h       *Hold
	turn    *semaphore.Weighted // 1
	over    bool                // guarded by turn
	unsure  bool                // guarded by turn: the outcome of a write is unknown, so journal is
	journal znode.Journal       // guarded by turn
	seen    map[string]bool     // guarded by turn: keys of the steps of this run
}

// Open opens the operation of this name, or resumes it if somebody opened it before and has not closed it. script is a
// digest of what runs it: only the same script resumes it, or another one that adopts it. Only one runner in this
// process has an operation, until Close or Leave. If the error is ErrUnknown, the operation may be open.
func (h *Hold) Open(ctx context.Context, name, script string, adopt bool) (_ *Operation, err error) {
	defer resource.Wrapf(&err, "open %s of %s", name, h.Duty)
	if err := znode.CheckOperation(name); err != nil {
		return nil, err
	}
	if err := h.opening.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer h.opening.Release(1)
	if _, busy := h.runners.LoadOrStore(name, true); busy {
		return nil, ErrOperationBusy
	}
	defer func() {
		if err != nil {
			h.runners.Delete(name)
		}
	}()
	if err := h.m.session.Settled(ctx); err != nil { // a write whose caller gave up may still have been on its way
		return nil, err
	}
	others, err := h.cleanOperations(ctx, name)
	if err != nil {
		return nil, err
	}
	old, err := h.readOpening(ctx, name)
	if err != nil {
		return nil, err
	}
	if old == nil && others >= znode.MaxOperations {
		return nil, fmt.Errorf("%w: %d operations of the duty are open", ErrOperationLimit, others)
	}
	next := znode.Opening{ID: zkstate.NewID(), Script: script, By: h.m.Identity, Epoch: h.Epoch, Runs: 1}
	if old != nil {
		if old.Script != script && !adopt {
			return nil, fmt.Errorf("%w: its digest is %s, and this one's %s", ErrOtherScript, old.Script, script)
		}
		next.ID, next.Runs = old.ID, old.Runs+1
	}
	o := &Operation{
		Name: name, ID: next.ID, Resumed: old != nil, h: h, turn: semaphore.NewWeighted(1), seen: map[string]bool{},
	}
	if err := o.begin(ctx, next); err != nil {
		return nil, err
	}
	return o, nil
}

// cleanOperations deletes what is left of closed operations, and counts the open ones but for this one.
func (h *Hold) cleanOperations(ctx context.Context, but string) (open int, err error) {
	folder := znode.Ops(h.m.root, h.m.Generation, h.Duty)
	if err := h.make(ctx, folder); err != nil {
		return 0, err
	}
	names, _, err := h.m.session.Children(ctx, folder)
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		at := h.operationAt(name)
		body, _, err := h.m.session.Get(ctx, at)
		switch {
		case err == nil && len(body) == 0:
			err = h.removeTree(ctx, at, opDepth)
		case err == nil && name != but:
			open++
		case errors.Is(err, zkconn.ErrNoNode): // deleted by hand
			err = nil
		}
		if err != nil {
			return 0, err
		}
	}
	return open, nil
}

// readOpening reads the opening of an operation; nil if it is not open.
func (h *Hold) readOpening(ctx context.Context, name string) (*znode.Opening, error) {
	body, _, _, err := zkconn.IfThere(h.m.session.Get(ctx, h.operationAt(name)))
	if err != nil || len(body) == 0 {
		return nil, err
	}
	opening, err := znode.Decode[znode.Opening](body)
	if err != nil {
		return nil, fmt.Errorf("it cannot be read; abort it: %w", err)
	}
	return &opening, nil
}

func (o *Operation) begin(ctx context.Context, next znode.Opening) error {
	body, err := znode.Encode(next)
	if err != nil {
		return err
	}
	at := o.h.operationAt(o.Name)
	if o.Resumed {
		if _, err := o.h.writeAgain(ctx, zkconn.SetOp(at, body, -1)); err != nil {
			return err
		}
		return o.readJournal(ctx)
	}
	journal, err := znode.Encode(znode.Journal{})
	if err != nil {
		return err
	}
	folder := znode.Ops(o.h.m.root, o.h.m.Generation, o.h.Duty)
	_, err = o.h.writeAgain(ctx, zkconn.CreateOp(at, body, zkconn.Persistent, o.h.m.acl),
		zkconn.CreateOp(o.steps(), journal, zkconn.Persistent, o.h.m.acl), zkconn.SetOp(folder, nil, -1))
	if zkconn.RefusedAt(err, at, zkconn.ErrNodeExists) { // it was not there, and only the holder writes: a reply was lost
		return nil
	}
	return err
}

func (o *Operation) readJournal(ctx context.Context) error {
	body, _, err := o.h.m.session.Get(ctx, o.steps())
	if err == nil {
		o.journal, err = znode.Decode[znode.Journal](body)
	}
	if err != nil {
		return fmt.Errorf("its journal cannot be read; abort it: %w", err)
	}
	return nil
}

// Close closes the operation, and deletes its journal. If the error is ErrUnknown, it may be open. After any error call
// Close again, or Leave.
func (o *Operation) Close(ctx context.Context) error { return o.close(ctx, false) }

// CloseUnbegun is Close if no step of the operation has begun: then there is nothing to go on with. Otherwise it does
// nothing.
func (o *Operation) CloseUnbegun(ctx context.Context) error { return o.close(ctx, true) }

func (o *Operation) close(ctx context.Context, unbegun bool) (err error) {
	defer resource.Wrapf(&err, "close %s of %s", o.Name, o.h.Duty)
	if err := o.h.opening.Acquire(ctx, 1); err != nil {
		return err
	}
	defer o.h.opening.Release(1)
	if err := o.turn.Acquire(ctx, 1); err != nil {
		return err
	}
	defer o.turn.Release(1)
	if o.over {
		return ErrOperationOver
	}
	if unbegun && (o.unsure || o.journal.Steps > 0) {
		return nil
	}
	if err := o.h.endOperation(ctx, o.Name); err != nil {
		return err
	}
	o.end()
	return nil
}

// Leave gives the operation up and leaves it open, for another runner. It does nothing after Close.
func (o *Operation) Leave() {
	_ = o.turn.Acquire(context.Background(), 1)
	defer o.turn.Release(1)
	if !o.over {
		o.end()
	}
}

// end is called once, with the turn.
func (o *Operation) end() {
	o.over = true
	o.h.runners.Delete(o.Name)
}

// Abort closes an operation that has no runner in this process, whoever opened it. What its steps did remains. It
// returns ErrNoOperation if it is not open.
func (h *Hold) Abort(ctx context.Context, name string) (err error) {
	defer resource.Wrapf(&err, "abort %s of %s", name, h.Duty)
	if err := znode.CheckOperation(name); err != nil {
		return err
	}
	if err := h.opening.Acquire(ctx, 1); err != nil {
		return err
	}
	defer h.opening.Release(1)
	if _, busy := h.runners.LoadOrStore(name, true); busy {
		return ErrOperationBusy
	}
	defer h.runners.Delete(name)
	if err := h.m.session.Settled(ctx); err != nil {
		return err
	}
	body, _, err := h.m.session.Get(ctx, h.operationAt(name))
	if errors.Is(err, zkconn.ErrNoNode) || err == nil && len(body) == 0 {
		return ErrNoOperation
	}
	if err != nil {
		return err
	}
	return h.endOperation(ctx, name)
}

// endOperation marks an operation as closed. Then it is, also if its journal cannot be deleted now.
func (h *Hold) endOperation(ctx context.Context, name string) error {
	at := h.operationAt(name)
	if _, err := h.writeAgain(ctx, zkconn.SetOp(at, nil, -1)); err != nil {
		return err
	}
	_ = h.removeTree(ctx, at, opDepth) // or the next Open does it
	return nil
}

func (h *Hold) operationAt(name string) string {
	return znode.Operation(h.m.root, h.m.Generation, h.Duty, name)
}

func (o *Operation) steps() string {
	return znode.Steps(o.h.m.root, o.h.m.Generation, o.h.Duty, o.Name, o.ID)
}

// A step of an operation writes, each time together with the folder, which counts:
//
//	duty/<d>/op/<name>/<id>/<key>  created, or set by another attempt: it has begun
//	duty/<d>/op/<name>/<id>/<key>  set: it is done, with its output
//
// A process that dies before the second leaves a step that has begun: what it does may have been done, so it is done
// again. After the second it is never done again. The key is a digest of the name and the arguments of the step.

var (
	// ErrStepTwice means that this run has come to the same step before: its name and its arguments are the same.
	// Give one of them another name.
	ErrStepTwice = errors.New("this run has come to the same step before")
	// ErrOutputTooLarge means that the output of a step is too large to be recorded: the step is not done. Let it save
	// what it found elsewhere, and print where.
	ErrOutputTooLarge = errors.New("the output is too large to be recorded")
)

// Step is one step of an operation that this run has come to.
type Step struct {
	znode.StepRecord        // as this run has read or written it last. If it is Done, do not do it again
	Key              string // digest of the name and the arguments
	Again            bool   // it is not done, and an earlier attempt began it

	o      *Operation
	unsure bool // whether it was recorded: the outcome of Finish is unknown
}

// Step comes to the step with this name and these arguments. Unless it is Done, do it, and call Finish. If the error is
// ErrUnknown, the step may have begun.
func (o *Operation) Step(ctx context.Context, name string, args []string) (_ *Step, err error) {
	defer resource.Wrapf(&err, "step %s of %s", name, o.Name)
	if err := znode.CheckStep(name); err != nil {
		return nil, err
	}
	if err := o.enter(ctx); err != nil {
		return nil, err
	}
	defer o.turn.Release(1)
	s := &Step{o: o, Key: znode.StepKey(name, args)}
	if o.seen[s.Key] {
		return nil, ErrStepTwice
	}
	body, _, err := o.h.m.session.Get(ctx, s.at())
	switch {
	case errors.Is(err, zkconn.ErrNoNode):
		err = s.beginFirst(ctx, name)
	case err != nil:
	default:
		err = s.beginAgain(ctx, body)
	}
	if err != nil {
		return nil, err
	}
	o.seen[s.Key] = true
	return s, nil
}

// enter takes the turn, and makes sure that the journal is known.
func (o *Operation) enter(ctx context.Context) (err error) {
	if err := o.turn.Acquire(ctx, 1); err != nil {
		return err
	}
	switch {
	case o.over:
		err = ErrOperationOver
	case o.unsure:
		if err = o.h.m.session.Settled(ctx); err == nil {
			err = o.readJournal(ctx)
		}
		o.unsure = err != nil
	}
	if err != nil {
		o.turn.Release(1)
	}
	return err
}

func (s *Step) at() string { return resource.Join(s.o.steps(), s.Key) }

// beginFirst records the begin of a step that no run has come to before.
func (s *Step) beginFirst(ctx context.Context, name string) error {
	h := s.o.h
	if s.o.journal.Steps >= znode.MaxSteps {
		return fmt.Errorf("%w: the operation has %d steps", ErrOperationLimit, znode.MaxSteps)
	}
	next := s.o.journal
	next.Steps++
	record := znode.StepRecord{Name: name, Attempts: 1, By: h.m.Identity, Epoch: h.Epoch}
	return s.write(ctx, record, next, func(body []byte) zkconn.Op {
		return zkconn.CreateOp(s.at(), body, zkconn.Persistent, h.m.acl)
	})
}

// beginAgain looks at what an earlier run has recorded.
func (s *Step) beginAgain(ctx context.Context, body []byte) error {
	record, err := znode.Decode[znode.StepRecord](body)
	if err != nil {
		return fmt.Errorf("it cannot be read; abort the operation: %w", err)
	}
	if record.Done {
		s.StepRecord = record
		return nil
	}
	s.Again = true
	record.Attempts++
	record.By, record.Epoch = s.o.h.m.Identity, s.o.h.Epoch
	return s.write(ctx, record, s.o.journal, s.set)
}

func (s *Step) set(body []byte) zkconn.Op { return zkconn.SetOp(s.at(), body, -1) }

// Finish records that the step is done, and its output of at most 64 KiB. If the error is ErrUnknown, it may be
// recorded. After any error Finish can be called again.
func (s *Step) Finish(ctx context.Context, output []byte) (err error) {
	defer resource.Wrapf(&err, "step %s of %s", s.Name, s.o.Name)
	if len(output) > znode.MaxOutput {
		return fmt.Errorf("%w: it has %d bytes, and a step has at most %d", ErrOutputTooLarge, len(output), znode.MaxOutput)
	}
	if err := s.o.enter(ctx); err != nil {
		return err
	}
	defer s.o.turn.Release(1)
	if s.unsure {
		if err := s.lookUp(ctx); err != nil || s.Done {
			return err
		}
	}
	if s.Done {
		return errors.New("it was recorded before")
	}
	next := s.o.journal
	next.Done++
	next.Bytes += len(output)
	if next.Bytes > znode.MaxOutputs {
		return fmt.Errorf("%w: the outputs of the operation would have %d bytes, and have at most %d",
			ErrOperationLimit, next.Bytes, znode.MaxOutputs)
	}
	record := s.StepRecord
	record.Done, record.Output = true, slices.Clone(output)
	err = s.write(ctx, record, next, s.set)
	s.unsure = err != nil
	return err
}

func (s *Step) lookUp(ctx context.Context) error {
	body, _, err := s.o.h.m.session.Get(ctx, s.at())
	if err != nil {
		return err
	}
	record, err := znode.Decode[znode.StepRecord](body)
	if err == nil {
		s.StepRecord, s.unsure = record, false
	}
	return err
}

// write writes the record together with the journal. It does no harm twice: only this run writes them.
func (s *Step) write(
	ctx context.Context, record znode.StepRecord, next znode.Journal, op func([]byte) zkconn.Op,
) error {
	body, err := znode.Encode(record)
	if err != nil {
		return err
	}
	journal, err := znode.Encode(next)
	if err != nil {
		return err
	}
	_, err = s.o.h.writeAgain(ctx, op(body), zkconn.SetOp(s.o.steps(), journal, -1))
	if err != nil && !zkconn.RefusedAt(err, s.at(), zkconn.ErrNodeExists) { // else it was not there: a reply was lost
		s.o.unsure = true
		return err
	}
	s.o.journal, s.StepRecord = next, record
	return nil
}

// OperationInfo describes an open operation.
type OperationInfo struct {
	Name    string    `json:"name"`
	By      string    `json:"by"`                // identity of the holder that opened it, or was the last to resume it
	Epoch   int64     `json:"epoch"`             // of that holder
	Runs    int       `json:"runs"`              // how often it was opened or resumed
	Opened  time.Time `json:"opened"`            // by ZooKeeper's clock
	Steps   int       `json:"steps"`             // that have begun
	Done    int       `json:"done"`              // of these
	Script  string    `json:"script"`            // digest
	Problem string    `json:"problem,omitempty"` // why it cannot be read; what could not be read is zero

	ID    string `json:"-"`
	Bytes int    `json:"-"` // of the outputs of the steps that are done
}

// Operations lists the open operations of any duty of the group, by name. It needs no hold.
func (m *Member) Operations(ctx context.Context, duty string) ([]OperationInfo, error) {
	return Operations(ctx, m.session, m.root, m.Generation, duty)
}

// Operations lists the open operations of a duty, by name; it is never nil. g is the group's generation.
func Operations(ctx context.Context, s *zkconn.Session, root, g, duty string) ([]OperationInfo, error) {
	return list(ctx, s, znode.Ops(root, g, duty), func(ctx context.Context, name string) ([]OperationInfo, error) {
		return readOperation(ctx, s, root, g, duty, name)
	})
}

// readOperation describes an operation; nothing if it is not open.
func readOperation(ctx context.Context, s *zkconn.Session, root, g, duty, name string) ([]OperationInfo, error) {
	body, stat, _, err := zkconn.IfThere(s.Get(ctx, znode.Operation(root, g, duty, name)))
	if err != nil || len(body) == 0 {
		return nil, err
	}
	info := OperationInfo{Name: name, Opened: stat.Ctime}
	opening, err := znode.Decode[znode.Opening](body)
	if err != nil {
		info.Problem = err.Error()
		return []OperationInfo{info}, nil
	}
	info.ID, info.Script, info.By, info.Epoch, info.Runs =
		opening.ID, opening.Script, opening.By, opening.Epoch, opening.Runs
	body, _, err = s.Get(ctx, znode.Steps(root, g, duty, name, opening.ID))
	if errors.Is(err, zkconn.ErrNoNode) { // closed meanwhile, or deleted by hand
		if body, _, again := s.Get(ctx, znode.Operation(root, g, duty, name)); again == nil && len(body) > 0 {
			info.Problem = "its journal is gone"
			return []OperationInfo{info}, nil
		}
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	journal, err := znode.Decode[znode.Journal](body)
	if err != nil {
		info.Problem = err.Error()
	}
	info.Steps, info.Done, info.Bytes = journal.Steps, journal.Done, journal.Bytes
	return []OperationInfo{info}, nil
}
