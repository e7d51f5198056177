package zkconn

import (
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"
)

// The errors of calls, inside an *Error. With any other error the server refused the request: report it.
var (
	// ErrNoNode means that the znode does not exist; for a create, that the parent does not exist.
	ErrNoNode = errors.New("no such znode")
	// ErrNodeExists means that somebody created the znode before. After an ErrUnknown it may have been this session.
	ErrNodeExists = errors.New("znode exists already")
	// ErrBadVersion means that the znode was changed since it was read. Read again and decide again.
	ErrBadVersion = errors.New("znode has changed")
	// ErrNotEmpty means that the znode has children and cannot be deleted.
	ErrNotEmpty = errors.New("znode has children")
	// ErrNoAuth means that the znode's ACL does not permit the operation. Do not retry.
	ErrNoAuth = errors.New("permission denied")
	// ErrAuthFailed means that the server refused a credential or its scheme. Do not retry.
	ErrAuthFailed = errors.New("authentication failed")
	// ErrInvalidACL means that the server does not accept the ACL, such as auth without credentials.
	ErrInvalidACL = errors.New("invalid ACL")
	// ErrTooLarge means that the request or the reply exceeds a limit. A write was not sent.
	ErrTooLarge = errors.New("too large")
	// ErrUnknown means that the write may have happened or may still happen. Call Settled, then read. Never repeat the
	// write without that.
	ErrUnknown = errors.New("outcome unknown")
	// ErrNotSent means that the context ended before the write was sent. It was certainly not executed.
	ErrNotSent = errors.New("not sent")
	// ErrSilent means that no server had answered for too long, see MultiWithin. The write was not sent.
	ErrSilent = errors.New("no server has answered for too long")
	// ErrSessionLost means that the session is gone with its ephemeral znodes and watches. This call was not executed.
	// Dial again and read again.
	ErrSessionLost = errors.New("zookeeper session lost")
	// ErrUnreachable means that no server answered before the context ended. The text says why, for each server.
	ErrUnreachable = errors.New("zookeeper is unreachable")
)

var (
	errExpired = fmt.Errorf("%w: expired by the server", ErrSessionLost)
	errOther   = fmt.Errorf("%w: a server answered for another session", ErrSessionLost)
	errClosed  = fmt.Errorf("%w: closed by its owner", ErrSessionLost)
)

// Error says which operation failed, on which znode, and why.
type Error struct {
	Op   string // get, create, …; in a transaction, of the operation that failed
	Path string // znode, or for auth the scheme
	Err  error
}

func (e *Error) Error() string { return e.Op + " " + e.Path + ": " + e.Err.Error() }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// outcome is what an error of the library says about its request.
type outcome int

const (
	refused     outcome = iota // not executed; the server's error says why
	notSent                    // not executed, and can be repeated
	interrupted                // executed or not: the connection broke
	unclear                    // executed or not: the reply does not say it
	sessionGone                // not executed: the session has expired
)

// tooLarge is the error code with which conn replaces a reply that is too large. No server sends it.
const tooLarge = -4242

// outcomeOf returns the outcome for an error of the library, and the error for the caller.
func outcomeOf(err error) (outcome, error) {
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
	case errors.Is(err, ErrSilent):
		return refused, ErrSilent
	case errors.Is(err, zk.ErrNoServer), errors.Is(err, zk.ErrSessionMoved):
		return notSent, ErrNotSent
	case errors.Is(err, zk.ErrSessionExpired):
		return sessionGone, errExpired
	case errors.Is(err, zk.ErrAPIError), errors.Is(err, zk.ErrShortBuffer), errors.Is(err, zk.ErrUnhandledFieldType):
		return unclear, errors.New("the reply cannot be understood")
	}
	var code int
	if _, scan := fmt.Sscanf(err.Error(), "unknown error: %d", &code); scan == nil {
		return outcomeOfCode(code)
	}
	return interrupted, errors.New("connection lost")
}

// outcomeOfCode is outcomeOf for error codes that the library does not know.
func outcomeOfCode(code int) (outcome, error) {
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
