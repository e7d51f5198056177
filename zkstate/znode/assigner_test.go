package znode

import (
	"fmt"
	"strings"
	"testing"

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
	if err != nil || len(body) > MaxAssigner || len(body) < MaxAssigner*9/10 {
		t.Fatalf("%d bytes, %v", len(body), err)
	}
	got, err := DecodeAssigner(body)
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
	got, err := DecodeAssigner(body)
	if d := cmp.Diff(c, got, cmpopts.EquateEmpty()); d != "" || err != nil {
		t.Errorf("%v, (-want +got):\n%s", err, d)
	}
	c.Paused, c.Pins = ByDuty{}, ByDuty{}
	for i := range 1000 {
		d := fmt.Sprintf("d%063d", i)
		c.Paused[d], c.Pins[d], c.Newest[d] = fmt.Sprintf("user-%d@host", i), fmt.Sprintf("s-%010d", i), fmt.Sprint(i)
	}
	if body, err := EncodeAssigner(c); err != nil || len(body) > MaxAssigner {
		t.Errorf("%d bytes, %v", len(body), err)
	}
}
