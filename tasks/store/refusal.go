package store

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// What a script refuses. Each is the Is of a [Refusal].
var (
	// ErrNoSeat means that the seat is not let in, or was shut. Look at the seat's znode: if it stands, say hello and
	// sync; otherwise stop.
	ErrNoSeat = errors.New("unknown seat")
	// ErrSeq means that another call of the seat came before this one. Sync.
	ErrSeq = errors.New("out of sequence")
	// ErrNoBatch means that Redis has no keys of this batch: it was removed or lost.
	ErrNoBatch = errors.New("no such batch in redis")
	// ErrBroken means that keys of the batch do not fit its counts. Only Remove works on it.
	ErrBroken = errors.New("keys of the batch do not fit its counts")
	// ErrLife means that Redis has an earlier or later batch of the same name. Read the manifest again.
	ErrLife = errors.New("another batch of this name")
	// ErrOffset means that the batch has another length. Go on there.
	ErrOffset = errors.New("the batch has another length")
	// ErrState means that the batch is in a state that does not allow it.
	ErrState = errors.New("not possible in this state of the batch")
	// ErrFull means that the queue holds max_bytes. Try again later.
	ErrFull = errors.New("the queue is full")
	// ErrDead means that dead tasks of an earlier batch of this name are kept. Retry or drop them first.
	ErrDead = errors.New("dead tasks of an earlier batch of this name are kept")
	// ErrClaimed means that a watcher has the batch.
	ErrClaimed = errors.New("a watcher has the batch")
	// ErrLimit means that a call has more than MaxItems, or more than MaxBytes before its last item.
	ErrLimit = errors.New("too much for one call")
	// ErrArgument means that a script does not take such an argument.
	ErrArgument = errors.New("an argument that the script does not take")
	// ErrFormat means that another version of muster wrote the queue's keys. Use that version.
	ErrFormat = errors.New("the queue in redis has another format")
	// ErrOtherQueue means that the keys belong to another queue. Name another database.
	ErrOtherQueue = errors.New("the keys in redis are of another queue")
	// ErrMemory means that Redis has no memory left. Wait, or raise its maxmemory.
	ErrMemory = errors.New("redis is out of memory")
)

// Refusal is a script's answer that it changed nothing, and why.
type Refusal struct {
	Err    error  // one of the errors of this package
	Detail string // what Redis has: the last seq, the length, the state, the life
}

func (r *Refusal) Error() string {
	if r.Detail == "" {
		return r.Err.Error()
	}
	return fmt.Sprintf("%v (%s)", r.Err, r.Detail)
}

func (r *Refusal) Unwrap() error { return r.Err }

// refusal turns an error reply of a script into a Refusal. It returns nil for other errors.
func refusal(err error) *Refusal {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return nil
	}
	code, detail, _ := strings.Cut(reply.Error(), " ")
	known := map[string]error{
		"NOSEAT": ErrNoSeat, "SEQ": ErrSeq, "NOBATCH": ErrNoBatch, "BROKEN": ErrBroken, "LIFE": ErrLife,
		"OFFSET": ErrOffset, "STATE": ErrState, "FULL": ErrFull, "DEAD": ErrDead, "CLAIMED": ErrClaimed,
		"LIMIT": ErrLimit, "ARGUMENT": ErrArgument, "FORMAT": ErrFormat, "QUEUE": ErrOtherQueue, "OOM": ErrMemory,
	}
	if known[code] == nil {
		return nil
	}
	return &Refusal{known[code], detail}
}
