package worker

import (
	"errors"
	"fmt"

	"muster/zkstate/znode"
)

// Config says who joins what.
type Config struct {
	Root, Job string
	Identity  string       // stable across restarts of the same worker; see Identify
	Info      znode.Worker // the address its peers reach it at; its ID is ignored
	Run       string       // name of this run, if it has one: a run that has completed is not joined again
	Takeover  Takeover
	// Waiting, unless nil, is called when Join begins to wait: for what, and how long at most. It is called again
	// when Join waits for something else.
	Waiting func(what string)
}

// Takeover says what Join does if another process holds the identity.
type Takeover int

// TakeoverWait waits until the other process is no longer live. TakeoverFail fails at once with ErrHeld.
const (
	TakeoverWait Takeover = iota
	TakeoverFail
)

// The errors of Join, besides those of the session.
var (
	// ErrNoJob means that nobody created the job in time. Apply it, or check its name and root.
	ErrNoJob = errors.New("no such job")
	// ErrFull means that N other identities have joined. Join as one of those that the error names, because they are
	// not live, or wait for a new generation.
	ErrFull = errors.New("the job is full")
	// ErrNotOpen means that the job took no new worker in time: its workers were asked to stop, or it belongs to a
	// run that died, or to another run. Apply again, or start its old workers again.
	ErrNotOpen = errors.New("the job takes no new workers")
	// ErrHeld means that another process is this identity. Wait until it ends, or use another identity.
	ErrHeld = errors.New("another process holds this identity")
	// ErrCompleted means that the run of this name has completed. Do not start the command; there is nothing left to
	// do.
	ErrCompleted = errors.New("the run has completed")
	// ErrDone means that this identity completed its part in an earlier life; see DoneError.
	ErrDone = errors.New("this worker has completed")
)

// DoneError is ErrDone. Do not start the command again. Exit as it did.
type DoneError struct {
	Exit int // code of the command
}

func (e *DoneError) Error() string { return fmt.Sprintf("%v with exit code %d", ErrDone, e.Exit) }

// Unwrap makes it ErrDone.
func (e *DoneError) Unwrap() error { return ErrDone }
