package planfile_test

import (
	"fmt"
	"testing"

	"muster/plan"
	"muster/plan/planfile"
	"muster/resource"
)

// tenThousand is a plan of 10,000 rows. Every row is blocked, since such rows are the largest.
func tenThousand() planfile.Saved {
	want := plan.Want{Stack: stack}
	have := plan.State{Found: map[string]resource.Observed{}}
	for i := range 10_000 {
		j := declared(workers(8), label("team", "data"))
		j.Name, j.Address = fmt.Sprint("job-", i), fmt.Sprintf(`job.many["%d"]`, i)
		want.Declared = append(want.Declared, j)
		old := declared()
		old.Name = j.Name
		have.Found[j.Path()] = *recorded(old, counts(4, 0, 4))
	}
	p := plan.Diff(want, have)
	p.ID = "p1"
	return planfile.Saved{Plan: p}
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
		if _, err := planfile.Decode(kinds(), file); err != nil {
			b.Fatal(err)
		}
	}
}
