package znode

import (
	"fmt"
	"strconv"

	"muster/job"
	"muster/resource"
)

// StartBarrier is the barrier that all workers pass once, before their commands start. No user's barrier can have this
// name.
const StartBarrier = ".start"

// MaxRound is the highest number of a round.
const MaxRound = 1<<31 - 1

// arrivalPrefix is that of the sequential znodes that count arrivals.
const arrivalPrefix = "c-"

// RoundState holds the Round of the round in dir, a Barrier. Version 0 is undecided or released; once aborted it is 1.
func RoundState(dir string) string { return resource.Join(dir, "st") }

// Arrivals is the folder of who arrived at a round.
func Arrivals(dir string) string { return resource.Join(dir, "a") }

// Arrival exists if the worker with this id arrived.
func Arrival(dir string, id int) string { return resource.Join(Arrivals(dir), strconv.Itoa(id)) }

// Count is the folder that counts arrivals.
func Count(dir string) string { return resource.Join(dir, "c") }

// NewCount is the path to create, sequential, to be counted.
func NewCount(dir string) string { return resource.Join(Count(dir), arrivalPrefix) }

// Counted is the znode of arrival number n, from 0. The last of N is the token that everybody waits for: without data the
// round is released, with data it is aborted.
func Counted(dir string, n int) string { return fmt.Sprintf("%s%010d", NewCount(dir), n) }

// CountNumber reads the number of an arrival.
func CountNumber(path string) (int, error) { return number(path, arrivalPrefix) }

// BarrierMode says what an arrival at a round is.
type BarrierMode string

// A durable arrival counts even if its process dies; a live one lasts as long as its session.
const (
	Durable   BarrierMode = "durable"
	LiveRound BarrierMode = "live"
)

// Round is what was decided about one round of a barrier when it was made, and perhaps when it was aborted.
type Round struct {
	Workers int         `json:"n"` // how many must arrive
	Mode    BarrierMode `json:"mode"`
	Aborted string      `json:"aborted,omitempty"` // why
	Missing []int       `json:"missing,omitempty"` // ids that had not arrived when it was aborted, ascending
}

// EncodeRound writes the state of a round.
func EncodeRound(r Round) ([]byte, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	return encodeJSON("round", r)
}

// DecodeRound reads the state of a round and checks it.
func DecodeRound(data []byte) (Round, error) {
	var r Round
	if err := decodeJSON("round", data, &r); err != nil {
		return Round{}, err
	}
	if err := r.check(); err != nil {
		return Round{}, err
	}
	return r, nil
}

func (r Round) check() error {
	switch {
	case r.Workers < job.MinWorkers || r.Workers > job.MaxWorkers:
		return fmt.Errorf("round: n: %d is not between %d and %d", r.Workers, job.MinWorkers, job.MaxWorkers)
	case r.Mode != Durable && r.Mode != LiveRound:
		return fmt.Errorf("round: mode: %q is neither %q nor %q", r.Mode, Durable, LiveRound)
	case len(r.Missing) > 0 && r.Aborted == "":
		return fmt.Errorf("round: workers are missing, but it is not aborted")
	}
	before := -1
	for _, id := range r.Missing {
		if id <= before || id >= r.Workers {
			return fmt.Errorf("round: missing: %d is out of order, or no id of %d workers", id, r.Workers)
		}
		before = id
	}
	return nil
}

// EncodeFloor writes the number below which the rounds of a barrier were released and may be gone.
func EncodeFloor(round int) []byte { return strconv.AppendInt(nil, int64(round), 10) }

// DecodeFloor reads what EncodeFloor wrote.
func DecodeFloor(data []byte) (int, error) {
	n, err := RoundNumber(string(data))
	if err != nil {
		return 0, fmt.Errorf("floor of a barrier: %w", err)
	}
	return n, nil
}

// RoundNumber reads the number of a round, as in the name of its folder.
func RoundNumber(name string) (int, error) {
	n, err := strconv.ParseInt(name, 10, 32)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != name {
		return 0, fmt.Errorf("%.100q is not the number of a round", name)
	}
	return int(n), nil
}
