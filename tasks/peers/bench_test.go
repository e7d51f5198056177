package peers

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
)

const rounds = 5

// BenchmarkSideBySide reports for 1 and for 8 executors the medians of each side: tasks a second, their ratios to those
// of the floor and of asynq in the same run, what a task takes of Redis's processor, and what a waiting one takes of
// Redis's memory beside its payload. It fails if a side cannot run here, and names it.
func BenchmarkSideBySide(b *testing.B) {
	all := []side{floor()}
	for _, prepare := range []func(dir string) (side, error){musterGo, musterLines, asynq, bullmq, celery, rq} {
		s, err := prepare(b.TempDir())
		if err != nil {
			b.Errorf("one cannot run here: %v", err)
			continue
		}
		all = append(all, s)
	}
	for _, executors := range []int{1, 8} {
		report(b, fmt.Sprint("executors=", executors), compare(b, all, executors))
	}
}

// compare lets each side race in turn, several times, and returns the medians by name.
func compare(b *testing.B, all []side, executors int) map[string]outcome {
	b.Helper()
	found := map[string][]outcome{}
	for i := range rounds {
		if i%2 == 1 {
			slices.Reverse(all)
		}
		for _, s := range all {
			found[s.name] = append(found[s.name], run(b, rediss.Addr(), s, executors, s.tasks))
		}
	}
	medians := map[string]outcome{}
	for name, all := range found {
		medians[name] = outcome{
			rate:  median(all, func(o outcome) float64 { return o.rate }),
			bytes: median(all, func(o outcome) float64 { return o.bytes }),
			cost:  median(all, func(o outcome) float64 { return o.cost }),
		}
	}
	return medians
}

// report prints a line for each side, the quickest first.
func report(b *testing.B, name string, medians map[string]outcome) {
	b.Helper()
	var names []string
	for name := range medians {
		names = append(names, name)
	}
	slices.SortFunc(names, func(x, y string) int { return int(medians[y].rate - medians[x].rate) })
	for _, who := range names {
		b.Run(filepath.Join(name, who), func(b *testing.B) {
			for range b.N { // the races are over: these are their results
			}
			o := medians[who]
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(o.rate, "tasks/s")
			b.ReportMetric(o.bytes, "B/waiting-task")
			b.ReportMetric(o.cost, "redis-µs/task")
			for _, other := range []string{"floor", "asynq"} {
				if than, ok := medians[other]; ok {
					b.ReportMetric(o.rate/than.rate, "of-"+other)
				}
			}
		})
	}
}

// median is the middle one of a figure.
func median(all []outcome, figure func(outcome) float64) float64 {
	var figures []float64
	for _, o := range all {
		figures = append(figures, figure(o))
	}
	slices.Sort(figures)
	return figures[len(figures)/2]
}
