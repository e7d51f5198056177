// Package history says what is known of an apply afterwards: who asked for it, from where, what it was to change, and
// what became of that. It is data only: zkstate keeps an Entry for each apply that changes something, and report shows
// them. Nothing that muster decides depends on it.
package history

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"muster/resource"
)

// Limits of an Entry, in bytes. An entry that reaches all of them has less than MaxEntry as JSON.
const (
	MaxEntry   = 64 << 10
	MaxText    = 256      // of who asked, of a commit, of one side of a field, and so on
	MaxURL     = 1 << 10  // of a run's address
	MaxChanges = 100      // how many changes an entry names
	maxFields  = 200      // how many fields of them it has, together
	maxBytes   = 16 << 10 // of the names and fields, together
)

// Kept is how many entries of a stack are kept. There are more for a moment while applies begin.
const Kept = 200

// Who says who asked for an apply, and where it runs.
type Who struct {
	Actor  string `json:"actor"`            // a person, or what stands for one; never empty in an entry that was written
	CI     string `json:"ci,omitempty"`     // the system in which it runs: "GitHub Actions"
	Commit string `json:"commit,omitempty"` // of the configuration, as the system says
	URL    string `json:"url,omitempty"`    // of the run; http or https, without a user and a password
}

// Entry is one apply. The counts have the words of plan.Action and of apply.Result as their keys, without zeros.
type Entry struct {
	By string `json:"by"` // user@host of the process
	Who
	Version  string    `json:"muster_version,omitempty"`
	Plan     string    `json:"plan"`
	Saved    bool      `json:"saved,omitempty"`         // the plan was from a file
	Config   string    `json:"config_digest,omitempty"` // of the configuration
	Passes   int       `json:"passes,omitempty"`        // of a reconciler, which sets its entry again; 0: an apply
	Started  time.Time `json:"started"`                 // by the clock of By, as is Finished
	Finished time.Time `json:"finished,omitzero"`

	Planned map[string]int `json:"planned"`           // how many of each action
	Done    map[string]int `json:"done,omitempty"`    // how many of each action were applied
	Results map[string]int `json:"results,omitempty"` // what became of all; empty until it has finished
	// Changes are those that are planned, and once it has finished, those that certainly or perhaps were made. More is
	// how many others there are.
	Changes []Change `json:"changes,omitempty"`
	More    int      `json:"more,omitempty"`
	// Settled is when a later apply, which had nothing to change, found that this one had not finished.
	Settled time.Time `json:"settled,omitzero"`
}

// Change is what an apply does to one resource.
type Change struct {
	Action     string            `json:"action"` // a word of plan.Action
	Path       string            `json:"path"`
	Fields     []resource.Change `json:"fields,omitempty"`      // what differs, as the plan shows it; long values are cut
	MoreFields int               `json:"more_fields,omitempty"` // for how many others there was no room
}

// State is what has become of an apply, as far as it can be told.
type State string

// The states.
const (
	Finished   State = "finished"
	Running    State = "running"    // it has not finished, and holds the apply lock
	Unfinished State = "unfinished" // it has not finished, and does not hold the lock: it was killed, or cut off
	Settled    State = "settled"    // it was unfinished, and a later apply found nothing left to do
	Damaged    State = "damaged"    // its entry cannot be read
)

// Found is an entry as it was found in ZooKeeper.
type Found struct {
	Stack   string `json:"stack"`
	Name    string `json:"name"`   // of its znode: "h-0000000012"
	Number  int    `json:"number"` // the one in its name; later ones have larger numbers
	State   State  `json:"state"`
	Problem string `json:"problem,omitempty"` // why it cannot be read; then Started is when the znode was made
	Entry
}

// Clean cuts and drops what a Who must not hold.
func (w Who) Clean() Who {
	return Who{
		Actor: cut(w.Actor), CI: cut(w.CI), Commit: cut(w.Commit), URL: CleanURL(w.URL),
	}
}

// cut is s without control characters and without the space around it, and at most MaxText bytes of it.
func cut(s string) string {
	s = printable(strings.TrimSpace(s))
	if len(s) <= MaxText {
		return s
	}
	const dots = "…"
	return strings.ToValidUTF8(s[:MaxText-len(dots)], "") + dots
}

// printable is s with a mark in the place of each character that is not printable: a line that is shown stays one line,
// and takes about as many bytes in JSON.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return utf8.RuneError
		}
		return r
	}, s)
}

// CleanURL is the address of a run without a user and a password, which some systems put into it. It is empty if s is
// no address of a page, or too long: half of an address leads nowhere.
func CleanURL(s string) string {
	u, err := url.Parse(strings.TrimSpace(s))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Opaque != "" {
		return ""
	}
	u.User = nil
	if s = u.String(); len(s) > MaxURL || s != printable(s) {
		return ""
	}
	return s
}

// Begin is an entry of an apply that begins now. The caller has set what it is to change.
func (e Entry) Begin(by, version string, who Who, now time.Time) Entry {
	e.By, e.Who, e.Version = cmp.Or(cut(by), "unknown"), who.Clean(), cut(version)
	e.Started = now.UTC().Truncate(time.Second)
	e.Actor = cmp.Or(e.Actor, e.By)
	return e
}

// SetChanges keeps the first of these changes, as far as there is room: first their names, then their fields.
func (e *Entry) SetChanges(all []Change) {
	room, fields := maxBytes, maxFields
	take := func(n int) bool {
		if n > room {
			return false
		}
		room -= n
		return true
	}
	e.Changes = nil
	for _, c := range all {
		name := printable(c.Path)
		if len(e.Changes) == MaxChanges || !take(len(name)) {
			break
		}
		e.Changes = append(e.Changes, Change{Action: c.Action, Path: name})
	}
	e.More = len(all) - len(e.Changes)
	for i := range e.Changes {
		c := &e.Changes[i]
		for n, f := range all[i].Fields {
			f.Name, f.Old, f.New = cut(f.Name), cutSide(f.Old), cutSide(f.New)
			if fields == 0 || !take(len(f.Name)+sideLen(f.Old)+sideLen(f.New)) {
				c.MoreFields = len(all[i].Fields) - n
				break
			}
			c.Fields, fields = append(c.Fields, f), fields-1
		}
	}
}

func cutSide(value *string) *string {
	if value != nil {
		value = new(cut(*value))
	}
	return value
}

func sideLen(value *string) int {
	if value == nil {
		return 0
	}
	return len(*value)
}

// Check says why an entry that was read makes no sense, or returns nil.
func (e Entry) Check() error {
	switch {
	case e.By == "":
		return fmt.Errorf("it does not say who")
	case e.Started.IsZero():
		return fmt.Errorf("it does not say when")
	case e.URL != CleanURL(e.URL):
		return errors.New("its url is no address of a run") // which is not repeated: it may have a password
	case e.Passes < 0 || e.Config != cut(e.Config):
		return errors.New("it has no count of passes, or no digest")
	case len(e.Changes) > MaxChanges:
		return fmt.Errorf("it names %d changes, and at most %d are allowed", len(e.Changes), MaxChanges)
	}
	for _, counts := range []map[string]int{e.Planned, e.Done, e.Results, {"more": e.More}} {
		for word, n := range counts {
			if n < 0 {
				return fmt.Errorf("%d is no count of %.60q", n, word)
			}
		}
	}
	return nil
}

// Did says what the apply did, or was to do: "deleted", "to delete".
func (f Found) Did(c Change) string {
	if f.State == Finished {
		return c.Action + "d"
	}
	return "to " + c.Action
}

// Names are resources of which an apply did something, and what.
type Names struct {
	What  string // "deleted", "to replace"
	Names []string
}

// Named lists the names of the changes, by what was done. Of an apply that did not end, nobody knows which it reached.
func (f Found) Named() (all []Names) {
	for _, c := range f.Changes {
		what := f.Did(c)
		if len(all) == 0 || all[len(all)-1].What != what {
			all = append(all, Names{What: what})
		}
		last := &all[len(all)-1]
		last.Names = append(last.Names, c.Path)
	}
	return all
}

// NewestFirst sorts the applies of several stacks by when they began. Those of one stack stay in their order.
func NewestFirst(applies []Found) {
	slices.SortStableFunc(applies, func(a, b Found) int {
		if a.Stack == b.Stack {
			return 0 // their numbers order them, whatever the clocks say
		}
		return b.Started.Compare(a.Started)
	})
}
