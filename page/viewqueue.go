package page

import (
	"cmp"
	"fmt"
	"time"

	"muster/text"
	"muster/view"
)

// queue shows the batches and the processes of a queue.
func (p *painter) queue(d *Detail) {
	p.batches(d)
	if d.Queue != nil && len(d.Queue.Processes) > 0 {
		p.processes(d)
	}
	if len(d.Dead) > 0 {
		p.dead(d.Dead)
	}
}

// batchView is a batch with how far it is.
type batchView struct {
	ID                            string
	Name, State, By, Results      word
	Class                         string
	Tasks, Done, Dead, InHand     int
	Ended, Waiting                int
	Known                         bool
	Percent                       string
	Rate, Left, Size              string
	Weight                        int
	Since                         time.Time
	Watcher, Because, Broken, Bad word
}

func (v batchView) fragmentID() string { return v.ID }

func (p *painter) batches(d *Detail) {
	all := d.Batches
	if len(all) == 0 && d.Queue != nil {
		for _, b := range d.Queue.Batches {
			all = append(all, BatchProgress{BatchRow: view.BatchRow{Batch: b}})
		}
	}
	if len(all) == 0 {
		return
	}
	p.add(mainSlot, "batches", nil)
	for _, b := range all {
		p.add("batches-list", "batch", batchOf(b))
	}
}

func batchOf(b BatchProgress) batchView {
	c := cmp.Or(b.BatchCounts, &view.BatchCounts{})
	v := batchView{
		ID: hashID("b", b.ID), Name: word(b.ID), State: word(b.State), By: word(b.By), Results: word(b.Results),
		Tasks: int(b.Tasks), Done: int(c.Done), Dead: int(c.Dead), InHand: int(c.InHand), Waiting: int(c.Waiting),
		Ended: int(c.Done + c.Dead),
		Known: b.BatchCounts != nil, Size: text.Size(b.Bytes), Weight: b.Weight, Since: b.Since, Watcher: word(b.Watcher),
		Because: word(c.Because), Broken: word(c.Broken),
	}
	if b.Tasks > 0 {
		v.Percent = fmt.Sprintf("%d%%", 100*min(v.Ended, v.Tasks)/v.Tasks)
	}
	switch {
	case b.State == "lost" || b.State == "broken" || b.State == "stopped":
		v.Class = "bad"
	case c.Dead > 0 || b.State == "paused":
		v.Class = "warn"
	case b.State == "completed":
		v.Class = "done"
	}
	if b.PerSecond > 0 {
		v.Rate = rate(b.PerSecond)
		left := time.Duration(float64(v.Tasks-v.Ended) / b.PerSecond * float64(time.Second))
		if left > 0 {
			v.Left = "about " + roughly(left) + " left"
		}
	}
	return v
}

// rate is so many tasks in a second, or in a minute if that is few.
func rate(perSecond float64) string {
	switch {
	case perSecond >= 100:
		return text.Thousands(int(perSecond)) + "/s"
	case perSecond >= 1:
		return fmt.Sprintf("%.1f/s", perSecond)
	}
	return fmt.Sprintf("%.1f/min", perSecond*60)
}

// roughly is a duration in one unit.
func roughly(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d < 90*time.Second:
		return fmt.Sprintf("%d s", max(1, d/time.Second))
	case d < 90*time.Minute:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < 2*day:
		return fmt.Sprintf("%d h", d/time.Hour)
	}
	return fmt.Sprintf("%d days", d/day)
}

// processView is a live process of a queue, with what it has in its hand.
type processView struct {
	ID                   string
	Role, Identity, Host word
	Parallel             string
	Since                time.Time
	First                bool
	Hands                []handView
}

type handView struct {
	Tasks string
	Batch word
}

func (v processView) fragmentID() string { return v.ID }

func (p *painter) processes(d *Detail) {
	hands := map[string][]handView{}
	for _, h := range d.Hands {
		hands[h.Process] = append(hands[h.Process], handView{text.Count(h.Tasks, "task"), word(h.Batch)})
	}
	p.add(mainSlot, "processes", nil)
	for _, m := range d.Queue.Processes {
		v := processView{
			ID: hashID("p", string(m.Role), m.Identity), Role: word(m.Role), Identity: word(m.Identity), Host: word(m.Host),
			Parallel: "–", Since: m.Since, First: m.Identity == d.Queue.First, Hands: hands[m.Identity],
		}
		if m.Parallel > 0 {
			v.Parallel = fmt.Sprint(m.Parallel)
		}
		p.add("processes-list", "process", v)
	}
	known := map[string]bool{}
	for _, m := range d.Queue.Processes {
		known[m.Identity] = true
	}
	for _, h := range d.Hands { // of a process that is gone: another one takes them back
		if !known[h.Process] {
			known[h.Process] = true
			p.add("processes-list", "process", processView{
				ID: hashID("p", "", h.Process), Role: "gone", Identity: word(h.Process), Parallel: "–",
				Hands: hands[h.Process],
			})
		}
	}
}

type deadView struct {
	ID                     string
	Batch, Reason, Payload word
	Index                  int64
	Attempt                int
	Deaths                 string
	Died                   time.Time
}

func (v deadView) fragmentID() string { return v.ID }

func (p *painter) dead(all []DeadTask) {
	p.add(mainSlot, "dead", word(text.ShellWord(p.request.Path)))
	for _, t := range all {
		deaths := ""
		if t.Deaths > 0 {
			deaths = text.Plural(t.Deaths, "death", "deaths") + " of its executor"
		}
		p.add("dead-list", "deadtask", deadView{
			ID: hashID("x", t.Batch, fmt.Sprint(t.Index)), Batch: word(t.Batch), Reason: word(t.Reason),
			Payload: word(t.Payload), Index: t.Index, Attempt: t.Attempt, Deaths: deaths, Died: t.Died,
		})
	}
}
