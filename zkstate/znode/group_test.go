package znode

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestAssignerForgetsTheOldest: a memory of 1,000 duties with long names always fits. Reasons go first, then the oldest
// failures. What operators asked for stays.
func TestAssignerForgetsTheOldest(t *testing.T) {
	t.Parallel()
	c := AssignerMemory{Why: ByDuty{}, Paused: ByDuty{}, Failures: map[string]map[string]Failure{}}
	duty := func(i int) string { return fmt.Sprintf("d%063d", i) }
	for i := range 1000 {
		c.Why[duty(i)] = fmt.Sprintf("the loads are more even than they were %d times", i)
		c.Failures[duty(i)] = map[string]Failure{
			"s-0000000007": {Count: 1, Tries: 1, Until: int64(i), Because: strings.Repeat("x", 200)},
		}
	}
	c.Paused[duty(3)] = "root@here"
	body, err := EncodeAssigner(c)
	if err != nil || len(body) > maxJSON || len(body) < maxJSON/2 {
		t.Fatalf("%d bytes, %v", len(body), err)
	}
	got, err := DecodeOrZero[AssignerMemory](body)
	if err != nil {
		t.Fatal(err)
	}
	n := len(got.Failures)
	if len(got.Why) != 0 || n < 100 || n > 900 || len(got.Paused) != 1 {
		t.Errorf("%d reasons, %d failures, %d pauses", len(got.Why), n, len(got.Paused))
	}
	for i := range 1000 {
		if kept := got.Failures[duty(i)] != nil; kept != (i >= 1000-n) {
			t.Errorf("%d is kept: %t, of the newest %d", i, kept, n)
		}
	}
	if len(c.Why) != 1000 || len(c.Failures) != 1000 {
		t.Error("the argument was changed")
	}
}

// TestAssignerOfManyDuties: the reasons of 1,000 duties fit, and even a memory that nothing could make small is
// written.
func TestAssignerOfManyDuties(t *testing.T) {
	t.Parallel()
	c := AssignerMemory{Why: ByDuty{}, Newest: ByDuty{}}
	for i := range 1000 {
		d := fmt.Sprintf("nightly-report-%04d", i)
		c.Why[d], c.Newest[d] = "it has the preferred version, 2.1.0", "2.1.0"
	}
	body, err := EncodeAssigner(c)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeOrZero[AssignerMemory](body)
	if d := cmp.Diff(c, got, cmpopts.EquateEmpty()); d != "" || err != nil {
		t.Errorf("%v, (-want +got):\n%s", err, d)
	}
	c.Paused, c.Pins, c.Failures = ByDuty{}, ByDuty{}, map[string]map[string]Failure{"none": {}}
	for i := range 1000 {
		d := fmt.Sprintf("d%063d", i)
		c.Paused[d], c.Pins[d], c.Newest[d] = fmt.Sprintf("user-%0100d@host", i), fmt.Sprintf("s-%010d", i), fmt.Sprint(i)
	}
	body, err = EncodeAssigner(c)
	if got, bad := DecodeOrZero[AssignerMemory](body); err != nil || bad != nil || len(got.Paused) != 1000 {
		t.Errorf("%d bytes, %d pauses, %v, %v", len(body), len(got.Paused), err, bad)
	}
}

func TestStepKeys(t *testing.T) {
	// printf '4:copy1:x' | sha256sum
	const want = "3ea848d0c09bfa1f55e7c0fea2558db8d9476c60f3fda96f25b3c8a6444d7436"
	if got := StepKey("copy", []string{"x"}); got != want {
		t.Errorf("the key is %s, want %s", got, want)
	}
	seen := map[string]string{}
	for _, words := range [][]string{{"a"}, {"a", ""}, {"a", "b"}, {"a", "b", ""}, {"ab"}, {"a", "1:b"}, {"a1:b"}} {
		key, text := StepKey(words[0], words[1:]), strings.Join(words, "|")
		if other, twice := seen[key]; twice {
			t.Errorf("%s and %s have the same key", text, other)
		}
		seen[key] = text
	}
}

func TestOperationBodies(t *testing.T) {
	opening := Opening{ID: "id", Script: "digest", By: "a", Epoch: 7, Runs: 2}
	body, err := Encode(opening)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Decode[Opening](body); err != nil || got != opening {
		t.Errorf("an opening became %+v: %v", got, err)
	}
	step := StepRecord{
		Name: "s", Done: true, Attempts: 1, By: "a", Epoch: 7, Output: bytes.Repeat([]byte{0xff}, MaxOutput),
	}
	if body, err = Encode(step); err != nil {
		t.Fatal(err)
	}
	got, err := Decode[StepRecord](body)
	if d := cmp.Diff(step, got); d != "" || err != nil {
		t.Errorf("step (-want +got):\n%s%v", d, err)
	}
}

// TestDamagedOperations are refused, whoever wrote them.
func TestDamagedOperations(t *testing.T) {
	for name, err := range map[string]error{
		"id":       errOf(Encode(Opening{ID: "a/b", Script: "s", By: "a"})),
		"script":   errOf(Encode(Opening{ID: "a", By: "a"})),
		"journal":  errOf(Decode[Journal]([]byte(`{"steps":1,"done":2}`))),
		"empty":    errOf(Decode[Journal](nil)),
		"attempts": errOf(Decode[StepRecord]([]byte(`{"name":"s","by":"a"}`))),
		"begun":    errOf(Encode(StepRecord{Name: "s", By: "a", Attempts: 1, Output: []byte("x")})),
		"name":     errOf(Encode(StepRecord{By: "a", Attempts: 1})),
		"output": errOf(Encode(StepRecord{
			Name: "s", By: "a", Attempts: 1, Done: true, Output: make([]byte, MaxOutput+1),
		})),
		"value":   errOf(EncodeSaved(SavedValue{By: "a", Data: make([]byte, MaxStateValue+1)})),
		"no line": errOf(DecodeSaved([]byte(`{"by":"a"}`))),
		"writer":  errOf(DecodeSaved([]byte("{}\nx"))),
		"total":   errOf(Encode(StateTotal{Bytes: -1})),
	} {
		if err == nil {
			t.Errorf("%s: it is accepted", name)
		}
	}
}

func errOf[T any](_ T, err error) error { return err }

func TestTickIsWrittenAndRead(t *testing.T) {
	code, at := 137, time.Date(2026, 11, 22, 2, 0, 0, 500, time.UTC)
	for want, r := range map[string]TickRecord{
		`{"state":"asked","asked":"2026-11-22T02:00:00.0000005Z","asked_by":"me@here","nonce":"a1"}`: {
			State: TickAsked, Asked: at, AskedBy: "me@here", Nonce: "a1",
		},
		`{"state":"failed","by":"a","epoch":7,"attempt":3,"started":"2026-11-22T02:00:00.0000005Z",` +
			`"ended":"2026-11-22T02:01:00.0000005Z","exit":137,"tail":"x\n","because":"timeout"}`: {
			State: TickFailed, By: "a", Epoch: 7, Attempt: 3, Started: at, Ended: at.Add(time.Minute), Exit: &code,
			Tail: "x\n", Because: "timeout",
		},
		`{"state":"missed","first":"2026-11-22T02:00:00.0000005Z","last":"2026-11-22T02:00:01.0000005Z","count":2}`: {
			State: TickMissed, First: at, Last: at.Add(time.Second), Count: 2,
		},
	} {
		isWrittenAndRead(t, want, r)
	}
}

func TestDecodeTickSaysWhatIsDamaged(t *testing.T) {
	isDamaged[TickRecord](t, map[string]string{
		"":                                   "empty",
		"{}":                                 `state: ""`,
		`{"state":"fine"}`:                   `state: "fine"`,
		`{"state":"running"}`:                "attempt",
		`{"state":"waiting","attempt":-1}`:   "attempt: -1",
		`{"state":"missed"}`:                 "count: 0",
		`{"state":"done","started":"today"}`: "today",
	})
	for _, body := range []string{"", "{}", `{"tick":"2026-11-22T02:00:00Z"}`, `{"digest":"aa"}`} {
		if c, err := Decode[TickCursor]([]byte(body)); err == nil {
			t.Errorf("%s is a cursor: %+v", body, c)
		}
	}
}

func TestResultsAreWrittenAndRead(t *testing.T) {
	var r TickResults
	isWrittenAndRead(t, `{}`, r)
	at := time.Date(2026, 11, 22, 2, 0, 0, 0, time.UTC)
	for state, n := range map[TickState]int{TickMissed: 7, TickSkipped: 2, TickRunning: 1, TickWaiting: 1} {
		r.Add(state, n, at)
	}
	r.Add(TickDone, 1, at)
	r.Add(TickFailed, 1, at.Add(time.Hour))
	r.Add(TickLost, 1, time.Time{})
	isWrittenAndRead(t, `{"done":1,"failed":1,"lost":1,"missed":7,"skipped":2,"failed_in_a_row":2,`+
		`"last_success":"2026-11-22T02:00:00Z"}`, r)
	isDamaged[TickResults](t, map[string]string{
		"": "empty", `{"done":-1}`: "from 0 to", `{"failed":9223372036854775807}`: "from 0 to", `{"done":"many"}`: "done",
	})
}

func TestNamesOfTicks(t *testing.T) {
	zone := time.FixedZone("", 3600)
	path := Tick("/apps", "g1", "nightly", time.Date(2026, 11, 22, 2, 0, 0, 0, zone))
	if want := "/apps/.muster/run/g1/duty/nightly/tick/20261122T010000Z"; path != want {
		t.Errorf("path %s, want %s", path, want)
	}
	at, err := TickTime(path)
	if err != nil || !at.Equal(time.Date(2026, 11, 22, 1, 0, 0, 0, time.UTC)) {
		t.Errorf("time %s, %v", at, err)
	}
	for _, name := range []string{"", "20261122T010000", "20261322T010000Z", "20261122T010000.5Z"} {
		if at, err := TickTime(name); err == nil {
			t.Errorf("%q is the tick %s", name, at)
		}
	}
	n, err := NowNumber(Now("/apps", "g1", "nightly", 3))
	if err != nil || n != 3 || !strings.HasSuffix(Now("/apps", "g1", "nightly", 3), "now/n-0000000002") {
		t.Errorf("number %d, %v", n, err)
	}
}

func TestTailIsValidText(t *testing.T) {
	for _, c := range []struct{ output, want string }{
		{"", ""}, {"all well\n", "all well\n"}, {"a\x00\xffb", "a��b"},
		{strings.Repeat("x", MaxTail) + "é", strings.Repeat("x", MaxTail-2) + "é"},
		{"é" + strings.Repeat("x", MaxTail-1), strings.Repeat("x", MaxTail-1)},
	} {
		if d := cmp.Diff(c.want, CutTail([]byte(c.output))); d != "" {
			t.Errorf("%.20q (-want +got):\n%s", c.output, d)
		}
	}
	garbage := CutTail([]byte(strings.Repeat("\xff", 2*MaxTail)))
	if len(garbage) > MaxTail || !utf8.ValidString(garbage) {
		t.Errorf("%d bytes", len(garbage))
	}
}
