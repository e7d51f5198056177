package member_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/member"
	"muster/zkserver"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

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
	for name, fault := range map[string]func(*zkserver.Proxy, func(int32, []byte) bool) <-chan struct{}{
		"before": (*zkserver.Proxy).BeforeSend, "reply lost": (*zkserver.Proxy).DropReply,
		"after": (*zkserver.Proxy).AfterReply, "throttled": (*zkserver.Proxy).Throttle,
	} {
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

// TestOperationWithADeathAtEachWrite: the holder dies after each transaction of a run. The next one goes on: what was
// recorded is not done again, at most one step is done twice, and nothing is left.
func TestOperationWithADeathAtEachWrite(t *testing.T) {
	t.Parallel()
	for n := int32(1); n <= maxOpWrites-1; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			f, p := newFixture(t, "coordinator"), newProxy(t)
			m := f.joinBy(p, time.Second, "a", "coordinator")
			h := f.take(m, "coordinator")
			match := writesBelow("/op", n)
			fired := p.DropReply(func(op int32, req []byte) bool {
				hit := match(op, req)
				if hit {
					p.Refuse(true)
				}
				return hit
			})
			r := &run{map[string]int{}}
			err := r.once(t.Context(), h)
			if died := happened(fired); died && err == nil && n < 10 || err != nil && !errors.Is(err, zkconn.ErrSessionLost) {
				t.Errorf("the dead one: %v", err)
			}
			p.Refuse(true)
			p.Cut()
			did := r.total()
			next := f.take(f.join("b", "1.0", "coordinator"), "coordinator")
			wasOpen := len(f.operations(m.Generation)) > 0
			if wasOpen || did == 0 {
				if err := r.once(t.Context(), next); err != nil {
					t.Fatal(err)
				}
			} else if other, err := next.Open(t.Context(), "other", "script", false); err != nil {
				t.Fatal(err)
			} else if err := other.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			for name, times := range r.did {
				if times < 1 || times > 2 {
					t.Errorf("%s was done %d times", name, times)
				}
			}
			if r.total() < 3 || r.total() > 4 {
				t.Errorf("it did %v", r.did)
			}
			f.checkGone(m.Generation)
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
	if err := again.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.checkGone(m.Generation)
}

// TestFormerHolderCannotRecord: another process takes the duty just before each transaction of a run. That one and all
// later ones write nothing.
func TestFormerHolderCannotRecord(t *testing.T) {
	t.Parallel()
	for n := int32(1); n <= maxOpWrites-2; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			f, p := newFixture(t, "coordinator"), newProxy(t)
			m := f.joinBy(p, 10*time.Second, "a", "coordinator")
			h := f.take(m, "coordinator")
			duty := znode.Duty(f.group.Root, m.Generation, "coordinator")
			match, taken := writesBelow("/op", n), make(chan []string, 1)
			p.DropReply(func(op int32, req []byte) bool {
				if match(op, req) {
					taken <- f.takeAway(duty)
				}
				return false
			})
			err := (&run{map[string]int{}}).once(t.Context(), h)
			if last := n == maxOpWrites-2; !errors.Is(err, member.ErrNotHeld) && !last { // it deletes what is closed
				t.Errorf("the former holder: %v", err)
			}
			if d := cmp.Diff(<-taken, f.dump(duty)); d != "" {
				t.Errorf("it has written (-before +after):\n%s", d)
			}
		})
	}
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
				giveUp()
			}
			return hit && !sent
		})
		if err := s.Finish(ctx, []byte("123")); !errors.Is(err, context.Canceled) {
			t.Errorf("sent %t: %v", sent, err)
		}
		finish(t, s, "123")
	}
	if got := f.operations(m.Generation)[0]; got.Steps != 2 || got.Done != 2 || got.Bytes != 6 {
		t.Errorf("the journal counts %+v", got)
	}
}
