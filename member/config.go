package member

import (
	"errors"
	"time"

	"muster/zkstate/zkconn"
)

// Config says who joins what.
type Config struct {
	Root, Group string
	Identity    string // the name of this process; see worker.Identify
	Version     string // of the application
	Address     string // host:port at which followers reach it; may be empty
	// Can are the duties that it can do. Take or Lead each of them all the time: one that is given and not taken within
	// the session timeout of the group goes to another member, with blame.
	Can      []string
	NotReady bool // it is given nothing until Ready
	Takeover Takeover
	// MaxSilence, unless 0, is a limit of the session's Silence: past it the member takes no duty and claims no tick. Who
	// sets it ends the membership then.
	MaxSilence time.Duration
	// Clock is the time by which the ticks of crons fall due; nil is time.Now. Tests set it.
	Clock func() time.Time
	// Waiting, unless nil, is called when Join begins to wait: for what. It is called again when Join waits for
	// something else.
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
	// ErrNoGroup means that nobody created the group in time. Apply it, or check its name and root.
	ErrNoGroup = errors.New("no such group")
	// ErrNotOpen means that the group took no members in time: they were asked to stop, or somebody deleted a part of
	// it by hand. Apply again.
	ErrNotOpen = errors.New("the group takes no members")
	// ErrHeld means that another process is this identity. Wait until it ends, or use another identity.
	ErrHeld = errors.New("another process holds this identity")
	// ErrVersion means that the version of this process is not one. Give it another.
	ErrVersion = errors.New("not a version")
	// ErrUnknown means that the answer to a join was lost. Close the session, and join in another one: what was
	// created ends with the session.
	ErrUnknown = zkconn.ErrUnknown
)

// The errors with which a membership or a duty ends.
var (
	// ErrSessionLost means that the session has ended. Stop all commands, and join as a new member.
	ErrSessionLost = zkconn.ErrSessionLost
	// ErrRemoved means that somebody deleted the seat or the znode of this member by hand, or that the group was
	// deleted. Stop all commands. Join again, if the group still exists.
	ErrRemoved = errors.New("this process is no longer a member")
	// ErrNotHeld means that this process does not hold the duty any more. Nothing was written.
	ErrNotHeld = errors.New("this process does not hold the duty")
)
