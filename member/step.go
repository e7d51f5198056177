package member

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"muster/resource"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

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
	Name   string
	Key    string // digest of the name and the arguments
	Done   bool   // it was recorded before: do not do it again
	Output []byte // of a step that is done
	Again  bool   // it is not done, and an earlier attempt began it

	o      *Operation
	record znode.StepRecord
	unsure bool // whether it was recorded: the outcome of Finish is unknown
}

// Step comes to the step with this name and these arguments. Unless it is Done, do it, and call Finish. If the error is
// ErrUnknown, the step may have begun.
func (o *Operation) Step(ctx context.Context, name string, args []string) (*Step, error) {
	s, err := o.step(ctx, name, args)
	if err != nil {
		return nil, fmt.Errorf("step %s of %s: %w", name, o.Name, err)
	}
	return s, nil
}

func (o *Operation) step(ctx context.Context, name string, args []string) (*Step, error) {
	if err := znode.CheckStep(name); err != nil {
		return nil, err
	}
	if err := o.enter(ctx); err != nil {
		return nil, err
	}
	defer o.turn.pass()
	s := &Step{Name: name, o: o, Key: znode.StepKey(name, args)}
	if o.seen[s.Key] {
		return nil, ErrStepTwice
	}
	body, _, err := o.h.m.session.Get(ctx, s.at())
	switch {
	case errors.Is(err, zkconn.ErrNoNode):
		err = s.beginFirst(ctx)
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
	if err := o.turn.take(ctx); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			o.turn.pass()
		}
	}()
	if o.over {
		return ErrOperationOver
	}
	if o.unsure {
		if err := o.h.m.session.Settled(ctx); err != nil {
			return err
		}
		if err := o.readJournal(ctx); err != nil {
			return err
		}
		o.unsure = false
	}
	return nil
}

func (s *Step) at() string { return resource.Join(s.o.steps(), s.Key) }

// beginFirst records the begin of a step that no run has come to before.
func (s *Step) beginFirst(ctx context.Context) error {
	h := s.o.h
	if s.o.journal.Steps >= znode.MaxSteps {
		return fmt.Errorf("%w: the operation has %d steps", ErrOperationLimit, znode.MaxSteps)
	}
	s.record = znode.StepRecord{Name: s.Name, Attempts: 1, By: h.m.Identity, Epoch: h.Epoch}
	next := s.o.journal
	next.Steps++
	return s.write(ctx, next, func(body []byte) zkconn.Op {
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
		s.Done, s.Output, s.record = true, record.Output, record
		return nil
	}
	s.Again = true
	record.Attempts++
	record.By, record.Epoch = s.o.h.m.Identity, s.o.h.Epoch
	s.record = record
	return s.write(ctx, s.o.journal, s.set)
}

func (s *Step) set(body []byte) zkconn.Op { return zkconn.SetOp(s.at(), body, -1) }

// Finish records that the step is done, and its output of at most 64 KiB. If the error is ErrUnknown, it may be
// recorded. After any error Finish can be called again.
func (s *Step) Finish(ctx context.Context, output []byte) error {
	if err := s.finish(ctx, output); err != nil {
		return fmt.Errorf("step %s of %s: %w", s.Name, s.o.Name, err)
	}
	return nil
}

func (s *Step) finish(ctx context.Context, output []byte) error {
	if len(output) > znode.MaxOutput {
		return fmt.Errorf("%w: it has %d bytes, and a step has at most %d", ErrOutputTooLarge, len(output), znode.MaxOutput)
	}
	if err := s.o.enter(ctx); err != nil {
		return err
	}
	defer s.o.turn.pass()
	if s.unsure {
		if err := s.lookUp(ctx); err != nil {
			return err
		}
		if s.Done {
			return nil
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
	s.record.Done, s.record.Output, s.unsure = true, slices.Clone(output), true
	err := s.write(ctx, next, s.set)
	s.unsure = err != nil
	return err
}

// lookUp reads whether the step was recorded.
func (s *Step) lookUp(ctx context.Context) error {
	body, _, err := s.o.h.m.session.Get(ctx, s.at())
	if err != nil {
		return err
	}
	if s.record, err = znode.Decode[znode.StepRecord](body); err != nil {
		return err
	}
	s.Done, s.Output, s.unsure = s.record.Done, s.record.Output, false
	return nil
}

// write writes the record together with the journal. It does no harm twice: only this run writes them.
func (s *Step) write(ctx context.Context, next znode.Journal, op func([]byte) zkconn.Op) error {
	record, err := znode.Encode(s.record)
	if err != nil {
		return err
	}
	journal, err := znode.Encode(next)
	if err != nil {
		return err
	}
	err = s.o.h.writeAgain(ctx, op(record), zkconn.SetOp(s.o.steps(), journal, -1))
	if refusedAt(err, s.at(), zkconn.ErrNodeExists) { // it was not there: a reply was lost
		err = nil
	}
	if err != nil {
		s.o.unsure = true
		return err
	}
	s.o.journal, s.Done, s.Output = next, s.record.Done, s.record.Output
	return nil
}
