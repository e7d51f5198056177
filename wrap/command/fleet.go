package command

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"muster/zkstate/zkconn"
)

// Fleet is the commands of an executor that run now, or the one of a worker. None of them outlives this
// process: if it is killed, the kernel kills the commands, on Linux, and one small process, the guard of the fleet,
// kills the rest of their process groups.
//
// A guard for each command, as duties have, would start two processes for each task, and take four times as long. This
// one is told the number of each group when its command has started, and again when the group has ended. What a command
// starts before the guard is told lives on if this process is killed in that moment. It can be told a limit, too: past
// that it kills all groups, so that they do not outlive a session while this process is frozen.
//
// The first process of a container needs no guard: the kernel kills all others with it. It reaps what its commands
// leave behind.
type Fleet struct {
	guard   []string        // the command line that calls GuardGroups; empty: there is none
	session *zkconn.Session // that the commands may not outlive; nil: they may
	log     *slog.Logger
	reaper  *reaper // nil unless this is process 1

	mu     sync.Mutex
	all    map[*Command]struct{}
	orders *os.File    // to the guard; nil while there is none
	runs   *os.Process // the guard
}

// NewFleet makes a fleet without commands. guard is the command line that calls GuardGroups; empty: there is none.
// Unless session is nil, the guard lets no command outlive it: the caller calls Keep while commands run.
func NewFleet(guard []string, session *zkconn.Session, log *slog.Logger) *Fleet {
	f := &Fleet{guard: guard, session: session, log: log, all: map[*Command]struct{}{}}
	if os.Getpid() == 1 {
		f.guard, f.reaper = nil, newReaper()
	}
	return f
}

// Start starts a command. The caller calls ended when its group has ended.
func (f *Fleet) Start(l Launch) (*Command, error) {
	c, err := startReaped(l, f.reaper)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all[c] = struct{}{}
	f.tell(groupOrder('+', c))
	f.log.Debug("a command was started", "group", c.process.Pid)
	return c, nil
}

// Ended says that the group of a command has ended.
func (f *Fleet) Ended(c *Command) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all, c)
	f.tell(groupOrder('-', c))
}

// Keep tells the guard, again and again until done is closed, that the commands may run until the session ends.
func (f *Fleet) Keep(done <-chan struct{}) {
	feed := time.NewTicker(max(f.session.Timeout()/20, time.Millisecond))
	defer feed.Stop()
	for {
		select {
		case <-feed.C:
			f.mu.Lock()
			f.tell(f.limitOrder())
			f.mu.Unlock()
		case <-done:
			return
		}
	}
}

// Signal passes a signal on to all commands.
func (f *Fleet) Signal(sig os.Signal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.all {
		c.Signal(sig)
	}
}

// Open starts the guard, so that a guard that cannot be started is found before the first command.
func (f *Fleet) Open() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.startGuard(); err != nil {
		return newStartError(err)
	}
	return nil
}

// Close ends the guard. No command runs any more.
func (f *Fleet) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.orders != nil {
		_ = f.orders.Close()
	}
	f.orders, f.guard = nil, nil
}

// tell tells the guard something. A guard that has died or does not read is replaced. The caller holds mu.
func (f *Fleet) tell(order []byte) {
	if len(f.guard) == 0 {
		return
	}
	if f.orders != nil {
		_ = f.orders.SetWriteDeadline(time.Now().Add(time.Second))
		if _, err := f.orders.Write(order); err == nil {
			return
		}
		_ = f.orders.Close()
		_ = f.runs.Kill() // one that is frozen would kill the groups when it goes on
		f.orders = nil
	}
	if err := f.startGuard(); err != nil {
		f.log.Warn("if this process is killed now, what its commands have started goes on", "error", err)
	}
}

func groupOrder(sign byte, c *Command) []byte {
	return append(strconv.AppendInt([]byte{sign}, int64(c.process.Pid), 10), '\n')
}

func (f *Fleet) limitOrder() []byte {
	return fmt.Appendf(nil, "=%d\n", clock()+time.Until(f.session.Deadline()))
}

// startGuard starts a guard, and tells it all groups and until when they may run. The caller holds mu.
func (f *Fleet) startGuard() error {
	if len(f.guard) == 0 {
		return nil
	}
	out, in, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("the guard of the commands: %w", err)
	}
	defer out.Close()
	cmd := guardCommand(f.guard)
	cmd.Stdin = out
	if err := cmd.Start(); err != nil {
		_ = in.Close()
		return fmt.Errorf("the guard of the commands: %w", err)
	}
	go func() { _ = cmd.Wait() }()
	var orders []byte
	if f.session != nil {
		orders = f.limitOrder()
	}
	for c := range f.all {
		orders = append(orders, groupOrder('+', c)...)
	}
	if _, err := in.Write(orders); err != nil {
		_ = in.Close()
		return fmt.Errorf("the guard of the commands: %w", err)
	}
	f.orders, f.runs = in, cmd.Process
	return nil
}

// GuardGroups is the guard of a fleet, for the hidden command that wrap.Life.GuardGroups names. It reads which process
// groups there are, and until when they may run: +GROUP, -GROUP and =TIME, a line each, where the time is that of clock
// in ns. It kills them when the time is over, or when the orders end: then the process that has started them has died.
// signals are dropped.
func GuardGroups(orders io.Reader, signals <-chan os.Signal) {
	drop(signals)
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(orders); s.Scan(); {
			lines <- s.Text()
		}
	}()
	groups, limit := map[int]bool{}, anyTime
	over := time.NewTimer(anyTime)
	defer over.Stop()
	for {
		select {
		case line, open := <-lines:
			if !open {
				killGroups(groups)
				return
			}
			n, err := strconv.Atoi(line[min(1, len(line)):])
			switch {
			case err != nil:
			case line[0] == '=':
				limit = time.Duration(n)
				over.Reset(limit - clock())
			case line[0] == '-':
				delete(groups, n)
			case line[0] == '+' && n > 1:
				groups[n] = true
			}
		case <-over.C:
		}
		if clock() >= limit {
			killGroups(groups)
		}
	}
}

// killGroups kills all groups that it is given, and forgets them.
func killGroups(groups map[int]bool) {
	for group := range groups {
		_ = syscall.Kill(-group, syscall.SIGKILL)
	}
	clear(groups)
}
