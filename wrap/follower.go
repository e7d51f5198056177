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
	"muster/wrap/command"
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

// Leaders passes on who the leader is; zero: nobody. It has room for one, of which only the newest counts.
type Leaders chan member.Leader

// Set says who the leader is now.
func (l Leaders) Set(leader member.Leader) {
	select {
	case <-l:
	default:
	}
	l <- leader
}

// await waits until there is a leader. last is who it was, as far as is known.
func (l Leaders) await(ctx context.Context, last member.Leader) (member.Leader, error) {
	for {
		select {
		case last = <-l:
			continue
		default:
		}
		if last != (member.Leader{}) {
			return last, nil
		}
		select {
		case last = <-l:
		case <-ctx.Done():
			return last, context.Cause(ctx)
		}
	}
}

// errOtherLeader ends a command that is to be started again.
var errOtherLeader = errors.New("there is another leader")

// RunFollower waits for a leader and runs the command beside it, until the command ends by itself or a signal comes.
// The end of ctx is like SIGTERM.
func RunFollower(ctx context.Context, c FollowConfig, leaders Leaders) command.Result {
	path, err := command.LookUp(c.Command[0])
	if err != nil {
		return command.Result{Code: command.StartCode(err), Err: err}
	}
	var leader member.Leader
	for {
		err := step(ctx, c.Signals, 0, func(ctx context.Context) (err error) {
			leader, err = leaders.await(ctx, leader)
			return err
		})
		if err != nil {
			return notStarted(err)
		}
		environ := command.SetVariables(c.Environ, [][2]string{
			{LeaderAddressVariable, leader.Address}, {LeaderEpochVariable, strconv.FormatInt(leader.Epoch, 10)},
			{LeaderIdentityVariable, leader.Identity},
		})
		cmd, err := command.Start(command.Launch{Path: path, Argv: c.Command, Environ: environ, Dir: c.Dir, Files: c.Files})
		if err != nil {
			return command.Result{Code: command.StartCode(err), Err: err}
		}
		e := c.beside(ctx, cmd, &leader, leaders)
		command.TakeTerminal(c.Files)
		if e.Told || !errors.Is(e.Cause, errOtherLeader) {
			return command.Result{Code: e.Code(), Text: e.String()}
		}
	}
}

// beside runs the command until it ends, and notes who the leader is.
func (c FollowConfig) beside(
	ctx context.Context, cmd *command.Command, leader *member.Leader, leaders Leaders,
) command.End {
	ofCommand, stop := context.WithCancelCause(ctx)
	ofWatch, end := context.WithCancel(ctx)
	var watch sync.WaitGroup
	defer watch.Wait()
	defer end()
	watch.Go(func() {
		for told := *leader; ; {
			select {
			case *leader = <-leaders:
			case <-ofWatch.Done():
				return
			}
			switch now := *leader; {
			case now == told:
			case c.OnChange == ChangeRestart:
				stop(errOtherLeader)
				return
			case now != member.Leader{}:
				cmd.Signal(syscall.SIGHUP)
				told = now
			}
		}
	})
	s := command.Supervisor{Command: cmd, Grace: c.Grace, Echo: command.Echo}
	e := s.Run(ofCommand, c.Signals)
	stop(nil)
	return e
}
