package resource

import (
	"fmt"
	"strings"
	"time"
)

// Duration is a time.Duration that is written as a Go duration ("1m40s"), in JSON as in HCL. Two spellings of one
// length are equal.
type Duration time.Duration

// Bounds of a session timeout. A session that is shorter dies of a pause; a longer one keeps a dead member for a day.
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
