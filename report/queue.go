package report

import (
	"cmp"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"muster/resource"
	"muster/resource/queue"
	"muster/text"
)

// QueueDetail is who is in a queue and which batches it has, as status and explain show it.
type QueueDetail struct {
	First     string         `json:"first,omitempty"`     // identity of the process that looks after the queue
	Processes []QueueProcess `json:"processes,omitempty"` // the live ones, by role and identity
	Batches   []Batch        `json:"batches,omitempty"`   // unfinished ones, the oldest first
	Lost      []string       `json:"lost,omitempty"`      // ids of batches that Redis does not have; not all, if many
	Failed    []string       `json:"failed,omitempty"`    // ids of batches that watchers get no more; not all, if many
	Refused   string         `json:"redis_refuses,omitempty"`
	Full      int64          `json:"full,omitempty"`   // bytes in Redis, if nothing is executed because of them; else 0
	Unread    []string       `json:"unread,omitempty"` // znodes that cannot be decoded, and why

	// Now is the time to which ages are. If it is zero, text has times instead.
	Now time.Time `json:"-"`
}

// QueueProcess is one live process of a queue.
type QueueProcess struct {
	Identity string     `json:"identity"`
	Role     queue.Role `json:"role"`
	Host     string     `json:"host,omitempty"`
	Parallel int        `json:"parallel,omitempty"` // tasks that an executor has at a time
	Since    time.Time  `json:"since"`              // it joined
	Seat     string     `json:"-"`                  // what Redis calls it; empty: it has no seat
}

// Batch is one unfinished batch.
type Batch struct {
	ID      string        `json:"id"`
	State   string        `json:"state"`
	Tasks   int64         `json:"tasks"`
	Bytes   int64         `json:"bytes"`
	Weight  int           `json:"weight"`
	Results queue.Results `json:"results"`
	By      string        `json:"by"`
	Since   time.Time     `json:"since"` // it was submitted
}

// maxShownBatches is how many batches the text of a queue shows.
const maxShownBatches = 20

// Queue writes one queue: its status, its live processes, its batches, and what the user can do next. j.Queue is set.
func Queue(w io.Writer, j JobStatus, o Options) error {
	p := newPage(w, o)
	obs, d := &j.Observed, j.Queue
	p.wrap(bold, j.Path+"  "+statusWord(obs), 2)
	p.newline()
	p.wrap(plain, meaning(obs, kindOf(obs).Name), 2)
	p.newline()
	if hasCounts(obs) && len(queue.Of(obs.Record).Redis) > 0 {
		p.wrap(plain, "redis: "+queue.Of(obs.Record).Redis, 2)
		p.newline()
	}
	if len(d.Processes) > 0 {
		p.newline()
		p.table(d.processRows())
	}
	if len(d.Batches) > 0 {
		p.newline()
		p.table(d.batchRows())
	}
	p.listSection("amiss", d.amiss())
	if n := len(obs.Strangers); n > 0 {
		p.newline()
		p.wrap(plain, text.Plural(n, "child of the queue znode is", "children of the queue znode are")+" no member: "+
			names(obs.Strangers)+"; find out whose, and remove it yourself", 2)
		p.newline()
	}
	p.created(obs, o.Now)
	if next := cmp.Or(next(obs, j.Path), nextOfQueue(obs, j.Path)); next != "" {
		p.newline()
		p.next(o.Given.Paste(next))
	}
	return p.flush()
}

func (d QueueDetail) processRows() [][]string {
	rows := [][]string{{"role", "process", "host", "parallel", AgeHeading(d.Now, "age")}}
	for _, m := range d.Processes {
		parallel := "-"
		if m.Parallel > 0 {
			parallel = fmt.Sprint(m.Parallel)
		}
		rows = append(rows, []string{string(m.Role), m.Identity, orDash(m.Host), parallel, Age(d.Now, m.Since)})
	}
	return rows
}

func (d QueueDetail) batchRows() [][]string {
	rows := [][]string{{"batch", "state", "tasks", "size", "weight", "results", "by", AgeHeading(d.Now, "age")}}
	for _, b := range d.Batches[:min(len(d.Batches), maxShownBatches)] {
		rows = append(rows, []string{
			b.ID, b.State, fmt.Sprint(b.Tasks), text.Size(b.Bytes), fmt.Sprint(b.Weight), string(b.Results), b.By,
			Age(d.Now, b.Since),
		})
	}
	if more := len(d.Batches) - maxShownBatches; more > 0 {
		rows = append(rows, []string{fmt.Sprintf("and %d more", more)})
	}
	return rows
}

// amiss says what only the processes of the queue can know, and what cannot be read.
func (d QueueDetail) amiss() []string {
	var lines []string
	if len(d.Lost) > 0 {
		lines = append(lines, "Redis does not have "+text.List(d.Lost, maxShownBatches)+
			": submit them again with the same --id")
	}
	if len(d.Failed) > 0 {
		lines = append(lines, "no watcher gets "+text.List(d.Failed, maxShownBatches)+
			" any more: muster batch QUEUE/ID says why, and muster retry QUEUE/ID lets them try again")
	}
	if d.Refused != "" {
		lines = append(lines, "Redis refuses: "+d.Refused)
	}
	if d.Full > 0 {
		lines = append(lines, "Redis holds "+text.Size(d.Full)+
			", more than twice max_bytes: nothing is executed until that is raised, or a batch is collected or cancelled")
	}
	return append(lines, d.Unread...)
}

// nextOfQueue says what the user can do about a queue that is as it should be read.
func nextOfQueue(o *resource.Observed, at string) string {
	f := queue.FoundOf(o)
	where := path.Base(at) + " --root " + path.Dir(at)
	var all []string
	switch {
	case f.Waiting > 0 && f.Watchers == 0:
		all = append(all, "muster batches "+where+" shows whether an executor or a watcher is missing")
	case f.Waiting > 0:
		all = append(all, "muster executor "+where+" -- CMD executes what waits")
	}
	if f.Completed > 0 {
		all = append(all, "muster watcher "+where+" -- CMD collects what is completed")
	}
	if f.Full {
		all = append(all, "raise max_bytes and apply, or muster cancel "+at+"/BATCH gives a batch up")
	}
	return strings.Join(all, "; ")
}

// queueJSON is one queue in the JSON of a status.
type queueJSON struct {
	Path       string          `json:"path"`
	Address    string          `json:"address,omitempty"`
	Status     resource.Status `json:"status"`
	Stack      string          `json:"stack"`
	Generation string          `json:"generation"`
	Redis      string          `json:"redis"`
	Counts     map[string]int  `json:"counts,omitempty"` // absent if they are not known
	Created    time.Time       `json:"created,omitzero"`
	Problem    string          `json:"problem,omitempty"`
	*QueueDetail
}

func queueStatus(j JobStatus) queueJSON {
	o, rec := j.Observed, j.Observed.Record
	out := queueJSON{
		Path: j.Path, Address: rec.Declaration.ID().Address, Status: o.Status(), Stack: rec.Stack,
		Generation: rec.Generation, Redis: queue.Of(rec).Redis, Problem: o.Problem, Created: o.Created, QueueDetail: j.Queue,
	}
	if hasCounts(&o) {
		out.Counts = queue.FoundOf(&o).Counts()
		out.Counts["live"] = o.Live
	}
	return out
}
