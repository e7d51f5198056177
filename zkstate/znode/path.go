// Package znode defines the paths of muster's znodes and the bytes in them: the Record, claims, workers, the roll and
// marks. It also recognises a job of the classic controller.
//
// Anybody may have written the bytes that a decoder gets. So a decoder limits their size, never panics, and its error
// says what is damaged. It skips unknown fields, so that an older muster reads what a newer one wrote. A layout that an
// older muster must not change has another format in the Record (see ErrFormat). An encoder refuses what its decoder
// refuses.
//
// The package talks to no server. Path functions do not check names: call CheckIdentity, CheckToken or
// resource.CheckName first with every name from a user or from ZooKeeper.
package znode

import (
	"fmt"
	"strconv"
	"strings"

	"muster/resource"
	"muster/resource/job"
)

// Prefixes of the sequential znodes. ZooKeeper appends ten digits, which Seq reads.
const (
	idPrefix       = "n-"
	joinedPrefix   = "j-"
	endPrefix      = "d-"
	arrivalPrefix  = "c-"
	seatPrefix     = "s-"
	guestPrefix    = "x-"
	resignedPrefix = "r-"
	askPrefix      = "a-"
	nowPrefix      = "n-"    // a run that an operator asked for
	entryPrefix    = "h-"    // of a history
	LockPrefix     = "lock-" // a place in the queue for an apply lock
)

// Live is the ephemeral znode of a live worker.
func Live(root, name, identity string) string { return resource.Join(root, name, identity) }

// RecordDir is the folder of the Records of one kind below root.
func RecordDir(kind, root string) string { return resource.Join(root, resource.Reserved, kind) }

// Record is the znode of the Record of one resource.
func Record(kind, root, name string) string { return resource.Join(RecordDir(kind, root), name) }

// RunDir is the folder of all generations below root.
func RunDir(root string) string { return resource.Join(root, resource.Reserved, "run") }

// Run is the folder of generation g. Its body is a copy of the Record. If the gate is its only child, no worker has
// joined.
func Run(root, g string) string { return resource.Join(RunDir(root), g) }

// Gate exists while generation g is open. Every transaction of a worker checks it.
func Gate(root, g string) string { return resource.Join(Run(root, g), "gate") }

// JobFolders lists the znodes that the first worker of a job creates below the generation.
func JobFolders(j job.Job) []string {
	names := []string{"id", "by", "end", "barrier"}
	if j.IDs == job.ByIndex {
		names = append(names, "joined")
	}
	if j.Gang != nil {
		names = append(names, "attempt")
	}
	if j.Gang.HasSpares() {
		names = append(names, "spare")
	}
	return names
}

// IDs is the folder of worker ids. Nothing else is ever created in it, so each id is the number of ids before it,
// unless workers bring their ids.
func IDs(root, g string) string { return resource.Join(Run(root, g), "id") }

// ID is the znode of worker id n.
func ID(root, g string, n int) string { return fmt.Sprintf("%s%010d", NewID(root, g), n) }

// NewID is the path of the sequential znode that takes the next worker id.
func NewID(root, g string) string { return resource.Join(IDs(root, g), idPrefix) }

// IDNumber reads the worker id from the name or path of an id znode.
func IDNumber(name string) (int, error) { return number(name, idPrefix) }

// Joined is the folder that counts who has joined a job that takes ids from its workers.
func Joined(root, g string) string { return resource.Join(Run(root, g), "joined") }

// NewJoined is the path of the sequential znode that counts the next worker.
func NewJoined(root, g string) string { return resource.Join(Joined(root, g), joinedPrefix) }

// LastJoined is the znode that the last of n workers to join creates.
func LastJoined(root, g string, n int, byIndex bool) string {
	if byIndex {
		return fmt.Sprintf("%s%010d", NewJoined(root, g), n-1)
	}
	return ID(root, g, n-1)
}

// JoinedNumber reads the number from the name or path of a znode in Joined. That of the last of N is N-1.
func JoinedNumber(name string) (int, error) { return number(name, joinedPrefix) }

// By is the folder of claims.
func By(root, g string) string { return resource.Join(Run(root, g), "by") }

// ByIdentity is the znode of an identity's claim. Its data version is the worker's fencing token.
func ByIdentity(root, g, identity string) string { return resource.Join(By(root, g), identity) }

// End is the folder of completions.
func End(root, g string) string { return resource.Join(Run(root, g), "end") }

// NewEnd is the path of the sequential znode that records the next completion.
func NewEnd(root, g string) string { return resource.Join(End(root, g), endPrefix) }

// Completion is the znode of completion number n, from 0.
func Completion(root, g string, n int) string { return fmt.Sprintf("%s%010d", NewEnd(root, g), n) }

// EndNumber reads the number from the name or path of a completion. The last of N has number N-1.
func EndNumber(name string) (int, error) { return number(name, endPrefix) }

// Barriers is the folder of all barriers.
func Barriers(root, g string) string { return resource.Join(Run(root, g), "barrier") }

// BarrierFloor is the folder of one barrier's rounds. Its body is the floor, see EncodeFloor.
func BarrierFloor(root, g, name string) string { return resource.Join(Barriers(root, g), name) }

// Attempt is the folder of one attempt at a round of a barrier, from 1. The first is in that of the round, the later
// ones are beside it.
func Attempt(root, g, name string, round, attempt int) string {
	return resource.Join(BarrierFloor(root, g, name), AttemptName(round, attempt))
}

// Ensemble holds the random id of the ensemble, which its first apply creates.
func Ensemble(home string) string { return resource.Join(home, "ensemble") }

// StackDir is the folder of the index, with one znode for each stack.
func StackDir(home string) string { return resource.Join(home, "stack") }

// Stack holds the Index of one stack.
func Stack(home, stack string) string { return resource.Join(StackDir(home), stack) }

// Lock is the queue of one stack's apply lock.
func Lock(home, stack string) string { return resource.Join(home, "lock", stack) }

// AppliedDir is the folder of applied plans.
func AppliedDir(home string) string { return resource.Join(home, "applied") }

// Applied exists if an apply of the plan with this id has begun.
func Applied(home, plan string) string { return resource.Join(AppliedDir(home), plan) }

// Seq reads the number that ZooKeeper appended to prefix: the parent's counter, an int32 written with %010d. It
// overflows to negative numbers after 2147483647.
func Seq(name, prefix string) (int32, error) {
	digits, ok := strings.CutPrefix(name, prefix)
	n, err := strconv.ParseInt(digits, 10, 32)
	if !ok || err != nil || fmt.Sprintf("%010d", n) != digits {
		return 0, fmt.Errorf("%q is not %q and a sequence number", name, prefix)
	}
	return int32(n), nil
}

// number is Seq for counters that never overflow in practice. It refuses a negative number.
func number(path, prefix string) (int, error) {
	n, err := Seq(base(path), prefix)
	if err == nil && n < 0 {
		err = fmt.Errorf("%q: the sequence number has overflowed", path)
	}
	return int(n), err
}

func base(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// The maximum lengths of an identity and a token, in characters.
const (
	maxIdentity = 255
	maxToken    = 64
)

// CheckIdentity says why s is not a valid identity of a worker, or returns nil. An identity is the name of a znode, and
// has 1 to 255 printable characters without a slash, such as "[::1]:7000".
func CheckIdentity(s string) error {
	if s == "." || s == ".." || s == resource.Reserved {
		return fmt.Errorf("%q cannot be an identity", s)
	}
	return resource.CheckPrintable("an identity", s, maxIdentity, "but '/'", func(r rune) bool {
		return r == '/' || !inZooKeeper(r)
	})
}

// inZooKeeper reports whether the server accepts r in a path. It looks at UTF-16 code units: it refuses surrogates, the
// private use area and the specials.
func inZooKeeper(r rune) bool { return r < 0xd800 || 0xf8ff < r && r < 0xfff0 }

// CheckToken says why s is not a valid random name of muster's (a generation, a plan id), or returns nil. A token has 1
// to 64 characters of A-Z a-z 0-9 _ -.
func CheckToken(s string) error {
	if s == "" {
		return fmt.Errorf("it is empty")
	}
	if len(s) > maxToken {
		return fmt.Errorf("it has %d characters; at most %d are allowed", len(s), maxToken)
	}
	for _, r := range s {
		if !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '_' || r == '-') {
			return fmt.Errorf("%q may hold letters, digits, '_' and '-', not %q", s, r)
		}
	}
	return nil
}

// GroupFolders lists the znodes that the first member of a group, or the first operator's request, creates below the
// generation.
func GroupFolders() []string { return []string{"seat", "assigner", "duty", "resigned", "ask"} }

// Seats is the folder of a group's seats. Nothing else is ever created in it, so the number of a seat is its seniority.
func Seats(root, g string) string { return resource.Join(Run(root, g), "seat") }

// NewSeat is the path of the sequential, ephemeral znode that takes the next seat.
func NewSeat(root, g string) string { return resource.Join(Seats(root, g), seatPrefix) }

// SeatNumber reads the number of a seat from its name or path. A smaller one is senior.
func SeatNumber(name string) (int32, error) {
	if n, err := Seq(base(name), guestPrefix); err == nil {
		return n, nil
	}
	return Seq(base(name), seatPrefix)
}

// Decides reports whether the member with this seat may be the assigner. One with a seat such as "x-0000000003" has
// duties as all others, and never is: a program in another language need not know how duties are assigned.
func Decides(seat string) bool {
	_, err := Seq(base(seat), seatPrefix)
	return err == nil
}

// SeatAt is the znode of the seat with this name, such as "s-0000000003".
func SeatAt(root, g, name string) string { return resource.Join(Seats(root, g), name) }

// Assigner is the assigner's memory.
func Assigner(root, g string) string { return resource.Join(Run(root, g), "assigner") }

// Duties is the folder of the duties that somebody has taken at least once.
func Duties(root, g string) string { return resource.Join(Run(root, g), "duty") }

// Duty is the znode of one duty. Its data version guards every write of its holder. Each take sets it, and the zxid of
// that is the epoch.
func Duty(root, g, duty string) string { return resource.Join(Duties(root, g), duty) }

// Held is the ephemeral znode that exists while somebody holds a duty. Its body is a Holder.
func Held(root, g, duty string) string { return resource.Join(Duty(root, g, duty), "held") }

// Resigned is the folder of the messages of members that gave up a duty, for the assigner.
func Resigned(root, g string) string { return resource.Join(Run(root, g), "resigned") }

// NewResigned is the path of the sequential znode of the next such message. Its body is a Resignation.
func NewResigned(root, g string) string { return resource.Join(Resigned(root, g), resignedPrefix) }

// Asks is the folder of operators' requests, for the assigner. Its body is an AskLog.
func Asks(root, g string) string { return resource.Join(Run(root, g), "ask") }

// NewAsk is the path of the sequential znode of the next request. Its body is an Ask.
func NewAsk(root, g string) string { return resource.Join(Asks(root, g), askPrefix) }

// States is the folder of a duty's saved state. Its body is a StateTotal.
func States(root, g, duty string) string { return resource.Join(Duty(root, g, duty), "state") }

// State is one key. Its body is a SavedValue.
func State(root, g, duty, key string) string { return resource.Join(States(root, g, duty), key) }
