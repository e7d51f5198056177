package znode

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRoundIsWrittenAndRead(t *testing.T) {
	for want, r := range map[string]Round{
		`{"n":8,"mode":"durable"}`:       {Workers: 8, Mode: Durable},
		`{"n":8,"mode":"durable-retry"}`: {Workers: 8, Mode: DurableRetry},
		`{"n":8,"mode":"live-retry"}`:    {Workers: 8, Mode: LiveRetry},
		`{"n":3,"mode":"live","aborted":"waited 1m40s","missing":[0,2]}`: {
			Workers: 3, Mode: LiveRound, Aborted: "waited 1m40s", Missing: []int{0, 2},
		},
	} {
		isWrittenAndRead(t, want, r)
	}
}

func TestDecodeRoundSaysWhatIsDamaged(t *testing.T) {
	isDamaged[Round](t, map[string]string{
		"":                                    "empty",
		"[]":                                  "array",
		"{}":                                  "n: 0",
		`{"n":20001}`:                         "n: 20001",
		`{"n":2}`:                             `mode: ""`,
		`{"n":2,"mode":"any"}`:                `mode: "any"`,
		`{"n":2,"mode":"live","missing":[1]}`: "not aborted",
		`{"n":2,"mode":"live","aborted":"x","missing":[2]}`:    "missing: 2",
		`{"n":2,"mode":"live","aborted":"x","missing":[-1]}`:   "missing: -1",
		`{"n":2,"mode":"live","aborted":"x","missing":[1,0]}`:  "missing: 0",
		`{"n":2,"mode":"live","aborted":"x","missing":["0"]}`:  "missing",
		`{"n":2,"mode":"durable","aborted":"x","missing":null`: "not JSON, at byte 52",
	})
}

func TestFloorIsANumber(t *testing.T) {
	for _, n := range []int{0, 7, MaxRound} {
		if got, err := DecodeFloor(EncodeFloor(n)); err != nil || got != n {
			t.Errorf("%d reads as %d, %v", n, got, err)
		}
	}
	for _, s := range []string{"", "-1", "+1", "01", " 1", "2147483648", "x"} {
		if got, err := DecodeFloor([]byte(s)); err == nil {
			t.Errorf("%q reads as %d", s, got)
		}
	}
}

func TestAttemptsHaveNames(t *testing.T) {
	for name, want := range map[string][2]int{"0": {0, 1}, "7": {7, 1}, "7.2": {7, 2}, "0.10": {0, 10}} {
		round, attempt, err := ParseAttempt(name)
		if err != nil || round != want[0] || attempt != want[1] || AttemptName(round, attempt) != name {
			t.Errorf("%s reads as %d, %d, %v", name, round, attempt, err)
		}
	}
	for _, name := range []string{
		"", ".", "7.", "7.1", "7.0", "7.02", "7.-2", "07.2", "7.2.2", ".2", "x", "7.2147483648",
	} {
		if round, attempt, err := ParseAttempt(name); err == nil {
			t.Errorf("%q reads as %d, %d", name, round, attempt)
		}
	}
}

func TestArrivalsAreNumbered(t *testing.T) {
	dir := Attempt("/r", "g", "load", 3, 1)
	if d := cmp.Diff("/r/.muster/run/g/barrier/load/3/c/c-0000000011", Counted(dir, 11)); d != "" {
		t.Errorf("path (-want +got):\n%s", d)
	}
	if n, err := CountNumber(Counted(dir, 11)); err != nil || n != 11 {
		t.Errorf("the number reads as %d, %v", n, err)
	}
}

func FuzzDecodeRound(f *testing.F) {
	f.Add([]byte(`{"n":8,"mode":"durable"}`))
	f.Add([]byte(`{"n":3,"mode":"live","aborted":"waited","missing":[0,2],"more":{}}`))
	fuzzBody[Round](f)
}
