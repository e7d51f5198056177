//go:build unix && !linux

package command

import (
	"os"
	"syscall"
	"time"
)

// attributes of a command: it leads a group. Only Linux kills it if this process dies.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// hasExited reports whether the process itself has ended, and was waited for.
func (c *Command) hasExited() bool { return len(c.exited) > 0 }

// AdoptOrphans reports that only Linux gives orphans to another process than the first.
func AdoptOrphans() bool { return false }

// killOrphans does nothing: this process has none.
func (c *Command) killOrphans() (left bool) { return false }

// giveTerminal does nothing: the kernel stops a command that reads from the terminal.
func giveTerminal(*syscall.SysProcAttr, []*os.File) {}

// TakeTerminal does nothing: only Linux gives the terminal away here.
func TakeTerminal([]*os.File) {}

// clock is a time that all processes of this machine agree on.
func clock() time.Duration { return wallClock() }
