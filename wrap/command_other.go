//go:build unix && !linux

package wrap

import (
	"os"
	"syscall"
)

// attributes of a command: it leads a group. Only Linux kills it if this process dies.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// foreground leaves the terminal where it is: a command that reads from it is stopped by the kernel.
func foreground(*syscall.SysProcAttr, []*os.File) {}

func background([]*os.File) {}
