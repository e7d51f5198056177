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

// progress shows an apply under way: one line a change on standard output and, when it takes longer than a second and
// somebody looks at standard error, a bar there below them.
type progress struct {
	p         *process
	lines     *report.Progress
	started   time.Time
	drawn     time.Time // when the bar was
	visible   bool      // it is on the screen
	done, all int
}

const (
	barAfter = time.Second            // short applies need no bar
	barEvery = 100 * time.Millisecond // more is flicker
	barWidth = 30
)

func newProgress(p *process, pl plan.Plan) *progress {
	return &progress{
		p: p, lines: report.NewProgress(p.out, pl, p.layout()),
		started: time.Now(), all: len(pl.Changes()),
	}
}

// outcome is called by apply.Run, one call at a time. A stream remembers that it cannot be written to, so nothing is
// left to handle here.
func (g *progress) outcome(o apply.Outcome) {
	g.done++
	if !g.p.flags.quiet || o.Result != apply.Applied {
		if isTerminal(g.p.out) {
			g.clear()
		}
		_ = g.lines.Line(o)
	}
	now := time.Now()
	if !isTerminal(g.p.err) || now.Sub(g.started) < barAfter || g.visible && now.Sub(g.drawn) < barEvery || g.done == g.all {
		return
	}
	full := barWidth * g.done / g.all
	fmt.Fprintf(g.p.err, "\r\x1b[K[%s%s] %d of %d", strings.Repeat("#", full), strings.Repeat(".", barWidth-full), g.done, g.all)
	g.visible, g.drawn = true, now
}

// waiting says once why nothing happens for a while.
func (g *progress) waiting(n int, d time.Duration) {
	g.clear()
	fmt.Fprintf(g.p.err, "waiting %s: %s may only be restarting (--no-wait leaves them out)\n",
		resource.Duration(d.Round(time.Second)), text.Count(n, "stale job"))
}

// clear takes the bar off the screen, so that a line can take its place.
func (g *progress) clear() {
	if g.visible {
		fmt.Fprint(g.p.err, "\r\x1b[K")
		g.visible = false
	}
}
