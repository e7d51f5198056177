package job

import (
	"muster/resource"
)

// Run is one completed run of a job. The Record keeps the last one under the key "last".
type Run struct {
	ID         string `json:"id,omitempty"` // the workers' --run, if they gave one
	Generation string `json:"generation"`
	Completed  string `json:"completed"` // RFC 3339
}

// The fields of a job's Record, besides those of every kind.
const (
	keyLast   = "last"
	keyNoRoll = "no_roll" // the generation whose roll was too large for one znode
)

// LastRun is the last completed run; nil if there was none.
func LastRun(r *resource.Record) *Run { return resource.ExtraOf[*Run](r, keyLast) }

// SetLastRun writes run into r as the last one.
func SetLastRun(r *resource.Record, run Run) error { return r.SetExtra(keyLast, run) }

// NoRoll is the generation whose roll was too large to be written; empty if there was none.
func NoRoll(r *resource.Record) string { return resource.ExtraOf[string](r, keyNoRoll) }

// SetNoRoll writes into r that the roll of generation g was too large to be written.
func SetNoRoll(r *resource.Record, g string) error { return r.SetExtra(keyNoRoll, g) }

// maxRun is the maximum length of a run's name, in characters.
const maxRun = 128

// CheckRun says why id is not a valid name of a run, or returns nil. A name has 1 to 128 printable characters and no
// spaces. No znode has that name, so 2026-11-21T10:00:00Z and build/1234 are valid.
func CheckRun(id string) error {
	isSpace := func(r rune) bool { return r == ' ' }
	return resource.CheckPrintable("the name of a run", id, maxRun, "without spaces", isSpace)
}
