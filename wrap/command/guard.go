package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"muster/zkstate/zkconn"
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

// Order is what a member tells a guard. Its times are those of clock.
type Order struct {
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
	End     *GuardEnd `json:"end,omitempty"`
}

// GuardEnd is how a guarded command ended.
type GuardEnd struct {
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

// Guard runs a command as the guard of it. It is for the hidden command that wrap.Life.Guard names. path is the file
// to execute. signals are dropped: whoever stops everything stops the member, too. It returns the exit code.
func Guard(path string, argv, environ []string, files []*os.File, signals <-chan os.Signal) int {
	for _, fd := range []int{guardOrders, guardReports} {
		syscall.CloseOnExec(fd)
	}
	in, out := os.NewFile(guardOrders, "orders"), os.NewFile(guardReports, "reports")
	drop(signals)
	lines, reports := json.NewDecoder(in), json.NewEncoder(out)
	var first Order // the member has written it before it started this guard
	err := lines.Decode(&first)
	adopts := AdoptOrphans()
	var c *Command
	switch {
	case err != nil:
		err = errNoMember
	case clock() >= first.Term: // the member may be frozen since
		err = errOverdue
	default:
		c, err = startChecked(Launch{path, argv, environ, "", files, adopts})
	}
	if err != nil {
		code := max(StartCode(err), CannotRun)
		_ = reports.Encode(guardReport{Refused: err.Error(), Code: code})
		return code
	}
	_ = reports.Encode(guardReport{Pid: c.process.Pid}) // a member that has died cannot read it
	orders := make(chan Order, 1)
	orders <- first
	go DecodeOrders(lines, first, orders)
	e, overdue := Obey(c, orders, nil)
	if adopts && !e.left {
		e.left = c.killOrphans()
	}
	text := e.String()
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	_ = reports.Encode(guardReport{End: &GuardEnd{e.Code(), text, overdue, e.Cause != nil, e.left}})
	return e.Code()
}

// drop receives signals, and does nothing.
func drop(signals <-chan os.Signal) {
	go func() {
		for range signals {
		}
	}()
}

// startChecked starts a command. If that is a script whose interpreter is not there, the error says so.
func startChecked(l Launch) (*Command, error) {
	if err := checkInterpreter(l.Path); err != nil {
		return nil, newStartError(err)
	}
	return Start(l)
}

// DecodeOrders closes orders when the member has died, or writes something else. Of orders that were not taken in time,
// only the newest counts: an older one may have been over before the command has started. orders has room for one. What
// a line leaves out stays as it was, at first as in o.
func DecodeOrders(lines *json.Decoder, o Order, orders chan Order) {
	defer close(orders)
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

// Obey returns when the command and its group have ended, as orders say. overdue says that the time of an order was
// over before: the member must not go on as such. The end of orders kills the group.
func Obey(c *Command, orders <-chan Order, signals <-chan os.Signal) (e End, overdue bool) {
	ctx, stop := context.WithCancelCause(context.Background())
	defer stop(nil)
	s := Supervisor{Command: c, Grace: endGrace, Echo: Echo}
	lost := make(chan error, 1)
	s.Lost = lost
	ended := make(chan struct{})
	var follower sync.WaitGroup
	follower.Go(func() { overdue = follow(orders, ended, stop, lost) })
	e = s.Run(ctx, signals)
	close(ended)
	follower.Wait()
	return e, overdue
}

// follow calls stop, or writes to lost, as the orders say.
func follow(
	orders <-chan Order, ended <-chan struct{}, stop context.CancelCauseFunc, lost chan<- error,
) (overdue bool) {
	var limits Order // that are in force
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

// Guarded is a command that runs under a guard, as the member sees it.
type Guarded struct {
	guard   *exec.Cmd
	orders  *os.File
	reports *os.File
	lines   *json.Decoder
	pid     int // of the command
}

// startLimit is how long a guard may take to start its command, which may lie on a slow disk.
const startLimit = 30 * time.Second

// StartGuarded starts a guard, and waits until that has started the command: until startLimit, or shortly after the end
// of ctx. guard is the start of the guard's command line. From the start on the guard knows the deadlines: this process
// may be frozen at any moment. The error is a startError if the command cannot be run.
func StartGuarded(ctx context.Context, guard []string, until *Lease, l Launch) (*Guarded, error) {
	ordersOut, ordersIn, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ordersOut.Close()
	reportsOut, reportsIn, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, ordersIn.Close())
	}
	defer reportsIn.Close()
	cmd := guardCommand(slices.Concat(guard, []string{l.Path}, l.Argv))
	cmd.Env, cmd.Dir = l.Environ, l.Dir
	cmd.Stdin, cmd.Stdout, cmd.Stderr = l.Files[0], l.Files[1], l.Files[2]
	cmd.ExtraFiles = []*os.File{ordersOut, reportsIn}
	g := &Guarded{guard: cmd, orders: ordersIn, reports: reportsOut, lines: json.NewDecoder(reportsOut)}
	_ = g.tell(until.Order())
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("the guard of %s: %w", l.Path, err), ordersIn.Close(), reportsOut.Close())
	}
	_ = reportsIn.Close() // so that the end of the guard is the end of its reports
	ofStart, endFeed := context.WithCancel(ctx)
	var feed sync.WaitGroup
	feed.Go(func() {
		for o := range until.Orders(context.Background(), nil, nil, ofStart.Done()) {
			_ = g.tell(o)
		}
	})
	r, err := g.started(ctx)
	endFeed()
	feed.Wait()
	if err != nil || r.Pid == 0 {
		defer g.close()
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fmt.Errorf("the guard of %s has not started it in time, and was killed", l.Path)
	case err != nil:
		return nil, fmt.Errorf("the guard of %s ended: %w", l.Path, err)
	case r.Pid == 0:
		why := errors.New(cmp.Or(r.Refused, "the guard does not say why"))
		return nil, &startError{why, max(r.Code, CannotRun)}
	}
	g.pid = r.Pid
	return g, nil
}

// guardCommand is the command line of a guard.
func guardCommand(line []string) *exec.Cmd {
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Args[0] = "muster"                                // the guard may be /proc/self/exe
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what stops this group must not stop the guard
	return cmd
}

// started returns the first report. A guard that makes none in time is killed.
func (g *Guarded) started(ctx context.Context) (r guardReport, err error) {
	_ = g.reports.SetReadDeadline(time.Now().Add(startLimit))
	limited := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(limited)
		_ = g.reports.SetReadDeadline(time.Now().Add(nowLimit))
	})
	err = g.lines.Decode(&r)
	if !stop() {
		<-limited
	}
	if late := err; errors.Is(late, os.ErrDeadlineExceeded) {
		_ = g.guard.Process.Kill()
		g.lines = json.NewDecoder(g.reports) // the other one stays at its error
		_ = g.reports.SetReadDeadline(time.Now().Add(nowLimit))
		if g.lines.Decode(&r) != nil { // or else it was started at the last moment: then run ends it
			return r, late
		}
		err = nil
	}
	_ = g.reports.SetReadDeadline(time.Time{})
	return r, err
}

func (g *Guarded) close() {
	_ = g.orders.Close()
	_ = g.guard.Wait() // it ends by itself now
	_ = g.reports.Close()
}

// OrderLimit is how long a guard may take to read an order, and to end after it was told to kill.
const OrderLimit = 10 * time.Second

// tell sends an order. A guard that does not read is frozen, or dead.
func (g *Guarded) tell(o Order) error {
	line, err := json.Marshal(o)
	if err != nil {
		return err
	}
	_ = g.orders.SetWriteDeadline(time.Now().Add(time.Second))
	_, err = g.orders.Write(append(line, '\n'))
	return err
}

// Run returns when the command's group has ended. While the lease allows it the command runs; what the end of ctx means
// for it, stopAs says.
func (g *Guarded) Run(ctx context.Context, l *Lease, stopAs func(cause error) Order) GuardEnd {
	defer g.close()
	var r guardReport
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = g.lines.Decode(&r) // at the end of the guard r is empty
	}()
	kill := time.AfterFunc(anyTime, func() { _ = g.guard.Process.Kill() }) // it is frozen, and the group goes with it
	var limit time.Time                                                    // of the guard; zero: it may take any time
	atMost := func(d time.Duration) {
		if at := time.Now().Add(d); limit.IsZero() || at.Before(limit) {
			limit = at
			kill.Reset(d)
		}
	}
	told := false // to end
	for o, takes := range l.Orders(ctx, stopAs, nil, ended) {
		if g.tell(o) != nil {
			atMost(OrderLimit)
		}
		if takes < anyTime {
			told = true
			atMost(takes)
		} else if l.kill()+l.every() <= 0 {
			atMost(0)
		}
	}
	told = !kill.Stop() || told
	if r.End == nil {
		e := g.withoutGuard()
		e.Stopped = told
		return e
	}
	return *r.End
}

// takes is how long a guard that is not frozen may take until the group has ended, if that is what the order says. A
// duty that is lost, or a session that is, cannot wait until a guard has given up.
func (o Order) takes(l *Lease) time.Duration {
	switch {
	case o.Now:
		return min(OrderLimit, max(l.every(), nowLimit))
	case o.End > 0:
		return o.End + OrderLimit
	}
	return o.Kill - clock() + l.every()
}

// nowLimit is how long a guard may take to kill its group before the member does that.
const nowLimit = 500 * time.Millisecond

// withoutGuard ends the command of a guard that has ended first: on Linux the command has been killed by that, but not
// the rest of its group.
func (g *Guarded) withoutGuard() GuardEnd {
	const text = "the guard of the command was killed, and the command with it"
	e := GuardEnd{Code: 128 + int(syscall.SIGKILL), Text: text}
	for limit := time.Now().Add(killLimit); !e.Left; e.Left = time.Now().After(limit) {
		if errors.Is(syscall.Kill(-g.pid, syscall.SIGKILL), syscall.ESRCH) {
			break
		}
		<-time.After(groupCheck)
	}
	return e
}

// Lease says how long what a member holds may go on without an answer of ZooKeeper: its commands are asked to end at
// half of the session timeout, and killed at two thirds, counted from the send of the last request that was answered.
// At the whole of it somebody else may have its duties.
type Lease struct {
	Session *zkconn.Session
	Killed  <-chan struct{} // closed when all commands are to be killed at once
	// Whole lets commands go on to the end of the session, and then kills them. It is for a queue, which does not count
	// what a command does later.
	Whole bool
}

// every is how often guards are told the deadlines.
func (l *Lease) every() time.Duration { return max(l.Session.Timeout()/20, time.Millisecond) }

// term and kill are the times left until the commands are asked to end, and until they are killed.
func (l *Lease) term() time.Duration { return l.left(1, 2) }
func (l *Lease) kill() time.Duration { return l.left(2, 3) }

// left is the time left until a part of the session timeout is over.
func (l *Lease) left(part, of int) time.Duration {
	if l.Whole {
		part = of
	}
	return l.Session.Timeout()*time.Duration(part)/time.Duration(of) - time.Since(l.Session.Answered())
}

// Order is the order that tells a guard the deadlines.
func (l *Lease) Order() Order {
	now := clock()
	return Order{Term: max(now+l.term(), 1), Kill: max(now+l.kill(), 1)}
}

// anyTime is how long a guard may take that was told the deadlines only.
const anyTime = time.Duration(math.MaxInt64)

// Orders are what a guard is told until done is closed, and how long it may then take: the deadlines, again and again;
// when ctx ends, what stopAs says; and to kill at once when l.killed or over is closed.
func (l *Lease) Orders(
	ctx context.Context, stopAs func(cause error) Order, over, done <-chan struct{},
) iter.Seq2[Order, time.Duration] {
	return func(yield func(Order, time.Duration) bool) {
		feed := time.NewTicker(l.every())
		defer feed.Stop()
		stop, killed := ctx.Done(), l.Killed
		for going := yield(l.Order(), anyTime); going; {
			select {
			case <-feed.C:
				going = yield(l.Order(), anyTime)
			case <-stop:
				stop = nil
				o := stopAs(context.Cause(ctx))
				going = yield(o, o.takes(l))
			case <-killed:
				killed = nil
				going = yield(Order{Now: true}, OrderLimit)
			case <-over:
				over = nil
				going = yield(Order{Now: true}, OrderLimit)
			case <-done:
				return
			}
		}
	}
}

// Limit is how long the servers may be silent. Once they were, the lease is over, even if they have answered since: the
// guards have asked the commands to end.
func (l *Lease) Limit() time.Duration { return l.Session.Timeout() / 2 }

// Check returns an error if the lease is over. Whoever is about to start something calls it, since a process that was
// frozen may come to that before watch does.
func (l *Lease) Check() error {
	if l.Session.Silence() < l.Limit() {
		return nil
	}
	return fmt.Errorf("%w: no server has answered for %s, half of the session timeout",
		zkconn.ErrSessionLost, l.Limit())
}

// Watch returns an error when the commands are asked to end, or nil when ctx ends.
func (l *Lease) Watch(ctx context.Context) error {
	for {
		if err := l.Check(); err != nil {
			return err
		}
		select {
		case <-time.After(l.term()):
		case <-ctx.Done():
			return nil
		}
	}
}
