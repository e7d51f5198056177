package zkserver

import (
	"os"
	"syscall"
)

// attributes give a server its own process group, so that Ctrl-C in a terminal reaches only the parent, which then decides.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// waitStopped leaves the state to be waited for again, and never takes the end of the process from its own waiter.
func waitStopped(pid int) error {
	const processID = 1 // P_PID
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, processID, uintptr(pid), 0, syscall.WSTOPPED|syscall.WNOWAIT, 0, 0)
		switch errno {
		case 0:
			return nil
		case syscall.EINTR:
		default:
			return os.NewSyscallError("waitid", errno)
		}
	}
}
