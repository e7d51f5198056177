package page

import (
	"fmt"
	"time"

	"muster/resource/job"
	"muster/view"
)

// largestTable is how many workers are shown as a table. More are a grid, with a table of some that are not live.
const largestTable = 100

// job shows the workers of a job.
func (p *painter) job(d *Detail) {
	lines := d.Absent()
	if len(lines) > 0 && len(d.Workers) > 0 { // else nobody has joined, or the workers were not read
		p.add(mainSlot, "missing", words(lines))
	}
	if len(d.Barriers) > 0 {
		p.add(mainSlot, "barriers", barriersOf(d))
	}
	n := max(job.Of(d.Observed.Record).Workers, len(d.Workers))
	switch {
	case len(d.Workers) == 0:
	case n <= largestTable:
		p.workers(d.Workers, workersView{})
	default:
		p.grid(d, n)
	}
}

type barrierView struct {
	Title                   word
	Round, Attempt, Arrived int
	Workers                 int
	Since                   time.Time
	Missing                 word
}

func barriersOf(d *Detail) []barrierView {
	var all []barrierView
	for _, b := range d.Barriers {
		all = append(all, barrierView{
			word(b.Title()), b.Round, b.Attempt, len(b.Arrived), b.Workers, b.Since, word(b.MissingText(d.Workers)),
		})
	}
	return all
}

// workerView is a row of the table of workers.
type workerView struct {
	Row                     string // id of its element
	ID                      string // of the worker; a dash if it has none
	Identity, Address, Exit word
	State                   view.WorkerState
	Since                   time.Time
	Restarts                string
}

func (w workerView) fragmentID() string { return w.Row }

func workerOf(prefix string, w view.Worker) workerView {
	v := workerView{
		Row: fmt.Sprintf("%s-%d", prefix, w.ID), ID: fmt.Sprint(w.ID), Identity: word(w.Identity),
		Address: word(w.Address), State: w.State, Since: w.Since, Exit: word(w.LastExit), Restarts: "–",
	}
	if w.ID < 0 {
		v.Row, v.ID = hashID(prefix, w.Identity), "–"
	}
	if w.Restarts != nil {
		v.Restarts = fmt.Sprint(*w.Restarts)
	}
	return v
}

// workersView is the section of a table of workers.
type workersView struct {
	Apart bool   // those that need a look; the grid shows all
	More  string // how many others there are
}

func (p *painter) workers(all []view.Worker, v workersView) {
	p.add(mainSlot, "workers", v)
	for _, w := range all {
		p.add("workers-list", "worker", workerOf("w", w))
	}
}

// cellKey is what a cell of the grid shows. Cells are cached by it.
type cellKey struct {
	id                      int
	state                   view.WorkerState // empty: nobody has joined with this id
	identity, address, exit string
	since                   int64
	restarts                int // -1: not known
}

// cellView is a cell as its template shows it.
type cellView struct {
	cellID                  int
	State                   string
	Identity, Address, Exit word
	Since                   time.Time
	Restarts                int
}

// ID is that of the worker.
func (c cellView) ID() int { return c.cellID }

// grid shows a cell for each id, and tables of those that need a look: at most largestTable workers that left or were
// lost, and who has no id.
func (p *painter) grid(d *Detail, n int) {
	count := map[string]int{}
	keys := make([]cellKey, n)
	for id := range keys {
		keys[id].id = id
	}
	var apart []view.Worker
	for _, w := range d.Workers {
		if w.ID < 0 || w.State == view.Left || w.State == view.Lost {
			apart = append(apart, w)
		}
		if w.ID < 0 || w.ID >= n {
			continue
		}
		k := cellKey{w.ID, w.State, w.Identity, w.Address, w.LastExit, 0, -1}
		if !w.Since.IsZero() {
			k.since = w.Since.Unix()
		}
		if w.Restarts != nil {
			k.restarts = *w.Restarts
		}
		keys[w.ID] = k
	}
	for _, k := range keys {
		count[stateOf(k)]++
	}
	if len(apart) > 0 {
		more := moreText(max(0, len(apart)-largestTable) + d.MoreWorkers)
		p.workers(apart[:min(len(apart), largestTable)], workersView{true, more})
	}
	p.add(mainSlot, "grid", legendOf(count))
	for _, k := range keys {
		p.fragments = append(p.fragments, Fragment{fmt.Sprintf("c-%d", k.id), "cells", p.cell(k)})
	}
}

// stateOf is the state in a word, also of an id that nobody has.
func stateOf(k cellKey) string {
	if k.state == "" {
		return "absent"
	}
	return string(k.state)
}

type legend struct {
	State, Word string
	N           int
}

func legendOf(count map[string]int) []legend {
	var all []legend
	for _, l := range []legend{
		{"live", "live", 0}, {"completed", "completed", 0}, {"left", "left", 0}, {"lost", "lost", 0},
		{"absent", "not joined", 0},
	} {
		if l.N = count[l.State]; l.N > 0 {
			all = append(all, l)
		}
	}
	return all
}

func (p *painter) cell(k cellKey) string {
	return p.views.cells.html(k, func() string {
		c := cellView{k.id, stateOf(k), word(k.identity), word(k.address), word(k.exit), time.Time{}, k.restarts}
		if k.since != 0 {
			c.Since = time.Unix(k.since, 0)
		}
		return p.views.html("cell", c)
	})
}
