package resource

import (
	"fmt"
	"strings"
	"time"
)

// Duration is a time.Duration that JSON and HCL write as text, in Go's format ("1m40s"). Two spellings of one duration
// are equal.
type Duration time.Duration

// MaxDuration is the maximum of every other duration in a declaration.
const MaxDuration = Duration(30 * 24 * time.Hour)

// Limits of a session timeout. A shorter session ends at every pause of the process; a longer one shows a dead member
// as live for more than a day.
const (
	MinSessionTimeout = Duration(100 * time.Millisecond)
	MaxSessionTimeout = Duration(24 * time.Hour)
)

// String drops the zero units that time.Duration prints: "2m", not "2m0s".
func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// MarshalText writes the Go duration.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads a Go duration.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%q is not a duration: write a number and a unit, such as 30s or 2m", text)
	}
	*d = Duration(v)
	return nil
}
