package lines

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/resource/queue"
	"muster/tasks"
	"muster/tasks/store"
	"muster/wrap/command"
)

const long, short = time.Minute, 500 * time.Millisecond

// given is a source of tasks that are there from the start. Returned and repeated ones come again.
type given struct {
	t       *testing.T
	mu      sync.Mutex
	waits   []*tasks.Task
	open    int // taken, and not finished
	changed chan struct{}
	over    map[*tasks.Task]context.CancelCauseFunc
	alive   map[*tasks.Task]context.Context

	results  map[int64]string // by index: "done 42", "dead why"
	again    []string         // "3 why": the failures, in order
	returned int
	taken    int
}

// newGiven makes a source of tasks, with indexes from 0.
func newGiven(t *testing.T, payloads ...string) *given {
	g := &given{
		t: t, changed: make(chan struct{}), results: map[int64]string{},
		over: map[*tasks.Task]context.CancelCauseFunc{}, alive: map[*tasks.Task]context.Context{},
	}
	for i, p := range payloads {
		task := &tasks.Task{Batch: "b", Index: int64(i), Attempt: 1, Payload: []byte(p), Timeout: long}
		g.waits = append(g.waits, task)
		g.alive[task], g.over[task] = context.WithCancelCause(context.Background())
	}
	return g
}

func (g *given) Take(ctx context.Context) (*tasks.Task, error) {
	for {
		g.mu.Lock()
		t := g.take()
		changed, drained := g.changed, g.open == 0
		g.mu.Unlock()
		switch {
		case t != nil:
			return t, nil
		case drained:
			return nil, tasks.ErrDrained
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// take takes the first task. The caller holds mu.
func (g *given) take() *tasks.Task {
	if len(g.waits) == 0 {
		return nil
	}
	t := g.waits[0]
	g.waits = g.waits[1:]
	g.open++
	g.taken++
	return t
}

func (g *given) Finish(t *tasks.Task, o store.Outcome, took time.Duration, data []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	a := tasks.DecodeAnswer(data)
	switch {
	case o == store.Done:
		g.results[t.Index] = "done " + string(a.Body)
	case o == store.Never || t.Attempt == 2:
		g.results[t.Index] = "dead " + string(a.Body)
	default:
		g.waits = append(g.waits, t)
		t.Attempt++
	}
	if o != store.Done {
		g.again = append(g.again, fmt.Sprintf("%d %s", t.Index, a.Body))
	}
	g.open--
	g.change()
}

func (g *given) Return(t *tasks.Task) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.returned++
	g.open--
	if g.alive[t].Err() == nil {
		g.waits = append([]*tasks.Task{t}, g.waits...)
	}
	g.change()
}

// change wakes everybody who waits. The caller holds mu.
func (g *given) change() {
	close(g.changed)
	g.changed = make(chan struct{})
}

func (g *given) Alive(t *tasks.Task) context.Context {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.alive[t]
}

// crewOf is a crew that runs sh with a script, or another command, for these tasks.
func crewOf(t *testing.T, g *given, lines Format, argv ...string) *Crew {
	t.Helper()
	path, err := command.LookUp(argv[0])
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { null.Close() })
	q := queue.Default()
	q.MaxTask = 4096
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	w := &Crew{
		Source: g, Queue: func() queue.Queue { return q }, Kill: t.Context(), Log: log,
		Fleet: command.NewFleet(nil, nil, log), Path: path, Argv: argv, Environ: os.Environ(), Null: null, Stderr: null,
		Grace: func() time.Duration { return short }, Lines: lines,
	}
	return w
}

func (w *Crew) runAll(t *testing.T, parallel int) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := w.Run(ctx, parallel)
	if ctx.Err() != nil {
		t.Fatal("the tasks take a minute")
	}
	return err
}

// want checks what became of the tasks, in order.
func (g *given) want(results ...string) {
	g.t.Helper()
	for i, want := range results {
		if got := g.results[int64(i)]; got != want {
			g.t.Errorf("task %d: %q, want %q", i, got, want)
		}
	}
	if len(g.results) != len(results) || g.open != 0 {
		g.t.Errorf("%d results, want %d; %d are open", len(g.results), len(results), g.open)
	}
}

// TestAProcessATask: what a command does decides what becomes of its task.
func TestAProcessATask(t *testing.T) {
	for name, c := range map[string]struct {
		command []string
		task    string
		want    string
		again   string // the reason of the first attempt
	}{
		"input":         {[]string{"sh", "-c", "tr a-z A-Z"}, "hello\nworld", "done HELLO\nWORLD", ""},
		"argument":      {[]string{"echo", "-n", "<{}>", "{}"}, "a b'c", "done <a b'c> a b'c", ""},
		"argument_only": {[]string{"sh", "-c", "cat; echo -n $0", "{}"}, "x", "done x", ""},
		"environment": {
			[]string{"sh", "-c", "echo -n $MUSTER_BATCH/$MUSTER_TASK/$MUSTER_ATTEMPT"}, "", "done b/0/1", "",
		},
		"binary":        {[]string{"cat"}, "\x00\xff\n\x00", "done \x00\xff\n\x00", ""},
		"ignores_input": {[]string{"echo", "-n", "42"}, strings.Repeat("x", 1<<20), "done 42", ""},
		"zero_argument": {
			[]string{"echo", "{}"}, "a\x00b",
			"dead byte 1 of the task is zero, so it cannot be an argument: without {} the command gets it on standard input",
			"",
		},
		"long_argument": {
			[]string{"echo", "{}"}, strings.Repeat("x", 300<<10),
			"dead the task has 307200 bytes, which is too long for an argument: " +
				"without {} the command gets it on standard input", "",
		},
		"fails":  {[]string{"sh", "-c", "echo one >&2; echo two >&2; exit 3"}, "", "dead exit 3: two", "exit 3: two"},
		"signal": {[]string{"sh", "-c", "kill -SEGV $$"}, "", "dead ended by SIGSEGV", "ended by SIGSEGV"},
		"never":  {[]string{"sh", "-c", "echo bad >&2; exit 65"}, "", "dead exit 65: bad", ""},
		"large":  {[]string{"sh", "-c", "yes"}, "", "dead the result is larger than max_task, 4KiB", ""},
		"left_behind": { // it holds standard output open, and ignores TERM
			[]string{"sh", "-c", "(trap '' TERM; while :; do sleep 1; done) & echo -n 42"}, "", "done 42", "",
		},
		"escaped": {
			[]string{"sh", "-c", "setsid sleep 20 2>/dev/null & sleep 0.1; echo -n 42"}, "", "done 42", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGiven(t, c.task)
			if err := crewOf(t, g, None, c.command...).runAll(t, 1); err != nil {
				t.Fatal(err)
			}
			g.want(c.want)
			if c.again != "" && (len(g.again) != 2 || g.again[0] != "0 "+c.again) {
				t.Errorf("failures %q", g.again)
			}
		})
	}
}
