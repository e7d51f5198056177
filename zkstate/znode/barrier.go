package znode

import (
	"fmt"
	"strconv"
	"strings"

	"muster/resource"
	"muster/resource/job"
)

// StartBarrier is the barrier that all workers pass once, before their commands start. No user's barrier can have this
// name.
const StartBarrier = ".start"

// MaxRound is the highest number of a round.
const MaxRound = 1<<31 - 1

// RoundState is the znode that holds a Round. dir is the folder of the round or of an attempt, see Attempt.
// Its data version is 1 if that was aborted, otherwise 0.
func RoundState(dir string) string { return resource.Join(dir, "st") }

// Arrivals is the folder of the arrivals at a round, by id.
func Arrivals(dir string) string { return resource.Join(dir, "a") }

// Arrival exists if the worker with this id arrived.
func Arrival(dir string, id int) string { return resource.Join(Arrivals(dir), strconv.Itoa(id)) }

// Count is the folder in which ZooKeeper counts arrivals.
func Count(dir string) string { return resource.Join(dir, "c") }

// NewCount is the path of the sequential znode that a worker creates to be counted.
func NewCount(dir string) string { return resource.Join(Count(dir), arrivalPrefix) }

// Counted is the znode of arrival number n, from 0. Everybody waits for the last of N: without data the round is
// released, with data it is aborted.
func Counted(dir string, n int) string { return fmt.Sprintf("%s%010d", NewCount(dir), n) }

// CountNumber reads the number of an arrival.
func CountNumber(path string) (int, error) { return number(path, arrivalPrefix) }

// BarrierMode is the kind of the arrivals at a round, and whether an abort ends the round or only one attempt at it. An
// older muster refuses the modes that it does not know.
type BarrierMode string

// A durable arrival counts even if its process dies. A live arrival ends with its session. The modes with Retry have
// attempts.
const (
	Durable      BarrierMode = "durable"
	LiveRound    BarrierMode = "live"
	DurableRetry BarrierMode = "durable-retry"
	LiveRetry    BarrierMode = "live-retry"
)

// NewBarrierMode is the mode of rounds whose arrivals are live or not, and that have attempts or not.
func NewBarrierMode(live, retry bool) BarrierMode {
	switch {
	case live && retry:
		return LiveRetry
	case live:
		return LiveRound
	case retry:
		return DurableRetry
	}
	return Durable
}

// Live reports whether an arrival ends with its session.
func (m BarrierMode) Live() bool { return m == LiveRound || m == LiveRetry }

// Retry reports whether an abort ends only one attempt.
func (m BarrierMode) Retry() bool { return m == DurableRetry || m == LiveRetry }

// Round is the state of one round of a barrier, or of one attempt at it.
type Round struct {
	Workers int         `json:"n"` // how many must arrive
	Mode    BarrierMode `json:"mode"`
	Aborted string      `json:"aborted,omitempty"` // why
	Missing []int       `json:"missing,omitempty"` // ids that had not arrived when it was aborted, ascending
}

func (r Round) check() error {
	switch {
	case r.Workers < job.MinWorkers || r.Workers > job.MaxWorkers:
		return fmt.Errorf("n: %d is not between %d and %d", r.Workers, job.MinWorkers, job.MaxWorkers)
	case r.Mode != NewBarrierMode(r.Mode.Live(), r.Mode.Retry()):
		return fmt.Errorf("mode: %q is not a mode that this muster knows", r.Mode)
	case len(r.Missing) > 0 && r.Aborted == "":
		return fmt.Errorf("workers are missing, but it is not aborted")
	}
	before := -1
	for _, id := range r.Missing {
		if id <= before || id >= r.Workers {
			return fmt.Errorf("missing: %d is out of order, or no id of %d workers", id, r.Workers)
		}
		before = id
	}
	return nil
}

// EncodeFloor encodes the floor of a barrier: all rounds with lower numbers were released, and may be deleted.
func EncodeFloor(round int) []byte { return strconv.AppendInt(nil, int64(round), 10) }

// DecodeFloor decodes the floor of a barrier.
func DecodeFloor(data []byte) (int, error) {
	n, err := RoundNumber(string(data))
	return n, resource.InField("floor of a barrier", err)
}

// RoundNumber reads the number of a round from the name of its folder.
func RoundNumber(name string) (int, error) {
	n, err := strconv.ParseInt(name, 10, 32)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != name {
		return 0, fmt.Errorf("%.100q is not the number of a round", name)
	}
	return int(n), nil
}

// AttemptName is the name of an attempt's folder: "7" for the first attempt at round 7, then "7.2", "7.3" and on.
func AttemptName(round, attempt int) string {
	if attempt <= 1 {
		return strconv.Itoa(round)
	}
	return strconv.Itoa(round) + "." + strconv.Itoa(attempt)
}

// ParseAttempt reads an AttemptName.
func ParseAttempt(name string) (round, attempt int, err error) {
	first, second, more := strings.Cut(name, ".")
	if round, err = RoundNumber(first); err != nil || !more {
		return round, 1, err
	}
	if attempt, err = RoundNumber(second); err == nil && attempt < 2 {
		err = fmt.Errorf("%.100q is not an attempt at a round", name)
	}
	return round, attempt, err
}

// LatestAttempts maps each round to its latest attempt, by the names of the folders in that of a barrier.
func LatestAttempts(names []string) map[int]int {
	latest := map[int]int{}
	for _, name := range names {
		if round, attempt, err := ParseAttempt(name); err == nil {
			latest[round] = max(latest[round], attempt)
		}
	}
	return latest
}

// Arrived says which of n ids have arrived and which have not, by the names in the folder of the arrivals.
func Arrived(names []string, n int) (arrived, missing []int) {
	there := make([]bool, n)
	for _, name := range names {
		if id, err := strconv.Atoi(name); err == nil && id >= 0 && id < n {
			there[id] = true
		}
	}
	arrived, missing = []int{}, []int{}
	for id, is := range there {
		if is {
			arrived = append(arrived, id)
		} else {
			missing = append(missing, id)
		}
	}
	return arrived, missing
}
