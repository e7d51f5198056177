package command

import (
	"bytes"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// attributes of a command: it leads a group. It is killed if this process dies; the others in the group are not.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// prSetChildSubreaper is an operation of prctl(2).
const prSetChildSubreaper = 36

// hasExited reports whether the process itself has ended, also if nobody has waited for it yet: on a busy machine that
// can take long.
func (c *Command) hasExited() bool {
	var info unix.Siginfo
	const look = unix.WEXITED | unix.WNOHANG | unix.WNOWAIT
	err := unix.Waitid(unix.P_PID, c.process.Pid, &info, look, nil)
	return len(c.exited) > 0 || err == unix.ECHILD || err == nil && info.Signo != 0
}

// AdoptOrphans makes this process the parent of everything below it that loses its own. It reports whether that is
// possible; then this process must reap.
func AdoptOrphans() bool {
	_, _, errno := syscall.Syscall(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0)
	return errno == 0
}

// killOrphans kills what the command has left behind outside of its group, and what that leaves, until there is nothing
// more. It is for a process that adopts orphans, after the group has ended. It reports whether something could not be
// killed in time.
func (c *Command) killOrphans() (left bool) {
	for limit := time.Now().Add(killLimit); ; {
		select {
		case <-c.reaped: // mostly at once: then no processes are listed, which takes long on a busy machine
			return false
		case <-time.After(groupCheck): // what was just killed has to be reaped
		}
		if time.Now().After(limit) {
			return true
		}
		for _, pid := range children() {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
	}
}

// children lists the processes whose parent is this one.
func children() (pids []int) {
	all, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is well formed
	for _, file := range all {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		var state string
		var parent int
		_, rest, _ := strings.Cut(string(text[bytes.LastIndexByte(text, ')')+1:]), " ") // its name may hold anything
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if _, scanErr := fmt.Sscan(rest, &state, &parent); err == nil && scanErr == nil && parent == os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}

// giveTerminal puts the command in the foreground if its standard input is this process's terminal: the kernel stops a
// process in the background that reads from its terminal.
func giveTerminal(how *syscall.SysProcAttr, files []*os.File) {
	if f, group := terminal(files); f != nil && group == syscall.Getpgrp() {
		how.Foreground, how.Ctty = true, int(f.Fd())
	}
}

// TakeTerminal puts this process in the foreground again.
func TakeTerminal(files []*os.File) {
	f, _ := terminal(files)
	if f == nil {
		return
	}
	signal.Ignore(syscall.SIGTTOU) // sent to a process in the background that does this
	defer signal.Reset(syscall.SIGTTOU)
	group := int32(syscall.Getpgrp())
	_, _, _ = syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), syscall.TIOCSPGRP, uintptr(unsafe.Pointer(&group)))
}

// terminal is the standard input of a command, and the group in its foreground; nil if it is no terminal, or not this
// process's.
func terminal(files []*os.File) (f *os.File, group int) {
	if len(files) == 0 || files[0] == nil {
		return nil, 0
	}
	var id int32
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, files[0].Fd(), syscall.TIOCGPGRP, uintptr(unsafe.Pointer(&id)))
	if errno != 0 {
		return nil, 0
	}
	return files[0], int(id)
}

// clock is a time that all processes of this machine agree on, and that nobody can set. It counts also while the
// machine sleeps.
func clock() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return wallClock()
	}
	return time.Duration(t.Nano())
}
