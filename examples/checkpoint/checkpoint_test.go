package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWorkerRefusesAnOlderLeader(t *testing.T) {
	w := &worker{images: t.TempDir()}
	for _, c := range []struct {
		order   order
		refused string
	}{
		{order{Epoch: 7, Do: "suspend", Checkpoint: 1}, ""},
		{order{Epoch: 9, Do: "suspend", Checkpoint: 1}, ""},
		{order{Epoch: 7, Do: "resume", Checkpoint: 1}, "it is from epoch 7, and the leader has epoch 9"},
		{order{Epoch: 9, Do: "write", Checkpoint: 1}, ""},
		{order{Epoch: 9, Do: "write", Checkpoint: 1}, ""},
		{order{Epoch: 9, Do: "resume", Checkpoint: 1}, ""},
		{order{Epoch: 9, Do: "write", Checkpoint: 2}, "it was not suspended"},
		{order{Epoch: 9, Do: "jump", Checkpoint: 2}, `there is no such order: "jump"`},
	} {
		got := ""
		if err := w.obey(c.order); err != nil {
			got = err.Error()
		}
		if got != c.refused {
			t.Errorf("%+v: refused because %q, want %q", c.order, got, c.refused)
		}
	}
}

// TestOnlyWholeCheckpointsArePublished damages one image of eight in each way.
func TestOnlyWholeCheckpointsArePublished(t *testing.T) {
	damages := map[string]func(path string) error{
		"is damaged":   func(path string) error { return os.Truncate(path, 70) },
		"no such file": os.Remove,
		"of worker 3 in checkpoint 1": func(path string) error {
			return os.Rename(strings.Replace(path, "/2.part", "/1", 1), path)
		},
		"of worker 4 in checkpoint 2": func(path string) error { return os.Rename(filepath.Dir(path)+"/worker-4", path) },
	}
	for want, damage := range damages {
		images := t.TempDir()
		writeAll(t, images, 1)
		for range 2 {
			if err := publish(images, 1); err != nil {
				t.Fatal(err)
			}
		}
		writeAll(t, images, 2)
		if last, err := readLast(images, 3); err != nil || last.Count != 13 {
			t.Errorf("the last published image: %+v, %v", last, err)
		}
		if err := damage(fmt.Sprintf("%s/2.part/worker-3", images)); err != nil {
			t.Fatal(err)
		}
		if err := check(images, 2); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// writeAll writes the images of the next checkpoint, which is n.
func writeAll(t *testing.T, images string, n int) {
	t.Helper()
	if got, err := next(images); got != n || err != nil {
		t.Fatalf("next checkpoint: %d, %v; want %d", got, err, n)
	}
	for id := range workers {
		if err := write(images, image{Checkpoint: n, Worker: id, Count: 10*n + id}); err != nil {
			t.Fatal(err)
		}
	}
	if err := check(images, n); err != nil {
		t.Fatal(err)
	}
}
