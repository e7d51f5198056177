package wrap

import (
	"os"
	"os/signal"
	"syscall"
	"unsafe"
)

// attributes of a command: it leads a group. It is killed if this process dies; the others in the group are not.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// prSetChildSubreaper is an operation of prctl(2).
const prSetChildSubreaper = 36

// adoptOrphans makes this process the parent of everything below it that loses its own. It reports whether that is
// possible; then this process must reap.
func adoptOrphans() bool {
	_, _, errno := syscall.Syscall(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0)
	return errno == 0
}

// giveTerminal puts the command in the foreground if its standard input is this process's terminal: the kernel stops a
// process in the background that reads from its terminal.
func giveTerminal(how *syscall.SysProcAttr, files []*os.File) {
	if len(files) == 0 || files[0] == nil {
		return
	}
	if group, err := terminalGroup(files[0]); err == nil && group == syscall.Getpgrp() {
		how.Foreground, how.Ctty = true, int(files[0].Fd())
	}
}

// takeTerminal puts this process in the foreground again.
func takeTerminal(files []*os.File) {
	if len(files) == 0 || files[0] == nil {
		return
	}
	if _, err := terminalGroup(files[0]); err != nil {
		return
	}
	signal.Ignore(syscall.SIGTTOU) // sent to a process in the background that does this
	defer signal.Reset(syscall.SIGTTOU)
	group := int32(syscall.Getpgrp())
	_, _, _ = syscall.Syscall(syscall.SYS_IOCTL, files[0].Fd(), syscall.TIOCSPGRP, uintptr(unsafe.Pointer(&group)))
}

// terminalGroup is the group in the foreground of the terminal f. It fails if f is no terminal, or not this process's.
func terminalGroup(f *os.File) (int, error) {
	var group int32
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), syscall.TIOCGPGRP, uintptr(unsafe.Pointer(&group)))
	if errno != 0 {
		return 0, errno
	}
	return int(group), nil
}
