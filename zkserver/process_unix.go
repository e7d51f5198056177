//go:build unix && !linux

package zkserver

import "syscall"

// attributes give a server its own process group, so that Ctrl-C in a terminal reaches only the parent, which then decides.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// waitStopped trusts the kernel to stop a process by the time that it delivers the signal.
func waitStopped(int) error { return nil }
