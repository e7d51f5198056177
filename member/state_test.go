package member_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sync/errgroup"

	"muster/member"
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
