package page

import (
	"fmt"
	"io"
	"testing"

	"muster/resource"
	"muster/view"
)

// manyJobs is a board of n jobs.
func manyJobs(n int) *Board {
	b := &Board{At: epoch(), Connected: true}
	for i := range n {
		b.Resources = append(b.Resources, aJob(fmt.Sprintf("job-%05d", i), 8, 8, 8, 0))
	}
	return b
}

// BenchmarkOverview draws 10,000 jobs: cold, with nothing in the cache; warm, after one job has changed; and the whole
// document of it.
func BenchmarkOverview(b *testing.B) {
	board := manyJobs(10_000)
	r := Request{View: Overview}
	b.Run("cold", func(b *testing.B) {
		for b.Loop() {
			newViews().render(r, board, nil)
		}
	})
	warm := newViews()
	warm.render(r, board, nil)
	b.Run("warm", func(b *testing.B) {
		live := 0
		for b.Loop() {
			live = 1 - live
			board.Resources[5_000] = with(board.Resources[5_000], func(o *resource.Observed) { o.Live = 7 + live })
			warm.render(r, board, nil)
		}
	})
	b.Run("document", func(b *testing.B) {
		for b.Loop() {
			if err := warm.document(io.Discard, r, warm.render(r, board, nil)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkGrid draws a job of 10,000 workers, cold and after one worker was lost.
func BenchmarkGrid(b *testing.B) {
	j := aJob("large", 10_000, 10_000, 10_000, 0)
	board := &Board{At: epoch(), Connected: true, Resources: []view.Resource{j}}
	j.Workers = workersOf(10_000, 0)
	d := &Detail{Resource: j}
	r := Request{View: Resource, Path: j.Path}
	b.Run("cold", func(b *testing.B) {
		for b.Loop() {
			newViews().render(r, board, d)
		}
	})
	warm := newViews()
	b.Run("warm", func(b *testing.B) {
		states := []view.WorkerState{view.Lost, view.Live}
		for i := 0; b.Loop(); i++ {
			d.Workers[100].State = states[i%2]
			warm.render(r, board, d)
		}
	})
}
