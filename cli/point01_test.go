package cli_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster/zkstate"
	"muster/zkstate/zkconn"
)

// TestPoint01ProcessesJoinAgainstDelete races a worker process against an apply that deletes its job. Either the worker
// has joined and the job is there, or the job is gone and the worker has not joined. TestPoint01RaceJoinAgainstDelete
// of zkstate does so 3,000 times, without processes and on three servers.
func TestPoint01ProcessesJoinAgainstDelete(t *testing.T) {
	const loops, rounds = 4, 8
	s, err := zkconn.Dial(t.Context(), zkconn.Config{Servers: servers.Addrs(), Timeout: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var mu sync.Mutex
	var won, lost int
	var all sync.WaitGroup
	for range loops {
		f := newFixture(t, rounds, "")
		f.mustRun(t, "apply", "--yes")
		f.write(t, 0, "")
		r := zkstate.NewReader(s, f.root+"-home", zkstate.Job())
		all.Go(func() {
			lead, step := 20*time.Millisecond, 10*time.Millisecond // of the worker; adjusted so that both sides win
			before := false
			for i := range rounds {
				joined, err := f.joinAgainstDelete(t, r, fmt.Sprint("j", i), lead)
				if err != nil {
					t.Errorf("round %d below %s: %v", i, f.root, err)
					return
				}
				if step *= 2; joined != before {
					step = 10 * time.Millisecond
				}
				mu.Lock()
				if before = joined; joined {
					won++
					lead -= step
				} else {
					lost++
					lead += step
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	t.Logf("the worker won %d times, the delete %d times", won, lost)
}

// joinAgainstDelete starts a worker and, after lead, the apply that deletes its job. If lead is negative the apply
// starts first. It returns an error if the outcome is neither of the two that are allowed.
func (f fixture) joinAgainstDelete(
	t *testing.T, r *zkstate.Reader, name string, lead time.Duration,
) (joined bool, err error) {
	worker := f.worker(servers.Connect(), name, "w", "--", "/bin/cat")
	seen := newScreen()
	worker.Stderr = seen
	hold, err := worker.StdinPipe()
	if err != nil {
		return false, err
	}
	done := make(chan outcome, 1)
	apply := func() {
		done <- result(f.command(servers.Connect(), "apply", "--yes", "--allow-empty", "--only", "*/"+name))
	}
	if lead < 0 {
		go apply()
		<-time.After(-lead)
	}
	if err := worker.Start(); err != nil {
		return false, err
	}
	defer worker.Process.Kill()
	if lead >= 0 {
		<-time.After(lead)
		go apply()
	}
	applied := <-done
	o, err := r.Look(t.Context(), f.root+"/"+name)
	switch {
	case err != nil:
		return false, err
	case applied.code != 0 && applied.code != 4:
		return false, fmt.Errorf("apply ended with %d\n%s%s", applied.code, applied.stdout, applied.stderr)
	case o == nil: // the job is deleted
		err := worker.Process.Signal(syscall.SIGTERM) // a shell's background starts it with SIGINT ignored
		_ = worker.Wait()                             // ends with 143, or with -1 if it had not started yet
		code := worker.ProcessState.ExitCode()
		if code != 143 && code != -1 || strings.Contains(seen.String(), "joined ") {
			return false, fmt.Errorf("the job was deleted, and the worker ended with %d, not 143\n%s\n%s",
				code, seen, applied.stdout)
		}
		return false, err
	case o.Problem != "":
		return false, fmt.Errorf("half a job: %s", o.Problem)
	case o.Live != 1:
		return false, fmt.Errorf("the job stands, and %d workers are live\n%s", o.Live, applied.stdout)
	}
	if err := errors.Join(hold.Close(), worker.Wait()); err != nil {
		return false, fmt.Errorf("the worker whose job stands: %w\n%s", err, seen)
	}
	return true, nil
}
