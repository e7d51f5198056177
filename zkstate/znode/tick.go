package znode

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"muster/resource"
)

// MaxTail is how many bytes of a run's output its record holds at most.
const MaxTail = 4 << 10

// tickLayout is how the name of a tick is written: UTC, in whole seconds.
const tickLayout = "20060102T150405Z"

// nowPrefix begins the names of the runs that operators asked for.
const nowPrefix = "n-"

// TickCursor is the body of a cron duty's cursor: the last tick that has a fate. No tick up to it is ever claimed.
type TickCursor struct {
	Tick   time.Time `json:"tick"`
	Digest string    `json:"digest"` // of the schedule; another one: it was edited
}

// TickState says what became of a run, or of a range of ticks.
type TickState string

// The states of a TickRecord. The first three are not final. Those of runs that a holder has claimed, from TickWaiting
// to TickLost, are named as in member/ticks.
const (
	TickAsked   TickState = "asked"   // an operator asked for it, and no holder has claimed it
	TickWaiting TickState = "waiting" // for its first attempt, or for the next one
	TickRunning TickState = "running"
	TickDone    TickState = "done"
	TickFailed  TickState = "failed"
	TickLost    TickState = "lost"    // its holder was lost, and the run is not repeated
	TickMissed  TickState = "missed"  // a range of ticks: nobody looked in time
	TickSkipped TickState = "skipped" // a range of ticks: a run went on, or waited
)

// TickRecord is the body of a run, of a range of ticks that did not run, or of an operator's request for a run.
type TickRecord struct {
	State TickState `json:"state"`

	// Of a run. Those from By to Ended are of its last attempt that began.
	By      string    `json:"by,omitempty"` // identity of the holder
	Epoch   int64     `json:"epoch,omitempty"`
	Attempt int       `json:"attempt,omitempty"` // how many have begun
	Started time.Time `json:"started,omitzero"`
	Ended   time.Time `json:"ended,omitzero"` // zero: it goes on, or nobody knows
	Since   time.Time `json:"since,omitzero"` // from when the pause before the next attempt counts
	Exit    *int      `json:"exit,omitempty"` // exit code of the command; 128 and n for a signal
	Tail    string    `json:"tail,omitempty"` // the end of its output
	Because string    `json:"because,omitempty"`

	// Of a range. It has the name of its last tick.
	First time.Time `json:"first,omitzero"`
	Last  time.Time `json:"last,omitzero"`
	Count int       `json:"count,omitempty"`
	More  bool      `json:"more,omitempty"` // there are more than Count

	// Of a run that an operator asked for.
	Asked   time.Time `json:"asked,omitzero"`
	AskedBy string    `json:"asked_by,omitempty"` // user@host
	Nonce   string    `json:"nonce,omitempty"`    // random: who asked recognises its own write by it
}

// Final reports whether nothing follows: the record may be forgotten.
func (r TickRecord) Final() bool {
	return r.State != TickAsked && r.State != TickWaiting && r.State != TickRunning
}

// Range reports whether the record is one of ticks that did not run.
func (r TickRecord) Range() bool { return r.State == TickMissed || r.State == TickSkipped }

// Cursor is the cursor of a cron duty. Its body is a TickCursor.
func Cursor(root, g, duty string) string { return resource.Join(Duty(root, g, duty), "cursor") }

// Ticks is the folder of a cron duty's runs at ticks, and of the ticks that did not run.
func Ticks(root, g, duty string) string { return resource.Join(Duty(root, g, duty), "tick") }

// Tick is the record of one tick, or of a range of ticks that ends with it. Its body is a TickRecord.
func Tick(root, g, duty string, at time.Time) string {
	return resource.Join(Ticks(root, g, duty), at.UTC().Format(tickLayout))
}

// TickTime reads the time of a tick from the name or path of its record.
func TickTime(name string) (time.Time, error) {
	at, err := time.Parse(tickLayout, base(name))
	if err != nil || at.Format(tickLayout) != base(name) {
		return time.Time{}, fmt.Errorf("%q is not the time of a tick", base(name))
	}
	return at, nil
}

// Nows is the folder of the runs that operators asked for.
func Nows(root, g, duty string) string { return resource.Join(Duty(root, g, duty), "now") }

// NewNow is the path of the sequential znode of the next such run. Its body is a TickRecord.
func NewNow(root, g, duty string) string { return resource.Join(Nows(root, g, duty), nowPrefix) }

// Now is the record of the run with this number.
func Now(root, g, duty string, asked int64) string {
	return fmt.Sprintf("%s%010d", NewNow(root, g, duty), asked-1)
}

// NowNumber reads the number of a run that an operator asked for from the name or path of its record. The first one,
// n-0000000000, has number 1.
func NowNumber(name string) (int64, error) {
	n, err := number(name, nowPrefix)
	return int64(n) + 1, err
}

// CutTail returns the last MaxTail bytes of a command's output as valid text: what is not UTF-8 is replaced, and so is
// the zero byte.
func CutTail(output []byte) string {
	const replaced = "\uFFFD"
	text := string(output[max(0, len(output)-MaxTail):])
	if len(output) > MaxTail { // not the rest of a character
		for n := 0; n < utf8.UTFMax && len(text) > 0 && !utf8.RuneStart(text[0]); n++ {
			text = text[1:]
		}
	}
	text = strings.ReplaceAll(strings.ToValidUTF8(text, replaced), "\x00", replaced)
	for len(text) > MaxTail { // a replacement is longer than what it replaces
		_, size := utf8.DecodeRuneInString(text)
		text = text[size:]
	}
	return text
}

func (c TickCursor) check() error {
	if c.Tick.IsZero() {
		return fmt.Errorf("tick: it is no time")
	}
	return required("digest", c.Digest)
}

func (r TickRecord) check() error {
	states := []TickState{
		TickAsked, TickWaiting, TickRunning, TickDone, TickFailed, TickLost, TickMissed, TickSkipped,
	}
	switch {
	case !slices.Contains(states, r.State):
		return fmt.Errorf("state: %q is not known", r.State)
	case len(r.Tail) > MaxTail:
		return fmt.Errorf("tail: %d bytes are more than the %d allowed", len(r.Tail), MaxTail)
	case r.Attempt < 0:
		return fmt.Errorf("attempt: %d is less than 0", r.Attempt)
	case r.State == TickRunning && r.Attempt == 0:
		return fmt.Errorf("attempt: no attempt has begun, and the state is %s", r.State)
	case r.Range() && (r.Count < 1 || r.First.IsZero() || r.Last.Before(r.First)):
		return fmt.Errorf("count: %d ticks from %s to %s are no range", r.Count, r.First, r.Last)
	}
	return nil
}
