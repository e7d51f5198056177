package member_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sync/errgroup"

	"muster/dev/fault"
	"muster/member"
	"muster/sim/rig"
	"muster/zkstate/znode"
)

// TestSavedStateSurvivesItsHolder: the next holder and anybody else read what the last one saved.
func TestSavedStateSurvivesItsHolder(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	a, b := f.join("a", "1.0", "coordinator"), f.join("b", "1.0", "coordinator")
	h := f.take(a, "coordinator")
	want := map[string][]byte{
		"empty": {}, "one": []byte("x"), "lines": []byte("{}\n\n{}"), "more": value(2, 200_001),
	}
	for key, v := range want {
		f.must(h.Put(t.Context(), key, value(0, 300_000)))
		f.must(h.Put(t.Context(), key, v))
	}
	f.must(h.Put(t.Context(), "gone", value(3, 500_000)))
	f.must(h.Remove(t.Context(), "gone"))
	f.checkState(a.Generation, "coordinator", want)
	f.must(a.Leave())
	f.checkState(a.Generation, "coordinator", want)
	next := f.take(b, "coordinator")
	for key := range want {
		f.must(next.Remove(t.Context(), key))
	}
	f.checkState(a.Generation, "coordinator", nil)
}

// TestKeysAreListed: sorted, with size and writer; a key that cannot be read says so, and can be saved again.
func TestKeysAreListed(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator", "other")
	a := f.join("a", "1.0", "coordinator", "other")
	list := func() []member.KeyInfo {
		t.Helper()
		keys, err := member.Keys(t.Context(), f.s, f.group.Root, a.Generation, "coordinator")
		f.must(err)
		return keys
	}
	if got := list(); len(got) != 0 {
		t.Errorf("before anybody took the duty: %+v", got)
	}
	h := f.take(a, "coordinator")
	for _, key := range []string{"b", "a", "c"} {
		f.must(h.Put(t.Context(), key, []byte("12345")))
	}
	at := znode.State(f.group.Root, a.Generation, "coordinator", "b")
	if _, err := f.s.Set(t.Context(), at, []byte("{"), -1); err != nil {
		t.Fatal(err)
	}
	want := []member.KeyInfo{
		{Key: "a", Bytes: 5, By: "a", Epoch: h.Epoch},
		{Key: "b", Problem: "value: it is no line of JSON and a value"},
		{Key: "c", Bytes: 5, By: "a", Epoch: h.Epoch},
	}
	if d := cmp.Diff(want, list(), cmpopts.IgnoreFields(member.KeyInfo{}, "Saved")); d != "" {
		t.Errorf("keys (-want +got):\n%s", d)
	}
	if list()[0].Saved.IsZero() {
		t.Error("it does not say when a key was saved")
	}
	if _, err := a.Get(t.Context(), "coordinator", "b"); !errors.Is(err, member.ErrStateDamaged) {
		t.Errorf("a damaged key was read: %v", err)
	}
	f.must(h.Put(t.Context(), "b", []byte("again")))
	want[1] = member.KeyInfo{Key: "b", Bytes: 5, By: "a", Epoch: h.Epoch}
	if d := cmp.Diff(want, list(), cmpopts.IgnoreFields(member.KeyInfo{}, "Saved")); d != "" {
		t.Errorf("keys (-want +got):\n%s", d)
	}
}

// TestRefusedKeys: nothing is written.
func TestRefusedKeys(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	a := f.join("a", "1.0", "coordinator")
	h := f.take(a, "coordinator")
	for _, key := range []string{"", "a/b", "..", strings.Repeat("k", 129)} {
		if err := h.Put(t.Context(), key, nil); err == nil {
			t.Errorf("Put %q", key)
		}
		if err := h.Remove(t.Context(), key); err == nil || errors.Is(err, member.ErrNoKey) {
			t.Errorf("Remove %q: %v", key, err)
		}
		if _, err := a.Get(t.Context(), "coordinator", key); err == nil || errors.Is(err, member.ErrNoKey) {
			t.Errorf("Get %q: %v", key, err)
		}
	}
	if err := h.Remove(t.Context(), "never"); !errors.Is(err, member.ErrNoKey) {
		t.Errorf("Remove: %v", err)
	}
	if _, err := a.Get(t.Context(), "coordinator", "never"); !errors.Is(err, member.ErrNoKey) {
		t.Errorf("Get: %v", err)
	}
	if keys, err := a.Keys(t.Context(), "coordinator"); len(keys) > 0 || err != nil {
		t.Errorf("it has written %+v, %v", keys, err)
	}
}

// TestLargestValue: 512 KiB are saved; one byte more is refused.
func TestLargestValue(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	a := f.join("a", "1.0", "coordinator")
	h := f.take(a, "coordinator")
	largest := value(7, 512<<10)
	if err := h.Put(t.Context(), "big", append(largest, 'x')); !errors.Is(err, member.ErrStateTooLarge) {
		t.Errorf("a byte too much: %v", err)
	}
	for range 2 {
		f.must(h.Put(t.Context(), "big", largest))
	}
	f.checkState(a.Generation, "coordinator", map[string][]byte{"big": largest})
	f.must(h.Remove(t.Context(), "big"))
}

// fill makes a duty look as if it had saved so many bytes.
func (f *fixture) fill(g, duty string, bytes int64) {
	f.t.Helper()
	body, err := znode.Encode(znode.StateTotal{Bytes: bytes})
	if err == nil {
		_, err = f.s.Set(f.t.Context(), znode.States(f.group.Root, g, duty), body, -1)
	}
	f.must(err)
}

// TestLimitOfAGroup: 64 MiB over all duties, to the byte. What replaces a value needs only the difference.
func TestLimitOfAGroup(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator", "other")
	a := f.join("a", "1.0", "coordinator", "other")
	h, other := f.take(a, "coordinator"), f.take(a, "other")
	put := func(key string, n int, fits bool) {
		t.Helper()
		err := h.Put(t.Context(), key, value(1, n))
		if fits && err != nil || !fits && !errors.Is(err, member.ErrStateTooLarge) {
			t.Errorf("%s with %d bytes: %v", key, n, err)
		}
	}
	put("x", 1000, true)
	if err := other.Put(t.Context(), "y", nil); err != nil { // makes its folder
		t.Fatal(err)
	}
	f.fill(a.Generation, "other", 64<<20-3000)
	put("z", 2001, false)
	put("z", 2000, true)
	put("empty", 0, true)
	put("w", 1, false)
	put("x", 1001, false)
	put("x", 999, true)
	put("w", 2, false)
	put("w", 1, true)
	f.checkState(a.Generation, "coordinator",
		map[string][]byte{"x": value(1, 999), "z": value(1, 2000), "empty": {}, "w": value(1, 1)})
}

// TestWritesAtTheSameTime: goroutines of one holder write the same keys.
func TestWritesAtTheSameTime(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	a := f.join("a", "1.0", "coordinator")
	h := f.take(a, "coordinator")
	var tasks errgroup.Group
	for i := range 4 {
		tasks.Go(func() error {
			for range 5 {
				if err := h.Put(t.Context(), "same", value(i, 250_000)); err != nil {
					return err
				}
			}
			return h.Put(t.Context(), fmt.Sprint("k", i), value(i, 10*i))
		})
	}
	f.must(tasks.Wait())
	want := map[string][]byte{}
	for i := range 4 {
		want[fmt.Sprint("k", i)] = value(i, 10*i)
	}
	got, err := a.Get(t.Context(), "coordinator", "same")
	f.must(err)
	want["same"] = got
	f.checkState(a.Generation, "coordinator", want)
}

// joinBy joins in a session of its own, through a proxy. The session ends soon after the proxy is cut.
func (f *fixture) joinBy(p *fault.Proxy, timeout time.Duration, identity string, can ...string) *member.Member {
	f.t.Helper()
	return f.joinIn(rig.Dial(f.t, timeout, p.Addr()), f.config(identity, "1.0", can...))
}

// writesBelow accepts the nth transaction, from 1, that writes a znode whose path holds part.
func writesBelow(part string, n int32) func(int32, []byte) bool {
	var seen atomic.Int32
	return func(op int32, req []byte) bool {
		return op == fault.OpMulti && bytes.Contains(req, []byte(part)) && seen.Add(1) == n
	}
}

func happened(fired <-chan struct{}) bool {
	select {
	case <-fired:
		return true
	default:
		return false
	}
}

// value is one whose every part tells which value it is: a mix of two is found.
func value(n, size int) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "%07d\n", n), size/8+1)[:size]
}

// checkState compares everything that is saved for a duty with want, and looks for znodes that should not be there.
func (f *fixture) checkState(g, duty string, want map[string][]byte) {
	f.t.Helper()
	root, folder := f.group.Root, znode.States(f.group.Root, g, duty)
	total := 0
	names := f.namesBelow(folder)
	for _, key := range names {
		got, err := member.ReadState(f.t.Context(), f.s, root, g, duty, key)
		if err != nil {
			f.t.Errorf("%s: %v", key, err)
		} else if !bytes.Equal(got, want[key]) {
			f.t.Errorf("%s has %d bytes, want %d", key, len(got), len(want[key]))
		}
		total += len(want[key])
	}
	if len(names) != len(want) {
		f.t.Errorf("the keys are %q, want %d", names, len(want))
	}
	body, _, err := f.s.Get(f.t.Context(), folder)
	f.must(err)
	if is := znode.DecodeStateTotal(body).Bytes; is != int64(total) {
		f.t.Errorf("the total is %d, want %d", is, total)
	}
}

// namesBelow are the children of a path.
func (f *fixture) namesBelow(at string) []string {
	f.t.Helper()
	f.must(f.s.Sync(f.t.Context(), at))
	names, _, err := f.s.Children(f.t.Context(), at)
	f.must(err)
	return names
}

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
func (w stateWrite) holder(f *fixture, p *fault.Proxy) (*member.Member, *member.Hold) {
	m := f.joinBy(p, 10*time.Second, "a", "coordinator")
	h := f.take(m, "coordinator")
	if w.before != nil {
		f.must(h.Put(f.t.Context(), "k", w.before))
	}
	return m, h
}

func savedAs(v []byte) map[string][]byte {
	if v == nil {
		return nil
	}
	return map[string][]byte{"k": v}
}

// TestStateWithLostReplies: the connection breaks at the transaction of a write. The write succeeds, and leaves nothing
// else.
func TestStateWithLostReplies(t *testing.T) {
	t.Parallel()
	for _, w := range stateWrites() {
		for name, fault := range faults() {
			t.Run(w.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				f, p := newFixture(t, "coordinator"), newProxy(t)
				m, h := w.holder(f, p)
				fired := fault(p, writesBelow("/state", 1))
				f.must(w.do(t.Context(), h))
				rig.Receive(t, fired, "the fault")
				f.checkState(m.Generation, "coordinator", savedAs(w.after))
			})
		}
	}
}

// TestFailedWriteLeavesNothing: the caller gives up in the middle of a write. The next write of the same holder
// waits until it is known.
func TestFailedWriteLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, w := range stateWrites() {
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			f, p := newFixture(t, "coordinator"), newProxy(t)
			m, h := w.holder(f, p)
			ctx, giveUp := context.WithCancel(t.Context())
			match := writesBelow("/state", 1)
			p.BeforeSend(func(op int32, req []byte) bool {
				if match(op, req) {
					giveUp() // the transaction is sent nevertheless
				}
				return false
			})
			if err := w.do(ctx, h); err != nil && !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			f.must(h.Put(t.Context(), "other", []byte("x")))
			got, err := m.Get(t.Context(), "coordinator", "k")
			if err != nil && !errors.Is(err, member.ErrNoKey) {
				t.Fatal(err)
			}
			if !bytes.Equal(got, w.before) && !bytes.Equal(got, w.after) {
				t.Errorf("it has %d bytes", len(got))
			}
			want := map[string][]byte{"other": []byte("x")}
			if err == nil {
				want["k"] = got
			}
			f.checkState(m.Generation, "coordinator", want)
		})
	}
}
