package page

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"muster/resource"
	"muster/view"
)

// drawnHour are the charts of a resource so long after epoch: the number, the values of slots as "0 - 2×118", and what
// is said below.
func drawnHour(h *lastHour, r view.Resource, after time.Duration) string {
	var all []string
	for _, c := range h.charts(r.Path, &r.Observed, epoch().Add(after)) {
		var runs []string
		for i := 0; i < len(c.Values); {
			word, n := "-", 0
			if v := c.Values[i]; !math.IsNaN(v) {
				word = fmt.Sprint(v)
			}
			for ; i < len(c.Values); i, n = i+1, n+1 {
				if v := c.Values[i]; word != "-" && fmt.Sprint(v) != word || word == "-" && !math.IsNaN(v) {
					break
				}
			}
			runs = append(runs, fmt.Sprintf("%s×%d", word, n))
		}
		all = append(all, fmt.Sprintf("%s: %s: %s: %s", c.ID, c.Says, strings.Join(runs, " "), c.view().Desc))
	}
	return strings.Join(all, "\n")
}

func newHour() *lastHour {
	return &lastHour{queues: map[string]*queueHour{}, jobs: map[string]*jobHour{}}
}

// TestTheLastHourOfAQueue: what was before the start, while Redis was away, and while a queue came back empty is not
// known; what is known is 0 where nothing was done.
func TestTheLastHourOfAQueue(t *testing.T) {
	h := newHour()
	q, _ := sample().resource("/jobs/prod/primes")
	tick := func(after time.Duration, ended, dead int64) {
		all := map[string]*QueueSample{q.Path: {At: epoch().Add(after), Ended: ended, Dead: dead}}
		if ended < 0 {
			all[q.Path] = nil
		}
		h.tick(true, all, epoch().Add(after))
	}
	expect := func(after time.Duration, want ...string) {
		t.Helper()
		if got := drawnHour(h, q, after); got != strings.Join(want, "\n") {
			t.Errorf("after %s:\n%s\nwant\n%s", after, got, strings.Join(want, "\n"))
		}
	}
	expect(0)
	tick(0, 1000, 2)
	expect(5*time.Second, "tasks: not known: -×120: At most 0/s. Nothing is known yet.",
		"dead-tasks: 2: -×119 2×1: At most 2. Not known before 02:00Z.")
	for s := 10; s <= 60; s += 10 {
		tick(time.Duration(s)*time.Second, 1000+int64(s)*4, 2)
	}
	expect(65*time.Second, "tasks: 4.0/s: -×117 4×3: At most 4.0/s. Not known before 02:00Z.",
		"dead-tasks: 2: -×117 2×3: At most 2. Not known before 02:00Z.")
	tick(90*time.Second, -1, 0)
	expect(95*time.Second, "tasks: not known: -×116 4×3 -×1: At most 4.0/s. Not known before 02:00Z.",
		"dead-tasks: not known: -×116 2×3 -×1: At most 2. Not known before 02:00Z.")
	tick(150*time.Second, 5000, 0)
	tick(160*time.Second, 5000, 0)
	tick(180*time.Second, 7, 1) // another Redis
	tick(190*time.Second, 17, 1)
	expect(195*time.Second,
		"tasks: 1.0/s: -×113 4×3 -×2 0×1 1×1: At most 4.0/s. Not known before 02:00Z. Not known from 02:01Z to 02:02Z.",
		"dead-tasks: 1: -×113 2×3 -×2 0×1 1×1: At most 2. Not known before 02:00Z. Not known from 02:01Z to 02:02Z.")
	tick(time.Hour+2*time.Minute, 17, 1)
	expect(time.Hour+2*time.Minute, // the begin is forgotten
		"tasks: 0/s: 0×1 1×1 -×117 0×1: At most 1.0/s. Not known from 02:03Z to 03:02Z.",
		"dead-tasks: 1: 0×1 1×1 -×117 1×1: At most 1. Not known from 02:03Z to 03:02Z.")
}

// TestTheLastHourOfAJob: who joined, and who was lost. Who has completed is not lost, whichever is seen first.
func TestTheLastHourOfAJob(t *testing.T) {
	h := newHour()
	at := epoch()
	boardOf := func(live, done int, change func(o *resource.Observed)) *Board {
		return &Board{At: at, Connected: true, Resources: []view.Resource{with(aJob("a", 8, 8, live, done), change)}}
	}
	same := func(*resource.Observed) {}
	old := boardOf(8, 0, same)
	h.tick(true, nil, at)
	see := func(live, done int, change func(o *resource.Observed), joined, lost string) {
		t.Helper()
		now := boardOf(live, done, change)
		h.compare(old, now)
		h.tick(true, nil, at)
		old = now
		got := h.charts("/jobs/prod/a", &now.Resources[0].Observed, at)
		if len(got) != 2 || got[0].Says != joined || got[1].Says != lost {
			t.Errorf("%d live, %d done: %+v; want %s and %s", live, done, got, joined, lost)
		}
	}
	see(8, 0, same, "0", "0")
	see(6, 0, same, "0", "2")
	at = at.Add(time.Minute)
	see(8, 0, same, "2", "2")
	see(8, 1, same, "2", "2") // it completes, and is still there
	see(7, 1, same, "2", "2")
	see(6, 1, same, "2", "3") // it is gone, and then seen to have completed
	see(6, 2, same, "2", "2")
	again := func(o *resource.Observed) { o.Record.Generation = "another" }
	see(3, 0, again, "5", "2")
	old.Connected = false // whoever left meanwhile: when is not known
	see(1, 0, again, "5", "2")
	h.compare(old, &Board{At: at, Connected: true})
	if len(h.jobs) != 0 {
		t.Error("what is known of a deleted job is kept")
	}
	at = at.Add(2 * time.Hour)
	h.tick(true, nil, at)
	j := aJob("a", 8, 8, 1, 0)
	if got := drawnHour(h, j, 2*time.Hour+time.Minute); !strings.HasPrefix(got, "joined: 0: -×119 0×1") {
		t.Error(got)
	}
}
