package cli

import (
	"fmt"
	"strings"
	"time"

	"muster/apply"
	"muster/plan"
	"muster/report"
	"muster/resource"
	"muster/tasks/store"
	"muster/text"
)

// bar is drawn on standard error if that is a terminal and what goes on takes longer than a second.
type bar struct {
	p       *process
	began   time.Time
	drawn   time.Time
	visible bool // it is on the screen
}

const (
	barAfter = time.Second            // what is short needs no bar
	barEvery = 100 * time.Millisecond // drawn more often, it flickers
	barWidth = 30
)

func (p *process) newBar() bar { return bar{p: p, began: time.Now()} }

// draw draws the bar, unless it would flicker. line stands behind it.
func (b *bar) draw(done, all int64, line string) {
	now := time.Now()
	if now.Sub(b.began) < barAfter || b.visible && now.Sub(b.drawn) < barEvery {
		return
	}
	full := int(barWidth * min(done, all) / all)
	fmt.Fprintf(b.p.err, "\r\x1b[K[%s] %s", strings.Repeat("#", full)+strings.Repeat(".", barWidth-full), line)
	b.visible, b.drawn = true, now
}

func (b *bar) clear() {
	if b.visible {
		fmt.Fprint(b.p.err, "\r\x1b[K")
		b.visible = false
	}
}

// progress shows an apply while it runs: a line for each change on standard output, and a bar.
type progress struct {
	bar
	lines     *report.Progress
	done, all int64
}

// outcome is called by apply.Run, one call at a time. The stream keeps an error of writing, so outcome ignores it.
func (g *progress) outcome(o apply.Outcome) {
	g.done++
	if !g.p.flags.quiet || o.Result != apply.Applied {
		if isTerminal(g.p.out) {
			g.clear()
		}
		_ = g.lines.Line(o)
	}
	if isTerminal(g.p.err) && g.done < g.all {
		g.draw(g.done, g.all, fmt.Sprintf("%d of %d", g.done, g.all))
	}
}

func (g *progress) waiting(late []plan.Row, d time.Duration) {
	g.clear()
	which := text.Each(late, func(r plan.Row) string {
		if r.Old.Class() == resource.Idle {
			return "idle " + r.Kind().Name
		}
		return "stale " + r.Kind().Name
	})
	fmt.Fprintf(g.p.err, "waiting %s: %s may only be restarting (--no-wait leaves them out)\n",
		resource.Duration(d.Round(time.Second)), text.CountEach(which))
}

// tellEvery is how often a command that waits says on a standard error which is no terminal how far a batch is.
const tellEvery = 10 * time.Second

// batchBar shows on standard error how far a batch is: a bar on a terminal, otherwise now and then a line.
type batchBar struct {
	bar
	id   string
	told time.Time // when the last line was printed
	line string    // the last one
}

func (b *batchBar) begin(id string, tasks int64) {
	if b.id == "" && !b.p.flags.quiet {
		b.clear()
		fmt.Fprintf(b.p.err, "batch %s: %s\n", id, countTasks(tasks))
	}
	b.id, b.began = id, time.Now()
}

func (b *batchBar) waiting(what string) {
	b.clear()
	b.p.waiting(what)
}

func (b *batchBar) written(written, tasks int64) {
	b.show(written, tasks, fmt.Sprintf("%d of %d written", written, tasks))
}

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
