package page

import (
	"slices"
	"strings"
	"time"

	"muster/apply/history"
	"muster/view"
)

// Board is what is known now, of everything that is shown. It is not changed once it is made.
type Board struct {
	At              time.Time // when it was read
	Servers         string    // of ZooKeeper, as they were given
	Connected       bool      // if not, everything is as it was at At
	Roots, Unlisted []string  // Unlisted: roots that cannot be listed, and why
	Unindexed       string    // why not all stacks are known; empty: they are
	Stacks          []Stack
	Resources       []view.Resource // of all kinds, by path
	History         []history.Found // the newest first, of the shown stacks

	last map[string]history.Found // by stack, also of stacks that are not shown
}

// resource returns what is at path.
func (b *Board) resource(path string) (view.Resource, bool) {
	i, ok := slices.BinarySearchFunc(b.Resources, path, func(j view.Resource, path string) int {
		return strings.Compare(j.Path, path)
	})
	if !ok {
		return view.Resource{}, false
	}
	return b.Resources[i], true
}

// Stack is a stack that is shown.
type Stack struct {
	Name  string
	Roots []string
	Last  *history.Found // nil: not known
}

// Detail is one resource that somebody looks at.
type Detail struct {
	view.Resource
	Problem string // why the rest could not be read; empty if it was

	// Of a queue, from Redis.
	Batches []BatchProgress // the oldest first
	Hands   []Hand
	Dead    []DeadTask // the newest first; not all, if many
	Redis   string     // why Redis does not answer; empty if it does

	link *link // the session in which it was read
}

// BatchProgress is one unfinished batch of a queue, as ZooKeeper and Redis have it.
type BatchProgress struct {
	view.BatchRow
	PerSecond float64 // tasks that ended lately, by second; 0: none, or not known
	Watcher   string  // identity of the watcher that has it
}

// Hand is how many tasks of a batch a process has.
type Hand struct {
	Process, Batch string
	Tasks          int
}

// DeadTask is a task that is not tried again.
type DeadTask struct {
	Batch           string
	Index           int64
	Attempt, Deaths int
	Died            time.Time
	Reason          string
	Payload         string // its begin
}

// Request says what is shown. It is parsed from a URL.
type Request struct {
	View   View
	Path   string // of a resource
	Filter string // words, each of which is in what is shown
	Status string
	Kind   string
	Stack  string
	Sort   string
}

// View is one of the pages.
type View string

// The views.
const (
	Overview View = "overview"
	Resource View = "resource"
	History  View = "history"
)
