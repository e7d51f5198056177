package tasks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"reflect"
	"runtime"
	"testing"
	"time"
)

// TestAnswers: what is encoded is decoded; what is no answer is the body; a cut one says what is left of it.
func TestAnswers(t *testing.T) {
	t.Parallel()
	exit, signalled := 3, -9
	for _, a := range []Answer{
		{}, {Body: []byte("x")}, {Body: []byte{0xff, 0}}, {Exit: &exit, Host: "h", Tail: []byte("t"), Body: []byte("b")},
		{Exit: &signalled, Tail: bytes.Repeat([]byte("t"), 300)},
	} {
		got := DecodeAnswer(a.Encode())
		if string(got.Body) != string(a.Body) || got.Host != a.Host || string(got.Tail) != string(a.Tail) ||
			!reflect.DeepEqual(got.Exit, a.Exit) {
			t.Errorf("%+v became %+v", a, got)
		}
	}
	if n := len(Answer{Body: []byte("result")}.Encode()); n != len("result")+1 {
		t.Errorf("a bare result costs %d bytes", n)
	}
	for _, text := range []string{"", "its executor died", "\xf8", "\xff", "\xf9"} {
		if got := DecodeAnswer([]byte(text)); text != "\xf8" && string(got.Body) != text {
			t.Errorf("%q became %+v", text, got)
		}
	}
	cut := Answer{Exit: &exit, Tail: bytes.Repeat([]byte("t"), 300)}.Encode()[:100]
	if got := DecodeAnswer(cut); got.Exit == nil || *got.Exit != 3 || len(got.Tail) == 0 || len(got.Body) != 0 {
		t.Errorf("cut: %+v", got)
	}
}

// TestRecordsAsJSON: text is text, other bytes are in base64.
func TestRecordsAsJSON(t *testing.T) {
	t.Parallel()
	zero := 0
	for want, r := range map[string]Record{
		`{"index":1,"attempt":1,"exit":0,"ms":7,"host":"h","result":"ä"}`: {
			Index: 1, Attempt: 1, Exit: &zero, MS: 7, Host: "h", Result: []byte("ä"),
		},
		`{"index":0,"attempt":2,"ms":0,"base64":"/w=="}`: {Attempt: 2, Result: []byte{0xff}},
		`{"index":2,"attempt":3,"ms":0,"dead":true,"error":"no","died":"2026-11-22T01:02:03Z","task":"2"}`: {
			Index: 2, Attempt: 3, Dead: true, Error: "no", Died: time.Date(2026, 11, 22, 1, 2, 3, 0, time.UTC),
			Task: []byte("2"),
		},
	} {
		line, err := json.Marshal(r)
		if err != nil || string(line) != want {
			t.Errorf("%s, %v, want %s", line, err, want)
		}
	}
}

// shuffled yields records of n tasks that are out of order by up to window places, and at most once.
func shuffled(n, window int) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		r := rand.New(rand.NewPCG(1, 2))
		for from := 0; from < n; from += window {
			for _, i := range r.Perm(min(window, n-from)) {
				if !yield(Record{Index: int64(from + i), Attempt: 1, Result: fmt.Append(nil, from+i)}, nil) {
					return
				}
			}
		}
	}
}

// TestInOrder: records come in the order of their tasks, however late some are; a missing one is told.
func TestInOrder(t *testing.T) {
	for _, window := range []int{1, 2, 100, 20_000} {
		const n = 20_000
		next := int64(0)
		for r, err := range InOrder(shuffled(n, window), n) {
			if err != nil || r.Index != next || string(r.Result) != fmt.Sprint(next) {
				t.Fatalf("window %d: %+v, %v, want %d", window, r, err, next)
			}
			next++
		}
		if next != n {
			t.Errorf("window %d: %d records", window, next)
		}
	}
	var last error
	for _, err := range InOrder(shuffled(10, 3), 11) {
		last = err
	}
	if !errors.Is(last, ErrIncomplete) {
		t.Error(last)
	}
	for range InOrder(shuffled(10, 10), 10) {
		break
	}
}

// BenchmarkInOrder orders a million records, the worst case of which is that the first comes last.
func BenchmarkInOrder(b *testing.B) {
	for _, window := range []int{100, 1_000_000} {
		b.Run(fmt.Sprint("window ", window), func(b *testing.B) {
			for b.Loop() {
				var before, now runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&before)
				n := 0
				for _, err := range InOrder(shuffled(1_000_000, window), 1_000_000) {
					if n++; err != nil {
						b.Fatal(err)
					}
					if n == 1 {
						runtime.GC()
						runtime.ReadMemStats(&now)
						b.ReportMetric(float64(now.HeapAlloc-min(before.HeapAlloc, now.HeapAlloc))/1e6, "MB-held")
					}
				}
			}
		})
	}
}
