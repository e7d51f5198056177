package faults

import (
	"bufio"
	"errors"
	"fmt"
	"hash/fnv"
	"math/bits"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"muster/dev/fault"
	"muster/exitcode"
	"muster/resource/queue"
	"muster/sim/rig"
	"muster/zkstate/zkconn"
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
	got    string // the last batch of which it has all results
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
		zkconn.Pause(s.k.t.Context(), rig.Between(s.random, 0, time.Second))
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
	complete := err == nil && len(found.Problems) == 0
	switch {
	case code == exitcode.Done && !complete, code == exitcode.Incomplete && complete:
		return false, fmt.Errorf("%s: submit --wait ends with %d and %v %v", b.id(), code, err, found.Problems)
	case complete:
		s.k.got(found)
		s.got = b.id()
	}
	// A submitter that is killed when it has all results may not have ended the batch. So it submits again: if the batch
	// has ended, it is told that the results are gone.
	return code == exitcode.Done || code == exitcode.Incomplete && s.got == b.id(), nil
}

// disturb lets half of the tries alone.
func (s *submitter) disturb() (string, error) {
	ctx := s.k.t.Context()
	switch s.random.IntN(10) {
	case 0, 1:
		zkconn.Pause(ctx, rig.Between(s.random, 0, 300*time.Millisecond))
		s.p.kill()
		return "killed", nil
	case 2:
		zkconn.Pause(ctx, rig.Between(s.random, 0, 3*time.Second))
		s.p.kill()
		return "killed", nil
	case 3:
		zkconn.Pause(ctx, rig.Between(s.random, 0, 500*time.Millisecond))
		if err := s.p.signal(syscall.SIGSTOP); err != nil {
			return "", err
		}
		zkconn.Pause(ctx, rig.Between(s.random, 0, frozenFor))
		return "frozen", s.p.signal(syscall.SIGCONT)
	case 4:
		zkconn.Pause(ctx, rig.Between(s.random, 0, 500*time.Millisecond))
		s.p.each((*fault.Proxy).Cut)
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

// batch is a batch of a run. All about it follows from the seed of the run, its number and its size.
type batch struct {
	seed  uint64
	n     int
	tasks int
}

// mix is a hash of numbers.
func mix(numbers ...uint64) uint64 {
	h := uint64(0x9e3779b97f4a7c15)
	for _, n := range numbers {
		h += n + 0x9e3779b97f4a7c15
		h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
		h = (h ^ h>>27) * 0x94d049bb133111eb
		h ^= h >> 31
	}
	return h
}

// batchesOf divides so many tasks into batches of very different sizes, of which none is larger than most.
func batchesOf(seed uint64, tasks, most int) (all []batch) {
	for n := 0; tasks > 0; n++ {
		size := 1 << (mix(seed, uint64(n), 1) % uint64(bits.Len(uint(most)))) // as often of each order of magnitude
		size += int(mix(seed, uint64(n), 2) % uint64(size))
		size = min(size, tasks, most)
		all = append(all, batch{seed, n, size})
		tasks -= size
	}
	return all
}

func (b batch) id() string { return fmt.Sprintf("b-%04d-%d", b.n, b.tasks) }

// parseBatch is the batch with an id.
func parseBatch(seed uint64, id string) (batch, error) {
	b := batch{seed: seed}
	_, err := fmt.Sscanf(id, "b-%d-%d", &b.n, &b.tasks)
	return b, err
}

func (b batch) hash(what uint64) uint64 { return mix(b.seed, uint64(b.n), what) }

func (b batch) weight() int { return []int{1, 1, 2, 5, 100}[b.hash(3)%5] }

// results is what becomes of them. The first batches have all kinds.
func (b batch) results() queue.Results {
	which := b.hash(4) % 10
	if b.n < 4 {
		which = uint64(6 + b.n)
	}
	switch which {
	case 7:
		return queue.ResultsSubmitter
	case 8:
		return "keep:24h"
	case 9:
		return queue.ResultsDiscard
	}
	return queue.ResultsWatcher
}

// What a task does, beside taking its time.
const (
	ordinary  = "ok"
	poison    = "never" // fails always, and says that it need not be tried again if it can
	uncertain = "again" // fails the first time
	deadly    = "kill"  // kills the executor
)

// kind is what a task does. A few batches are of poison only.
func (b batch) kind(index int) string {
	h := mix(b.seed, uint64(b.n), 5, uint64(index))
	switch {
	case h%20_000 == 0, b.tasks < 10 && b.hash(6)%10 == 0, index == 0 && b.n == 1:
		return poison
	case h%5_000 == 1, index == 1 && b.n == 2:
		return uncertain
	}
	return ordinary
}

// takes is how long a task takes: mostly nothing, some batches much longer.
func (b batch) takes(index int) time.Duration {
	h := mix(b.seed, uint64(b.n), 7, uint64(index)) % 1000
	switch {
	case b.tasks < 50 && b.hash(8)%4 == 0:
		return 300 * time.Millisecond
	case h < 900:
		return 0
	case h < 990:
		return time.Millisecond
	}
	return 20 * time.Millisecond
}

// payload is a task: its batch, its index, what it does, how many µs it takes, and something to carry.
func (b batch) payload(index int) string {
	h := mix(b.seed, uint64(b.n), 9, uint64(index))
	pad := int(h % 40)
	if h%2000 == 1 {
		pad = 5000
	}
	return fmt.Sprintf("%s %d %s %d %s", b.id(), index, b.kind(index), b.takes(index).Microseconds(),
		strings.Repeat("x", pad))
}

// answer is the result of a task, by its payload.
func answer(payload string) string {
	h := fnv.New64a()
	h.Write([]byte(payload))
	sum := strconv.FormatUint(h.Sum64(), 16)
	if len(payload) > 1000 {
		return strings.Repeat(sum, 200)
	}
	return sum
}

// dead is how many tasks of a batch are meant to die.
func (b batch) dead() (n int) {
	for i := range b.tasks {
		if b.kind(i) == poison {
			n++
		}
	}
	return n
}
