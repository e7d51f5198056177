package znode

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"muster/apply/history"
	"muster/resource"
)

// The reconcilers of a stack have, in its home,
//
//	reconcile/<stack>/state        persistent   Reconcile
//	reconcile/<stack>/seat-<10>    ephemeral, sequential: a Mark of each of them; the first one acts

// SeatPrefix is that of a reconciler's seat.
const SeatPrefix = "seat-"

// ReconcileDir is the folder of a stack's reconcilers.
func ReconcileDir(home, stack string) string { return resource.Join(home, "reconcile", stack) }

// ReconcileState holds the Reconcile of a stack. It is there once a reconciler has acted, or was paused.
func ReconcileState(home, stack string) string {
	return resource.Join(ReconcileDir(home, stack), "state")
}

// Reconcile is what the reconcilers of a stack keep, whichever of them acts, and what people told them. It is set by
// version. Times are those of the clock of who wrote them.
type Reconcile struct {
	Op     string `json:"op"`               // random: after a lost reply, the writer recognises its own body
	Config string `json:"config,omitempty"` // digest of the configuration that was taken last
	// Seen is the number after that of the newest entry of the history that has been looked at: an apply of a person that
	// came later, of another configuration, is left as it is.
	Seen int             `json:"seen"`
	All  *Hold           `json:"all,omitempty"`  // on all that the stack has
	Held map[string]Hold `json:"held,omitempty"` // by path
	Shut map[string]Hold `json:"shut,omitempty"` // by the word of --allow that a guard keeps shut
	// Meant are the words whose guards a person has opened, until so much is done, or for MeantFor.
	Meant map[string]time.Time `json:"meant,omitempty"`

	// What was changed within ChangeWindow. A change that was about to be made when its process died counts too.
	Deleted  []time.Time            `json:"deleted,omitempty"`
	Replaced []time.Time            `json:"replaced,omitempty"`
	Changed  map[string][]time.Time `json:"changed,omitempty"` // by path
}

// Hold keeps reconcilers from doing something.
type Hold struct {
	Why     Why       `json:"why"`
	By      string    `json:"by"` // a person, or user@host of a reconciler
	Since   time.Time `json:"since"`
	Until   time.Time `json:"until,omitzero"` // zero: until somebody ends it
	Because string    `json:"because,omitempty"`
	// Of what was terminated: its generation and, if it is kept in place, the version of its record then.
	Generation string `json:"generation,omitempty"`
	Version    int32  `json:"version,omitempty"`
}

// Why is the reason of a Hold.
type Why string

// The reasons.
const (
	Paused      Why = "paused"
	Terminating Why = "terminating" // a person stops it now
	Terminated  Why = "terminated"  // a person has stopped it
	Contested   Why = "contested"   // it was changed again and again: somebody undoes it
	TooMany     Why = "too many"    // a guard's: more was to be done than is allowed
)

// Limits of a Reconcile.
const (
	ChangeWindow  = time.Hour
	MeantFor      = 10 * time.Minute
	MaxHolds      = 500
	MaxApplies    = 20 // entries of the history that are looked at for an apply of a person
	maxChanged    = 1000
	maxCounted    = 10_000
	maxReconcile  = 900 << 10
	maxBecauseOne = 256 // bytes
)

// String says for people why h holds: "paused by ann since 2026-07-01 12:00:00, until 2026-07-01 13:00:00: because".
func (h Hold) String() string {
	s := fmt.Sprintf("%s by %s since %s", h.Why, h.By, h.Since.UTC().Format(time.DateTime))
	if h.Why == Contested {
		s = "it was changed too often, and somebody undoes it, since " + h.Since.UTC().Format(time.DateTime)
	}
	if !h.Until.IsZero() {
		s += ", until " + h.Until.UTC().Format(time.DateTime)
	}
	if h.Because != "" {
		s += ": " + h.Because
	}
	return s
}

// Is reports whether h holds at a time.
func (h *Hold) Is(now time.Time) bool { return h != nil && (h.Until.IsZero() || now.Before(h.Until)) }

// EndedBy reports whether a record that is open was written after the termination that h is about.
func (h *Hold) EndedBy(rec *resource.Record, version int32) bool {
	return h.Why == Terminated && rec.State == resource.StateOpen &&
		(rec.Generation != h.Generation || h.Version > 0 && version > h.Version)
}

// HeldAt is the Hold on a path at a time; nil: there is none.
func (r *Reconcile) HeldAt(path string, now time.Time) *Hold {
	if r.All.Is(now) {
		return r.All
	}
	if h, ok := r.Held[path]; ok && h.Is(now) {
		return &h
	}
	return nil
}

// Lines say what reconcilers leave as it is, for people. found are the newest entries of the history.
func (r *Reconcile) Lines(found []history.Found, now time.Time) (lines []string) {
	add := func(what string, h Hold) {
		if !h.Is(now) {
			return
		}
		lines = append(lines, what+": "+h.String())
	}
	if r.All != nil {
		add("all", *r.All)
	}
	if by, left := r.LeftAs(found); left {
		lines = append(lines, fmt.Sprintf("all as %s has applied it at %s, but for repairs, until the files change",
			by.Actor, by.Started.UTC().Format(time.DateTime)))
	}
	for _, held := range []map[string]Hold{r.Held, r.Shut} {
		for _, name := range slices.Sorted(maps.Keys(held)) {
			add(name, held[name])
		}
	}
	return lines
}

// LeftAs is the newest apply of a person since the files were taken, if it was of another configuration: what it has
// made is left as it is. found are entries of the history, the newest first.
func (r *Reconcile) LeftAs(found []history.Found) (by history.Found, left bool) {
	by, applied := r.Applied(found)
	return by, applied && r.Config != "" && by.Config != r.Config
}

// Applied is the newest apply since the files were taken, or since muster resume, that has changed something, or may
// have, and is none of a reconciler.
func (r *Reconcile) Applied(found []history.Found) (last history.Found, ok bool) {
	for _, f := range found {
		changed := len(f.Done) > 0 || f.Results["unknown"] > 0 || f.State == history.Damaged ||
			f.State != history.Finished && len(f.Planned) > 0
		if f.Number >= r.Seen && f.Passes == 0 && changed {
			return f, true
		}
	}
	return last, false
}

// Forget drops what does not count any more.
func (r *Reconcile) Forget(now time.Time) {
	old := func(t time.Time) bool { return now.Sub(t) >= ChangeWindow }
	r.Deleted, r.Replaced = slices.DeleteFunc(r.Deleted, old), slices.DeleteFunc(r.Replaced, old)
	maps.DeleteFunc(r.Changed, func(path string, times []time.Time) bool {
		r.Changed[path] = slices.DeleteFunc(times, old)
		return len(r.Changed[path]) == 0
	})
	ended := func(_ string, h Hold) bool { return !h.Is(now) }
	maps.DeleteFunc(r.Held, ended)
	maps.DeleteFunc(r.Shut, ended)
	maps.DeleteFunc(r.Meant, func(_ string, at time.Time) bool { return now.Sub(at) >= MeantFor })
	if !r.All.Is(now) {
		r.All = nil
	}
	if over := len(r.Changed) - maxChanged; over > 0 { // those that were changed last may be contested
		last := func(path string) time.Time { return r.Changed[path][len(r.Changed[path])-1] }
		oldest := slices.SortedFunc(maps.Keys(r.Changed), func(a, b string) int { return last(a).Compare(last(b)) })
		for _, path := range oldest[:over] {
			delete(r.Changed, path)
		}
	}
}

// check cuts times to whole seconds, and what people wrote to what there is room for.
func (r *Reconcile) check() error {
	switch {
	case r.Seen < 0:
		return fmt.Errorf("seen: %d is no number of an entry", r.Seen)
	case len(r.Held) > MaxHolds:
		return fmt.Errorf("held: it holds %d, and at most %d are allowed: muster pause without names holds all",
			len(r.Held), MaxHolds)
	case len(r.Changed) > maxChanged, len(r.Deleted) > maxCounted, len(r.Replaced) > maxCounted:
		return errors.New("it counts too much")
	}
	cut(r.Deleted)
	cut(r.Replaced)
	for word, at := range r.Meant {
		r.Meant[word] = at.UTC().Truncate(time.Second)
	}
	for _, times := range r.Changed {
		cut(times)
	}
	for _, all := range []map[string]Hold{r.Held, r.Shut} {
		for name, h := range all {
			if err := h.check(); err != nil {
				return resource.InField(name, err)
			}
			all[name] = h
		}
	}
	if r.All != nil {
		return resource.InField("all", r.All.check())
	}
	return nil
}

func cut(times []time.Time) {
	for i, t := range times {
		times[i] = t.UTC().Truncate(time.Second)
	}
}

func (h *Hold) check() error {
	if !slices.Contains([]Why{Paused, Terminating, Terminated, Contested, TooMany}, h.Why) {
		return fmt.Errorf("why: %q is not known", h.Why)
	}
	h.Since, h.Until = h.Since.UTC().Truncate(time.Second), h.Until.UTC().Truncate(time.Second)
	for _, s := range []*string{&h.By, &h.Because} {
		if len(*s) > maxBecauseOne {
			*s = (*s)[:maxBecauseOne]
		}
		*s = strings.ToValidUTF8(*s, "")
	}
	h.By = cmp.Or(h.By, "unknown")
	return nil
}

func (*Reconcile) most() int { return maxReconcile }
