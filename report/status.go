package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/resource/queue"
	"muster/text"
)

// JobStatus is one job, or one resource of another kind, of a status table.
type JobStatus struct {
	Path     string
	Observed resource.Observed
	Restarts *int         // how often its workers joined again; nil: not read
	Barriers []Barrier    // under way; empty if they were not read
	Group    *GroupDetail // of a group; nil: not read
	Queue    *QueueDetail // of a queue; nil: not read

	MoreWorkers int // of a job: claims that are left out, because they are far more than it can have workers
}

// Worker is one worker of one job.
type Worker struct {
	ID       int         `json:"id"` // -1: none, or not known
	Identity string      `json:"identity"`
	Address  string      `json:"address"`
	State    WorkerState `json:"state"`
	Restarts *int        `json:"restarts,omitempty"`  // how often it joined again; nil: not known
	LastExit string      `json:"last_exit,omitempty"` // the last known end of its command: a code, or a signal
	Since    time.Time   `json:"since,omitzero"`      // it is in its state; absent: not known
	Joined   time.Time   `json:"joined,omitzero"`     // it joined this run for the first time; absent: not known
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

// Status writes one line for each job, and below them one line for each group and each queue.
func Status(w io.Writer, all []JobStatus, o Options) error {
	p := newPage(w, o)
	created := AgeHeading(o.Now, "age")
	jobs := [][]string{{"job", "status", created, "joined", "live", "done", "restarts", "last run"}}
	groups := [][]string{{"group", "status", created, "members and duties"}}
	queues := [][]string{{"queue", "status", created, "members and batches"}}
	for _, j := range all {
		if !isJob(&j.Observed) {
			row := []string{j.Path, statusWord(&j.Observed), Age(o.Now, j.Observed.Created), healthText(&j.Observed)}
			if kindOf(&j.Observed).Name == queue.KindName {
				queues = append(queues, row)
			} else {
				groups = append(groups, row)
			}
			continue
		}
		jobs = append(jobs, []string{
			j.Path, statusWord(&j.Observed), Age(o.Now, j.Observed.Created), ofN(job.Joined(&j.Observed), &j.Observed),
			number(j.Observed.Live, &j.Observed), number(job.Done(&j.Observed), &j.Observed),
			restarts(j.Restarts), lastRun(&j.Observed, o.Now),
		})
	}
	if len(groups) == 1 && len(queues) == 1 {
		p.table(jobs)
		return p.flush()
	}
	first := true
	for _, rows := range [][][]string{jobs, groups, queues} {
		if len(rows) == 1 {
			continue
		}
		if !first {
			p.newline()
		}
		p.table(rows)
		first = false
	}
	return p.flush()
}

// healthText counts members and what they do: "3 live, 39 of 40 duties held"; a dash if they were not read.
func healthText(o *resource.Observed) string {
	if !hasCounts(o) {
		return "-"
	}
	return o.Record.Declaration.Health(o)
}

// table writes rows in aligned columns, the first row as a heading.
func (p *page) table(rows [][]string) {
	t := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			row[i] = text.Escape(cell)
		}
		fmt.Fprintln(t, strings.TrimRight(strings.Join(row, "\t"), "\t"))
	}
	t.Flush() // p.w keeps an error
}

func statusWord(o *resource.Observed) string {
	if o.Classic {
		return string(o.Status()) + " (classic)"
	}
	return string(o.Status())
}

// hasCounts reports whether the counts of o mean something. Children of a znode that is no job are no workers, and an
// unreadable job was not counted.
func hasCounts(o *resource.Observed) bool {
	return o.Class() != resource.Foreign && o.Class() != resource.Unreadable
}

// number is a count, or a dash if there is none.
func number(n int, o *resource.Observed) string {
	if !hasCounts(o) {
		return "-"
	}
	return fmt.Sprint(n)
}

// ofN is "3 of 8", or only the count for a job without a Record.
func ofN(n int, o *resource.Observed) string {
	if o.Record == nil || !hasCounts(o) {
		return number(n, o)
	}
	return fmt.Sprintf("%d of %d", n, job.Of(o.Record).Workers)
}

func restarts(n *int) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}

// lastRun says how long ago the last run completed, and its name: "3h ago (nightly/12)".
func lastRun(o *resource.Observed, now time.Time) string {
	last := job.LastRun(o.Record)
	if last == nil {
		return "-"
	}
	when := last.Completed
	if t, err := time.Parse(time.RFC3339, when); err == nil && !now.IsZero() {
		when = ago(now, t)
	}
	if last.ID != "" {
		when += " (" + last.ID + ")"
	}
	return when
}

// lastRunAt is lastRun with the time: "2026-07-01T02:00:00Z (3h ago, nightly/12)".
func lastRunAt(o *resource.Observed, now time.Time) string {
	last := job.LastRun(o.Record)
	if last == nil {
		return "-"
	}
	var more []string
	if t, err := time.Parse(time.RFC3339, last.Completed); err == nil && !now.IsZero() {
		more = append(more, ago(now, t))
	}
	if more = append(more, nonEmpty(last.ID)...); len(more) == 0 {
		return last.Completed
	}
	return last.Completed + " (" + strings.Join(more, ", ") + ")"
}

// jobJSON is one job in the JSON of a status.
type jobJSON struct {
	Path       string          `json:"path"`
	Address    string          `json:"address,omitempty"`
	Status     resource.Status `json:"status"`
	Classic    bool            `json:"classic"`
	Stack      string          `json:"stack,omitempty"`
	Generation string          `json:"generation,omitempty"`
	N          int             `json:"n,omitempty"`
	Joined     *int            `json:"joined,omitempty"` // this and the next two are absent if they are not known
	Live       *int            `json:"live,omitempty"`
	Done       *int            `json:"done,omitempty"`
	Restarts   *int            `json:"restarts,omitempty"`
	LastRun    string          `json:"last_run,omitempty"`
	LastRunID  string          `json:"last_run_id,omitempty"`
	Created    time.Time       `json:"created,omitzero"`
	Problem    string          `json:"problem,omitempty"`
	Barriers   []Barrier       `json:"barriers,omitempty"` // under way
	Workers    []Worker        `json:"workers,omitempty"`
}

// groupJSON is one group in the JSON of a status.
type groupJSON struct {
	Path       string          `json:"path"`
	Address    string          `json:"address,omitempty"`
	Status     resource.Status `json:"status"`
	Stack      string          `json:"stack"`
	Generation string          `json:"generation"`
	Duties     int             `json:"duties"`
	Live       *int            `json:"live,omitempty"` // this and the next one are absent if they are not known
	Held       *int            `json:"held,omitempty"`
	Created    time.Time       `json:"created,omitzero"`
	Problem    string          `json:"problem,omitempty"`
	*GroupDetail
}

func groupStatus(j JobStatus) groupJSON {
	o, rec := j.Observed, j.Observed.Record
	out := groupJSON{
		Path: j.Path, Address: rec.Declaration.ID().Address, Status: o.Status(), Stack: rec.Stack,
		Generation: rec.Generation, Duties: len(group.Of(rec).Duties), Problem: o.Problem, Created: o.Created,
		GroupDetail: j.Group,
	}
	if hasCounts(&o) {
		held := group.Held(&o)
		out.Live, out.Held = &o.Live, &held
	}
	return out
}

// StatusJSON writes the jobs, groups and queues as one JSON document. Workers, by path, may be nil. last are the last
// applies of their stacks.
func StatusJSON(w io.Writer, all []JobStatus, workers map[string][]Worker, last ...Apply) error {
	doc := struct {
		FormatVersion string      `json:"format_version"`
		Jobs          []jobJSON   `json:"jobs"`
		Groups        []groupJSON `json:"groups,omitempty"`
		Queues        []queueJSON `json:"queues,omitempty"`
		LastApplies   []Apply     `json:"last_applies,omitempty"`
	}{"1.0", []jobJSON{}, nil, nil, last}
	for _, j := range all {
		switch kindOf(&j.Observed).Name {
		case group.KindName:
			doc.Groups = append(doc.Groups, groupStatus(j))
			continue
		case queue.KindName:
			doc.Queues = append(doc.Queues, queueStatus(j))
			continue
		}
		o := j.Observed
		out := jobJSON{
			Path: j.Path, Status: o.Status(), Classic: o.Classic, Restarts: j.Restarts, Problem: o.Problem,
			Created: o.Created, Barriers: j.Barriers, Workers: workers[j.Path],
		}
		if hasCounts(&o) {
			joined, done := job.Joined(&o), job.Done(&o)
			out.Joined, out.Live, out.Done = &joined, &o.Live, &done
		}
		if rec := o.Record; rec != nil {
			out.Address, out.Stack, out.Generation = rec.Declaration.ID().Address, rec.Stack, rec.Generation
			out.N = job.Of(rec).Workers
			if last := job.LastRun(rec); last != nil {
				out.LastRun, out.LastRunID = last.Completed, last.ID
			}
		}
		doc.Jobs = append(doc.Jobs, out)
	}
	return writeDocument(w, doc)
}
