package reconcile

import (
	"maps"
	"time"

	"muster/apply"
	"muster/plan"
)

// Event is something that has changed. Nothing is told twice.
type Event struct {
	Type    string
	Subject string // the path of a resource, or the name of the stack
	Data    map[string]any
}

// The types of events.
const (
	RowWaiting    = "muster.row.waiting" // a change is not made now
	RowHeld       = "muster.row.held"    // likewise, since a person said so, or it is contested
	RowCommitted  = "muster.row.committed"
	RowRefused    = "muster.row.refused" // somebody changed the resource meanwhile
	RowFailed     = "muster.row.failed"
	ConfigLoaded  = "muster.config.loaded"
	ConfigRefused = "muster.config.refused"
	LeaderChanged = "muster.leader.changed" // this process acts
	StatusChanged = "muster.status.changed" // of a resource
)

// Status is how a reconciler stands.
type Status struct {
	Connected, Acts bool
	Config          string // digest of what it has loaded; empty: nothing
	Problem         string // why the files do not load now; then those of before count
	Differs         bool   // its files are others than those that were taken last
	Paused, Shut    bool
	Rows            map[string]int // of one that acts: committed, waiting, held, refused, failed
	Passes          map[string]int // ok, failed
	Took            time.Duration  // the last pass
	LastSuccess     time.Time
}

// Now is how it stands.
func (r *Reconciler) Now() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now
	now.Rows, now.Passes = maps.Clone(now.Rows), maps.Clone(now.Passes)
	return now
}

func (r *Reconciler) set(change func(*Status)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.now)
}

func (r *Reconciler) passed(took time.Duration, err error) {
	r.set(func(s *Status) {
		word := "ok"
		if err != nil {
			word = "failed"
		}
		s.Passes[word]++
		s.Took = took
	})
}

func (r *Reconciler) tell(e Event) {
	if r.cfg.Events != nil {
		r.cfg.Events(e)
	}
}

// maxLogged is how many changes that wait are in the log after one pass. The events have all.
const maxLogged = 20

// tellWaiting tells which changes wait since this pass, or for another reason than before, and what has another status.
func (r *Reconciler) tellWaiting(p plan.Plan, c choice) {
	now := map[string]string{}
	held, changed := 0, 0
	for _, w := range c.waiting {
		typ := RowWaiting
		if w.Held {
			typ = RowHeld
			held++
		}
		now[w.Row.Path] = typ + w.Why
		if r.told[w.Row.Path] == now[w.Row.Path] {
			continue
		}
		if changed++; changed <= maxLogged {
			r.cfg.Log.Info("a change waits", "path", w.Row.Path, "action", w.Row.Action(), "why", w.Why, "next", w.Next)
		}
		data := rowData(w.Row)
		data["why"], data["next"] = w.Why, w.Next
		r.tell(Event{Type: typ, Subject: w.Row.Path, Data: data})
	}
	if changed > maxLogged {
		r.cfg.Log.Info("other changes wait, too", "changes", changed-maxLogged)
	}
	r.told = now
	statuses := make(map[string]string, len(p.Rows))
	for _, row := range p.Rows {
		is := string(row.Old.Status())
		statuses[row.Path] = is
		if was, known := r.statuses[row.Path]; known && was != is {
			r.tell(Event{Type: StatusChanged, Subject: row.Path, Data: map[string]any{"status": is, "was": was}})
		}
	}
	r.statuses = statuses
	r.set(func(s *Status) { s.Rows["waiting"], s.Rows["held"] = len(c.waiting)-held, held })
}

func (r *Reconciler) tellOutcome(o apply.Outcome) {
	typ, word := RowFailed, "failed"
	switch o.Result {
	case apply.Applied, apply.AlreadyDone:
		typ, word = RowCommitted, "committed"
	case apply.Refused:
		typ, word = RowRefused, "refused"
	}
	data := rowData(o.Row)
	data["result"] = string(o.Result)
	if o.Err != nil {
		data["error"] = o.Err.Error()
	}
	r.cfg.Log.Info("a change is "+word, "path", o.Row.Path, "action", o.Row.Action(), "error", o.Err)
	r.set(func(s *Status) { s.Rows[word]++ })
	r.tell(Event{Type: typ, Subject: o.Row.Path, Data: data})
}

func rowData(r plan.Row) map[string]any {
	return map[string]any{"address": r.Address(), "action": string(r.Action()), "reason": string(r.Reason)}
}
