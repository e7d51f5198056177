package wrap

import (
	"time"

	"golang.org/x/sys/unix"
)

// clock is a time that all processes of this machine agree on, and that nobody can set. It counts also while the
// machine sleeps.
func clock() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) != nil {
		return wallClock()
	}
	return time.Duration(t.Nano())
}
