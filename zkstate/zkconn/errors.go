package zkconn

import (
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"
)

// What a call can answer, inside an *Error. Whatever else comes is a definite refusal: report it.
var (
	// ErrNoNode means the znode, or the parent of one to be created, does not exist.
	ErrNoNode = errors.New("no such znode")
	// ErrNodeExists means somebody created the znode before; after an ErrUnknown that may have been this session.
	ErrNodeExists = errors.New("znode exists already")
	// ErrBadVersion means the znode changed since it was read: read again and decide again.
	ErrBadVersion = errors.New("znode has changed")
	// ErrNotEmpty means the znode has children and cannot be deleted.
	ErrNotEmpty = errors.New("znode has children")
	// ErrNoAuth means the znode's ACL does not let these credentials do that. Retrying does not help.
	ErrNoAuth = errors.New("permission denied")
	// ErrAuthFailed means the server refused a credential or its scheme. Retrying does not help.
	ErrAuthFailed = errors.New("authentication failed")
	// ErrInvalidACL means the server does not accept the ACL, such as auth without credentials.
	ErrInvalidACL = errors.New("invalid ACL")
	// ErrTooLarge means the request or the reply exceeds a limit. Nothing was sent if it was a write.
	ErrTooLarge = errors.New("too large")
	// ErrUnknown means the write may have happened or may still happen. Call Settled, then read what is there; never
	// repeat the write blindly.
	ErrUnknown = errors.New("outcome unknown")
	// ErrNotSent means that the context ended before the write was sent: it was certainly not executed.
	ErrNotSent = errors.New("not sent")
	// ErrSessionLost means the session is gone with its ephemeral znodes and watches; this call was not executed. Dial
	// again, and start from what is there.
	ErrSessionLost = errors.New("zookeeper session lost")
	// ErrUnreachable means no server answered before the context ended; the text says why, for each server.
	ErrUnreachable = errors.New("zookeeper is unreachable")
)

var (
	errExpired = fmt.Errorf("%w: expired by the server", ErrSessionLost)
	errClosed  = fmt.Errorf("%w: closed by its owner", ErrSessionLost)
)

// Error is the operation that failed, the znode it was about, and why.
type Error struct {
	Op   string // get, create, …; in a transaction, of the operation that failed
	Path string // znode, or for auth the scheme
	Err  error
}

func (e *Error) Error() string { return e.Op + " " + e.Path + ": " + e.Err.Error() }

// Unwrap returns what failed.
func (e *Error) Unwrap() error { return e.Err }

// fate is what an error of the library says about the request it belongs to.
type fate int

const (
	refused  fate = iota // answered: not executed; the error says why
	notSent              // certainly not executed, and worth repeating
	cutOff               // the connection broke: executed or not
	unclear              // answered with something that explains nothing: executed or not
	sessGone             // not executed; the session has expired
)

// tooLarge is the code that a connection puts in place of an oversized reply. No server sends it.
const tooLarge = -4242

// fateOf classifies an error of the library and gives it our name.
func fateOf(err error) (fate, error) {
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return refused, ErrNoNode
	case errors.Is(err, zk.ErrNodeExists):
		return refused, ErrNodeExists
	case errors.Is(err, zk.ErrBadVersion):
		return refused, ErrBadVersion
	case errors.Is(err, zk.ErrNotEmpty):
		return refused, ErrNotEmpty
	case errors.Is(err, zk.ErrNoAuth):
		return refused, ErrNoAuth
	case errors.Is(err, zk.ErrAuthFailed):
		return refused, ErrAuthFailed
	case errors.Is(err, zk.ErrInvalidACL):
		return refused, ErrInvalidACL
	case errors.Is(err, zk.ErrNoChildrenForEphemerals):
		return refused, errors.New("an ephemeral znode cannot have children")
	case errors.Is(err, zk.ErrInvalidPath), errors.Is(err, zk.ErrBadArguments):
		return refused, errors.New("invalid path")
	case errors.Is(err, zk.ErrNoServer), errors.Is(err, zk.ErrSessionMoved):
		return notSent, ErrNotSent
	case errors.Is(err, zk.ErrSessionExpired):
		return sessGone, errExpired
	case errors.Is(err, zk.ErrAPIError), errors.Is(err, zk.ErrShortBuffer), errors.Is(err, zk.ErrUnhandledFieldType):
		return unclear, errors.New("the reply cannot be understood")
	}
	var code int
	if _, scan := fmt.Sscanf(err.Error(), "unknown error: %d", &code); scan == nil {
		return fateOfCode(code)
	}
	return cutOff, errors.New("connection lost")
}

// fateOfCode classifies the server's codes that the library has no name for.
func fateOfCode(code int) (fate, error) {
	switch code {
	case -5:
		return refused, errors.New("the server could not read the request")
	case -6:
		return refused, errors.New("not supported by the server")
	case -125:
		return refused, errors.New("quota exceeded")
	case -127:
		return notSent, ErrNotSent // throttled
	case tooLarge:
		return unclear, ErrTooLarge
	}
	return unclear, fmt.Errorf("server error %d", code)
}
