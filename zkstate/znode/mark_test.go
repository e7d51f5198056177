package znode

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMarkIsWrittenAndRead(t *testing.T) {
	at := time.Date(2026, 1, 31, 3, 4, 5, 999, time.FixedZone("", 3600))
	got, err := Encode(Mark{Who: "ci@build", What: "apply", Since: at, Plan: "p1", Op: "o1"})
	if err != nil {
		t.Fatal(err)
	}
	wantJSON := `{"who":"ci@build","what":"apply","since":"2026-01-31T02:04:05Z","plan":"p1","op":"o1"}`
	if d := cmp.Diff(wantJSON, string(got)); d != "" {
		t.Errorf("JSON (-want +got):\n%s", d)
	}
	back, err := Decode[Mark](got)
	if err != nil {
		t.Fatal(err)
	}
	want := Mark{Who: "ci@build", What: "apply", Since: time.Date(2026, 1, 31, 2, 4, 5, 0, time.UTC),
		Plan: "p1", Op: "o1"}
	if d := cmp.Diff(want, back); d != "" {
		t.Errorf("mark (-written +read):\n%s", d)
	}
}

// TestMarkNamesWhoAsked: with the address of the run, but no password in it.
func TestMarkNamesWhoAsked(t *testing.T) {
	at := time.Date(2026, 1, 31, 3, 4, 5, 0, time.UTC)
	body, err := Encode(Mark{
		Who: "runner@build", What: "apply", Since: at, Actor: "ann", URL: "https://u:p@ci.example/runs/7",
	})
	if err != nil {
		t.Fatal(err)
	}
	m, err := Decode[Mark](body)
	if err != nil {
		t.Fatal(err)
	}
	want := "ann (runner@build) holds it since 2026-01-31T03:04:05Z (apply), https://ci.example/runs/7"
	if m.String() != want {
		t.Errorf("%s, want %s", m, want)
	}
	if m.Actor = m.Who; m.Name() != "runner@build" {
		t.Errorf("named %q", m.Name())
	}
}

func TestDecodeMarkSaysWhatIsDamaged(t *testing.T) {
	for body, want := range map[string]string{
		"":                                "empty",
		"{}":                              "who",
		`{"who":"a","since":"yesterday"}`: "yesterday",
		`{"who":["a"]}`:                   "who",
	} {
		if _, err := Decode[Mark]([]byte(body)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", body, err, want)
		}
	}
}
