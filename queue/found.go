package queue

import (
	"strings"

	"muster/resource"
	"muster/text"
)

// The counts of a queue, besides the live processes.
const (
	executors = "executors"      // live ones
	watchers  = "watchers"       // live ones
	batches   = "batches"        // unfinished ones
	waiting   = "waiting"        // open batches, while no executor is live
	completed = "completed"      // completed batches, while no watcher is live
	lost      = "lost_batches"   // unfinished batches that Redis does not have
	failed    = "failed_batches" // completed batches that watchers get no more
	refused   = "refused"        // 1 if Redis refuses
	full      = "full"           // 1 if Redis holds more than twice max_bytes
)

func counts() []resource.Count {
	return []resource.Count{
		{Name: executors, Word: "executors"}, {Name: watchers, Word: "watchers"},
		{Name: batches, Word: "unfinished batches"}, {Name: waiting, Word: "waiting for executors"},
		{Name: completed, Word: "waiting for watchers"}, {Name: lost, Word: "lost in Redis"},
		{Name: failed, Word: "failed in watchers"}, {Name: refused, Word: "refused by Redis"},
		{Name: full, Word: "above twice max_bytes"},
	}
}

// Found is what was counted of a queue.
type Found struct {
	Executors, Watchers int  // live ones
	Batches             int  // unfinished ones
	Waiting             int  // open batches, while no executor is live
	Completed           int  // completed batches, while no watcher is live
	Lost                int  // unfinished batches that Redis does not have
	Failed              int  // completed batches that watchers get no more
	Refused             bool // Redis refuses what the processes ask
	Full                bool // Redis holds more than twice max_bytes: nothing is executed until a batch ends
}

// Counts are f as the counts of an observation.
func (f Found) Counts() map[string]int {
	all := map[string]int{
		executors: f.Executors, watchers: f.Watchers, batches: f.Batches, waiting: f.Waiting, completed: f.Completed,
		lost: f.Lost, failed: f.Failed, refused: 0, full: 0,
	}
	if f.Refused {
		all[refused] = 1
	}
	if f.Full {
		all[full] = 1
	}
	return all
}

// FoundOf is what was counted of o.
func FoundOf(o *resource.Observed) Found {
	return Found{
		o.Count(executors), o.Count(watchers), o.Count(batches), o.Count(waiting), o.Count(completed), o.Count(lost),
		o.Count(failed), o.Count(refused) > 0, o.Count(full) > 0,
	}
}

// The statuses of queues, besides those of every kind.
const (
	// Degraded: batches wait and nobody is there for them, or fail, or Redis lost data, refuses or holds too much.
	Degraded resource.Status = "degraded"
	Running  resource.Status = "running" // processes are live, and nothing is amiss
)

// Classify implements resource.Declaration. A queue without live processes is idle, also if batches wait in it: the
// processes may only be restarting.
func (q Queue) Classify(o *resource.Observed) (resource.Class, resource.Status) {
	degraded := len(FoundOf(o).amiss()) > 0
	switch {
	case o.Live == 0 && degraded:
		return resource.Idle, Degraded
	case o.Live == 0:
		return resource.Idle, resource.StatusReady
	case degraded:
		return resource.Degraded, Degraded
	}
	return resource.Live, Running
}

// amiss says why a queue is degraded.
func (f Found) amiss() []string {
	var all []string
	if f.Waiting > 0 && f.Watchers == 0 { // what is completed is not known while nobody is live
		all = append(all, text.Plural(f.Waiting, "batch waits", "batches wait")+" and no process is live")
	} else if f.Waiting > 0 {
		all = append(all, text.Plural(f.Waiting, "batch waits", "batches wait")+" and nobody executes")
	}
	if f.Completed > 0 {
		all = append(all, text.Plural(f.Completed, "batch is completed", "batches are completed")+" and nobody watches")
	}
	if f.Lost > 0 {
		all = append(all, "Redis lost "+text.Plural(f.Lost, "batch", "batches"))
	}
	if f.Failed > 0 {
		all = append(all, "watchers failed with "+text.Plural(f.Failed, "batch", "batches")+" for the last time")
	}
	if f.Refused {
		all = append(all, "Redis refuses what it is asked")
	}
	if f.Full {
		all = append(all, "nothing is executed: Redis holds more than twice max_bytes")
	}
	return all
}

// Health implements resource.Declaration: "3 executors, 1 watcher, 2 unfinished batches".
func (q Queue) Health(o *resource.Observed) string {
	f := FoundOf(o)
	s := text.Count(f.Executors, "executor") + ", " + text.Count(f.Watchers, "watcher") + ", " +
		text.Plural(f.Batches, "unfinished batch", "unfinished batches")
	return strings.Join(append([]string{s}, f.amiss()...), "; ")
}

// LiveText implements resource.Declaration: "3 executors and 1 watcher are live".
func (q Queue) LiveText(o *resource.Observed) string {
	f, live := FoundOf(o), o.Live-len(o.Strangers)
	var who []string
	if f.Executors > 0 {
		who = append(who, text.Count(f.Executors, "executor"))
	}
	if f.Watchers > 0 {
		who = append(who, text.Count(f.Watchers, "watcher"))
	}
	if others := live - f.Executors - f.Watchers; others > 0 {
		who = append(who, text.Count(others, "other"))
	}
	verb := " are live"
	if live == 1 {
		verb = " is live"
	}
	if len(who) == 0 {
		return "nobody is live"
	}
	return text.And(who) + verb
}

// Progress implements resource.Declaration. A queue with unfinished batches is neither deleted nor replaced, so nothing
// is lost that anybody waits for.
func (q Queue) Progress(o *resource.Observed) (what string, work bool) {
	if o.Live == 0 && FoundOf(o).Batches == 0 {
		return "", false
	}
	return q.Health(o), false
}
