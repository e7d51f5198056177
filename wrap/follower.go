package wrap

import (
	"context"
	"errors"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"muster/member"
)

// OnChange says what becomes of a follower's command when there is another leader.
type OnChange string

// ChangeRestart ends the command and starts it again. Without a leader it does not run. ChangeHup sends it SIGHUP, and
// nothing while there is no leader.
const (
	ChangeRestart OnChange = "restart"
	ChangeHup     OnChange = "hup"
)

// The variables that the command of a follower is given.
const (
	LeaderAddressVariable  = "MUSTER_LEADER_ADDRESS"
	LeaderEpochVariable    = "MUSTER_LEADER_EPOCH"
	LeaderIdentityVariable = "MUSTER_LEADER_IDENTITY"
)

// FollowConfig says what to run beside a leader.
type FollowConfig struct {
	Command  []string // with its arguments
	Dir      string
	Environ  []string // NAME=value; RunFollower adds its own
	Files    []*os.File
	OnChange OnChange
	Grace    time.Duration // for a command that was asked to end
	Signals  <-chan os.Signal
}

// Leaders passes on who the leader is. Its zero value knows none.
type Leaders struct {
	mu      sync.Mutex
	leader  member.Leader // zero: nobody
	changed chan struct{} // closed at the next change; nil: nobody waits
}

// Set says who the leader is now.
func (l *Leaders) Set(leader member.Leader) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leader == leader {
		return
	}
	l.leader = leader
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

func (l *Leaders) now() (member.Leader, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.leader, l.changed
}

// next waits until the leader is another one than last.
func (l *Leaders) next(ctx context.Context, last member.Leader) (member.Leader, error) {
	for {
		now, changed := l.now()
		if now != last {
			return now, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return last, context.Cause(ctx)
		}
	}
}

// errOtherLeader ends a command that is to be started again.
var errOtherLeader = errors.New("there is another leader")

// RunFollower waits for a leader and runs the command beside it, until the command ends by itself or a signal comes.
// The end of ctx is like SIGTERM.
func RunFollower(ctx context.Context, c FollowConfig, leaders *Leaders) Result {
	path, err := lookUp(c.Command[0])
	if err != nil {
		return Result{Code: startCode(err), Err: err}
	}
	for {
		var leader member.Leader
		err := step(ctx, c.Signals, 0, func(ctx context.Context) (err error) {
			leader, err = leaders.next(ctx, member.Leader{})
			return err
		})
		if err != nil {
			return notStarted(err)
		}
		command, err := start(launch{path, c.Command, leaderEnvironment(c.Environ, leader), c.Dir, c.Files, false})
		if err != nil {
			return Result{Code: startCode(err), Err: err}
		}
		e, asked := c.beside(ctx, command, leader, leaders)
		takeTerminal(c.Files)
		if asked || !errors.Is(e.cause, errOtherLeader) {
			return Result{Code: e.code(), Text: e.String()}
		}
	}
}

// beside runs the command until it ends. asked says that a signal asked it to.
func (c FollowConfig) beside(
	ctx context.Context, command *command, leader member.Leader, leaders *Leaders,
) (e commandEnd, asked bool) {
	ofCommand, stop := context.WithCancelCause(ctx)
	ofWatch, end := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer end()
	watch.Go(func() {
		for last := leader; ; {
			next, err := leaders.next(ofWatch, last)
			switch {
			case err != nil:
				return
			case c.OnChange == ChangeRestart:
				stop(errOtherLeader)
				return
			case next != (member.Leader{}) && next != leader:
				command.signal(syscall.SIGHUP)
				leader = next
			}
			last = next
		}
	})
	s := supervisor{command: command, grace: c.Grace, echo: Echo}
	e = s.run(ofCommand, c.Signals)
	stop(nil)
	return e, s.request.signal != nil
}

func leaderEnvironment(environ []string, l member.Leader) []string {
	return setVariables(environ, [][2]string{
		{LeaderAddressVariable, l.Address}, {LeaderEpochVariable, strconv.FormatInt(l.Epoch, 10)},
		{LeaderIdentityVariable, l.Identity},
	})
}
