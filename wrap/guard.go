package wrap

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"
)

// A guard is a small process between a member and the command of a duty. The member tells it until when the command may
// run. Past that, or when the member has died, the guard ends the command and all of its process group. So a member
// that is frozen or killed takes its commands with it.
//
// The guard reads orders from one pipe, as lines of JSON, and writes reports to another. The end of the first pipe is
// the end of the member. The guard reaps what the command leaves behind, because the rest of a group counts until it is
// reaped, and process 1 of a container may never do that. A guard that is killed takes the command with it on Linux;
// the member kills the rest of the group. A guard that is frozen is killed by the member, when it should have ended the
// group and has not.

// The file descriptors of the pipes in the guard.
const (
	guardOrders  = 3
	guardReports = 4
)

// order is what a member tells a guard. Its times are those of clock.
type order struct {
	Term time.Duration `json:"term,omitempty"` // from then on the command is asked to end
	Kill time.Duration `json:"kill,omitempty"` // from then on its group is killed
	End  time.Duration `json:"end,omitempty"`  // above 0: ask it to end now, and kill its group after this
	Now  bool          `json:"now,omitempty"`  // kill its group now
}

// guardReport is what a guard tells the member: first the process, then its end; or only why there is none.
type guardReport struct {
	Pid     int       `json:"pid,omitempty"` // also of its process group
	Refused string    `json:"refused,omitempty"`
	Code    int       `json:"code,omitempty"` // of Refused
	End     *guardEnd `json:"end,omitempty"`
}

// guardEnd is how a guarded command ended.
type guardEnd struct {
	Code    int    `json:"code"` // as a shell shows it
	Text    string `json:"text"` // for people
	Overdue bool   `json:"overdue,omitempty"`
	Stopped bool   `json:"stopped,omitempty"` // it was asked to end, or killed, before it ended
	Left    bool   `json:"left,omitempty"`    // something of its group could not be killed
}

// The reasons why a guard ends a command.
var (
	errOverdue  = errors.New("the time of the duty was over")
	errNoMember = errors.New("the member has died")
	errTold     = errors.New("its member asked for that")
)

// Guard runs a command as the guard of it. It is for the hidden command that MemberConfig.Guard names. path is the file
// to execute. signals are dropped: whoever stops everything stops the member, too. It returns the exit code.
func Guard(path string, argv, environ []string, files []*os.File, signals <-chan os.Signal) int {
	for _, fd := range []int{guardOrders, guardReports} {
		syscall.CloseOnExec(fd)
	}
	in, out := os.NewFile(guardOrders, "orders"), os.NewFile(guardReports, "reports")
	if in == nil || out == nil {
		return 1
	}
	go func() {
		for range signals {
		}
	}()
	orders := make(chan order, 1)
	go decodeOrders(json.NewDecoder(in), orders)
	reports := json.NewEncoder(out)
	adopts := adoptOrphans()
	c, err := startChecked(launch{path, argv, environ, "", files, adopts})
	if err != nil {
		_ = reports.Encode(guardReport{Refused: err.Error(), Code: startCode(err)})
		return startCode(err)
	}
	_ = reports.Encode(guardReport{Pid: c.process.Pid}) // a member that has died cannot read it
	e, overdue := obey(c, orders, nil)
	if adopts && !e.left {
		e.left = c.killOrphans()
	}
	text := e.String()
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	_ = reports.Encode(guardReport{End: &guardEnd{e.code(), text, overdue, e.cause != nil, e.left}})
	return e.code()
}

// startChecked starts a command. If that is a script whose interpreter is not there, the error says so.
func startChecked(l launch) (*command, error) {
	if err := checkInterpreter(l.path); err != nil {
		return nil, &startError{err}
	}
	return start(l)
}

// decodeOrders closes orders when the member has died, or writes something else. Of orders that were not taken in time,
// only the newest counts: an older one may have been over before the command has started. orders has room for one.
func decodeOrders(lines *json.Decoder, orders chan order) {
	defer close(orders)
	var o order // what a line leaves out stays as it was
	for lines.Decode(&o) == nil {
		select {
		case <-orders:
		default:
		}
		orders <- o
	}
}

// endGrace is how long what a command has left behind may take to end. The member may order it to be killed before.
const endGrace = 30 * time.Second

// obey returns when the command and its group have ended, as orders say. overdue says that the time of an order was
// over before: the member must not go on as such. The end of orders kills the group.
func obey(c *command, orders <-chan order, signals <-chan os.Signal) (e commandEnd, overdue bool) {
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	s := supervisor{command: c, grace: endGrace, echo: Echo}
	lost := make(chan error, 1)
	s.lost = lost
	ended := make(chan struct{})
	var follower sync.WaitGroup
	follower.Go(func() { overdue = follow(orders, ended, stop, lost) })
	e = s.run(ctx, signals)
	close(ended)
	follower.Wait()
	return e, overdue
}

// follow calls stop, or writes to lost, as the orders say.
func follow(
	orders <-chan order, ended <-chan struct{}, stop context.CancelCauseFunc, lost chan<- error,
) (overdue bool) {
	var limits order // that are in force
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ended:
			return overdue
		case <-timer.C:
		case o, open := <-orders:
			now := clock()
			switch {
			case !open:
				lost <- errNoMember
				<-ended
				return overdue
			case o.Now:
				lost <- errTold
				<-ended
				return overdue
			case limits.Term == 0 || now < limits.Term: // what is over stays over
				limits = o
			}
			if o.End > 0 {
				stop(&endWithin{o.End, errTold})
			}
		}
		now := clock()
		switch {
		case limits.Term == 0:
			continue
		case now >= limits.Kill:
			lost <- errOverdue
			<-ended
			return true
		case now >= limits.Term:
			overdue = true
			stop(&endWithin{limits.Kill - now, errOverdue})
			timer.Reset(limits.Kill - now)
		default:
			timer.Reset(limits.Term - now)
		}
	}
}

func wallClock() time.Duration { return time.Duration(time.Now().UnixNano()) }
