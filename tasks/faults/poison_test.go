package faults

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/dev/zkserver"
	"muster/resource"
	"muster/resource/queue"
	"muster/sim/rig"
)

// poisonClass is a batch of which some tasks kill their executor.
type poisonClass struct {
	executors, parallel int
	tasks, poison       int
	attempts            int
	flags               []string
}

// poisonClasses are the case that was found, with one attempt unless there is time; and others.
func poisonClasses() map[string]poisonClass {
	c := poisonClass{executors: 4, parallel: 2, tasks: 300, poison: 10, attempts: 1}
	if !rig.Long() {
		return map[string]poisonClass{"four": c}
	}
	c.attempts = 3
	lines := c
	lines.flags = []string{"--lines"}
	one, two, many := c, c, c
	one.executors, one.poison = 1, 3
	two.executors, two.parallel, two.poison = 2, 1, 3
	many.executors, many.parallel, many.poison, many.attempts = 8, 8, 90, 1
	return map[string]poisonClass{"four": c, "lines": lines, "one": one, "two": two, "30_percent": many}
}

// TestPoisonClass: several executors die at once, again and again, each of a task, and are started again at once as
// others. All of these tasks die of the attempts that there are. The others are done, and nobody else is charged.
func TestPoisonClass(t *testing.T) {
	for name, c := range poisonClasses() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, zkserver.Options{}, func(q *queue.Queue) {
				q.Attempts = c.attempts
				q.Timeouts.Session = resource.Duration(4 * time.Second) // each death is noticed after it
			})
			var lines []string
			for i := range c.tasks {
				kind := ordinary
				if i%(c.tasks/c.poison) == c.tasks/c.poison/2 && i/(c.tasks/c.poison) < c.poison {
					kind = deadly
				}
				lines = append(lines, fmt.Sprintf("b %d %s 5000 x", i, kind))
			}
			w.submitLines("b", lines)
			begun := time.Now()
			deaths := w.supervise(c, func() { w.finished(int64(c.tasks)) })
			t.Logf("all were done after %s and %d deaths", time.Since(begun).Round(time.Second), deaths)
			if b, err := w.inRedis(); err != nil || b.Dead != int64(c.poison) || b.Done != int64(c.tasks-c.poison) {
				t.Errorf("%+v, %v", b, err)
			}
			_, q := w.books()
			dead, err := q.DeadTasks(t.Context(), "b", 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range dead {
				if !strings.Contains(lines[d.Index], deadly) || !strings.Contains(d.Reason, "executor died") ||
					d.Attempt != c.attempts || d.Deaths != c.attempts+2 {
					t.Errorf("dead: %+v", d)
				}
			}
			w.firstAttempts(q)
		})
	}
}

// supervise starts executors, and another one whenever one has died, until f returns. It returns how many have died.
func (w *world) supervise(c poisonClass, f func()) (deaths int) {
	over := make(chan struct{})
	died := make(chan struct{}, 10_000)
	var all sync.WaitGroup
	for i := range c.executors {
		argv := w.executor(append([]string{"--parallel", fmt.Sprint(c.parallel)}, c.flags...)...)
		argv = append(argv, "--", self, "act-one", w.dir)
		if c.flags != nil {
			argv[len(argv)-2] = "act-lines"
		}
		p := w.add(fmt.Sprintf("e-%d-0", i), false, argv...)
		all.Go(func() {
			for n := 1; ; n++ {
				select {
				case <-p.run.Done:
					died <- struct{}{}
					p.name = fmt.Sprintf("e-%d-%d", i, n) // nobody waits for the session of the dead one
					if err := p.start(); err != nil {
						w.t.Error(err)
						return
					}
				case <-over:
					return
				}
			}
		})
	}
	defer func() {
		close(over)
		all.Wait()
		deaths = len(died)
	}()
	f()
	return 0
}
