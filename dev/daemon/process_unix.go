//go:build unix && !linux

package daemon

import "syscall"

// attributes give a server its own process group, so that Ctrl-C in a terminal reaches only the parent.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// waitStopped does nothing: the kernel is expected to stop a process when it delivers the signal.
func waitStopped(int) error { return nil }
