package faults

import (
	"fmt"
	"strings"
	"testing"
)

// TestTheCheckFinds: what a soak would miss if it were not found here.
func TestTheCheckFinds(t *testing.T) {
	b := batch{seed: 1, n: 1, tasks: 20} // its first task is meant to die
	var right []string
	for i := range b.tasks {
		line := fmt.Sprintf(`{"index":%d,"attempt":1,"result":%q}`, i, answer(b.payload(i)))
		if b.kind(i) == poison {
			line = fmt.Sprintf(`{"index":%d,"attempt":1,"dead":true,"error":"x"}`, i)
		}
		right = append(right, line)
	}
	for name, c := range map[string]struct {
		lines []string
		want  string
	}{
		"all is well":      {right, ""},
		"one is missing":   {right[:19], "task 19 is not there"},
		"one is twice":     {append(right[:20:20], right[7]), "task 7 is there twice"},
		"another batch's":  {append(right[:20:20], `{"index":20,"result":"x"}`), "there is no task 20"},
		"a wrong result":   {append(right[:19:19], `{"index":19,"result":"x"}`), "task 19 has the result"},
		"an innocent dies": {append(right[:19:19], `{"index":19,"dead":true,"error":"x"}`), "task 19, which is"},
		"poison lives":     {append([]string{`{"index":0,"result":"x"}`}, right[1:]...), "task 0, which is"},
	} {
		found, err := check(b, strings.NewReader(strings.Join(c.lines, "\n")+"\n"))
		if err != nil {
			t.Error(err)
		}
		if got := strings.Join(found.Problems, "; "); (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: found %q, want %q", name, got, c.want)
		}
	}
}
