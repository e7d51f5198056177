package view

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"muster/resource"
	"muster/resource/job"
	"muster/text"
)

// Worker is one worker of one job.
type Worker struct {
	ID       int         `json:"id"` // -1: none, or not known
	Identity string      `json:"identity"`
	Address  string      `json:"address"`
	State    WorkerState `json:"state"`
	// Where it says that it is, and its additional ports by name. What is empty is not known.
	Rack       string         `json:"rack,omitempty"`
	Datacenter string         `json:"datacenter,omitempty"`
	Ports      map[string]int `json:"ports,omitempty"`

	Restarts *int      `json:"restarts,omitempty"`  // how often it joined again; nil: not known
	LastExit string    `json:"last_exit,omitempty"` // the last known end of its command: a code, or a signal
	Since    time.Time `json:"since,omitzero"`      // it is in its state; absent: not known
	Joined   time.Time `json:"joined,omitzero"`     // it joined this run for the first time; absent: not known
}

// WorkerState is the state of a worker.
type WorkerState string

// The states of a worker. Left and Lost workers did not complete. A worker that left said so; a lost one was killed, or
// was disconnected until its session ended.
const (
	Live      WorkerState = "live"
	Completed WorkerState = "completed"
	Left      WorkerState = "left"
	Lost      WorkerState = "lost"
)

// Place is "rack r7, data center eu-1", or what is known of it.
func (w Worker) Place() string {
	var parts []string
	if w.Rack != "" {
		parts = append(parts, "rack "+w.Rack)
	}
	if w.Datacenter != "" {
		parts = append(parts, "data center "+w.Datacenter)
	}
	return strings.Join(parts, ", ")
}

// Barrier is a round of a barrier that is under way: somebody has arrived, and it is neither released nor aborted.
type Barrier struct {
	Name    string    `json:"name"`
	Start   bool      `json:"start,omitempty"` // it is the barrier of "muster worker --start barrier"
	Round   int       `json:"round"`
	Attempt int       `json:"attempt"` // 1, or more after aborted attempts at this round
	Mode    string    `json:"mode"`
	Workers int       `json:"workers"` // how many must arrive
	Since   time.Time `json:"since"`   // the first of them arrived, by ZooKeeper's clock
	Arrived []int     `json:"arrived"` // ids, ascending
	Missing []int     `json:"missing"` // ids, ascending; in a live round all may be there for a moment
}

// Title is the barrier in words.
func (b Barrier) Title() string {
	if b.Start {
		return "(start)"
	}
	return b.Name
}

// ArrivedText is "3 of 8".
func (b Barrier) ArrivedText() string { return fmt.Sprintf("%d of %d", len(b.Arrived), b.Workers) }

// MissingText names who has not arrived: "id 1 (w-1, lost), id 3 (not joined)", or only the ids of many.
func (b Barrier) MissingText(workers []Worker) string {
	const most = 3
	switch {
	case len(b.Missing) == 0:
		return "-"
	case len(b.Missing) > most:
		return "id " + ranges(b.Missing)
	}
	byID := map[int]Worker{}
	for _, w := range workers {
		byID[w.ID] = w
	}
	var all []string
	for _, id := range b.Missing {
		who := "not joined"
		if w, joined := byID[id]; joined {
			who = w.Identity
			if w.State != Live {
				who += ", " + string(w.State)
			}
		}
		all = append(all, fmt.Sprintf("id %d (%s)", id, who))
	}
	return strings.Join(all, ", ")
}

// Began is when the first worker joined this run; zero: not known.
func (r Resource) Began() time.Time {
	var began time.Time
	for _, w := range r.Workers {
		if began.IsZero() || !w.Joined.IsZero() && w.Joined.Before(began) {
			began = w.Joined
		}
	}
	return began
}

// Absent lists the ids that no worker of a job has, and those whose worker left or was lost without completing.
func (r Resource) Absent() []string {
	if r.Observed.Record == nil || r.Observed.Class() == resource.Unreadable {
		return nil
	}
	taken := map[int]bool{}
	var left, lost, open []int
	for _, w := range r.Workers {
		taken[w.ID] = true
		switch {
		case w.ID < 0:
		case w.State == Left:
			left = append(left, w.ID)
		case w.State == Lost:
			lost = append(lost, w.ID)
		}
	}
	for id := range job.Of(r.Observed.Record).Workers {
		if !taken[id] {
			open = append(open, id)
		}
	}
	slices.Sort(left)
	slices.Sort(lost)
	var lines []string
	if len(left) > 0 {
		lines = append(lines, text.Count(len(left), "worker")+" left without completing: id "+ranges(left))
	}
	if len(lost) > 0 {
		who := text.Plural(len(lost), "worker was", "workers were")
		lines = append(lines, who+" lost without completing (killed or cut off): id "+ranges(lost))
	}
	if len(open) > 0 {
		lines = append(lines, text.Plural(len(open), "worker has", "workers have")+" not joined yet: id "+ranges(open))
	}
	return lines
}

// ranges is "0, 3-5, 9" for sorted ids.
func ranges(ids []int) string {
	var parts []string
	for len(ids) > 0 {
		n := 1
		for n < len(ids) && ids[n] == ids[0]+n {
			n++
		}
		part := fmt.Sprint(ids[0])
		if n > 1 {
			part = fmt.Sprintf("%d-%d", ids[0], ids[n-1])
		}
		parts = append(parts, part)
		ids = ids[n:]
	}
	return strings.Join(parts, ", ")
}

// jobs is how jobs are shown, and what has no Record.
type jobs struct{ plain }

func (jobs) Columns() []string { return []string{"joined", "live", "done", "restarts", "last run"} }

func (jobs) Cells(r Resource, now time.Time) []string {
	o := &r.Observed
	return []string{
		OfN(job.Joined(o), o), Number(o.Live, o), Number(job.Done(o), o), known(r.Restarts), LastRun(o, now, true),
	}
}

// RunName is the name of a run as it is shown: what is not printable escaped, and cut if it is long.
func RunName(id string) string {
	const most = 64
	return text.Cut(text.Visible(id), most)
}

// LastRun says when the last run completed, and its name: "2026-07-01T02:00:00Z (3h ago, nightly/12)"; in brief "3h ago
// (nightly/12)".
func LastRun(o *resource.Observed, now time.Time, brief bool) string {
	last := job.LastRun(o.Record)
	if last == nil {
		return "-"
	}
	ago := ""
	if t, err := time.Parse(time.RFC3339, last.Completed); err == nil && !now.IsZero() {
		ago = Ago(now, t)
	}
	parts := text.NonEmpty(last.Completed, ago, RunName(last.ID))
	if brief && ago != "" {
		parts = parts[1:]
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return parts[0] + " (" + strings.Join(parts[1:], ", ") + ")"
}

// Sections are who works for a job, and the barriers that are under way.
func (jobs) Sections(r Resource, now time.Time) []Section {
	workers := [][]string{{"id", "identity", "address", "state", AgeHeading(now, "age"), "restarts", "last exit"}}
	for _, w := range r.Workers {
		id := "-"
		if w.ID >= 0 {
			id = fmt.Sprint(w.ID)
		}
		workers = append(workers, []string{
			id, w.Identity, OrDash(w.Address), string(w.State), Age(now, w.Since), known(w.Restarts), OrDash(w.LastExit),
		})
	}
	// These stand last: a narrow terminal leaves them out first.
	addColumn(workers, "rack", r.Workers, func(w Worker) string { return w.Rack })
	addColumn(workers, "data center", r.Workers, func(w Worker) string { return w.Datacenter })
	var more []string
	if r.MoreWorkers > 0 {
		more = []string{text.Thousands(r.MoreWorkers) +
			" more have claims, far more than the job can have workers: somebody wrote them by hand"}
	}
	barriers := [][]string{{"barrier", "round", "attempt", AgeHeading(now, "age"), "arrived", "missing"}}
	for _, b := range r.Barriers {
		barriers = append(barriers, []string{
			b.Title(), fmt.Sprint(b.Round), fmt.Sprint(b.Attempt), Age(now, b.Since), b.ArrivedText(),
			b.MissingText(r.Workers),
		})
	}
	return []Section{
		{Lines: r.Gang.Lines(job.Of(r.Observed.Record).Workers, now)}, {Table: workers}, {Lines: more}, {Table: barriers},
	}
}

// addColumn adds a column to the table of these workers, unless all are silent.
func addColumn(table [][]string, heading string, workers []Worker, of func(Worker) string) {
	if !slices.ContainsFunc(workers, func(w Worker) bool { return of(w) != "" }) {
		return
	}
	table[0] = append(table[0], heading)
	for i, w := range workers {
		table[i+1] = append(table[i+1], OrDash(of(w)))
	}
}

func (jobs) Explained(r Resource, now time.Time) []Section {
	var barriers []string
	for _, b := range r.Barriers {
		barriers = append(barriers, fmt.Sprintf("%s, round %d, attempt %d: %s arrived, the first %s; missing: %s", b.Title(),
			b.Round, b.Attempt, b.ArrivedText(), Ago(now, b.Since), b.MissingText(r.Workers)))
	}
	gang := r.Gang.Lines(job.Of(r.Observed.Record).Workers, now)
	return []Section{{Heading: "the gang", Lines: gang}, {Heading: "barriers under way", Lines: barriers}}
}

// Progress is "3 of 8 joined, 2 done".
func (jobs) Progress(o *resource.Observed) string {
	s := append(make([]byte, 0, 64), text.Thousands(job.Joined(o))...) // the page draws it for every job
	if n := job.Of(o.Record).Workers; n > 0 {
		s = append(append(s, " of "...), text.Thousands(n)...)
	}
	s = append(s, " joined"...)
	if n := job.Done(o); n > 0 {
		s = append(append(append(s, ", "...), text.Thousands(n)...), " done"...)
	}
	return string(s)
}

func (jobs) Figures(o *resource.Observed) []Figure {
	all := []Figure{
		{"joined", "", job.Joined(o), job.Of(o.Record).Workers}, {"live", okIf(o.Live), o.Live, 0},
		{"completed", "", job.Done(o), 0},
	}
	if left := job.Left(o); left > 0 && o.Record != nil {
		all = append(all, Figure{"left or lost", "bad", left, 0})
	}
	return all
}

func (jobs) Gauges(r Resource) []Gauge {
	var all []Gauge
	rec := r.Observed.Record
	if rec != nil {
		all = append(all, Gauge{"workers", "Workers that are declared.", float64(job.Of(rec).Workers)})
	}
	if r.Restarts != nil {
		all = append(all, Gauge{"restarts", "How often its workers joined again in this run.", float64(*r.Restarts)})
	}
	if g := r.Gang; g != nil {
		all = append(all, Gauge{"gang_attempt", "Which attempt of the gang is the newest, from 1.", float64(g.Attempt)},
			Gauge{"gang_restarts_used", "How many restarts of the gang were used.", float64(g.Used)},
			Gauge{"gang_spares", "How many spares of the gang wait.", float64(len(g.Spares))})
	}
	if last := job.LastRun(rec); last != nil {
		if t, err := time.Parse(time.RFC3339, last.Completed); err == nil {
			at := float64(t.UnixMilli()) / 1000
			all = append(all, Gauge{"last_completed_timestamp_seconds", "When the last run completed.", at})
		}
	}
	return all
}

func (jobs) document(r Resource, common resourceJSON) any {
	o := &r.Observed
	out := struct {
		resourceJSON
		Classic   bool      `json:"classic"`
		N         int       `json:"n,omitempty"`
		Joined    *int      `json:"joined,omitempty"`
		Done      *int      `json:"done,omitempty"`
		Restarts  *int      `json:"restarts,omitempty"`
		LastRun   string    `json:"last_run,omitempty"`
		LastRunID string    `json:"last_run_id,omitempty"`
		Gang      *Gang     `json:"gang,omitempty"`
		Barriers  []Barrier `json:"barriers,omitempty"` // under way
		Workers   []Worker  `json:"workers,omitempty"`
	}{
		resourceJSON: common, Classic: o.Classic, N: job.Of(o.Record).Workers, Restarts: r.Restarts, Gang: r.Gang,
		Barriers: r.Barriers, Workers: r.Workers,
	}
	if common.Live != nil {
		out.Joined, out.Done = new(job.Joined(o)), new(job.Done(o))
	}
	if last := job.LastRun(o.Record); last != nil {
		out.LastRun, out.LastRunID = last.Completed, last.ID
	}
	return out
}

func (jobs) meaning(o *resource.Observed) string {
	if o.Status() == resource.StatusReady {
		return "nobody has joined this generation"
	}
	if o.Classic {
		return fmt.Sprintf("made by workers of the classic controller: %d in the roll, %d live", job.Joined(o), o.Live)
	}
	counts := fmt.Sprintf("%s joined, %d live, %d completed, %d left without completing",
		OfN(job.Joined(o), o), o.Live, job.Done(o), job.Left(o))
	switch o.Status() {
	case job.Completed:
		return fmt.Sprintf("all %d workers completed", job.Of(o.Record).Workers)
	case job.Forming:
		return "fewer than all have joined: " + counts
	case resource.StatusStale:
		return "nobody is live and somebody left without completing: " + counts
	case job.Degraded:
		return "all have joined, and some left without completing: " + counts
	}
	return "all have joined and none is missing: " + counts
}

func (jobs) next(r Resource) string {
	at, quoted := r.Path, text.ShellWord(r.Path)
	if r.Gang != nil && r.Gang.State == GangFailed {
		return "muster apply replaces it: a gang that has failed does not begin again"
	}
	switch status := r.Observed.Status(); {
	case r.Gang != nil && status == resource.StatusReady:
		return "muster worker --job " + text.ShellWord(path.Base(at)) + rootFlag(at) + " -- COMMAND"
	case r.Gang != nil && status == job.Degraded && len(r.Gang.Spares) > 0:
		return "nothing: a spare takes the id of who is gone, unless that comes back before"
	}
	switch r.Observed.Status() {
	case resource.StatusReady:
		return "muster worker --job " + text.ShellWord(path.Base(at)) + rootFlag(at) +
			", or the same with -- COMMAND at its end"
	case job.Forming:
		return "muster status " + quoted + " --watch, or start the workers that have not joined"
	case job.Degraded:
		return "restart the workers that left (they keep their ids), or muster terminate " + quoted
	case resource.StatusStale:
		return "restart the workers that left (they keep their ids), or muster apply replaces it"
	case job.Completed:
		return "muster plan tells whether it will be made anew"
	}
	return ""
}

// rootFlag is the flag that names the root of a path, unless that is the usual one.
func rootFlag(at string) string {
	if root := path.Dir(at); root != resource.DefaultRoot {
		return " --root " + text.ShellWord(root)
	}
	return ""
}
