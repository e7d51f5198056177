package exitcode_test

import (
	"slices"
	"testing"

	"muster/exitcode"
)

func TestACodeHasOneMeaning(t *testing.T) {
	seen, first := map[int]bool{}, -1
	for _, row := range exitcode.Table() {
		if row.Name == "" || row.Meaning == "" || len(row.Codes) == 0 {
			t.Fatalf("a row lacks something: %+v", row)
		}
		if row.Codes[0] <= first || !slices.IsSorted(row.Codes) {
			t.Errorf("the row of %v comes too late, or is not sorted", row.Codes)
		}
		first = row.Codes[0]
		for _, code := range row.Codes {
			if seen[code] {
				t.Errorf("code %d comes twice", code)
			}
			if got := exitcode.Name(code); got != row.Name {
				t.Errorf("code %d is called %q, want %q", code, got, row.Name)
			}
			seen[code] = true
		}
	}
	if got := exitcode.Name(99); got != "exit code 99" {
		t.Errorf("an unknown code is called %q", got)
	}
}
