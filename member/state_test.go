package member_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sync/errgroup"

	"muster/dev/zkserver"
	"muster/member"
	"muster/sim/rig"
	"muster/zkstate/zkconn"
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
		if err := h.Put(t.Context(), key, value(0, 300_000)); err != nil {
			t.Fatal(err)
		}
		if err := h.Put(t.Context(), key, v); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.Put(t.Context(), "gone", value(3, 500_000)); err != nil {
		t.Fatal(err)
	}
	if err := h.Remove(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	f.checkState(a.Generation, "coordinator", want)
	if err := a.Leave(); err != nil {
		t.Fatal(err)
	}
	f.checkState(a.Generation, "coordinator", want)
	next := f.take(b, "coordinator")
	for key := range want {
		if err := next.Remove(t.Context(), key); err != nil {
			t.Fatal(err)
		}
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
		if err != nil {
			t.Fatal(err)
		}
		return keys
	}
	if got := list(); len(got) != 0 {
		t.Errorf("before anybody took the duty: %+v", got)
	}
	h := f.take(a, "coordinator")
	for _, key := range []string{"b", "a", "c"} {
		if err := h.Put(t.Context(), key, []byte("12345")); err != nil {
			t.Fatal(err)
		}
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
	if err := h.Put(t.Context(), "b", []byte("again")); err != nil {
		t.Fatal(err)
	}
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
		if err := h.Put(t.Context(), "big", largest); err != nil {
			t.Fatal(err)
		}
	}
	f.checkState(a.Generation, "coordinator", map[string][]byte{"big": largest})
	if err := h.Remove(t.Context(), "big"); err != nil {
		t.Fatal(err)
	}
}

// fill makes a duty look as if it had saved so many bytes.
func (f *fixture) fill(g, duty string, bytes int64) {
	f.t.Helper()
	body, err := znode.Encode(znode.StateTotal{Bytes: bytes})
	if err == nil {
		_, err = f.s.Set(f.t.Context(), znode.States(f.group.Root, g, duty), body, -1)
	}
	if err != nil {
		f.t.Fatal(err)
	}
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

// TestReadsAreWhole: readers that read while the value is written, removed and written again never see a part of it, or
// a mix, or an older value after a newer one.
func TestReadsAreWhole(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "coordinator")
	a := f.join("a", "1.0", "coordinator")
	h := f.take(a, "coordinator")
	var tasks errgroup.Group
	written := make(chan struct{})
	for range 3 {
		s := dial(t)
		tasks.Go(func() error {
			last, reads := 0, 0
			for {
				select {
				case <-written:
					if reads == 0 {
						return errors.New("it has read nothing")
					}
					return nil
				default:
				}
				got, err := member.ReadState(t.Context(), s, f.group.Root, a.Generation, "coordinator", "k")
				if errors.Is(err, member.ErrNoKey) {
					continue
				}
				if err != nil {
					return err
				}
				n := 0
				if _, err := fmt.Sscanf(string(got[:8]), "%d", &n); err != nil {
					return err
				}
				if want := value(n, len(got)); !bytes.Equal(got, want) || len(got) != sizeOf(n) || n < last {
					return fmt.Errorf("value %d after %d, with %d bytes, is not whole", n, last, len(got))
				}
				last, reads = n, reads+1
			}
		})
	}
	tasks.Go(func() error {
		defer close(written)
		for n := 1; n <= 60; n++ {
			if n%10 == 0 {
				if err := h.Remove(t.Context(), "k"); err != nil {
					return err
				}
			}
			if err := h.Put(t.Context(), "k", value(n, sizeOf(n))); err != nil {
				return err
			}
		}
		return nil
	})
	if err := tasks.Wait(); err != nil {
		t.Fatal(err)
	}
	f.checkState(a.Generation, "coordinator", map[string][]byte{"k": value(60, sizeOf(60))})
}

// sizeOf is the size of the nth value of TestReadsAreWhole.
func sizeOf(n int) int { return 8 + n%5*100_000 + n }

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
	if err := tasks.Wait(); err != nil {
		t.Fatal(err)
	}
	want := map[string][]byte{}
	for i := range 4 {
		want[fmt.Sprint("k", i)] = value(i, 10*i)
	}
	got, err := a.Get(t.Context(), "coordinator", "same")
	if err != nil {
		t.Fatal(err)
	}
	want["same"] = got
	f.checkState(a.Generation, "coordinator", want)
}

// joinBy joins in a session of its own, through a proxy. The session ends soon after the proxy is cut.
func (f *fixture) joinBy(p *zkserver.Proxy, timeout time.Duration, identity string, can ...string) *member.Member {
	f.t.Helper()
	s, err := zkconn.Dial(f.t.Context(), zkconn.Config{Servers: []string{p.Addr()}, Timeout: timeout})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { s.Close() })
	m, err := member.Join(f.t.Context(), s, f.config(identity, "1.0", can...))
	if err != nil {
		f.t.Fatal(err)
	}
	return m
}

// writesBelow accepts the nth transaction, from 1, that writes a znode whose path holds part.
func writesBelow(part string, n int32) func(int32, []byte) bool {
	var seen atomic.Int32
	return func(op int32, req []byte) bool {
		return op == zkserver.OpMulti && bytes.Contains(req, []byte(part)) && seen.Add(1) == n
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
	if err != nil {
		f.t.Fatal(err)
	}
	if is := znode.DecodeStateTotal(body).Bytes; is != int64(total) {
		f.t.Errorf("the total is %d, want %d", is, total)
	}
}

// namesBelow are the children of a path.
func (f *fixture) namesBelow(at string) []string {
	f.t.Helper()
	if err := f.s.Sync(f.t.Context(), at); err != nil {
		f.t.Fatal(err)
	}
	names, _, err := f.s.Children(f.t.Context(), at)
	if err != nil {
		f.t.Fatal(err)
	}
	return names
}

// dump lists every znode below at with the transaction that wrote it last.
func (f *fixture) dump(at string) []string {
	stat, there, err := f.s.Exists(f.t.Context(), at)
	if err != nil {
		f.t.Error(err)
	}
	if !there {
		return nil
	}
	all := []string{fmt.Sprint(at, " ", stat.Mzxid, " ", stat.Pzxid)}
	names, _, err := f.s.Children(f.t.Context(), at)
	if err != nil {
		f.t.Error(err)
	}
	for _, name := range names {
		all = append(all, f.dump(path.Join(at, name))...)
	}
	slices.Sort(all)
	return all
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
			"after": (*zkserver.Proxy).AfterReply,
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
				before := rig.Receive(t, taken, "the duty to be taken away")
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
