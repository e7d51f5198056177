package page

import (
	"slices"
	"strings"

	"muster/resource/group"
	"muster/text"
	"muster/view"
)

// maxOutputLines is how many lines are shown of the output of a run: its end.
const maxOutputLines = 200

// maxOpenRuns is how many runs a group has at most for their tables to be open from the start.
const maxOpenRuns = 40

// cronView is a cron, and what becomes of its runs.
type cronView struct {
	view.Duty
	ID      string // of the element
	States  []view.Figure
	Open    bool // its runs are few
	LeftOut word // the command that shows output that is left out; empty: none is
}

// runView is a run: a mark of the timeline, and a row of the table.
type runView struct {
	view.Run
	ID          string // of the row
	Class       string
	Output      string // its last lines, as they are shown
	Hidden      int    // lines before those
	Last        string // of the lines
	Description word   // of the mark
}

// crons shows for each cron a timeline of its runs, the oldest first, and a table of them, the newest first. A run that
// is new adds an element to each.
func (p *painter) crons(g *view.Group) {
	crons := slices.DeleteFunc(slices.Clone(g.Duties), func(d view.Duty) bool { return d.Type != group.Cron })
	if len(crons) > 0 {
		p.add(mainSlot, "crons", nil)
	}
	all := 0
	for _, d := range crons {
		all += len(d.Runs)
	}
	for _, d := range crons {
		v, runs := p.cronOf(d)
		v.Open = all <= maxOpenRuns
		p.add("crons-list", "cron", v)
		if len(runs) == 0 {
			continue
		}
		for _, r := range slices.Backward(runs) {
			p.add("marks-"+v.ID, "mark", r)
		}
		p.add("runs-"+v.ID, "runhead", v.ID)
		for _, r := range runs {
			p.add("runs-"+v.ID, "run", r)
		}
	}
}

func (p *painter) cronOf(d view.Duty) (cronView, []runView) {
	v := cronView{Duty: d, ID: hashID("t", d.Name)}
	count := map[string]int{}
	runs := make([]runView, len(d.Runs))
	for i, r := range d.Runs {
		runs[i] = runOf(d.Name, r)
		count[runs[i].Class]++
		if r.LeftOut {
			v.LeftOut = word("muster explain " + text.ShellWord(p.request.Path+"/"+d.Name))
		}
	}
	for _, state := range runStates() {
		if n := count[state]; n > 0 {
			v.States = append(v.States, view.Figure{Word: state, Class: state, N: n})
		}
	}
	return v, runs
}

// runStates are the states of runs, as the style sheet and the shapes of marks know them.
func runStates() []string {
	return []string{"done", "failed", "lost", "missed", "skipped", "running", "waiting", "asked", "unreadable"}
}

func runOf(duty string, r view.Run) runView {
	v := runView{Run: r, Class: r.State, Description: word(r.Summary())}
	if !slices.Contains(runStates(), r.State) {
		v.Class = "unreadable"
	}
	if r.Tick != nil {
		v.ID = hashID("u", duty, r.Tick.Unix())
	} else {
		v.ID = hashID("u", duty, "by hand", r.Asked)
	}
	if lines := text.Each(text.Output(r.Output), text.Visible); len(lines) > 0 {
		v.Hidden = max(0, len(lines)-maxOutputLines)
		v.Output, v.Last = strings.Join(lines[v.Hidden:], "\n"), text.Cut(lines[len(lines)-1], 120)
	}
	return v
}

// Amiss reports whether somebody may want to know why.
func (r runView) Amiss() bool {
	return r.Failed() || slices.Contains([]string{"lost", "missed", "unreadable"}, r.Class)
}

// Tag is the class of the state of a run in the table.
func (r runView) Tag() string {
	switch {
	case r.Amiss():
		return "bad"
	case r.Class == "running":
		return "ok"
	}
	return ""
}

// Target is the element to which the mark of a run leads: its output, which browsers open, else its row.
func (r runView) Target() string {
	if r.Output != "" {
		return "o" + r.ID
	}
	return r.ID
}

// shape is the path that marks a state, in a square of 16. The shapes differ, so that colours are never alone.
func shape(state string) string {
	ring := "M8 3a5 5 0 1 1-.01 0z"
	return map[string]string{
		"done": "M2 2h12v12H2z", "failed": "M3 3l10 10M13 3L3 13", "lost": "M8 2l6 6-6 6-6-6z", "missed": "M3 3h10v10H3z",
		"skipped": "M2 8h12", "running": "M4 2l10 6-10 6z", "waiting": ring, "asked": ring,
		"unreadable": "M8 2l6.5 12h-13zM8 6.5v3.5M8 11.5v1.2",
	}[state]
}
