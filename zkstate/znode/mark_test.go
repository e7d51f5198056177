package znode

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMarkIsWrittenAndRead(t *testing.T) {
	at := time.Date(2026, 1, 31, 3, 4, 5, 999, time.FixedZone("", 3600))
	got, err := EncodeMark(Mark{Who: "ci@build", What: "apply", Since: at, Plan: "p1", Op: "o1"})
	if err != nil {
		t.Fatal(err)
	}
	wantJSON := `{"who":"ci@build","what":"apply","since":"2026-01-31T02:04:05Z","plan":"p1","op":"o1"}`
	if d := cmp.Diff(wantJSON, string(got)); d != "" {
		t.Errorf("JSON (-want +got):\n%s", d)
	}
	back, err := DecodeMark(got)
	if err != nil {
		t.Fatal(err)
	}
	want := Mark{Who: "ci@build", What: "apply", Since: time.Date(2026, 1, 31, 2, 4, 5, 0, time.UTC),
		Plan: "p1", Op: "o1"}
	if d := cmp.Diff(want, back); d != "" {
		t.Errorf("mark (-written +read):\n%s", d)
	}
}

func TestDecodeMarkSaysWhatIsDamaged(t *testing.T) {
	for body, want := range map[string]string{
		"":                                "empty",
		"{}":                              "who",
		`{"who":"a","since":"yesterday"}`: "yesterday",
		`{"who":["a"]}`:                   "who",
	} {
		if _, err := DecodeMark([]byte(body)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", body, err, want)
		}
	}
}
