package member_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/member"
	"muster/zkserver"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// stateWrite is one way to write the key "k", which has the value before.
type stateWrite struct {
	name   string
	before []byte // nil: there is no key
	after  []byte // nil: there is no key
	do     func(context.Context, *member.Hold) error
}

func stateWrites() []stateWrite {
	old, long := value(1, 250_000), value(2, 450_000)
	put := func(ctx context.Context, h *member.Hold) error { return h.Put(ctx, "k", long) }
	return []stateWrite{
		{"first", nil, long, put},
		{"replace", old, long, put},
		{"remove", old, nil, func(ctx context.Context, h *member.Hold) error { return h.Remove(ctx, "k") }},
	}
}

// holder joins as a member through a proxy, takes the duty and saves the value before.
func (w stateWrite) holder(f *fixture, p *zkserver.Proxy, timeout time.Duration) (*member.Member, *member.Hold) {
	m := f.joinBy(p, timeout, "a", "coordinator")
	h := f.take(m, "coordinator")
	if w.before != nil {
		if err := h.Put(f.t.Context(), "k", w.before); err != nil {
			f.t.Fatal(err)
		}
	}
	return m, h
}

func savedAs(v []byte) map[string][]byte {
	if v == nil {
		return nil
	}
	return map[string][]byte{"k": v}
}

// maxStateWrites is more than a write has transactions.
const maxStateWrites = 3

// TestStateWithLostReplies: the connection breaks at each transaction of a write, before it, before its reply or after
// it. The write succeeds, and leaves nothing else.
func TestStateWithLostReplies(t *testing.T) {
	t.Parallel()
	for _, w := range stateWrites() {
		for name, fault := range map[string]func(*zkserver.Proxy, func(int32, []byte) bool) <-chan struct{}{
			"before": (*zkserver.Proxy).BeforeSend, "reply lost": (*zkserver.Proxy).DropReply,
			"after": (*zkserver.Proxy).AfterReply, "throttled": (*zkserver.Proxy).Throttle,
		} {
			t.Run(w.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				f, p := newFixture(t, "coordinator"), newProxy(t)
				m, h := w.holder(f, p, 10*time.Second)
				for n := int32(1); ; n++ {
					fired := fault(p, writesBelow("/state", n))
					if err := w.do(t.Context(), h); err != nil {
						t.Fatalf("transaction %d: %v", n, err)
					}
					f.checkState(m.Generation, "coordinator", savedAs(w.after))
					if n > 1 && !happened(fired) {
						break // there was no such transaction
					}
					if n == maxStateWrites {
						t.Fatal("more transactions than it should have")
					}
					if err := reset(t, h, w); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
	}
}

// reset brings back the value before.
func reset(t *testing.T, h *member.Hold, w stateWrite) error {
	if w.before != nil {
		return h.Put(t.Context(), "k", w.before)
	}
	return h.Remove(t.Context(), "k")
}

// TestStateWithADeathAtEachWrite: the holder dies after each transaction of a write. Readers find the old or the new
// value. The next holder goes on from it.
func TestStateWithADeathAtEachWrite(t *testing.T) {
	t.Parallel()
	for _, w := range stateWrites() {
		for n := int32(1); n <= 2; n++ {
			t.Run(fmt.Sprint(w.name, "/", n), func(t *testing.T) {
				t.Parallel()
				f, p := newFixture(t, "coordinator"), newProxy(t)
				m, h := w.holder(f, p, time.Second)
				fired := p.DropReply(func() func(int32, []byte) bool {
					match := writesBelow("/state", n)
					return func(op int32, req []byte) bool {
						hit := match(op, req)
						if hit {
							p.Refuse(true)
						}
						return hit
					}
				}())
				putErr := w.do(t.Context(), h)
				died := happened(fired)
				p.Refuse(true)
				p.Cut()
				next := f.take(f.join("b", "1.0", "coordinator"), "coordinator")
				got, err := member.ReadState(t.Context(), f.s, f.group.Root, m.Generation, "coordinator", "k")
				switch {
				case errors.Is(err, member.ErrNoKey) && (w.before == nil || w.after == nil):
				case err != nil:
					t.Errorf("a reader: %v", err)
				case !bytes.Equal(got, w.before) && !bytes.Equal(got, w.after):
					t.Errorf("a reader found %d bytes", len(got))
				}
				if done := bytes.Equal(got, w.after); died && !errors.Is(putErr, zkconn.ErrSessionLost) && !done {
					t.Errorf("the dead one: %v", putErr)
				}
				want := savedAs(got)
				if want == nil {
					want = map[string][]byte{}
				}
				want["other"] = []byte("x")
				if err := next.Put(t.Context(), "other", want["other"]); err != nil {
					t.Fatal(err)
				}
				f.checkState(m.Generation, "coordinator", want)
			})
		}
	}
}

// TestFormerHolderCannotSave: another process takes the duty just before each transaction of a write. That one and all
// later ones write nothing.
func TestFormerHolderCannotSave(t *testing.T) {
	t.Parallel()
	for _, w := range stateWrites() {
		for n := int32(1); n <= 2; n++ {
			t.Run(fmt.Sprint(w.name, "/", n), func(t *testing.T) {
				t.Parallel()
				f, p := newFixture(t, "coordinator"), newProxy(t)
				m, h := w.holder(f, p, 10*time.Second)
				duty := znode.Duty(f.group.Root, m.Generation, "coordinator")
				match := writesBelow("/state", n)
				taken := make(chan []string, 1)
				p.DropReply(func(op int32, req []byte) bool {
					if match(op, req) {
						taken <- f.takeAway(duty)
					}
					return false
				})
				err := w.do(t.Context(), h)
				if err == nil && len(taken) == 0 { // there was no such transaction
					return
				}
				before := receive(t, taken, "the duty to be taken away")
				if d := cmp.Diff(before, f.dump(duty)); d != "" {
					t.Errorf("it has written (-before +after):\n%s", d)
				}
				got, readErr := member.ReadState(t.Context(), f.s, f.group.Root, m.Generation, "coordinator", "k")
				if readErr != nil && !errors.Is(readErr, member.ErrNoKey) {
					t.Error(readErr)
				}
				if !errors.Is(err, member.ErrNotHeld) && !bytes.Equal(got, w.after) { // only the old value is left
					t.Errorf("the former holder: %v", err)
				}
				if err := ended(t, h.Context()); !errors.Is(err, member.ErrNotHeld) {
					t.Errorf("the hold ended with %v", err)
				}
			})
		}
	}
}

// takeAway sets the znode of a duty, as a take by another process does, and returns what is below it.
func (f *fixture) takeAway(duty string) []string {
	body, _, err := f.s.Get(f.t.Context(), duty)
	if err == nil {
		_, err = f.s.Set(f.t.Context(), duty, body, -1)
	}
	if err != nil {
		f.t.Error(err)
	}
	return f.dump(duty)
}

// TestFailedWriteLeavesNothing: the caller gives up in the middle of a write. The next write of the same holder
// waits until it is known.
func TestFailedWriteLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, w := range stateWrites() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			f, p := newFixture(t, "coordinator"), newProxy(t)
			m, h := w.holder(f, p, 10*time.Second)
			seen := [][]byte{w.before, w.after}
			for n := int32(1); n <= 2; n++ {
				ctx, giveUp := context.WithCancel(t.Context())
				match := writesBelow("/state", n)
				p.BeforeSend(func(op int32, req []byte) bool {
					if match(op, req) {
						giveUp() // the transaction is sent nevertheless
					}
					return false
				})
				err := w.do(ctx, h)
				gaveUp := ctx.Err() != nil
				giveUp()
				if !gaveUp {
					break
				}
				if err != nil && !errors.Is(err, context.Canceled) {
					t.Errorf("transaction %d: %v", n, err)
				}
				if err := h.Put(t.Context(), "other", []byte("x")); err != nil {
					t.Fatalf("transaction %d: %v", n, err)
				}
				got, err := m.Get(t.Context(), "coordinator", "k")
				if err != nil && !errors.Is(err, member.ErrNoKey) {
					t.Fatal(err)
				}
				if !slices.ContainsFunc(seen, func(v []byte) bool { return bytes.Equal(v, got) }) {
					t.Errorf("transaction %d: it has %d bytes", n, len(got))
				}
				want := map[string][]byte{"other": []byte("x")}
				if err == nil {
					want["k"] = got
				}
				f.checkState(m.Generation, "coordinator", want)
				if err := reset(t, h, w); err != nil && !errors.Is(err, member.ErrNoKey) {
					t.Fatal(err)
				}
			}
		})
	}
}
