package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"muster/zkstate"
)

// TestDriftLoopBesideApplies runs applies that update and replace every job in one loop, and checks in another. No
// check finds drift or fails. With MUSTER_SOAK it takes five minutes.
func TestDriftLoopBesideApplies(t *testing.T) {
	t.Parallel()
	f := newFixture(t, 20, "")
	long := 4 * time.Second
	if os.Getenv("MUSTER_SOAK") != "" {
		long = 5 * time.Minute
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f.mustApply(t)
	applies := make(chan string)
	go func() {
		n := 0
		for ; ctx.Err() == nil; n++ {
			// Another directory, so that the configuration of drift does not change.
			dir, err := f.writeVariant(n)
			if err != nil {
				applies <- err.Error()
				return
			}
			if out, err := f.command(servers.Connect(), "apply", "--yes", "-C", dir).CombinedOutput(); err != nil {
				applies <- fmt.Sprintf("apply: %v\n%s", err, out)
				return
			}
		}
		applies <- ""
	}()
	begun := time.Now()
	for checks := 0; checks < 3 || time.Since(begun) < long; checks++ {
		cmd := f.command(servers.Connect(), "drift", "-q")
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err != nil || stdout.Len() > 0 {
			t.Errorf("drift: %v\n%s%s", err, stdout.String(), stderr.String())
			break
		}
	}
	cancel()
	if failure := <-applies; failure != "" {
		t.Error(failure)
	}
}

// writeVariant writes the jobs with other workers and labels into another directory, and returns it.
func (f fixture) writeVariant(n int) (string, error) {
	dir := filepath.Join(f.dir, "variant")
	text, err := os.ReadFile(filepath.Join(f.dir, "main.hcl"))
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	if err == nil {
		fields := fmt.Sprintf("workers  = %d\n  labels = { n = \"%d\" }", 2+n/2%2, n)
		other := strings.Replace(string(text), "workers  = 2", fields, 1)
		err = os.WriteFile(filepath.Join(dir, "main.hcl"), []byte(other), 0o644)
	}
	return dir, err
}

// TestDriftWritesNothing counts the transactions of the server. A check has two: its session is opened and
// closed.
func TestDriftWritesNothing(t *testing.T) {
	f := newFixture(t, 20, "")
	f.mustApply(t)
	f.write(t, 10, "") // ten orphans
	report := filepath.Join(t.TempDir(), "drift.json")
	const checks = 5
	before := transactions(t)
	for range checks {
		cmd := f.command(servers.Connect(), "drift", "--report", "json="+report)
		if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 2 {
			t.Fatalf("drift: %v", err)
		}
	}
	if n := transactions(t) - before; n != 2*checks {
		t.Errorf("%d transactions in %d checks; opening and closing the sessions are %d", n, checks, 2*checks)
	}
}

// transactions returns the number of the server's last transaction.
func transactions(t *testing.T) int64 {
	t.Helper()
	stat, err := servers.Server(0).Stat(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range stat {
		if strings.EqualFold(key, "zxid") {
			n, err := strconv.ParseInt(strings.TrimPrefix(strings.TrimSpace(value), "0x"), 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("no zxid in %v", stat)
	return 0
}

// TestDriftsReaderHasNoMethodThatWrites: after it has connected, drift has only a Reader. Show that a new method
// writes nothing before you add it to the list.
func TestDriftsReaderHasNoMethodThatWrites(t *testing.T) {
	var methods []string
	for m := range reflect.TypeFor[*zkstate.Follower]().Methods() {
		methods = append(methods, m.Name)
	}
	want := []string{
		"Acting", "AllRoots", "Applied", "Batch", "CompletedW", "Ensemble", "FillDetail", "FillMembers",
		"FillRestarts", "FillSaved", "FillWorkers", "Find", "Follow", "GroupState", "Held", "History", "Holder",
		"Look", "Parts", "QueueState", "Read", "ReadFor", "Reconcile", "Roots", "Rounds", "RunName", "Searched",
		"Stacks", "WaitUnlocked", "Workers",
	}
	if d := cmp.Diff(want, methods); d != "" {
		t.Errorf("methods of a Reader that waits (-want +got):\n%s", d)
	}
}
