package znode

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
	if got, err := DecodeAny[Opening](body); err != nil || *got != opening {
		t.Errorf("an opening became %+v: %v", got, err)
	}
	if got, err := DecodeAny[Opening](nil); err != nil || got != nil {
		t.Errorf("a closed operation is %+v: %v", got, err)
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
