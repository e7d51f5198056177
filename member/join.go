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
	"muster/zkstate/seat"
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
	// ErrVersion means that the version of this process is not one. Give it another.
	ErrVersion = errors.New("not a version")
	// The others say what they mean in package seat.
	ErrNotOpen = seat.ErrNotOpen
	ErrHeld    = seat.ErrHeld
	ErrUnknown = seat.ErrUnknown
)

// The errors with which a membership or a duty ends.
var (
	// The first two say what they mean in package seat.
	ErrSessionLost = seat.ErrSessionLost
	ErrRemoved     = seat.ErrRemoved
	// ErrNotHeld means that this process does not hold the duty any more. Nothing was written.
	ErrNotHeld = errors.New("this process does not hold the duty")
)

// errAgain means that what was read has changed: start again from what it depends on.
var errAgain = seat.ErrAgain

// damageCheck is how long to wait for what is not as it was read.
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
	return joinKnowing(ctx, s, c, assignVersion, znode.Present{
		Nonce: zkstate.NewID(), Version: c.Version, Address: c.Address, Can: slices.Compact(can), Ready: !c.NotReady,
	})
}

// joinKnowing is Join for software that knows the methods of assignment up to knows.
func joinKnowing(
	ctx context.Context, s *zkconn.Session, c Config, knows int, present znode.Present,
) (*Member, error) {
	live, err := znode.Encode(present)
	if err != nil {
		return nil, err
	}
	own, err := znode.Encode(znode.Seat{Identity: c.Identity, Nonce: present.Nonce, Assign: knows})
	if err != nil {
		return nil, err
	}
	j := seat.Join{Session: s, Begun: time.Now(), Config: seat.Config{
		Default: group.Default(), Root: c.Root, Name: c.Group, Identity: c.Identity, Folders: znode.GroupFolders(),
		NoRecord: ErrNoGroup, FailHeld: c.Takeover == TakeoverFail, Waiting: c.Waiting,
	}}
	for {
		if err = j.Read(ctx); err == nil {
			var taken *seat.Seat
			if taken, err = j.Take(ctx, live, own); err == nil {
				return newMember(c, taken, &j.Record, knows, present).start(), nil
			}
		}
		if !errors.Is(err, errAgain) {
			return nil, fmt.Errorf("join %s as %s: %w", resource.Join(c.Root, c.Group), c.Identity, err)
		}
	}
}
