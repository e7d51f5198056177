package znode

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestClaimIsWrittenAndRead(t *testing.T) {
	code := 0
	for want, c := range map[string]Claim{
		`{"nonce":"a1","lives":1,"state":"in"}`:                   {Nonce: "a1", Lives: 1, State: In},
		`{"nonce":"a1","lives":2,"state":"left","signal":"TERM"}`: {Nonce: "a1", Lives: 2, State: Left, Signal: "TERM"},
		`{"nonce":"a1","lives":3,"state":"done","exit_code":0}`:   {Nonce: "a1", Lives: 3, State: Done, Exit: &code},
	} {
		got, err := Encode(c)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, string(got)); d != "" {
			t.Errorf("JSON (-want +got):\n%s", d)
		}
		back, err := Decode[Claim](got)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(c, back); d != "" {
			t.Errorf("claim (-written +read):\n%s", d)
		}
	}
}

func TestDecodeClaimSaysWhatIsDamaged(t *testing.T) {
	for body, want := range map[string]string{
		"":                                       "empty",
		"{}":                                     "nonce",
		`{"nonce":1}`:                            "nonce",
		`{"nonce":"a","state":"in"}`:             "lives: 0",
		`{"nonce":"a","lives":1}`:                `state: ""`,
		`{"nonce":"a","lives":1.5}`:              "lives",
		`[]`:                                     "array",
		`{"nonce":"a","lives":1,"state":"done"}`: "without an exit_code",
		`{"nonce":"a","lives":1,"state":"done","exit_code":256}`: "exit_code: 256",
	} {
		if _, err := Decode[Claim]([]byte(body)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", body, err, want)
		}
	}
}
