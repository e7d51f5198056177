package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"muster/job"
	"muster/planfile"
	"muster/resource"
	"muster/text"
)

// JobStatus is one job of a status table.
type JobStatus struct {
	Path     string
	Observed resource.Observed
	Restarts *int // lives of its workers beyond their first; nil: not read
}

// Worker is one worker of one job.
type Worker struct {
	ID       int         `json:"id"` // -1: none, or not known
	Identity string      `json:"identity"`
	Address  string      `json:"address"`
	State    WorkerState `json:"state"`
	Restarts *int        `json:"restarts,omitempty"`  // lives beyond its first; nil: not known
	LastExit string      `json:"last_exit,omitempty"` // of the latest life that ended with one: a code, or a signal
}

// WorkerState is where a worker stands.
type WorkerState string

// The states of a worker. Left and Lost are those that left without completing: one that left said so, and one that is lost was
// killed, or cut off until its session had ended.
const (
	Live      WorkerState = "live"
	Completed WorkerState = "completed"
	Left      WorkerState = "left"
	Lost      WorkerState = "lost"
)

// Status writes one line a job.
func Status(w io.Writer, jobs []JobStatus, o Options) error {
	p := newPage(w, o)
	rows := [][]string{{"job", "status", "joined", "live", "done", "restarts", "last run"}}
	for _, j := range jobs {
		rows = append(rows, []string{
			j.Path, statusWord(&j.Observed), ofN(job.Joined(&j.Observed), &j.Observed), number(j.Observed.Live, &j.Observed),
			number(job.Done(&j.Observed), &j.Observed), restarts(j.Restarts), lastRun(&j.Observed),
		})
	}
	p.table(rows)
	return p.flush()
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
	t.Flush() // an error of the writer sticks to p.w
}

func statusWord(o *resource.Observed) string {
	if o.Classic {
		return string(o.Status()) + " (classic)"
	}
	return string(o.Status())
}

// counted reports whether the counts of o are facts: children of what is not a job are no workers, and what could not be
// read was not counted.
func counted(o *resource.Observed) bool {
	return o.Class() != resource.Foreign && o.Class() != resource.Unreadable
}

// number is a count, or a dash where there is none.
func number(n int, o *resource.Observed) string {
	if !counted(o) {
		return "-"
	}
	return fmt.Sprint(n)
}

// ofN is "3 of 8"; what is not a job of muster tells no N.
func ofN(n int, o *resource.Observed) string {
	if o.Record == nil || !counted(o) {
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

func lastRun(o *resource.Observed) string {
	last := job.LastRun(o.Record)
	switch {
	case last == nil:
		return "-"
	case last.ID != "":
		return last.Completed + " (" + last.ID + ")"
	}
	return last.Completed
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
	Joined     *int            `json:"joined,omitempty"` // this and the next two: absent where they are not known
	Live       *int            `json:"live,omitempty"`
	Done       *int            `json:"done,omitempty"`
	Restarts   *int            `json:"restarts,omitempty"`
	LastRun    string          `json:"last_run,omitempty"`
	LastRunID  string          `json:"last_run_id,omitempty"`
	Problem    string          `json:"problem,omitempty"`
	Workers    []Worker        `json:"workers,omitempty"`
}

// StatusJSON writes the jobs as one JSON document. Workers, by path, may be nil.
func StatusJSON(w io.Writer, jobs []JobStatus, workers map[string][]Worker) error {
	doc := struct {
		FormatVersion string    `json:"format_version"`
		Jobs          []jobJSON `json:"jobs"`
	}{"1.0", []jobJSON{}}
	for _, j := range jobs {
		o := j.Observed
		out := jobJSON{
			Path: j.Path, Status: o.Status(), Classic: o.Classic, Restarts: j.Restarts, Problem: o.Problem, Workers: workers[j.Path],
		}
		if counted(&o) {
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
	body, err := planfile.CanonicalJSON(doc)
	if err == nil {
		_, err = w.Write(append(body, '\n'))
	}
	return err
}
