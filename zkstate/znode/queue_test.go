package znode

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/resource"
	"muster/resource/queue"
)

func manifest(edits ...func(*BatchManifest)) BatchManifest {
	b := BatchManifest{
		Tasks: 5000, Bytes: 35_000, SHA256: strings.Repeat("0a", 32), Weight: 1, Results: queue.ResultsWatcher,
		By: "ann@desk", Since: time.Date(2026, 11, 22, 5, 0, 0, 0, time.UTC), State: BatchOpen,
	}
	for _, edit := range edits {
		edit(&b)
	}
	return b
}

func TestQueuePaths(t *testing.T) {
	late := time.Date(2026, 11, 22, 23, 30, 0, 0, time.FixedZone("", -3600)) // the next day in UTC
	for want, got := range map[string]string{
		"/q/.muster/run/g1/batch":               Batches("/q", "g1"),
		"/q/.muster/run/g1/batch/b7":            Batch("/q", "g1", "b7"),
		"/q/.muster/run/g1/ended":               EndedDays("/q", "g1"),
		"/q/.muster/run/g1/ended/2026-11-23":    EndedDay("/q", "g1", late),
		"/q/.muster/run/g1/ended/2026-11-23/b7": EndedBatch("/q", "g1", late, "b7"),
		"/q/.muster/run/g1/health":              QueueHealth("/q", "g1"),
	} {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	for _, folder := range QueueFolders() {
		if err := CheckToken(folder); err != nil {
			t.Error(err)
		}
	}
	if day, err := ParseEndedDay("2026-11-23"); err != nil || !day.Equal(time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC)) {
		t.Errorf("the day is %s, %v", day, err)
	}
}

func TestBatchBodies(t *testing.T) {
	b := manifest(func(b *BatchManifest) {
		b.State, b.Attempts, b.TaskTimeout = BatchSubmitting, 5, resource.Duration(time.Minute)
		b.Since = b.Since.In(time.FixedZone("", 3600))
		b.Completed = b.Since.Add(time.Minute)
	})
	isWrittenAndRead(t, `{"tasks":5000,"bytes":35000,"sha256":"`+b.SHA256+`","weight":1,"results":"watcher",`+
		`"by":"ann@desk","since":"2026-11-22T05:00:00Z","state":"submitting",`+
		`"completed":"2026-11-22T05:01:00Z","attempts":5,"task_timeout":"1m"}`, b)
	end := BatchEnd{
		BatchManifest: manifest(), How: EndCollected, Done: 4999, Dead: 1, EndedBy: "w1", Ended: b.Since.Add(time.Hour),
	}
	body, err := Encode(end)
	if err != nil {
		t.Fatal(err)
	}
	ended, err := Decode[BatchEnd](body)
	if d := cmp.Diff(end, ended); err != nil || d != "" {
		t.Errorf("an end: %v (-want +got):\n%s", err, d)
	}
	if newer, err := Decode[BatchManifest](body); err != nil || newer.State != BatchOpen {
		t.Errorf("more fields: %+v, %v", newer, err)
	}
}

func TestQueueProcessBodies(t *testing.T) {
	isWrittenAndRead(t, `{"nonce":"n","role":"executor","host":"h","parallel":8}`,
		QueueProcess{Nonce: "n", Role: queue.Executor, Host: "h", Parallel: 8})
	isWrittenAndRead(t, `{"identity":"a","nonce":"n","role":"watcher"}`,
		QueueSeat{Identity: "a", Nonce: "n", Role: queue.Watcher})
	newer, err := Decode[QueueProcess]([]byte(`{"nonce":"n","role":"auditor","x":1}`))
	if err != nil || newer.Role != "auditor" {
		t.Errorf("a newer role: %+v, %v", newer, err)
	}
	h := Health{
		Seat: "s-0000000003", Completed: 2, Lost: []string{"a", "b"}, MoreLost: 7, Failed: []string{"c"}, Redis: "NOAUTH",
	}
	body, err := Encode(h)
	back, bad := Decode[Health](body)
	if d := cmp.Diff(h, back); err != nil || bad != nil || d != "" {
		t.Errorf("health: %v, %v:\n%s", err, bad, d)
	}
	if none, err := DecodeOrZero[Health](nil); none.Seat != "" || err != nil {
		t.Errorf("nobody has looked: %+v, %v", none, err)
	}
}

// TestDamagedQueueBodies are refused, whoever wrote them.
func TestDamagedQueueBodies(t *testing.T) {
	batch := func(edit func(*BatchManifest)) error { return errOf(Encode(manifest(edit))) }
	end := func(edit func(*BatchEnd)) error {
		e := BatchEnd{BatchManifest: manifest(), How: EndCollected, Done: 1, Ended: time.Unix(1, 0)}
		edit(&e)
		return errOf(Encode(e))
	}
	if err := end(func(*BatchEnd) {}); err != nil {
		t.Errorf("a valid end: %v", err)
	}
	for name, err := range map[string]error{
		"tasks":     batch(func(b *BatchManifest) { b.Tasks = 0 }),
		"bytes":     batch(func(b *BatchManifest) { b.Bytes = -1 }),
		"sha256":    batch(func(b *BatchManifest) { b.SHA256 = "0a" }),
		"weight":    batch(func(b *BatchManifest) { b.Weight = 1001 }),
		"no weight": batch(func(b *BatchManifest) { b.Weight = 0 }),
		"results":   batch(func(b *BatchManifest) { b.Results = "keep" }),
		"by":        batch(func(b *BatchManifest) { b.By = "" }),
		"long by":   batch(func(b *BatchManifest) { b.By = strings.Repeat("x", maxBy+1) }),
		"since":     batch(func(b *BatchManifest) { b.Since = time.Time{} }),
		"state":     batch(func(b *BatchManifest) { b.State = "done" }),
		"attempts":  batch(func(b *BatchManifest) { b.Attempts = -1 }),
		"empty":     errOf(Decode[BatchManifest](nil)),
		"no JSON":   errOf(Decode[BatchManifest]([]byte("x"))),
		"how":       end(func(e *BatchEnd) { e.How = "" }),
		"dead":      end(func(e *BatchEnd) { e.Dead = 5000 }),
		"ended":     end(func(e *BatchEnd) { e.Ended = time.Time{} }),
		"end's own": end(func(e *BatchEnd) { e.Weight = 0 }),
		"nonce":     errOf(Encode(QueueProcess{Role: queue.Executor})),
		"role":      errOf(Encode(QueueProcess{Nonce: "n"})),
		"parallel":  errOf(Encode(QueueProcess{Nonce: "n", Role: queue.Executor, Parallel: -1})),
		"identity":  errOf(Encode(QueueSeat{Nonce: "n", Role: queue.Executor})),
		"health":    errOf(Encode(Health{Seat: "x"})),
		"unsorted":  errOf(Encode(Health{Seat: "s-0000000003", Lost: []string{"b", "a"}})),
		"refusal":   errOf(Encode(Health{Seat: "s-0000000003", Redis: strings.Repeat("x", maxRefusal+1)})),
		"many lost": errOf(Encode(Health{Seat: "s-0000000003", Lost: make([]string, MaxHealth+1)})),
		"completed": errOf(Encode(Health{Seat: "s-0000000003", Completed: -1})),
	} {
		if err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}
