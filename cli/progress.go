package cli

import (
	"fmt"
	"strings"
	"time"

	"muster/apply"
	"muster/plan"
	"muster/report"
	"muster/resource"
	"muster/text"
)

// progress shows an apply while it runs: a line for each change on standard output. If standard error is a terminal and
// the apply takes longer than a second, a bar follows there.
type progress struct {
	p         *process
	lines     *report.Progress
	started   time.Time
	drawn     time.Time // when the bar was drawn
	visible   bool      // the bar is on the screen
	done, all int
}

const (
	barAfter = time.Second            // a short apply needs no bar
	barEvery = 100 * time.Millisecond // drawn more often, it flickers
	barWidth = 30
)

func newProgress(p *process, pl plan.Plan) *progress {
	return &progress{
		p: p, lines: report.NewProgress(p.out, pl, p.layout()),
		started: time.Now(), all: len(pl.Changes()),
	}
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
	now := time.Now()
	flickers := g.visible && now.Sub(g.drawn) < barEvery
	if !isTerminal(g.p.err) || now.Sub(g.started) < barAfter || flickers || g.done == g.all {
		return
	}
	full := barWidth * g.done / g.all
	bar := strings.Repeat("#", full) + strings.Repeat(".", barWidth-full)
	fmt.Fprintf(g.p.err, "\r\x1b[K[%s] %d of %d", bar, g.done, g.all)
	g.visible, g.drawn = true, now
}

// waiting prints why the apply waits.
func (g *progress) waiting(late []plan.Row, d time.Duration) {
	g.clear()
	var which []string
	for _, r := range late {
		word := "stale "
		if r.Old.Class() == resource.Idle {
			word = "idle "
		}
		which = append(which, word+r.Kind().Name)
	}
	fmt.Fprintf(g.p.err, "waiting %s: %s may only be restarting (--no-wait leaves them out)\n",
		resource.Duration(d.Round(time.Second)), text.CountEach(which))
}

// clear removes the bar from the screen.
func (g *progress) clear() {
	if g.visible {
		fmt.Fprint(g.p.err, "\r\x1b[K")
		g.visible = false
	}
}
