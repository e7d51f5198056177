package plan_test

import (
	"fmt"
	"testing"

	"muster/plan"
)

// tenThousand is a plan in which every row is blocked: the largest rows there are.
func tenThousand() plan.Saved {
	want := plan.Want{Stack: stack}
	have := plan.State{Jobs: map[string]plan.Observed{}}
	for i := range 10_000 {
		j := declared(workers(8), label("team", "data"))
		j.Name, j.Address = fmt.Sprint("job-", i), fmt.Sprintf(`job.many["%d"]`, i)
		want.Jobs = append(want.Jobs, j)
		old := declared()
		old.Name = j.Name
		have.Jobs[j.Path()] = *recorded(old, counts(4, 0, 4))
	}
	p := plan.Diff(want, have)
	p.ID = "p1"
	return plan.Saved{Plan: p}
}

func BenchmarkEncode(b *testing.B) {
	s := tenThousand()
	b.ReportAllocs()
	for b.Loop() {
		b.SetBytes(int64(len(encode(b, s))))
	}
}

func BenchmarkDecode(b *testing.B) {
	file := encode(b, tenThousand())
	b.SetBytes(int64(len(file)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := plan.Decode(file); err != nil {
			b.Fatal(err)
		}
	}
}
