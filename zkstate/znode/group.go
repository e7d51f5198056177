package znode

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"muster/resource"
)

// Present is the body of <root>/<group>/<identity>, the ephemeral znode of a live member of a group.
type Present struct {
	Nonce   string   `json:"nonce"`   // random, of this process
	Version string   `json:"version"` // of the application
	Address string   `json:"address,omitempty"`
	Can     []string `json:"can,omitempty"` // the duties that it can do, sorted
	Ready   bool     `json:"ready"`         // false: it may be given nothing yet
}

// Seat is the body of a seat. The member creates it without duties; only the assigner changes them.
type Seat struct {
	Identity string   `json:"identity"`
	Nonce    string   `json:"nonce"`            // that of Present
	Assign   int      `json:"assign,omitempty"` // the newest method of assignment that its software knows; 0: none
	Duties   []string `json:"duties,omitempty"` // that the assigner gave it, sorted
}

// DutyTaken is the body of a duty's znode: who took it last. It stays when that member has gone.
type DutyTaken struct {
	Nonce    string `json:"nonce"` // random, of this take: with it a process recognises its own write
	Identity string `json:"identity"`
	Version  string `json:"version"`
}

// Holder is the body of held.
type Holder struct {
	Identity string `json:"identity"`
	Nonce    string `json:"nonce"` // that of DutyTaken
	Version  string `json:"version"`
	Address  string `json:"address,omitempty"`
}

// Resignation is the message of a member that gave up a duty which the assigner had given it.
type Resignation struct {
	Seat     string `json:"seat"`     // name of its seat
	Identity string `json:"identity"` // for the assigner's memory of failures
	Duty     string `json:"duty"`
	Blame    bool   `json:"blame"`   // false: the command ended with 0
	Because  string `json:"because"` // for people
}

// Ask is an operator's request to the assigner.
type Ask struct {
	Do   AskKind `json:"do"`
	Duty string  `json:"duty"`
	To   string  `json:"to,omitempty"` // identity, for a handover
	By   string  `json:"by"`           // user@host
	ID   string  `json:"id,omitempty"` // random: with it the sender recognises its own write
}

// AskLog is the body of a folder of requests, to the assigner or for runs: what was sent last. A request is deleted
// when it was decided upon, or when its run is not kept any more. A sender that got no answer finds here whether its
// request was committed.
type AskLog struct {
	Last []string `json:"last"` // ids of requests, the newest last; at most MaxAskLog
}

// Limits of operators' requests.
const (
	MaxAsks   = 1000 // that wait for the assigner
	MaxAskLog = 50   // that the log remembers
	maxAskBy  = 300  // bytes of who asks
)

// AskKind is what an operator asks for.
type AskKind string

// The requests. A handover without To gives the duty to any other member; one with To also pins it to that member.
const (
	AskHandover AskKind = "handover"
	AskUnpin    AskKind = "unpin"
	AskPause    AskKind = "pause"
	AskResume   AskKind = "resume"
)

// With is the log after one more request.
func (l AskLog) With(id string) AskLog {
	last := append(slices.Clone(l.Last), id)
	return AskLog{Last: last[max(0, len(last)-MaxAskLog):]}
}

func (p Present) check() error {
	return cmp.Or(required("nonce", p.Nonce, "version", p.Version), checkSorted("can", p.Can))
}

func (s Seat) check() error {
	if s.Assign < 0 {
		return fmt.Errorf("assign: %d is less than 0", s.Assign)
	}
	return cmp.Or(required("identity", s.Identity, "nonce", s.Nonce), checkSorted("duties", s.Duties))
}

func (d DutyTaken) check() error { return required("nonce", d.Nonce, "identity", d.Identity) }

func (h Holder) check() error { return required("identity", h.Identity, "nonce", h.Nonce) }

func (r Resignation) check() error {
	_, err := SeatNumber(r.Seat)
	return cmp.Or(required("identity", r.Identity, "duty", r.Duty), err)
}

func (a Ask) check() error {
	if !slices.Contains([]AskKind{AskHandover, AskUnpin, AskPause, AskResume}, a.Do) {
		return fmt.Errorf("do: %q is not known", a.Do)
	}
	if len(a.By) > maxAskBy {
		return fmt.Errorf("by: %d bytes are more than the %d allowed", len(a.By), maxAskBy)
	}
	return required("duty", a.Duty)
}

func (AskLog) check() error { return nil }

// AssignerMemory is the body of assigner: what one assigner leaves to the next one. Seats are named by their znodes.
// All maps but that of Failures have one value for each duty.
type AssignerMemory struct {
	Pins     ByDuty                        `json:"pins,omitempty"`     // seats
	HandOver ByDuty                        `json:"handover,omitempty"` // seats that have to give the duty to another one
	Passed   []string                      `json:"passed,omitempty"`   // seats that were passed over, sorted
	Size     int                           `json:"size,omitempty"`     // how many members could do a declared duty
	Newest   ByDuty                        `json:"newest,omitempty"`   // the version that counts as newest
	Paused   ByDuty                        `json:"paused,omitempty"`   // by whom: user@host
	Failures map[string]map[string]Failure `json:"failures,omitempty"` // by duty and seat
	Purge    []string                      `json:"purge,omitempty"`    // duties whose trees are being deleted, sorted
	Why      ByDuty                        `json:"why,omitempty"`      // why its holder has it, or why it is vacant
}

// Failure is what the assigner remembers of a member that gave a duty up.
type Failure struct {
	Count   int    `json:"count"`   // how often it was to blame
	Tries   int    `json:"tries"`   // how often it gave the duty up, to blame or not
	Until   int64  `json:"until"`   // it does not get the duty again before, in ms of ZooKeeper's time since 1970
	Because string `json:"because"` // of the last time, for people
}

// ByDuty has one text for each duty. Many duties have the same one, so in JSON it is a list of duties for each text.
type ByDuty map[string]string

func (b ByDuty) MarshalJSON() ([]byte, error) {
	duties := map[string][]string{}
	for _, d := range slices.Sorted(maps.Keys(b)) {
		duties[b[d]] = append(duties[b[d]], d)
	}
	return json.Marshal(duties)
}

func (b *ByDuty) UnmarshalJSON(body []byte) error {
	var duties map[string][]string
	if err := json.Unmarshal(body, &duties); err != nil {
		return err
	}
	*b = ByDuty{}
	for _, text := range slices.Sorted(maps.Keys(duties)) {
		for _, d := range duties[text] {
			(*b)[d] = text
		}
	}
	return nil
}

// EncodeAssigner encodes the memory. If it is too large, it leaves out as much as it must: reasons first, then the
// failures that ended their pause first, then the rest, requests to pause last.
func EncodeAssigner(c AssignerMemory) ([]byte, error) {
	body, err := Encode(c)
	for errors.As(err, new(tooLargeError)) {
		switch {
		case len(c.Why) > 0:
			c.Why = nil
		case len(c.Failures) > 0:
			c.Failures = newerHalf(c.Failures)
		case len(c.Newest) > 0:
			c.Newest = nil
		case len(c.HandOver) > 0:
			c.HandOver = nil
		case len(c.Pins) > 0:
			c.Pins = nil
		case len(c.Paused) > 0:
			c.Paused = nil
		default:
			return nil, err
		}
		body, err = Encode(c)
	}
	return body, err
}

// newerHalf is at most half of these failures: those that end their pause last.
func newerHalf(failures map[string]map[string]Failure) map[string]map[string]Failure {
	var ends []int64
	for _, bySeat := range failures {
		for _, f := range bySeat {
			ends = append(ends, f.Until)
		}
	}
	if len(ends) == 0 {
		return nil
	}
	slices.Sort(ends)
	middle := ends[len(ends)/2]
	newer := map[string]map[string]Failure{}
	for duty, bySeat := range failures {
		kept := maps.Clone(bySeat)
		maps.DeleteFunc(kept, func(_ string, f Failure) bool { return f.Until <= middle })
		if len(kept) > 0 {
			newer[duty] = kept
		}
	}
	return newer
}

func (AssignerMemory) check() error { return nil }

// Limits of operations.
const (
	MaxOperations = 100      // open ones of a duty
	MaxSteps      = 10_000   // of an operation
	MaxOutput     = 64 << 10 // bytes of the output of one step
	MaxOutputs    = 16 << 20 // bytes of the outputs of an operation
)

// Opening is the body of an operation's znode while the operation is open. When it is empty the operation is closed,
// and what is below it is garbage.
type Opening struct {
	ID     string `json:"id"`     // random: the folder of its steps
	Script string `json:"script"` // digest of what runs it
	By     string `json:"by"`     // identity of the holder that opened it, or was the last to resume it
	Epoch  int64  `json:"epoch"`  // of that holder
	Runs   int    `json:"runs"`   // how often it was opened or resumed
}

// Journal is the body of the folder of an operation's steps. It is written together with each of them.
type Journal struct {
	Steps int `json:"steps"` // that have begun
	Done  int `json:"done"`  // of these
	Bytes int `json:"bytes"` // of all outputs
}

// StepRecord is the body of one step.
type StepRecord struct {
	Name     string `json:"name"`
	Done     bool   `json:"done"`             // false: it has begun
	Attempts int    `json:"attempts"`         // how often it was begun
	By       string `json:"by"`               // identity of the holder that made the last attempt
	Epoch    int64  `json:"epoch"`            // of that holder
	Output   []byte `json:"output,omitempty"` // of a step that is done; base64 in JSON
}

// StepKey names the znode of a step: the SHA-256, in hex, of its name and arguments, each as its length in bytes in
// decimal, a colon, and its bytes.
func StepKey(name string, args []string) string {
	h := sha256.New()
	for _, s := range append([]string{name}, args...) {
		fmt.Fprintf(h, "%d:%s", len(s), s)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// CheckOperation says why name is not a valid name of an operation, or returns nil: the rules of names hold.
func CheckOperation(name string) error { return resource.CheckName("operation", name) }

// CheckStep says why name is not a valid name of a step, or returns nil: the rules of names hold.
func CheckStep(name string) error { return resource.CheckName("step", name) }

// Ops is the folder of a duty's operations.
func Ops(root, g, duty string) string { return resource.Join(Duty(root, g, duty), "op") }

// Operation is one operation. Its body is an Opening; its child is the folder of its steps.
func Operation(root, g, duty, name string) string { return resource.Join(Ops(root, g, duty), name) }

// Steps is the folder of an operation's steps. Its body is a Journal.
func Steps(root, g, duty, name, id string) string {
	return resource.Join(Operation(root, g, duty, name), id)
}

func (o Opening) check() error {
	return cmp.Or(resource.InField("id", CheckToken(o.ID)), required("script", o.Script, "by", o.By))
}

func (j Journal) check() error {
	if j.Done < 0 || j.Steps < j.Done || j.Bytes < 0 {
		return fmt.Errorf("%d of %d steps and %d bytes do not fit together", j.Done, j.Steps, j.Bytes)
	}
	return nil
}

func (s StepRecord) check() error {
	switch {
	case s.Attempts < 1:
		return fmt.Errorf("attempts: %d is less than 1", s.Attempts)
	case !s.Done && len(s.Output) > 0:
		return fmt.Errorf("output: a step that is not done has none")
	case len(s.Output) > MaxOutput:
		return fmt.Errorf("output: %d bytes are more than the %d allowed", len(s.Output), MaxOutput)
	}
	return required("name", s.Name, "by", s.By)
}

// Limits of saved state.
const (
	MaxStateValue = 512 << 10 // bytes of one key: with the guards of its transaction it fits into ZooKeeper's 1 MiB
	MaxState      = 64 << 20  // bytes of a group
	MaxKeys       = 10_000    // keys of a duty
)

// SavedValue is what the holder of a duty has saved under a key. In its znode it is as a Value: a line of JSON, and the
// bytes.
type SavedValue struct {
	By    string `json:"by"`    // identity of the holder that wrote it
	Epoch int64  `json:"epoch"` // of that holder
	Data  []byte `json:"-"`     // at most MaxStateValue bytes
}

// StateTotal is the body of the folder of a duty's saved state.
type StateTotal struct {
	Bytes int64 `json:"bytes"` // of all values together
}

// CheckKey says why key is not a valid key of saved state, or returns nil: the rules of names hold.
func CheckKey(key string) error { return resource.CheckName("key", key) }

// EncodeSaved encodes a value.
func EncodeSaved(v SavedValue) ([]byte, error) { return encodeLine(v, v.Data, MaxStateValue) }

// DecodeSaved decodes a value. It ignores fields of the first line that it does not know.
func DecodeSaved(body []byte) (v SavedValue, err error) {
	v.Data, err = decodeLine(body, &v, MaxStateValue)
	if err == nil && v.By == "" {
		err = fmt.Errorf("value: it does not say who wrote it")
	}
	return v, err
}

// DecodeStateTotal decodes the body of the folder. One that cannot be read, written by hand, is 0 bytes.
func DecodeStateTotal(body []byte) StateTotal {
	t, _ := Decode[StateTotal](body)
	return t
}

func (t StateTotal) check() error {
	if t.Bytes < 0 {
		return fmt.Errorf("bytes: %d must not be less than 0", t.Bytes)
	}
	return nil
}

// MaxTail is how many bytes of a run's output its record holds at most.
const MaxTail = 4 << 10

// tickLayout is how the name of a tick is written: UTC, in whole seconds.
const tickLayout = "20060102T150405Z"

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

// TickResults is the body of the folder of a cron duty's ticks: how its runs went so far. It is empty, or all zero,
// before the first one has ended.
type TickResults struct{ resource.Results }

// Add counts what became of a run, or of n ticks, at that time.
func (r *TickResults) Add(state TickState, n int, at time.Time) {
	switch state {
	case TickDone:
		r.Done, r.InARow, r.LastSuccess = r.Done+n, 0, at
	case TickFailed:
		r.Failed, r.InARow = r.Failed+n, r.InARow+n
	case TickLost:
		r.Lost, r.InARow = r.Lost+n, r.InARow+n
	case TickMissed:
		r.Missed += n
	case TickSkipped:
		r.Skipped += n
	}
}

// maxTicks is more than a cron can have in a million years, and far from an overflow.
const maxTicks = 1 << 50

func (r TickResults) check() error {
	all := []int{r.Done, r.Failed, r.Lost, r.Missed, r.Skipped, r.InARow}
	if slices.Min(all) < 0 || slices.Max(all) > maxTicks {
		return fmt.Errorf("a count must be from 0 to %d", maxTicks)
	}
	return nil
}

// Cursor is the cursor of a cron duty. Its body is a TickCursor.
func Cursor(root, g, duty string) string { return resource.Join(Duty(root, g, duty), "cursor") }

// Ticks is the folder of a cron duty's runs at ticks, and of the ticks that did not run. Its body is a TickResults.
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
