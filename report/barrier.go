package report

import (
	"fmt"
	"time"
)

// Barrier is a round of a barrier that is under way in a job.
type Barrier struct {
	Name    string    `json:"name"`
	Start   bool      `json:"start,omitempty"` // it is the barrier of "muster worker --start barrier"
	Round   int       `json:"round"`
	Attempt int       `json:"attempt"` // 1, or more after aborted attempts
	Mode    string    `json:"mode"`
	Workers int       `json:"workers"` // how many must arrive
	Since   time.Time `json:"since"`   // the first of them arrived
	Arrived []int     `json:"arrived"` // ids, ascending
	Missing []int     `json:"missing"` // ids, ascending
}

// name is the barrier in words.
func (b Barrier) name() string {
	if b.Start {
		return "(start)"
	}
	return b.Name
}

// barriers writes a table of rounds, if there are any.
func (p *page) barriers(all []Barrier, workers []Worker, now time.Time) {
	if len(all) == 0 {
		return
	}
	rows := [][]string{{"barrier", "round", "attempt", AgeHeading(now, "age"), "arrived", "missing"}}
	for _, b := range all {
		rows = append(rows, []string{
			b.name(), fmt.Sprint(b.Round), fmt.Sprint(b.Attempt), Age(now, b.Since), b.arrived(), b.missing(workers),
		})
	}
	p.newline()
	p.table(rows)
}

func (b Barrier) arrived() string { return fmt.Sprintf("%d of %d", len(b.Arrived), b.Workers) }

// missing names who has not arrived: "id 1 (w-1, lost), id 3 (not joined)", or only the ids of many.
func (b Barrier) missing(workers []Worker) string {
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
	text := ""
	for i, id := range b.Missing {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("id %d ", id)
		switch w, joined := byID[id]; {
		case !joined:
			text += "(not joined)"
		case w.State == Live:
			text += "(" + w.Identity + ")"
		default:
			text += "(" + w.Identity + ", " + string(w.State) + ")"
		}
	}
	return text
}

// lines says the same in sentences, for explain.
func (b Barrier) line(workers []Worker, now time.Time) string {
	return fmt.Sprintf("%s, round %d, attempt %d: %s arrived, the first %s; missing: %s", b.name(), b.Round, b.Attempt,
		b.arrived(), ago(now, b.Since), b.missing(workers))
}
