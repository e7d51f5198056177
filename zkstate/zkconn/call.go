package zkconn

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
)

// errAbandoned means that the caller's context or the session ended before the library answered the request.
var errAbandoned = errors.New("caller left")

// acquire waits for a free slot and for a connection. After nil the caller may call the library, and must call release.
func (s *Session) acquire(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	select {
	case s.slots <- struct{}{}:
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-s.gate.opened():
	case <-s.ctx.Done():
	case <-ctx.Done():
		s.release()
		return s.hosts.unreachable(context.Cause(ctx))
	}
	if s.ctx.Err() != nil {
		s.release()
		return context.Cause(s.ctx)
	}
	return nil
}

func (s *Session) release() { <-s.slots }

// run calls the library, which takes no context, and stops waiting when ctx or the session ends. The request keeps its
// slot until the library returns; done is closed then.
func run[T any](ctx context.Context, s *Session, f func(*zk.Conn) (T, error)) (v T, done <-chan struct{}, err error) {
	ch := make(chan struct{})
	var result struct {
		v   T
		err error
	}
	go func() {
		defer s.release()
		defer close(ch)
		result.v, result.err = f(s.zk)
	}()
	select {
	case <-ch:
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
	if !Closed(ch) {
		return v, ch, errAbandoned
	}
	return result.v, ch, result.err
}

// read runs f until it is answered. It may repeat a read.
func read[T any](ctx context.Context, s *Session, op, path string, f func(*zk.Conn) (T, error)) (v T, err error) {
	if requestHeader+4+len(path)+1 > s.cfg.sizes().request {
		return v, &Error{op, path, ErrTooLarge}
	}
	for {
		if err := s.acquire(ctx); err != nil {
			return v, &Error{op, path, err}
		}
		got, _, err := run(ctx, s, f)
		if err == nil {
			return got, nil
		}
		if s.ctx.Err() != nil {
			return v, &Error{op, path, context.Cause(s.ctx)}
		}
		if errors.Is(err, errAbandoned) {
			return v, &Error{op, path, context.Cause(ctx)}
		}
		switch outcome, why := outcomeOf(err); outcome {
		case interrupted:
		case notSent: // the server may be overloaded
			Pause(ctx, shortestPause)
		case sessionGone:
			s.end(why)
			return v, &Error{op, path, why}
		default:
			return v, &Error{op, path, why}
		}
	}
}

// Pause waits for a time, or until ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// Closed reports whether a channel without values is closed, such as that of an event.
func Closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// write runs f. It repeats f only if the server has certainly not executed it. size is the size of the encoded request,
// in bytes.
func write[T any](
	ctx context.Context, s *Session, op Op, size int, f func(*zk.Conn) (T, error),
) (v T, err error) {
	if most := s.cfg.sizes().request; size > most {
		return v, &Error{op.name, op.path, fmt.Errorf("%w: %d bytes in one request, at most %d", ErrTooLarge, size, most)}
	}
	for {
		if err := s.acquire(ctx); err != nil {
			if !errors.Is(err, ErrSessionLost) {
				err = fmt.Errorf("%w: %w", ErrNotSent, err)
			}
			return v, &Error{op.name, op.path, err}
		}
		got, done, err := run(ctx, s, f)
		if err == nil {
			return got, nil
		}
		if errors.Is(err, errAbandoned) {
			s.abandon(done)
			cause := context.Cause(ctx)
			if s.ctx.Err() != nil {
				cause = errors.New("the session ended")
			}
			return v, &Error{op.name, op.path, fmt.Errorf("%w: %w", ErrUnknown, cause)}
		}
		outcome, why := outcomeOf(err)
		switch outcome {
		case notSent:
			Pause(ctx, shortestPause)
			continue
		case interrupted, unclear:
			why = fmt.Errorf("%w: %v", ErrUnknown, why)
		case sessionGone:
			s.end(why)
		}
		return got, &Error{op.name, op.path, why}
	}
}

// Settled is called after an ErrUnknown. After nil, no write of this session that was sent before can still be
// executed, and the server knows of all that were: a read now shows whether the unknown write happened. ErrSessionLost
// means that the session is gone: read with a new one, and wait for the timeout of this one if the write must no longer
// be possible.
func (s *Session) Settled(ctx context.Context) error {
	s.mu.Lock()
	abandoned := slices.Clone(s.abandoned)
	s.mu.Unlock()
	for _, sent := range abandoned {
		select {
		case <-sent:
		case <-s.ctx.Done():
			return &Error{"sync", "/", context.Cause(s.ctx)}
		case <-ctx.Done():
			return &Error{"sync", "/", context.Cause(ctx)}
		}
	}
	return s.Sync(ctx, "/")
}

// abandon notes a write whose caller has left. The library may still send it until done.
func (s *Session) abandon(done <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.abandoned = append(slices.DeleteFunc(s.abandoned, Closed), done)
}

// Once repeats a write until its outcome is known. After an ErrUnknown it asks happened, which reads whether the write
// has happened, and sends it again if not. A nil happened means that the write may happen twice. If the outcome cannot
// be known, the error is also that of the write.
func (s *Session) Once(ctx context.Context, send func() error, happened func() (bool, error)) error {
	for {
		err := send()
		if !errors.Is(err, ErrUnknown) {
			return err
		}
		if settle := s.Settled(ctx); settle != nil {
			return fmt.Errorf("%w: %w", settle, err)
		}
		if happened == nil {
			continue
		}
		if done, err := happened(); done || err != nil {
			return err
		}
	}
}

// readStat reads one thing of a znode, and its Stat.
func readStat[T any](
	ctx context.Context, s *Session, op, path string, f func(*zk.Conn, string) (T, *zk.Stat, error),
) (T, Stat, error) {
	type found struct {
		what T
		stat Stat
	}
	got, err := read(ctx, s, op, path, func(c *zk.Conn) (found, error) {
		what, stat, err := f(c, path)
		return found{what, statOf(stat)}, err
	})
	return got.what, got.stat, err
}

// reads are the reads of a Session, and those of a Watcher, each of which leaves a watch.
type reads struct {
	s     *Session
	watch bool
}

// note says that a read in flight is to set a watch, until the result is called.
func (r reads) note(key watchKey) (done func()) {
	if !r.watch {
		return func() {}
	}
	r.s.watches.read(key, 1)
	return func() { r.s.watches.read(key, -1) }
}

// Get returns the data of a znode; nil if it has none. A Watcher watches them, if it succeeds.
func (r reads) Get(ctx context.Context, path string) ([]byte, Stat, error) {
	defer r.note(watchKey{path, onData})()
	return readStat(ctx, r.s, "get", path, get)
}

// get returns nil for empty data: ZooKeeper distinguishes null and empty data, callers do not.
func get(c *zk.Conn, path string) ([]byte, *zk.Stat, error) {
	data, stat, err := c.Get(path)
	if len(data) == 0 {
		data = nil
	}
	return data, stat, err
}

// IfThere is what a read of a znode has found. There is false, without an error, if the znode does not exist.
func IfThere[T any](v T, stat Stat, err error) (_ T, _ Stat, there bool, _ error) {
	if errors.Is(err, ErrNoNode) {
		return v, stat, false, nil
	}
	return v, stat, err == nil, err
}

// Exists reports whether the znode exists. Since ZooKeeper 3.8.4 and 3.9.2 only those who may read one that exists are
// told its Stat: for others there is true, beside ErrNoAuth. A Watcher watches the data, or the creation of a znode
// that does not exist.
func (r reads) Exists(ctx context.Context, path string) (stat Stat, there bool, err error) {
	defer r.note(watchKey{path, onExistence})()
	there, stat, err = readStat(ctx, r.s, "exists", path, (*zk.Conn).Exists)
	return stat, there || errors.Is(err, ErrNoAuth), err
}

// Children returns the names of a znode's children, sorted. A Watcher watches the list, if it succeeds.
func (r reads) Children(ctx context.Context, path string) ([]string, Stat, error) {
	defer r.note(watchKey{path, onChildren})()
	return readStat(ctx, r.s, "children", path, children)
}

func children(c *zk.Conn, path string) ([]string, *zk.Stat, error) {
	names, stat, err := c.Children(path)
	slices.Sort(names)
	return names, stat, err
}

// ACL returns the ACL of a znode.
func (s *Session) ACL(ctx context.Context, path string) ([]ACL, Stat, error) {
	return readStat(ctx, s, "acl", path, (*zk.Conn).GetACL)
}

// Sync makes sure that later reads see everything that was committed before.
func (s *Session) Sync(ctx context.Context, path string) error {
	_, err := read(ctx, s, "sync", path, func(c *zk.Conn) (string, error) { return c.Sync(path) })
	return err
}

// GetW is Get with a channel. The channel is closed when the znode is changed or deleted, or when the session ends:
// read again then. A watch cannot be removed: a channel that nobody waits for stays until its event.
func (s *Session) GetW(ctx context.Context, path string) ([]byte, Stat, <-chan struct{}, error) {
	data, stat, w, err := watched(ctx, s, "get", watchKey{path, onData}, get)
	return data, stat, w.changed(), err
}

// ExistsW is Exists with a channel like that of GetW. The channel is also closed when the znode is created.
func (s *Session) ExistsW(ctx context.Context, path string) (Stat, bool, <-chan struct{}, error) {
	stat, exists, changed, _, err := s.CreatedW(ctx, path)
	return stat, exists, changed, err
}

// CreatedW is ExistsW for a caller that waits for the znode to be created. After the channel is closed, created reports
// whether the server said so, on the connection on which the watch was set. The session then also has all earlier
// events of its other watches. If created returns false, read again.
func (s *Session) CreatedW(
	ctx context.Context, path string,
) (stat Stat, there bool, changed <-chan struct{}, created func() bool, err error) {
	there, stat, w, err := watched(ctx, s, "exists", watchKey{path, onExistence}, (*zk.Conn).Exists)
	return stat, there, w.changed(), func() bool { return w.event == zk.EventNodeCreated }, err
}

// DeletedW is ExistsW for a caller that must tell a delete from a change. After the channel is closed, deleted reports
// whether the server said so, as created of CreatedW does.
func (s *Session) DeletedW(
	ctx context.Context, path string,
) (stat Stat, there bool, changed <-chan struct{}, deleted func() bool, err error) {
	there, stat, w, err := watched(ctx, s, "exists", watchKey{path, onExistence}, (*zk.Conn).Exists)
	return stat, there, w.changed(), func() bool { return w.event == zk.EventNodeDeleted }, err
}

// ChildrenW is Children with a channel like that of GetW. The channel is closed when a child is created or deleted.
func (s *Session) ChildrenW(ctx context.Context, path string) ([]string, Stat, <-chan struct{}, error) {
	names, stat, w, err := watched(ctx, s, "children", watchKey{path, onChildren}, children)
	return names, stat, w.changed(), err
}

// watched is readStat with a watch, which conn sets.
func watched[T any](
	ctx context.Context, s *Session, op string, key watchKey, f func(*zk.Conn, string) (T, *zk.Stat, error),
) (what T, stat Stat, w *waiter, err error) {
	w = s.watches.add(key)
	what, stat, err = readStat(ctx, s, op, key.path, f)
	if err != nil {
		s.watches.remove(key, w)
		w = nil
	}
	return what, stat, w, err
}

// Sizes of a request on the wire.
const (
	requestHeader = 8 // xid, code
	opHeader      = 9 // before each operation of a transaction, and at its end
)

// Op is one operation of a transaction.
type Op struct {
	name, path string
	request    any // the library's
	more       int // bytes on the wire besides the path and a version or flags
}

// CheckOp requires that the znode has this version of its data; -1 requires only that it exists.
func CheckOp(path string, version int32) Op {
	return Op{name: "check", path: path, request: &zk.CheckVersionRequest{Path: path, Version: version}}
}

// CreateOp creates a znode.
func CreateOp(path string, data []byte, mode Mode, acl []ACL) Op {
	more := 4 + len(data) + 4
	for _, a := range acl {
		more += 4 + 4 + len(a.Scheme) + 4 + len(a.ID)
	}
	return Op{"create", path, &zk.CreateRequest{Path: path, Data: notNull(data), Acl: acl, Flags: int32(mode)}, more}
}

// SetOp replaces the data of a znode that has this version.
func SetOp(path string, data []byte, version int32) Op {
	return Op{"set", path, &zk.SetDataRequest{Path: path, Data: notNull(data), Version: version}, 4 + len(data)}
}

// DeleteOp deletes a znode that has this version and no children.
func DeleteOp(path string, version int32) Op {
	return Op{name: "delete", path: path, request: &zk.DeleteRequest{Path: path, Version: version}}
}

// notNull is data, and never ZooKeeper's null data, see get.
func notNull(data []byte) []byte {
	if data == nil {
		return []byte{}
	}
	return data
}

// Size is the number of bytes of o on the wire. Strings, data and lists have a length of 4 bytes before them.
func (o Op) Size() int { return 4 + len(o.path) + 4 + o.more }

// Create creates a znode and returns its path. With a sequential mode the path ends in the number.
func (s *Session) Create(ctx context.Context, path string, data []byte, mode Mode, acl []ACL) (string, error) {
	op := CreateOp(path, data, mode, acl)
	return write(ctx, s, op, requestHeader+op.Size(), func(c *zk.Conn) (string, error) {
		return c.Create(path, notNull(data), int32(mode), acl)
	})
}

// Set replaces the data of a znode that has this version; -1 means any version.
func (s *Session) Set(ctx context.Context, path string, data []byte, version int32) (Stat, error) {
	op := SetOp(path, data, version)
	return write(ctx, s, op, requestHeader+op.Size(), func(c *zk.Conn) (Stat, error) {
		stat, err := c.Set(path, notNull(data), version)
		return statOf(stat), err
	})
}

// Delete deletes a znode that has this version and no children.
func (s *Session) Delete(ctx context.Context, path string, version int32) error {
	op := DeleteOp(path, version)
	_, err := write(ctx, s, op, requestHeader+op.Size(), func(c *zk.Conn) (struct{}, error) {
		return struct{}{}, c.Delete(path, version)
	})
	return err
}

// Result is the result of one operation of a transaction.
type Result struct {
	Path string // of a created znode
	Stat Stat   // after a set
}

// Multi executes all operations or none. If one is refused, the error names that one.
func (s *Session) Multi(ctx context.Context, ops ...Op) ([]Result, error) {
	return s.MultiWithin(ctx, math.MaxInt64, ops...)
}

// MultiWithin is Multi, but if Silence has reached limit when the request is to be sent, it is not sent: ErrSilent.
func (s *Session) MultiWithin(ctx context.Context, limit time.Duration, ops ...Op) ([]Result, error) {
	if len(ops) == 0 {
		return nil, nil
	}
	all, size := Op{name: "multi", path: ops[0].path}, requestHeader+opHeader
	requests := make([]any, len(ops))
	for i, o := range ops {
		size += opHeader + o.Size()
		requests[i] = o.request
	}
	answers, err := write(ctx, s, all, size, func(c *zk.Conn) ([]zk.MultiResponse, error) {
		if s.Silence() >= limit {
			return nil, ErrSilent
		}
		return c.Multi(requests...)
	})
	if err != nil {
		return nil, failedOp(ops, answers, err)
	}
	results := make([]Result, len(answers))
	for i, a := range answers {
		results[i] = Result{Path: a.String, Stat: statOf(a.Stat)}
	}
	return results, nil
}

// failedOp returns the error of the operation that made a transaction fail, or else whole. The operations before it
// have no error, though they were not executed; those after it have code -2.
func failedOp(ops []Op, answers []zk.MultiResponse, whole error) error {
	for i, a := range answers {
		if a.Error == nil || i >= len(ops) {
			continue
		}
		if outcome, err := outcomeOf(a.Error); outcome == refused {
			return &Error{ops[i].name, ops[i].path, err}
		}
	}
	return whole
}

// Mode says whether a znode ends with its session, and whether the server appends ten digits to its name.
type Mode int32

// The modes. An ephemeral znode ends with the session that created it.
const (
	Persistent           Mode = zk.FlagPersistent
	Ephemeral            Mode = zk.FlagEphemeral
	PersistentSequential Mode = zk.FlagSequence
	EphemeralSequential  Mode = zk.FlagEphemeralSequential
)

// Permissions of an ACL. Combine them with |.
const (
	PermRead int32 = 1 << iota
	PermWrite
	PermCreate
	PermDelete
	PermAdmin
	PermAll int32 = 1<<iota - 1
)

// ACL grants permissions (Perms) on a znode to an id (ID; for digest user:hash, as ZooKeeper stores it) of a scheme
// (Scheme: world, auth, digest, ip, x509).
type ACL = zk.ACL

// World is the ACL that grants perms to everybody.
func World(perms int32) []ACL { return []ACL{{Perms: perms, Scheme: "world", ID: "anyone"}} }

// Stat is ZooKeeper's metadata of a znode.
type Stat struct {
	Czxid, Mzxid, Pzxid int64 // transactions that created it, last set its data, last changed its list of children
	Version, Cversion   int32 // number of changes of its data, and of its list of children
	EphemeralOwner      int64 // session id, or 0
	NumChildren         int32
	DataLength          int32 // bytes
	Ctime, Mtime        time.Time
}

func statOf(s *zk.Stat) Stat {
	if s == nil || *s == (zk.Stat{}) { // the znode is not there
		return Stat{}
	}
	return Stat{
		Czxid: s.Czxid, Mzxid: s.Mzxid, Pzxid: s.Pzxid,
		Version: s.Version, Cversion: s.Cversion,
		EphemeralOwner: s.EphemeralOwner,
		NumChildren:    s.NumChildren,
		DataLength:     s.DataLength,
		Ctime:          time.UnixMilli(s.Ctime), Mtime: time.UnixMilli(s.Mtime),
	}
}

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

func (e *Error) Unwrap() error { return e.Err }

// RefusedAt reports whether a transaction was refused at path for this reason.
func RefusedAt(err error, path string, reason error) bool {
	var refused *Error
	return errors.As(err, &refused) && refused.Path == path && errors.Is(err, reason)
}

// PreconditionFailed reports whether a transaction was refused because something has changed since it was read.
func PreconditionFailed(err error) bool {
	return errors.Is(err, ErrNodeExists) || errors.Is(err, ErrNoNode) ||
		errors.Is(err, ErrBadVersion) || errors.Is(err, ErrNotEmpty)
}

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
	for _, e := range [...]struct{ is, why error }{
		{zk.ErrNoNode, ErrNoNode},
		{zk.ErrNodeExists, ErrNodeExists},
		{zk.ErrBadVersion, ErrBadVersion},
		{zk.ErrNotEmpty, ErrNotEmpty},
		{zk.ErrNoAuth, ErrNoAuth},
		{zk.ErrAuthFailed, ErrAuthFailed},
		{zk.ErrInvalidACL, ErrInvalidACL},
		{ErrSilent, ErrSilent},
		{zk.ErrNoChildrenForEphemerals, errors.New("an ephemeral znode cannot have children")},
		{zk.ErrInvalidPath, errors.New("invalid path")},
		{zk.ErrBadArguments, errors.New("invalid path")},
	} {
		if errors.Is(err, e.is) {
			return refused, e.why
		}
	}
	switch {
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
	case codeDemandsLogin:
		return refused, errDemandsLogin
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
