package faults

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"muster/dev/zkserver"
	"muster/resource/queue"
	"muster/sim/soak"
)

// writeTasks writes the tasks of a batch, a line each.
func (w *world) writeTasks(b batch) (path string, err error) {
	path = filepath.Join(w.dir, "batches", b.id())
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	out := bufio.NewWriter(f)
	for i := range b.tasks {
		fmt.Fprintln(out, b.payload(i))
	}
	return path, errors.Join(out.Flush(), f.Close())
}

// submitter submits batches one after the other, as often as that takes.
type submitter struct {
	k      *soakRun
	p      *process
	random *rand.Rand
}

// submitLimit is for a batch, with all repeats.
const submitLimit = 15 * time.Minute

// submit submits a batch, and waits for its results if they are the submitter's. Some tries are killed, frozen or cut
// off; then it is submitted again under the same id.
func (s *submitter) submit(b batch) error {
	tasks, err := s.k.writeTasks(b)
	if err != nil {
		return err
	}
	defer os.Remove(tasks)
	late := time.Now().Add(submitLimit)
	for try := 1; ; try++ {
		done, err := s.once(b, tasks, try)
		if done || err != nil {
			return err
		}
		if time.Now().After(late) {
			return fmt.Errorf("%s is not submitted after %d tries in %s", b.id(), try, submitLimit)
		}
		soak.Pause(s.k.t.Context(), soak.Between(s.random, 0, time.Second))
		if s.k.t.Context().Err() != nil {
			return s.k.t.Context().Err()
		}
	}
}

// once tries once.
func (s *submitter) once(b batch, tasks string, try int) (done bool, err error) {
	s.p.argv = []string{
		muster(), "submit", s.k.queue.Name, tasks, "--id", b.id(), "--weight", strconv.Itoa(b.weight()),
		"--results", string(b.results()),
	}
	waits := b.results() == queue.ResultsSubmitter
	if waits {
		s.p.argv = append(s.p.argv, "--wait", "--json")
		s.p.stdout = filepath.Join(s.k.dir, "results", fmt.Sprintf("%s.%d", b.id(), try))
		defer func() { s.p.stdout = "" }()
	}
	if err := s.p.start(); err != nil {
		return false, err
	}
	fault := "none"
	if try <= 2 {
		if fault, err = s.disturb(); err != nil {
			return false, err
		}
	}
	<-s.p.run.Done
	code := s.p.run.Code()
	s.k.countSubmit(fault, code)
	if !waits {
		return code == 0, nil
	}
	defer os.Remove(s.p.stdout)
	found, err := s.k.checkFile(b, s.p.stdout)
	if err != nil || len(found.Problems) > 0 { // it was killed before it had them all
		if code == 0 {
			return false, fmt.Errorf("%s: submit --wait ends with 0 and %v %v", b.id(), err, found.Problems)
		}
		return false, nil
	}
	s.k.got(found)
	return true, nil
}

// disturb lets half of the tries alone.
func (s *submitter) disturb() (string, error) {
	ctx := s.k.t.Context()
	switch s.random.IntN(10) {
	case 0, 1:
		soak.Pause(ctx, soak.Between(s.random, 0, 300*time.Millisecond))
		s.p.kill()
		return "killed", nil
	case 2:
		soak.Pause(ctx, soak.Between(s.random, 0, 3*time.Second))
		s.p.kill()
		return "killed", nil
	case 3:
		soak.Pause(ctx, soak.Between(s.random, 0, 500*time.Millisecond))
		if err := s.p.signal(syscall.SIGSTOP); err != nil {
			return "", err
		}
		soak.Pause(ctx, soak.Between(s.random, 0, frozenFor))
		return "frozen", s.p.signal(syscall.SIGCONT)
	case 4:
		soak.Pause(ctx, soak.Between(s.random, 0, 500*time.Millisecond))
		s.p.each((*zkserver.Proxy).Cut)
		return "cut", nil
	}
	return "none", nil
}

// checkFile checks results in a file.
func (w *world) checkFile(b batch, path string) (finding, error) {
	f, err := os.Open(path)
	if err != nil {
		return finding{}, err
	}
	defer f.Close()
	return check(b, f)
}
