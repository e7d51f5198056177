package znode

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

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
		got, err := Encode(r)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, string(got)); d != "" {
			t.Errorf("JSON (-want +got):\n%s", d)
		}
		back, err := Decode[TickRecord](got)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(r, back); d != "" {
			t.Errorf("run (-written +read):\n%s", d)
		}
	}
}

func TestDecodeTickSaysWhatIsDamaged(t *testing.T) {
	for body, want := range map[string]string{
		"":                                   "empty",
		"{}":                                 `state: ""`,
		`{"state":"fine"}`:                   `state: "fine"`,
		`{"state":"running"}`:                "attempt",
		`{"state":"waiting","attempt":-1}`:   "attempt: -1",
		`{"state":"missed"}`:                 "count: 0",
		`{"state":"done","started":"today"}`: "today",
	} {
		if _, err := Decode[TickRecord]([]byte(body)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", body, err, want)
		}
	}
	for _, body := range []string{"", "{}", `{"tick":"2026-11-22T02:00:00Z"}`, `{"digest":"aa"}`} {
		if c, err := Decode[TickCursor]([]byte(body)); err == nil {
			t.Errorf("%s is a cursor: %+v", body, c)
		}
	}
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
