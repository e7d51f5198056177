// Package soak is for tests that let real processes and servers fail at random: how long, with which seed, and how to
// wait for what nobody tells them. It makes no faults itself.
package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// PollEvery is how often Await looks.
const PollEvery = 50 * time.Millisecond

// Long reports whether the long forms are wanted: MUSTER_SOAK is set.
func Long() bool { return os.Getenv("MUSTER_SOAK") != "" }

// Seed is MUSTER_SEED, or random. It is logged. It repeats the choice of faults, but not what they meet.
func Seed(t *testing.T) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(os.Getenv("MUSTER_SEED"), 10, 64)
	if err != nil {
		n = rand.Uint64()
	}
	t.Logf("MUSTER_SEED=%d", n)
	return n
}

// Await waits until ok returns "". It fails with what ok said last.
func Await(t *testing.T, limit time.Duration, what string, ok func() string) {
	t.Helper()
	late := time.Now().Add(limit)
	for {
		missing := ok()
		if missing == "" {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("%s: not within %s: %s", what, limit, missing)
		}
		Pause(t.Context(), PollEvery)
	}
}

// Pause waits, at most until ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// Between is a random duration.
func Between(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64(most-least)))
}

// Build builds commands into dir, by their names, from the directories of their packages.
func Build(dir string, packages map[string]string) error {
	for name, from := range packages {
		build := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(dir, name), from)
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("go build %s: %w\n%s", from, err, out)
		}
	}
	return nil
}
