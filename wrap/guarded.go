package wrap

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// guarded is a command that runs under a guard, as the member sees it.
type guarded struct {
	guard   *exec.Cmd
	orders  *os.File
	reports *os.File
	lines   *json.Decoder
	pid     int // of the command
}

// startLimit is how long a guard may take to start its command, which may lie on a slow disk.
const startLimit = 30 * time.Second

// startGuarded starts a guard, and waits until that has started the command: until startLimit, or shortly after the end
// of ctx. guard is the start of the guard's command line. From the start on the guard knows the deadlines: this process
// may be frozen at any moment. The error is a startError if the command cannot be run.
func startGuarded(ctx context.Context, guard []string, until *lease, l launch) (*guarded, error) {
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
	cmd := exec.Command(guard[0], append(append([]string{}, guard[1:]...), append([]string{l.path}, l.argv...)...)...)
	cmd.Args[0] = "muster" // guard may be /proc/self/exe
	cmd.Env, cmd.Dir = l.environ, l.dir
	if cmd.Env == nil {
		cmd.Env = []string{}
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = l.files[0], l.files[1], l.files[2]
	cmd.ExtraFiles = []*os.File{ordersOut, reportsIn}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what stops this group must not stop the guard
	g := &guarded{guard: cmd, orders: ordersIn, reports: reportsOut, lines: json.NewDecoder(reportsOut)}
	_ = g.tell(until.order())
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("the guard of %s: %w", l.path, err), ordersIn.Close(), reportsOut.Close())
	}
	_ = reportsIn.Close() // so that the end of the guard is the end of its reports
	ofStart, endFeed := context.WithCancel(ctx)
	var feed sync.WaitGroup
	feed.Go(func() { g.feed(ofStart, until) })
	r, err := g.started(ctx)
	endFeed()
	feed.Wait()
	if err != nil || r.Pid == 0 {
		defer g.close()
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fmt.Errorf("the guard of %s has not started it in time, and was killed", l.path)
	case err != nil:
		return nil, fmt.Errorf("the guard of %s ended: %w", l.path, err)
	case r.Code == notFound:
		return nil, &startError{&notThere{r.Refused}}
	case r.Pid == 0:
		return nil, &startError{errors.New(cmp.Or(r.Refused, "the guard does not say why"))}
	}
	g.pid = r.Pid
	return g, nil
}

// started returns the first report. A guard that makes none in time is killed.
func (g *guarded) started(ctx context.Context) (r guardReport, err error) {
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

// feed tells the deadlines until ctx ends.
func (g *guarded) feed(ctx context.Context, l *lease) {
	every := time.NewTicker(l.every())
	defer every.Stop()
	for {
		select {
		case <-every.C:
			_ = g.tell(l.order())
		case <-ctx.Done():
			return
		}
	}
}

// notThere is why a guard has not found a file.
type notThere struct{ text string }

func (e *notThere) Error() string { return e.text }
func (e *notThere) Unwrap() error { return fs.ErrNotExist }

func (g *guarded) close() {
	_ = g.orders.Close()
	_ = g.guard.Wait() // it ends by itself now
	_ = g.reports.Close()
}

// orderLimit is how long a guard may take to read an order, and to end after it was told to kill.
const orderLimit = 10 * time.Second

// tell sends an order. A guard that does not read is frozen, or dead.
func (g *guarded) tell(o order) error {
	line, err := json.Marshal(o)
	if err != nil {
		return err
	}
	_ = g.orders.SetWriteDeadline(time.Now().Add(time.Second))
	_, err = g.orders.Write(append(line, '\n'))
	return err
}

// run returns when the command's group has ended. While the lease allows it the command runs; what the end of ctx means
// for it, stopAs says.
func (g *guarded) run(ctx context.Context, l *lease, stopAs func(cause error) order) guardEnd {
	defer g.close()
	ended := make(chan guardReport, 1)
	go func() {
		var r guardReport
		_ = g.lines.Decode(&r) // at the end of the guard r is empty
		ended <- r
	}()
	feed := time.NewTicker(l.every())
	defer feed.Stop()
	stop, killed := ctx.Done(), l.killed
	var p patience
	told := false // to end
	tell := func(o order) {
		if g.tell(o) != nil {
			p.atMost(orderLimit)
		}
	}
	tell(l.order())
	for {
		select {
		case r := <-ended:
			if r.End == nil {
				e := g.withoutGuard()
				e.Stopped = told
				return e
			}
			return *r.End
		case <-feed.C:
			tell(l.order())
			if l.kill()+l.every() <= 0 {
				p.atMost(0)
			}
		case <-stop:
			stop, told = nil, true
			o := stopAs(context.Cause(ctx))
			tell(o)
			p.atMost(o.takes(l))
		case <-killed:
			killed, told = nil, true
			tell(order{Now: true})
			p.atMost(orderLimit)
		case <-p.over:
			p.over, told = nil, true
			_ = g.guard.Process.Kill()
		}
	}
}

// takes is how long a guard that is not frozen may take until the group has ended, if that is what the order says. A
// duty that is lost, or a session that is, cannot wait until a guard has given up.
func (o order) takes(l *lease) time.Duration {
	switch {
	case o.Now:
		return min(orderLimit, max(l.every(), nowLimit))
	case o.End > 0:
		return o.End + orderLimit
	}
	return o.Kill - clock() + l.every()
}

// nowLimit is how long a guard may take to kill its group before the member does that.
const nowLimit = 500 * time.Millisecond

// patience is how long to wait for a guard. One that takes longer is frozen: it is killed, and the group with it.
type patience struct {
	over     <-chan time.Time
	deadline time.Time // zero: it may take any time
}

// atMost ends the patience after d, if it does not end earlier.
func (p *patience) atMost(d time.Duration) {
	if at := time.Now().Add(d); p.deadline.IsZero() || at.Before(p.deadline) {
		p.deadline, p.over = at, time.After(d)
	}
}

// withoutGuard ends the command of a guard that has ended first: on Linux the command has been killed by that, but not
// the rest of its group.
func (g *guarded) withoutGuard() guardEnd {
	const text = "the guard of the command was killed, and the command with it"
	e := guardEnd{Code: 128 + int(syscall.SIGKILL), Text: text}
	limit := time.After(killLimit)
	look := time.NewTicker(groupCheck)
	defer look.Stop()
	for {
		if errors.Is(syscall.Kill(-g.pid, syscall.SIGKILL), syscall.ESRCH) {
			return e
		}
		select {
		case <-look.C:
		case <-limit:
			e.Left = true
			return e
		}
	}
}
