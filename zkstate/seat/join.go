// Package seat is a process's place in a group or a queue: it joins, is watched, knows the order of the others, and
// leaves. What the first process does, and what stands in the znodes, is up to the kind.
//
// Joining writes, in the generation g that the Record names:
//
//	run/<g>/{seat,…}        persistent   by the first process
//	<resource>/<identity>   ephemeral    live
//	run/<g>/seat/s-<10>     ephemeral    sequential: the smallest number is first
//
// That is one transaction, which checks the gate: a process that dies at any moment has either joined or written
// nothing. Both ephemeral znodes end with the session. If the answer is lost, the session must be closed: then nothing
// is left, and another session joins.
//
// What holds a resource together is deleted by hand only: apply never deletes one with live processes. So there is one
// rule: whoever finds that a part is gone is no member any more, and joins again, which waits for apply to put it back.
package seat

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/resource"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
)

// The errors of a Join, besides those of the session.
var (
	// ErrAgain means that what was read has changed, or may have: start again from Read.
	ErrAgain = errors.New("changed while it was read; starting again")
	// ErrNotOpen means that nobody could join in time: the members were asked to stop, or somebody deleted a part of
	// the resource by hand. Apply again.
	ErrNotOpen = errors.New("nobody can join")
	// ErrHeld means that another process is this identity. Wait until it ends, or use another identity.
	ErrHeld = errors.New("another process holds this identity")
	// ErrUnknown means that the answer to a join was lost. Close the session, and join in another one: what was
	// created ends with the session.
	ErrUnknown = zkconn.ErrUnknown
)

// damageCheck is how often a join that waits for a repair looks by itself.
const damageCheck = 5 * time.Second

// Config says who joins what.
type Config struct {
	Default    Declared          // of the kind
	Root, Name string            // of the resource
	Identity   string            // of the process
	Folders    []string          // below the generation, which the first process creates
	NoRecord   error             // nobody created the resource in time
	FailHeld   bool              // do not wait for the identity
	Waiting    func(what string) // unless nil, told for what the join waits, if that is not what it was told last
}

// Declared is what has seats.
type Declared interface {
	resource.Declaration
	JoinTimeout() time.Duration
}

func (c *Config) kind() resource.Kind { return c.Default.Kind() }

// Join is a join under way: Read, then Take, and both again after ErrAgain.
type Join struct {
	Config
	Session *zkconn.Session
	Begun   time.Time // when the wait began

	Record  resource.Record // as read last
	Stat    zkconn.Stat     // of the Record
	Changed <-chan struct{} // the Record has
	ACL     []zkconn.ACL    // of all znodes

	missing []string // paths of the folders, if they are not there
	said    string
}

// Read reads the Record and the folders. It waits while nobody can join.
func (j *Join) Read(ctx context.Context) error {
	body, stat, changed, err := j.Session.GetW(ctx, j.RecordPath())
	if errors.Is(err, zkconn.ErrNoNode) {
		return j.awaitRecord(ctx)
	}
	if err != nil {
		return err
	}
	rec, err := znode.DecodeRecordAt(j.kind(), resource.Join(j.Root, j.Name), body)
	if err != nil {
		return err
	}
	j.Record, j.Stat, j.Changed = rec, stat, changed
	if j.ACL, err = zkstate.ParseACL(rec.ACL); err != nil {
		return err
	}
	if rec.State == resource.StateTerminating {
		what := fmt.Sprintf("muster apply to open the %s again: its %ss were asked to stop", j.kind().Name, j.kind().Member)
		return j.Await(ctx, ErrNotOpen, what, changed, nil)
	}
	err = zkstate.CheckOwn(ctx, j.Session, &j.Record)
	if errors.Is(err, zkstate.ErrNotOwn) {
		return j.Await(ctx, ErrNotOpen, "muster apply to put its record right: it names another's generation", changed, nil)
	}
	if err != nil {
		return err
	}
	return j.readFolders(ctx)
}

func (j *Join) awaitRecord(ctx context.Context) error {
	_, there, created, err := j.Session.ExistsW(ctx, j.RecordPath())
	switch {
	case err != nil:
		return err
	case there:
		return ErrAgain
	}
	j.Record = resource.Record{}
	what := "the " + j.kind().Name + zkstate.ToBeCreated + resource.Join(j.Root, j.Name)
	return j.Await(ctx, j.NoRecord, what, created, nil)
}

// readFolders finds out whether the folders are there. One transaction creates them all, so if some are missing,
// somebody has deleted these.
func (j *Join) readFolders(ctx context.Context) error {
	run := znode.Run(j.Root, j.Record.Generation)
	names, _, err := j.Session.Children(ctx, run)
	if errors.Is(err, zkconn.ErrNoNode) {
		return j.awaitRepair(ctx, run)
	}
	if err != nil {
		return err
	}
	j.missing = nil
	for _, name := range j.Folders {
		if !slices.Contains(names, name) {
			j.missing = append(j.missing, resource.Join(run, name))
		}
	}
	if n := len(j.missing); n > 0 && n < len(j.Folders) {
		return j.awaitRepair(ctx, j.missing[0])
	}
	return nil
}

// Take takes a seat, with these bodies of the two ephemeral znodes. Its transaction also has checks.
func (j *Join) Take(ctx context.Context, live, seat []byte, checks ...zkconn.Op) (*Seat, error) {
	results, err := j.Write(ctx, checks,
		zkconn.CreateOp(j.Live(), live, zkconn.Ephemeral, j.ACL),
		zkconn.CreateOp(znode.NewSeat(j.Root, j.Record.Generation), seat, zkconn.EphemeralSequential, j.ACL),
	)
	if errors.Is(err, zkconn.ErrNodeExists) { // of the live znode
		err = j.awaitIdentity(ctx)
	}
	if err != nil {
		return nil, err
	}
	s := &Seat{
		Config: j.Config, Session: j.Session, Generation: j.Record.Generation, ACL: j.ACL,
		Path: results[len(results)-1].Path, changed: make(chan struct{}),
	}
	s.ctx, s.end = context.WithCancelCause(j.Session.Context())
	return s, nil
}

// Write writes in one transaction, while the gate stands: it creates the folders unless they are there, and then does
// ops. If a part of the resource is missing, it waits. The last results are those of ops.
func (j *Join) Write(ctx context.Context, checks []zkconn.Op, ops ...zkconn.Op) ([]zkconn.Result, error) {
	gate := znode.Gate(j.Root, j.Record.Generation)
	all := append([]zkconn.Op{zkconn.CheckOp(gate, -1)}, checks...)
	for _, folder := range j.missing {
		all = append(all, zkconn.CreateOp(folder, nil, zkconn.Persistent, j.ACL))
	}
	results, err := j.Session.Multi(ctx, append(all, ops...)...)
	var refused *zkconn.Error
	if !errors.As(err, &refused) {
		return results, err
	}
	noNode, at := errors.Is(err, zkconn.ErrNoNode), refused.Path
	switch {
	case noNode && (at == gate || at == j.Live()):
		return nil, j.awaitRepair(ctx, at)
	case noNode, slices.Contains(j.missing, at), errors.Is(err, zkconn.ErrBadVersion) && at == j.RecordPath():
		return nil, ErrAgain
	}
	return nil, err
}

// Live is the znode that exists while the process is live.
func (c *Config) Live() string { return znode.Live(c.Root, c.Name, c.Identity) }

// RecordPath is the znode of the Record.
func (c *Config) RecordPath() string { return znode.Record(c.kind().Name, c.Root, c.Name) }

func (j *Join) awaitIdentity(ctx context.Context) error {
	stat, there, gone, err := j.Session.ExistsW(ctx, j.Live())
	switch {
	case err != nil:
		return err
	case !there:
		return ErrAgain
	case stat.EphemeralOwner == j.Session.ID() || j.FailHeld: // a wait for its own session would not end
		return ErrHeld
	}
	return j.Await(ctx, ErrHeld, "the end of the process that is "+j.Identity+" now", gone, nil)
}

// awaitRepair waits until a part is back that somebody deleted by hand, or until there is another generation.
func (j *Join) awaitRepair(ctx context.Context, missing string) error {
	return j.Await(ctx, ErrNotOpen, "muster apply to put back "+missing, j.Changed, time.After(damageCheck))
}

// Await returns ErrAgain at an event, or when it is time to look again. When the time is over, ctx's deadline or
// without one the declared timeout after Begun, it returns why and context.DeadlineExceeded; at another end of ctx or
// of the session the cause of that.
func (j *Join) Await(ctx context.Context, why error, what string, event <-chan struct{}, again <-chan time.Time) error {
	end, given := ctx.Deadline()
	if !given {
		now, ok := j.Record.Declaration.(Declared)
		if !ok {
			now = j.Default
		}
		end = j.Begun.Add(now.JoinTimeout())
	}
	if j.Waiting != nil && what != j.said {
		j.Waiting(what)
		j.said = what
	}
	select {
	case <-event:
	case <-again:
	case <-time.After(time.Until(end)):
		return fmt.Errorf("%w: waited %s for %s: %w", why, time.Since(j.Begun).Round(time.Second), what,
			context.DeadlineExceeded)
	case <-ctx.Done():
	case <-j.Session.Context().Done():
		return context.Cause(j.Session.Context())
	}
	if ctx.Err() != nil { // also if an event came at the same time
		return fmt.Errorf("%w: waited for %s: %w", why, what, context.Cause(ctx))
	}
	return ErrAgain
}
