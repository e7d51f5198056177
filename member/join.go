package member

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/go-version"

	"muster/resource"
	"muster/resource/group"
	"muster/zkstate"
	"muster/zkstate/zkconn"
	"muster/zkstate/znode"
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
	// ErrRemoved means that somebody deleted the seat or the znode of this member by hand, or another part of the group,
	// or that the group was deleted. Stop all commands. Join again, if the group still exists.
	ErrRemoved = errors.New("this process is no longer a member")
	// ErrNotHeld means that this process does not hold the duty any more. Nothing was written.
	ErrNotHeld = errors.New("this process does not hold the duty")
)

// Joining writes, in the generation g that the Record names:
//
//	run/<g>/{seat,assigner,duty,resigned,ask}   persistent   by the first member
//	<group>/<identity>                          ephemeral    live
//	run/<g>/seat/s-<10>                         ephemeral    sequential: the number is the seniority
//
// That is one transaction, which checks the gate: a process that dies at any moment has either joined or written
// nothing. Both ephemeral znodes end with the session. If the answer is lost, the session must be closed: then nothing
// is left, and another session joins.

// errAgain means that what was read has changed: start again from the Record.
var errAgain = errors.New("changed while it was read; starting again")

// damageCheck is how often a join that waits for the repair of the group looks by itself.
const damageCheck = 5 * time.Second

// Join makes the process behind s a member of the group.
//
// While the group does not exist, or another process holds the identity, Join waits: until ctx's deadline, or without
// one for the group's join timeout. The error then wraps the reason and context.DeadlineExceeded.
func Join(ctx context.Context, s *zkconn.Session, c Config) (*Member, error) {
	if err := znode.CheckIdentity(c.Identity); err != nil {
		return nil, err
	}
	if _, err := version.NewVersion(c.Version); err != nil {
		return nil, fmt.Errorf("%w: %q: write one such as 2.1.0", ErrVersion, c.Version)
	}
	can := slices.Clone(c.Can)
	slices.Sort(can)
	j := &join{s: s, c: c, knows: assignVersion, present: znode.Present{
		Nonce: zkstate.NewID(), Version: c.Version, Address: c.Address, Can: slices.Compact(can), Ready: !c.NotReady,
	}, waiter: zkstate.Waiter{Session: s, Begun: time.Now(), Say: c.Waiting}}
	return j.join(ctx)
}

// join makes attempts until one ends.
func (j *join) join(ctx context.Context) (*Member, error) {
	for {
		m, err := j.attempt(ctx)
		switch {
		case err == nil:
			return m.start(), nil
		case errors.Is(err, errAgain):
			continue
		}
		return nil, fmt.Errorf("join %s as %s: %w", resource.Join(j.c.Root, j.c.Group), j.c.Identity, err)
	}
}

// join is a Join under way.
type join struct {
	s       *zkconn.Session
	c       Config
	present znode.Present
	knows   int // see Member
	waiter  zkstate.Waiter

	rec     resource.Record // as read by this attempt
	group   group.Group     // which that declares
	folders bool            // the folders are missing, as the last attempt found
}

// attempt joins in the generation that the Record names now.
func (j *join) attempt(ctx context.Context) (*Member, error) {
	if err := j.read(ctx); err != nil {
		return nil, err
	}
	acl, err := zkstate.ParseACL(j.rec.ACL)
	if err != nil {
		return nil, err
	}
	live, err := znode.Encode(j.present)
	if err != nil {
		return nil, err
	}
	seat, err := znode.Encode(znode.Seat{Identity: j.c.Identity, Nonce: j.present.Nonce, Assign: j.knows})
	if err != nil {
		return nil, err
	}
	root, g := j.c.Root, j.rec.Generation
	ops := []zkconn.Op{zkconn.CheckOp(znode.Gate(root, g), -1)}
	if j.folders {
		for _, name := range znode.GroupFolders() {
			ops = append(ops, zkconn.CreateOp(resource.Join(znode.Run(root, g), name), nil, zkconn.Persistent, acl))
		}
	}
	at := len(ops) + 1 // index of the operation that creates the seat
	results, err := j.s.Multi(ctx, append(ops,
		zkconn.CreateOp(j.live(), live, zkconn.Ephemeral, acl),
		zkconn.CreateOp(znode.NewSeat(root, g), seat, zkconn.EphemeralSequential, acl),
	)...)
	if err != nil {
		return nil, j.refused(ctx, err)
	}
	return newMember(j, results[at].Path, acl), nil
}

// live is the znode of the live member.
func (j *join) live() string { return znode.Live(j.c.Root, j.c.Group, j.c.Identity) }

// read reads the Record. It waits while there is none, or while the members are asked to stop.
func (j *join) read(ctx context.Context) error {
	at := znode.Record(group.KindName, j.c.Root, j.c.Group)
	body, _, changed, err := j.s.GetW(ctx, at)
	if errors.Is(err, zkconn.ErrNoNode) {
		_, there, created, err := j.s.ExistsW(ctx, at)
		switch {
		case err != nil:
			return err
		case there:
			return errAgain
		}
		j.group.Timeouts.Join = group.Default().Timeouts.Join
		return j.await(ctx, ErrNoGroup, "the group to be created: "+resource.Join(j.c.Root, j.c.Group), created, nil)
	}
	if err != nil {
		return err
	}
	if j.rec, err = znode.DecodeRecordAt(group.Kind(), resource.Join(j.c.Root, j.c.Group), body); err != nil {
		return err
	}
	j.group = group.Of(&j.rec)
	if j.rec.State == resource.StateTerminating {
		return j.await(ctx, ErrNotOpen, "muster apply to open the group again: its members were asked to stop", changed, nil)
	}
	if err := zkstate.CheckOwn(ctx, j.s, &j.rec); !errors.Is(err, zkstate.ErrNotOwn) {
		return err
	}
	return j.await(ctx, ErrNotOpen, "muster apply to put its record right: it names another's generation", changed, nil)
}

// refused says what to do after the transaction was refused.
func (j *join) refused(ctx context.Context, err error) error {
	var refused *zkconn.Error
	if !errors.As(err, &refused) {
		return err
	}
	root, g := j.c.Root, j.rec.Generation
	switch {
	case errors.Is(err, zkconn.ErrNodeExists) && refused.Path == j.live():
		return j.awaitIdentity(ctx)
	case errors.Is(err, zkconn.ErrNodeExists) && refused.Path == znode.Seats(root, g): // another made the folders
		j.folders = false
		return errAgain
	case errors.Is(err, zkconn.ErrNodeExists): // some of the folders are there: that of the seats was deleted by hand
		return j.awaitRepair(ctx, znode.Seats(root, g))
	case errors.Is(err, zkconn.ErrNoNode) && refused.Path == znode.NewSeat(root, g) && !j.folders:
		j.folders = true
		return errAgain
	case errors.Is(err, zkconn.ErrNoNode):
		return j.awaitRepair(ctx, refused.Path)
	}
	return err
}

// awaitIdentity waits for the end of the process that holds the identity.
func (j *join) awaitIdentity(ctx context.Context) error {
	stat, there, gone, err := j.s.ExistsW(ctx, j.live())
	switch {
	case err != nil:
		return err
	case !there:
		return errAgain
	case stat.EphemeralOwner == j.s.ID() || j.c.Takeover == TakeoverFail:
		return ErrHeld
	}
	return j.await(ctx, ErrHeld, "the end of the process that is "+j.c.Identity+" now", gone, nil)
}

// awaitRepair waits until a part of the group is back that somebody deleted by hand, or until there is another
// generation.
func (j *join) awaitRepair(ctx context.Context, missing string) error {
	_, _, changed, err := j.s.ExistsW(ctx, znode.Record(group.KindName, j.c.Root, j.c.Group))
	if err != nil {
		return err
	}
	j.folders = false
	again := make(chan struct{})
	check := time.AfterFunc(damageCheck, func() { close(again) })
	defer check.Stop()
	return j.await(ctx, ErrNotOpen, "muster apply to put back "+missing, changed, again)
}

// await returns errAgain at an event, or why when the time is over.
func (j *join) await(ctx context.Context, why error, what string, event, other <-chan struct{}) error {
	if err := j.waiter.Await(ctx, time.Duration(j.group.Timeouts.Join), why, what, event, other); err != nil {
		return err
	}
	return errAgain
}
