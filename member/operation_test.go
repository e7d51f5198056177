package member_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sync/errgroup"

	"muster/member"
	"muster/zkstate/znode"
)

// operations lists the open operations of the coordinator.
func (f *fixture) operations(g string) []member.OperationInfo {
	f.t.Helper()
	open, err := member.Operations(f.t.Context(), f.s, f.group.Root, g, "coordinator")
	f.must(err)
	return open
}

// checkGone looks for what closed operations have left.
func (f *fixture) checkGone(g string) {
	f.t.Helper()
	if left := f.namesBelow(znode.Ops(f.group.Root, g, "coordinator")); len(left) > 0 {
		f.t.Errorf("closed operations have left %q", left)
	}
}

// open opens the operation "checkpoint".
func open(t *testing.T, h *member.Hold) *member.Operation {
	t.Helper()
	o, err := h.Open(t.Context(), "checkpoint", "script", false)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// step comes to a step.
func step(t *testing.T, o *member.Operation, name string, args ...string) *member.Step {
	t.Helper()
	s, err := o.Step(t.Context(), name, args)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func finish(t *testing.T, s *member.Step, output string) {
	t.Helper()
	if err := s.Finish(t.Context(), []byte(output)); err != nil {
		t.Fatal(err)
	}
}

// TestOperationGoesOnWhereItsHolderDied: the next holder skips what was recorded, does again what had begun, and closes
// the operation. Then another opening knows nothing of it.
func TestOperationGoesOnWhereItsHolderDied(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	a, b := f.join("a", "1.0", "coordinator"), f.join("b", "1.0", "coordinator")
	h := f.take(a, "coordinator")
	first := open(t, h)
	if first.Resumed {
		t.Error("it was never opened before")
	}
	if s := step(t, first, "copy", "x"); s.Done || s.Again {
		t.Errorf("first step: %+v", s)
	} else {
		finish(t, s, "x is copied")
	}
	if s := step(t, first, "copy", "y"); s.Done || s.Again {
		t.Errorf("second step: %+v", s)
	}
	f.must(a.Leave())
	next := f.take(b, "coordinator")
	second := open(t, next)
	if !second.Resumed || second.ID != first.ID {
		t.Errorf("resumed %+v, want %s", second, first.ID)
	}
	if s := step(t, second, "copy", "x"); !s.Done || string(s.Output) != "x is copied" {
		t.Errorf("first step: %+v", s)
	} else if err := s.Finish(t.Context(), nil); err == nil {
		t.Error("a step that is done was recorded again")
	}
	if s := step(t, second, "copy", "y"); s.Done || !s.Again {
		t.Errorf("second step: %+v", s)
	} else {
		finish(t, s, "")
	}
	want := []member.OperationInfo{{
		Name: "checkpoint", ID: first.ID, Script: "script", By: "b", Epoch: next.Epoch, Runs: 2,
		Steps: 2, Done: 2, Bytes: len("x is copied"),
	}}
	if d := cmp.Diff(want, f.operations(b.Generation), cmpopts.IgnoreFields(member.OperationInfo{}, "Opened")); d != "" {
		t.Errorf("open operations (-want +got):\n%s", d)
	}
	f.must(second.Close(t.Context()))
	f.checkGone(b.Generation)
	if _, err := second.Step(t.Context(), "late", nil); !errors.Is(err, member.ErrOperationOver) {
		t.Errorf("a step after the end: %v", err)
	}
	third := open(t, next)
	if s := step(t, third, "copy", "x"); third.Resumed || s.Done || s.Again {
		t.Errorf("a new operation found %+v", s)
	}
}

// TestStepsOfOneRun: a step is its name and its arguments. The same one twice is an error, so that the second is not
// skipped by mistake.
func TestStepsOfOneRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	h := f.take(f.join("a", "1.0", "coordinator"), "coordinator")
	o := open(t, h)
	for _, args := range [][]string{nil, {""}, {"a"}, {"a", "b"}, {"a b"}, {"b", "a"}, {"1:a"}} {
		step(t, o, "s", args...)
		if _, err := o.Step(t.Context(), "s", args); !errors.Is(err, member.ErrStepTwice) {
			t.Errorf("%q twice: %v", args, err)
		}
	}
	for _, name := range []string{"", "a/b", "two words"} {
		if _, err := o.Step(t.Context(), name, nil); err == nil {
			t.Errorf("a step called %q", name)
		}
		if _, err := h.Open(t.Context(), name, "script", false); err == nil {
			t.Errorf("an operation called %q", name)
		}
	}
	o.Leave()
	again := open(t, h)
	if s := step(t, again, "s", "a"); s.Done || !s.Again {
		t.Errorf("in the next run: %+v", s)
	}
}

// TestOneRunnerOfAnOperation: another one in this process waits its turn. Other operations are free.
func TestOneRunnerOfAnOperation(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	h := f.take(f.join("a", "1.0", "coordinator"), "coordinator")
	o := open(t, h)
	if _, err := h.Open(t.Context(), "checkpoint", "script", true); !errors.Is(err, member.ErrOperationBusy) {
		t.Errorf("a second runner: %v", err)
	}
	if err := h.Abort(t.Context(), "checkpoint"); !errors.Is(err, member.ErrOperationBusy) {
		t.Errorf("an abort of a running operation: %v", err)
	}
	other, err := h.Open(t.Context(), "other", "script", false)
	f.must(err)
	f.must(other.Close(t.Context()))
	o.Leave()
	o.Leave()
	if err := o.Close(t.Context()); !errors.Is(err, member.ErrOperationOver) {
		t.Errorf("closed after it was left: %v", err)
	}
	again := open(t, h)
	o.Leave() // does not free it for a third one
	if _, err := h.Open(t.Context(), "checkpoint", "script", false); !errors.Is(err, member.ErrOperationBusy) {
		t.Errorf("a third runner: %v", err)
	}
	f.must(again.Close(t.Context()))
}

// TestOtherScriptMustAdopt: its steps may mean something else.
func TestOtherScriptMustAdopt(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	a := f.join("a", "1.0", "coordinator")
	h := f.take(a, "coordinator")
	o := open(t, h)
	finish(t, step(t, o, "s"), "out")
	o.Leave()
	if _, err := h.Open(t.Context(), "checkpoint", "another", false); !errors.Is(err, member.ErrOtherScript) {
		t.Errorf("another script: %v", err)
	}
	adopted, err := h.Open(t.Context(), "checkpoint", "another", true)
	f.must(err)
	if s := step(t, adopted, "s"); !s.Done || !adopted.Resumed {
		t.Errorf("the step is %+v", s)
	}
	adopted.Leave()
	if _, err := h.Open(t.Context(), "checkpoint", "script", false); !errors.Is(err, member.ErrOtherScript) {
		t.Errorf("the first script, after another has adopted it: %v", err)
	}
	if got := f.operations(a.Generation); got[0].Script != "another" || got[0].Runs != 2 {
		t.Errorf("it is %+v", got)
	}
}

// TestAbort: an operation is closed without its script, also if it cannot be read.
func TestAbort(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	a := f.join("a", "1.0", "coordinator")
	h := f.take(a, "coordinator")
	if err := h.Abort(t.Context(), "checkpoint"); !errors.Is(err, member.ErrNoOperation) {
		t.Errorf("none is open: %v", err)
	}
	o := open(t, h)
	step(t, o, "s")
	o.Leave()
	f.must(h.Abort(t.Context(), "checkpoint"))
	f.checkGone(a.Generation)
	for damage, do := range map[string]func(at, id string) error{
		"opening": func(at, _ string) error {
			_, err := f.s.Set(t.Context(), at, []byte("{"), -1)
			return err
		},
		"journal": func(at, id string) error { return f.s.Delete(t.Context(), at+"/"+id, -1) },
	} {
		o := open(t, h)
		o.Leave()
		f.must(do(znode.Operation(f.group.Root, a.Generation, "coordinator", "checkpoint"), o.ID))
		if got := f.operations(a.Generation); len(got) != 1 || got[0].Problem == "" {
			t.Errorf("%s is damaged, and it is listed as %+v", damage, got)
		}
		if _, err := h.Open(t.Context(), "checkpoint", "script", false); err == nil ||
			!strings.Contains(err.Error(), "abort it") {
			t.Errorf("%s is damaged: %v", damage, err)
		}
		f.must(h.Abort(t.Context(), "checkpoint"))
		f.checkGone(a.Generation)
	}
}

// TestOutputsOfSteps: 64 KiB a step, to the byte, whatever the bytes are.
func TestOutputsOfSteps(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	h := f.take(f.join("a", "1.0", "coordinator"), "coordinator")
	o := open(t, h)
	s, largest := step(t, o, "s"), bytes.Repeat([]byte{0xff, 0, '\n', 'x'}, 16<<10)
	err := s.Finish(t.Context(), append(largest, 'x'))
	if !errors.Is(err, member.ErrOutputTooLarge) || !strings.Contains(err.Error(), "65537") {
		t.Errorf("a byte too much: %v", err)
	}
	if s.Done {
		t.Error("it is done")
	}
	f.must(s.Finish(t.Context(), largest))
	o.Leave()
	if s := step(t, open(t, h), "s"); !s.Done || !bytes.Equal(s.Output, largest) {
		t.Errorf("done: %t, with %d bytes", s.Done, len(s.Output))
	}
}

// setJournal makes an operation look as if it had so much behind it.
func (f *fixture) setJournal(g string, o *member.Operation, j znode.Journal) {
	f.t.Helper()
	body, err := znode.Encode(j)
	if err == nil {
		_, err = f.s.Set(f.t.Context(), znode.Steps(f.group.Root, g, "coordinator", o.Name, o.ID), body, -1)
	}
	f.must(err)
}

// TestLimitsOfOperations: 100 open ones a duty; 10,000 steps and 16 MiB of output an operation.
func TestLimitsOfOperations(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	a := f.join("a", "1.0", "coordinator")
	h := f.take(a, "coordinator")
	o := open(t, h)
	o.Leave()
	f.setJournal(a.Generation, o, znode.Journal{Steps: 9_999, Done: 9_000, Bytes: 16<<20 - 3})
	o = open(t, h)
	s := step(t, o, "last")
	if _, err := o.Step(t.Context(), "over", nil); !errors.Is(err, member.ErrOperationLimit) {
		t.Errorf("step 10,001: %v", err)
	}
	if err := s.Finish(t.Context(), []byte("1234")); !errors.Is(err, member.ErrOperationLimit) {
		t.Errorf("a byte over 16 MiB: %v", err)
	}
	finish(t, s, "123")
	for i := range 99 {
		if _, err := h.Open(t.Context(), fmt.Sprint("op", i), "script", false); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.Open(t.Context(), "over", "script", false); !errors.Is(err, member.ErrOperationLimit) {
		t.Errorf("operation 101: %v", err)
	}
	f.must(o.Close(t.Context()))
	if _, err := h.Open(t.Context(), "fits", "script", false); err != nil {
		t.Error(err)
	}
}

// TestStepsAtTheSameTime: the journal counts each once.
func TestStepsAtTheSameTime(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	a := f.join("a", "1.0", "coordinator")
	o := open(t, f.take(a, "coordinator"))
	var tasks errgroup.Group
	for i := range 20 {
		tasks.Go(func() error {
			s, err := o.Step(t.Context(), "s", []string{fmt.Sprint(i)})
			if err == nil {
				err = s.Finish(t.Context(), []byte("12345"))
			}
			return err
		})
	}
	f.must(tasks.Wait())
	if got := f.operations(a.Generation)[0]; got.Steps != 20 || got.Done != 20 || got.Bytes != 100 {
		t.Errorf("the journal counts %+v", got)
	}
}

// TestLongJournalIsDeletedInParts: one transaction deletes a hundred znodes.
func TestLongJournalIsDeletedInParts(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	a := f.join("a", "1.0", "coordinator")
	h := f.take(a, "coordinator")
	o := open(t, h)
	for i := range 450 {
		step(t, o, "s", fmt.Sprint(i))
	}
	f.must(o.Close(t.Context()))
	f.checkGone(a.Generation)
}

// run is a script of three steps. did counts how often each was done, which outlives the runner.
type run struct{ did map[string]int }

// once goes through the script, as "muster op" does. It checks what the journal promises.
func (r *run) once(ctx context.Context, h *member.Hold) error {
	o, err := h.Open(ctx, "checkpoint", "script", false)
	if err != nil {
		return err
	}
	defer o.Leave()
	for _, name := range []string{"first", "second", "third"} {
		s, err := o.Step(ctx, name, nil)
		if err != nil {
			return err
		}
		if s.Done {
			if string(s.Output) != "did "+name || r.did[name] == 0 {
				return fmt.Errorf("%s was not done, and has the output %q", name, s.Output)
			}
			continue
		}
		if r.did[name] > 0 && !s.Again {
			return fmt.Errorf("%s was begun before, and nobody says so", name)
		}
		r.did[name]++
		if err := s.Finish(ctx, []byte("did "+name)); err != nil {
			return err
		}
	}
	return o.Close(ctx)
}

// total is how often steps were done.
func (r *run) total() int { return r.did["first"] + r.did["second"] + r.did["third"] }

// maxOpWrites is more than a run has transactions: the folder, open, three steps of two, close, delete.
const maxOpWrites = 12

// TestOperationWithLostReplies: the connection breaks at each transaction. The run ends, and did each step once.
func TestOperationWithLostReplies(t *testing.T) {
	t.Parallel()
	for name, fault := range faults() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, p := newFixture(t, "coordinator"), newProxy(t)
			m := f.joinBy(p, 10*time.Second, "a", "coordinator")
			h := f.take(m, "coordinator")
			for n := int32(1); ; n++ {
				fired, r := fault(p, writesBelow("/op", n)), &run{map[string]int{}}
				if err := r.once(t.Context(), h); err != nil {
					t.Fatalf("transaction %d: %v", n, err)
				}
				if r.total() != 3 {
					t.Errorf("transaction %d: it did %v", n, r.did)
				}
				f.checkGone(m.Generation)
				if !happened(fired) {
					if n < 10 {
						t.Errorf("only %d transactions", n-1)
					}
					break
				}
				if n == maxOpWrites {
					t.Fatal("more transactions than it should have")
				}
			}
		})
	}
}

// TestClosedOperationStaysClosed: the holder dies while it deletes a journal. The operation is not open, and the next
// Open, of another operation, deletes the rest.
func TestClosedOperationStaysClosed(t *testing.T) {
	t.Parallel()
	f, p := newFixture(t, "coordinator"), newProxy(t)
	m := f.joinBy(p, time.Second, "a", "coordinator")
	o := open(t, f.take(m, "coordinator"))
	for i := range 250 { // more than one transaction deletes
		step(t, o, "s", fmt.Sprint(i))
	}
	match := writesBelow("/op", 3) // after the mark and the first part
	fired := p.DropReply(func(op int32, req []byte) bool {
		hit := match(op, req)
		if hit {
			p.Refuse(true)
		}
		return hit
	})
	if err := o.Close(t.Context()); err != nil {
		t.Errorf("it is closed, but: %v", err)
	}
	if !happened(fired) {
		t.Error("the journal was deleted at once")
	}
	if got := f.operations(m.Generation); len(got) != 0 {
		t.Errorf("it is open: %+v", got)
	}
	at := znode.Steps(f.group.Root, m.Generation, "coordinator", o.Name, o.ID)
	if left := f.namesBelow(at); len(left) == 0 || len(left) == 250 {
		t.Errorf("%d steps are left", len(left))
	}
	next := f.take(f.join("b", "1.0", "coordinator"), "coordinator")
	again := open(t, next)
	if s := step(t, again, "s", "249"); again.Resumed || s.Done || s.Again {
		t.Errorf("a new operation found %+v", s)
	}
	f.must(again.Close(t.Context()))
	f.checkGone(m.Generation)
}

// TestFinishIsRepeated: the caller gives up while a step is recorded, and calls Finish again. It counts once.
func TestFinishIsRepeated(t *testing.T) {
	t.Parallel()
	f, p := newFixture(t, "coordinator"), newProxy(t)
	m := f.joinBy(p, 10*time.Second, "a", "coordinator")
	o := open(t, f.take(m, "coordinator"))
	for _, sent := range []bool{true, false} {
		ctx, giveUp := context.WithCancel(t.Context())
		s := step(t, o, fmt.Sprint("sent-", sent))
		match := writesBelow("/op", 1)
		p.BeforeSend(func(op int32, req []byte) bool {
			hit := match(op, req)
			if hit {
				p.Mute(sent) // else the answer may come before the caller has given up
				giveUp()
			}
			return hit && !sent
		})
		if err := s.Finish(ctx, []byte("123")); !errors.Is(err, context.Canceled) {
			t.Errorf("sent %t: %v", sent, err)
		}
		p.Mute(false)
		finish(t, s, "123")
	}
	if got := f.operations(m.Generation)[0]; got.Steps != 2 || got.Done != 2 || got.Bytes != 6 {
		t.Errorf("the journal counts %+v", got)
	}
}
