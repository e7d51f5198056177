package wrap

import (
	"syscall"
	"time"
	"unsafe"
)

// clockBoottime counts also while the machine sleeps; all processes of a machine see the same.
const clockBoottime = 7

// clock is a time that all processes of this machine agree on, and that nobody can set.
func clock() time.Duration {
	var t syscall.Timespec
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&t)), 0)
	if errno != 0 {
		return wallClock()
	}
	return time.Duration(t.Nano())
}
