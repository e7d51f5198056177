package znode

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"muster/resource"
)

// FinishBarrier has a round for each attempt of a gang. Who has arrived there has ended its command well, and if the
// round is released all have.
const FinishBarrier = ".finish"

// GangAttempt is the state of a gang: the attempt to which its commands belong, and what ended the one before.
type GangAttempt struct {
	Number int       `json:"number"` // from 1
	Used   int       `json:"used"`   // how many restarts of those that are declared
	State  GangState `json:"state"`
	// Of the attempt before, or of this one if it has failed.
	Because string `json:"because,omitempty"` // why it ended
	By      string `json:"by,omitempty"`      // identity of the worker that decided
	Exit    *int   `json:"exit_code,omitempty"`
	Lost    []int  `json:"lost,omitempty"` // ids of those that were gone, ascending; at most MaxLost
}

// GangState is the state of an attempt.
type GangState string

// An attempt that is open waits for its workers, or its commands run. Failed is final in a generation.
const (
	GangOpen   GangState = "open"
	GangFailed GangState = "failed"
)

// MaxLost is how many ids a GangAttempt names.
const MaxLost = 100

// maxBecause is how many bytes say why an attempt ended.
const maxBecause = 1000

// Because is a reason of any length as a GangAttempt has it.
func Because(reason string) string {
	reason = strings.ToValidUTF8(reason, "?")
	if len(reason) > maxBecause {
		reason = strings.ToValidUTF8(reason[:maxBecause], "")
	}
	return reason
}

// Failed reports whether no other attempt follows.
func (a GangAttempt) Failed() bool { return a.State == GangFailed }

func (a GangAttempt) check() error {
	switch {
	case a.Number < 1 || a.Number > MaxRound:
		return fmt.Errorf("number: %d is not between 1 and %d", a.Number, MaxRound)
	case a.Used < 0 || a.Used >= a.Number:
		return fmt.Errorf("used: %d is not between 0 and %d", a.Used, a.Number-1)
	case a.State != GangOpen && a.State != GangFailed:
		return fmt.Errorf("state: %q is not known", a.State)
	case len(a.Because) > maxBecause:
		return fmt.Errorf("because: it has more than %d bytes", maxBecause)
	case len(a.Lost) > MaxLost:
		return fmt.Errorf("lost: more than %d ids", MaxLost)
	case a.Exit != nil && (*a.Exit < 0 || *a.Exit > 255):
		return fmt.Errorf("exit_code: %d is not between 0 and 255", *a.Exit)
	}
	for i, id := range a.Lost {
		if id < 0 || i > 0 && id <= a.Lost[i-1] {
			return fmt.Errorf("lost: %d is no id, or out of order", id)
		}
	}
	return nil
}

// barrierMark stands between the name of a barrier and the attempt whose commands meet there. No name that a user gives
// has it.
const barrierMark = "@"

// Barrier is the name under which the commands of the attempt meet at a barrier.
func (a GangAttempt) Barrier(name string) string {
	if a.Number < 2 {
		return name
	}
	return name + barrierMark + strconv.Itoa(a.Number)
}

// PlainBarrier is the name of a barrier as its users give it.
func PlainBarrier(name string) string {
	plain, _, _ := strings.Cut(name, barrierMark)
	return plain
}

// BarrierAttempt is the attempt whose commands meet at the barrier whose folder has this name; 1 if it names none.
func BarrierAttempt(folder string) int {
	_, number, _ := strings.Cut(folder, barrierMark)
	n, err := strconv.Atoi(number)
	if err != nil {
		return 1
	}
	return n
}

// Meets reports whether the commands of the attempt meet at the barrier whose folder has this name.
func (a GangAttempt) Meets(folder string) bool {
	plain := PlainBarrier(folder)
	return plain != StartBarrier && plain != FinishBarrier && folder == a.Barrier(plain)
}

// GangAttemptAt is the znode of a GangAttempt. Whoever changes it decides for all.
func GangAttemptAt(root, g string) string { return resource.Join(Run(root, g), "attempt") }

// StartRound is the folder of the round at which the workers of a gang meet before the commands of an attempt start.
func StartRound(root, g string, attempt int) string {
	return Attempt(root, g, StartBarrier, attempt, 1)
}

// FinishRound is the folder of the round at which they arrive when their commands have ended well.
func FinishRound(root, g string, attempt int) string {
	return Attempt(root, g, FinishBarrier, attempt, 1)
}

// Finished exists, and is empty, if the commands of all n workers have ended well in this attempt.
func Finished(root, g string, attempt, n int) string {
	return Counted(FinishRound(root, g, attempt), n-1)
}

// Spares is the folder of those who wait to replace a worker of a gang.
func Spares(root, g string) string { return resource.Join(Run(root, g), "spare") }

// Spare is the ephemeral znode of a seat, from 0: a WorkerInfo with the identity and the address of who waits there.
func Spare(root, g string, seat int) string {
	return resource.Join(Spares(root, g), strconv.Itoa(seat))
}

// TakenSeats are those seats, ascending, that are among the children of Spares in a gang of so many spares.
func TakenSeats(names []string, spares int) []int {
	var taken []int
	for seat := range spares {
		if slices.Contains(names, strconv.Itoa(seat)) {
			taken = append(taken, seat)
		}
	}
	return taken
}
