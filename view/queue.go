package view

import (
	"fmt"
	"path"
	"strings"
	"time"

	"muster/resource"
	"muster/resource/queue"
	"muster/text"
)

// Queue is who is in a queue and which batches it has, as status and explain show it.
type Queue struct {
	First     string    `json:"first,omitempty"`     // identity of the process that looks after the queue
	Processes []Process `json:"processes,omitempty"` // the live ones, by role and identity
	Batches   []Batch   `json:"batches,omitempty"`   // unfinished ones, the oldest first
	Lost      []string  `json:"lost,omitempty"`      // ids of batches that Redis does not have; not all, if many
	Failed    []string  `json:"failed,omitempty"`    // ids of batches that watchers get no more; not all, if many
	Refused   string    `json:"redis_refuses,omitempty"`
	Full      int64     `json:"full,omitempty"`   // bytes in Redis, if nothing is executed because of them; else 0
	Unread    []string  `json:"unread,omitempty"` // znodes that cannot be decoded, and why
}

// Process is one live process of a queue.
type Process struct {
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

// BatchRow is one unfinished batch, as ZooKeeper and Redis have it. Its State is also "completed", "lost", "broken", or
// "stopped": it has tasks that wait, and nothing of the queue is executed, since Redis holds too much.
type BatchRow struct {
	Batch
	*BatchCounts
}

// BatchCounts is what only Redis knows of a batch; absent if it is not known.
type BatchCounts struct {
	Waiting  int64  `json:"waiting"` // for an executor, also after a failure
	InHand   int64  `json:"in_hand"`
	Done     int64  `json:"done"`
	Dead     int64  `json:"dead"`
	Attempts int    `json:"attempts"`          // of a task, and of a watcher
	Tries    int    `json:"tries,omitempty"`   // of watchers that failed
	Because  string `json:"because,omitempty"` // why the last of them did
	Watched  bool   `json:"watched,omitempty"` // a watcher has it
	Broken   string `json:"broken,omitempty"`  // keys in Redis do not fit
}

// BatchDetail is one batch, also one that has ended.
type BatchDetail struct {
	BatchRow
	Queue       string    `json:"queue"` // its path
	SHA256      string    `json:"sha256"`
	How         string    `json:"how,omitempty"` // it ended; empty: it has not
	EndedBy     string    `json:"ended_by,omitempty"`
	Ended       time.Time `json:"ended,omitzero"`
	Generation  string    `json:"generation"`
	TaskTimeout string    `json:"task_timeout"`
}

// Stopped is the state of an open batch that cannot go on, because Redis holds more than twice max_bytes.
const Stopped = "stopped"

// Next says what can be done with a batch; empty: nothing need be.
func (d BatchDetail) Next() string {
	at := text.ShellWord(d.Queue + "/" + d.ID)
	switch c := d.BatchCounts; {
	case d.State == "lost":
		return "submit it again with its --id, or: muster queue cancel " + at
	case d.State == "broken":
		return "muster queue cancel " + at
	case d.State == Stopped:
		return "raise max_bytes of the queue and apply; or, to give this batch up: muster queue cancel " + at
	case c != nil && c.Dead > 0:
		return "muster queue batches " + at + " --dead shows why; muster queue retry " + at + " tries them again"
	case c != nil && c.Tries > 0:
		return "muster queue retry " + at + " lets watchers have it again"
	case d.State == "paused":
		return "muster queue resume " + at
	}
	return ""
}

// MaxShownBatches is how many batches the text of a queue shows.
const MaxShownBatches = 20

// Amiss says what only the processes of the queue can know, and what cannot be read.
func (d Queue) Amiss() []string {
	var lines []string
	if len(d.Lost) > 0 {
		lines = append(lines, "Redis does not have "+text.List(d.Lost, MaxShownBatches))
	}
	if len(d.Failed) > 0 {
		lines = append(lines, "no watcher gets "+text.List(d.Failed, MaxShownBatches)+" any more")
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

type queues struct{ plain }

func (queues) Columns() []string { return []string{"members and batches"} }

// Sections are the live processes of a queue, its batches, and what is amiss.
func (queues) Sections(r Resource, now time.Time) []Section {
	d := r.Queue
	if d == nil {
		return nil
	}
	var where []string
	if at := queue.Of(r.Observed.Record).Redis; HasCounts(&r.Observed) && at != "" {
		where = []string{"redis: " + at}
	}
	processes := [][]string{{"role", "process", "host", "parallel", AgeHeading(now, "age")}}
	for _, m := range d.Processes {
		processes = append(processes, []string{
			string(m.Role), m.Identity, OrDash(m.Host), OrDash(m.Parallel), Age(now, m.Since),
		})
	}
	batches := [][]string{{"batch", "state", "tasks", "size", "weight", "results", "by", AgeHeading(now, "age")}}
	for _, b := range d.Batches[:min(len(d.Batches), MaxShownBatches)] {
		batches = append(batches, []string{
			b.ID, b.State, fmt.Sprint(b.Tasks), text.Size(b.Bytes), fmt.Sprint(b.Weight), string(b.Results), b.By,
			Age(now, b.Since),
		})
	}
	if more := len(d.Batches) - MaxShownBatches; more > 0 {
		batches = append(batches, []string{fmt.Sprintf("and %d more", more)})
	}
	return []Section{{Lines: where}, {Table: processes}, {Table: batches}, {Heading: "amiss", Lines: d.Amiss()}}
}

func (queues) Explained(r Resource, _ time.Time) []Section {
	if r.Queue == nil {
		return nil
	}
	return []Section{{Heading: "amiss", Lines: r.Queue.Amiss()}}
}

func (queues) Progress(o *resource.Observed) string {
	f := queue.FoundOf(o)
	return text.Count(f.Executors, "executor") + ", " + text.Count(f.Watchers, "watcher") + ", " +
		text.Plural(f.Batches, "batch", "batches")
}

func (queues) Figures(o *resource.Observed) []Figure {
	f := queue.FoundOf(o)
	word := func(n int, one, many string) string {
		if n == 1 {
			return one
		}
		return many
	}
	return []Figure{
		{word(f.Executors, "executor", "executors"), okIf(f.Executors), f.Executors, 0},
		{word(f.Watchers, "watcher", "watchers"), okIf(f.Watchers), f.Watchers, 0},
		{word(f.Batches, "unfinished batch", "unfinished batches"), "", f.Batches, 0},
	}
}

func (queues) document(r Resource, common resourceJSON) any {
	out := struct {
		resourceJSON
		Redis  string         `json:"redis"`
		Counts map[string]int `json:"counts,omitempty"`
		*Queue
	}{resourceJSON: common, Redis: queue.Of(r.Observed.Record).Redis, Queue: r.Queue}
	if common.Live != nil {
		out.Counts = queue.FoundOf(&r.Observed).Counts()
		out.Counts["live"] = *common.Live
	}
	out.Live = nil // it is one of the counts
	return out
}

func (queues) next(r Resource) string {
	if !HasCounts(&r.Observed) {
		return ""
	}
	f, at := queue.FoundOf(&r.Observed), text.ShellWord(r.Path)
	where := text.ShellWord(path.Base(r.Path)) + " --root " + text.ShellWord(path.Dir(r.Path))
	var all []string
	add := func(when bool, what string) {
		if when {
			all = append(all, what)
		}
	}
	add(f.Waiting > 0 && f.Watchers == 0,
		"muster queue batches "+where+" shows whether an executor or a watcher is missing")
	add(f.Waiting > 0 && f.Watchers > 0, "muster executor "+where+" -- CMD executes what waits")
	add(f.Completed > 0, "muster watcher "+where+" -- CMD collects what is completed")
	add(f.Full, "raise max_bytes and apply, or give a batch up: muster queue batches "+at+" shows them")
	add(f.Refused && r.Queue == nil, "muster explain "+at+" says what Redis refuses")
	if r.Queue == nil || len(r.Queue.Lost)+len(r.Queue.Failed) == 0 { // which ones is not known here
		add(f.Lost > 0 || f.Failed > 0,
			"muster queue batches "+at+" shows which of them, and what to do with it")
		return strings.Join(all, "; ")
	}
	if lost := r.Queue.Lost; len(lost) > 0 {
		all = append(all, "submit "+text.List(lost, 3)+" again with the same --id, or muster queue cancel "+
			text.ShellWord(r.Path+"/"+lost[0]))
	}
	if failed := r.Queue.Failed; len(failed) > 0 {
		batch := text.ShellWord(r.Path + "/" + failed[0])
		all = append(all, "muster queue batches "+batch+" says why watchers failed",
			"muster queue retry "+batch+" lets them try again")
	}
	return strings.Join(all, "; ")
}
