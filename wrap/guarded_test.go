package wrap

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"
)

// TestGuardThatHangsAtTheStart: a command that cannot be executed, since its disk hangs, holds nothing up.
func TestGuardThatHangsAtTheStart(t *testing.T) {
	t.Parallel()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	started := make(chan error, 1)
	go func() {
		_, err := startGuarded(ctx, []string{"/bin/sh", "-c", "exec sleep 1000"},
			launch{path: "/bin/true", argv: []string{"true"}, environ: os.Environ(), files: []*os.File{null, null, null}})
		started <- err
	}()
	select {
	case err := <-started:
		if err == nil || !strings.Contains(err.Error(), "was killed") {
			t.Error(err)
		}
	case <-time.After(2 * time.Minute):
		t.Error("it waits for the guard")
	}
}
