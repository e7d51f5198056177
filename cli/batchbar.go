package cli

import (
	"fmt"
	"time"

	"muster/tasks/store"
	"muster/text"
)

// tellEvery is how often a command that waits says on a standard error which is no terminal how far a batch is.
const tellEvery = 10 * time.Second

// batchBar shows on standard error how far a batch is: a bar on a terminal, otherwise now and then a line.
type batchBar struct {
	bar
	id   string
	told time.Time // when the last line was printed
	line string    // the last one
}

func newBatchBar(p *process) *batchBar {
	now := time.Now()
	return &batchBar{bar: bar{p: p, began: now}, told: now}
}

// begin names the batch that is waited for.
func (b *batchBar) begin(id string, tasks int64) {
	if b.id == "" && !b.p.flags.quiet {
		b.clear()
		fmt.Fprintf(b.p.err, "batch %s: %s\n", id, countTasks(tasks))
	}
	b.id, b.began = id, time.Now()
}

// waiting says for what the command waits.
func (b *batchBar) waiting(what string) {
	b.clear()
	b.p.waiting(what)
}

// written shows how many tasks are in Redis.
func (b *batchBar) written(written, tasks int64) {
	b.show(written, tasks, fmt.Sprintf("%d of %d written", written, tasks))
}

// books shows how many tasks are done.
func (b *batchBar) books(of store.Batch) {
	line := fmt.Sprintf("%d of %d done", of.Done, of.Tasks)
	if of.Dead > 0 {
		line += fmt.Sprintf(", %d dead", of.Dead)
	}
	if of.State == "paused" {
		line += ", paused"
	}
	b.show(of.Done+of.Dead, of.Tasks, line)
}

// end says how the batch has ended.
func (b *batchBar) end(of store.Batch) {
	b.clear()
	if !b.p.flags.quiet {
		fmt.Fprintf(b.p.err, "batch %s: %s in %s\n", text.Escape(b.id), doneAndDead(of.Done, of.Dead),
			time.Since(b.began).Round(100*time.Millisecond))
	}
}

func (b *batchBar) show(done, all int64, line string) {
	now := time.Now()
	switch {
	case b.p.flags.quiet || all <= 0:
	case isTerminal(b.p.err):
		b.draw(done, all, line)
	case line != b.line && now.Sub(b.told) >= tellEvery:
		fmt.Fprintln(b.p.err, line)
		b.line, b.told = line, now
	}
}
