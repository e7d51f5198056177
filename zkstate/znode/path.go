package znode

import (
	"fmt"
	"strconv"
	"strings"

	"muster/resource"
)

// Prefixes of the sequential znodes. ZooKeeper appends ten digits, which Seq reads.
const (
	idPrefix  = "n-"
	endPrefix = "d-"

	LockPrefix = "lock-" // a place in the queue for an apply lock
)

// Job is the job znode: its body is the roll, its children are exactly its live workers.
func Job(root, name string) string { return resource.Join(root, name) }

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

// IDs is the folder of worker ids. Nothing else is ever created in it, so each id is the number of ids before it.
func IDs(root, g string) string { return resource.Join(Run(root, g), "id") }

// ID is the znode of worker id n.
func ID(root, g string, n int) string { return fmt.Sprintf("%s%010d", NewID(root, g), n) }

// NewID is the path of the sequential znode that takes the next worker id.
func NewID(root, g string) string { return resource.Join(IDs(root, g), idPrefix) }

// IDNumber reads the worker id from the name or path of an id znode.
func IDNumber(name string) (int, error) { return number(name, idPrefix) }

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

// Barrier is the folder of one round of a barrier, which is that of its first attempt.
func Barrier(root, g, name string, round int) string { return Attempt(root, g, name, round, 1) }

// Attempt is the folder of one attempt at a round, from 1. The later ones are beside the round.
func Attempt(root, g, name string, round, attempt int) string {
	return resource.Join(BarrierFloor(root, g, name), AttemptName(round, attempt))
}

// Ensemble holds the random id of the ensemble, which its first apply creates.
func Ensemble(home string) string { return resource.Join(home, "ensemble") }

// StackDir is the folder of the index, with one znode for each stack.
func StackDir(home string) string { return resource.Join(home, "stack") }

// Stack holds the Index of one stack.
func Stack(home, stack string) string { return resource.Join(StackDir(home), stack) }

// LockDir is the folder of the stacks' apply locks.
func LockDir(home string) string { return resource.Join(home, "lock") }

// Lock is the queue of one stack's apply lock.
func Lock(home, stack string) string { return resource.Join(LockDir(home), stack) }

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

// base is the last part of a path or name.
func base(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
