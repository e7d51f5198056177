package faults

import (
	"fmt"
	"hash/fnv"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"muster/resource/queue"
)

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
