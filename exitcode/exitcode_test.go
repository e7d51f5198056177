package exitcode_test

import (
	"testing"

	"muster/exitcode"
)

func TestACodeHasOneMeaning(t *testing.T) {
	seen, last := map[int]bool{}, -1
	for _, row := range exitcode.Table() {
		if row.Name == "" || row.Meaning == "" || len(row.Codes) == 0 {
			t.Errorf("a row lacks something: %+v", row)
		}
		for _, code := range row.Codes {
			if seen[code] || code < last {
				t.Errorf("code %d comes twice, or too late", code)
			}
			if got := exitcode.Name(code); got != row.Name {
				t.Errorf("code %d is called %q, want %q", code, got, row.Name)
			}
			seen[code], last = true, code
		}
	}
	if got := exitcode.Name(99); got != "exit code 99" {
		t.Errorf("an unknown code is called %q", got)
	}
}
