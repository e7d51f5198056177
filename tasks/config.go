package tasks

import (
	"errors"
	"log/slog"
	"time"

	"muster/resource/queue"
	"muster/zkstate/zkconn"
)

// Config says who joins what.
type Config struct {
	Root, Queue string
	Identity    string // the name of this process; see worker.Identify
	Role        queue.Role
	Parallel    int // commands at once of an executor
	Redis       Access
	// Waiting, unless nil, is called when Join begins to wait: for what. It is called again when Join waits for
	// something else.
	Waiting func(what string)
	Log     *slog.Logger // nil discards

	keep *keepLimits // for tests
}

// limits are those of the keeper of q.
func (c Config) limits(q queue.Queue) keepLimits {
	if c.keep != nil {
		return *c.keep
	}
	l := defaultKeepLimits()
	l.settle = settleTime(time.Duration(q.Timeouts.Session))
	return l
}

// The errors of Join, besides those of the session and of package store.
var (
	// ErrNoQueue means that nobody created the queue in time. Apply it, or check its name and root.
	ErrNoQueue = errors.New("no such queue")
	// ErrNotOpen means that the queue took no processes in time: they were asked to stop, or somebody deleted a part of
	// it by hand. Apply again.
	ErrNotOpen = errors.New("the queue is not open")
	// ErrHeld means that another process is this identity. Wait until it ends, or use another identity.
	ErrHeld = errors.New("another process holds this identity")
	// ErrRedis means that Redis did not answer in time. Look at it, and try again.
	ErrRedis = errors.New("redis does not answer")
	// ErrUnknown means that the answer to a join was lost. Close the session, and join in another one: what was
	// created ends with the session.
	ErrUnknown = zkconn.ErrUnknown
)

// The errors with which a membership ends, and those of its calls.
var (
	// ErrSessionLost means that the session has ended. Stop all commands, and join again.
	ErrSessionLost = zkconn.ErrSessionLost
	// ErrRemoved means that somebody deleted the seat or the znode of this process by hand, or that the queue was
	// deleted. Stop all commands. Join again, if the queue still exists.
	ErrRemoved = errors.New("this process is no longer in the queue")
	// ErrRecover means that an earlier call had an unknown outcome. Call Recover.
	ErrRecover = errors.New("recover first")
	// ErrNoBatch means that the queue has no unfinished batch of this name: it has ended, or was never submitted.
	ErrNoBatch = errors.New("no such unfinished batch")
	// ErrManifest means that somebody wrote into the manifest of a batch what cannot be read. Delete it.
	ErrManifest = errors.New("the manifest of the batch cannot be read")
)
