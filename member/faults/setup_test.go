// Package faults tests groups with real processes and real ZooKeeper servers: a rolling upgrade, and members, commands,
// connections, servers and clocks that fail at random. It has no code of its own.
package faults

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// bin is the directory of what the tests run: muster, clockmember (a member whose clock can be set), duty.
var bin string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	var err error
	if bin, err = os.MkdirTemp("", "muster-faults-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(bin)
	for name, dir := range map[string]string{
		"muster": "../..", "clockmember": "./testdata/member", "duty": "./testdata/duty",
	} {
		build := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(bin, name), dir)
		if out, err := build.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "go build %s: %v\n%s", dir, err, out)
			return 1
		}
	}
	return m.Run()
}

// soak reports whether the long forms are wanted.
func soak() bool { return os.Getenv("MUSTER_SOAK") != "" }

// pollEvery is how often a test looks for something that nobody tells it.
const pollEvery = 50 * time.Millisecond

// await waits until ok returns "". It fails with what ok said last.
func await(t *testing.T, limit time.Duration, what string, ok func() string) {
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
		pause(t.Context(), pollEvery)
	}
}

// pause waits, at most until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
