package report_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"muster/report"
	"muster/resource"
	"muster/resource/queue"
	"muster/view"
)

// primes is the status of a queue with so many batches.
func primes(t *testing.T, batches int) view.Resource {
	t.Helper()
	q := queue.Default()
	q.Name, q.Root, q.Redis = "primes", "/queues", "redis://redis-1"
	rec := resource.Record{Stack: "maths", Generation: "g1", State: resource.StateOpen}
	if err := rec.Declare(q); err != nil {
		t.Fatal(err)
	}
	now := hour(0)
	d := &view.Queue{
		First: "w1", Lost: []string{"b1"}, Refused: "OOM",
		Processes: []view.Process{{Identity: "w1", Role: queue.Watcher, Since: now.Add(-time.Minute)}},
	}
	for i := range batches {
		d.Batches = append(d.Batches, view.Batch{
			ID: fmt.Sprint("b", i), State: "open", Tasks: 10, Bytes: 2048, Weight: 1, Results: queue.ResultsWatcher,
			By: "ann@desk", Since: now.Add(-time.Hour),
		})
	}
	return view.Resource{Path: "/queues/primes", Queue: d, Observed: resource.Observed{
		Record: &rec, Live: 1,
		Counts: queue.Found{Watchers: 1, Batches: batches, Waiting: batches, Lost: 1, Refused: true}.Counts(),
	}}
}

func TestQueue(t *testing.T) {
	var b strings.Builder
	if err := report.Detail(&b, primes(t, 22), report.Options{Width: 120, Now: hour(0)}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"/queues/primes  degraded\n", "22 batches wait and nobody executes", "redis: redis://redis-1\n",
		"watcher  w1       -     -         1m\n", "b19", "and 2 more", "Redis does not have b1: submit", "Redis refuses: OOM",
		"next: muster executor primes --root /queues -- CMD executes what waits\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("lacks %q:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "\nb20 ") {
		t.Errorf("shows more than 20 batches:\n%s", b.String())
	}
}

// TestStatusOfQueues: queues have a table of their own, and a list in JSON.
func TestStatusOfQueues(t *testing.T) {
	var text, doc strings.Builder
	all := []view.Resource{primes(t, 2)}
	all[0].Observed.Created = hour(-48)
	if err := report.Status(&text, all, report.Options{Now: hour(0)}); err != nil {
		t.Fatal(err)
	}
	if err := report.StatusJSON(&doc, all); err != nil {
		t.Fatal(err)
	}
	const line = "/queues/primes  degraded  2d   0 executors, 1 watcher, 2 unfinished batches; 2 batches wait"
	if !strings.HasPrefix(text.String(), "queue           status    age  members and batches\n") ||
		!strings.Contains(text.String(), line) {
		t.Errorf("%s", text.String())
	}
	for _, want := range []string{`"queues"`, `"batches": 2`, `"redis_refuses": "OOM"`, `"role": "watcher"`} {
		if !strings.Contains(doc.String(), want) {
			t.Errorf("lacks %s:\n%s", want, doc.String())
		}
	}
}
