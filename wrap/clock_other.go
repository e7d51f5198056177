//go:build unix && !linux

package wrap

import "time"

// clock is a time that all processes of this machine agree on.
func clock() time.Duration { return wallClock() }
