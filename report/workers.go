package report

import (
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"muster/resource"
	"muster/resource/job"
	"muster/text"
)

// Workers writes one job: its status, each of its workers, who is missing, and what the user can do next.
func Workers(w io.Writer, j JobStatus, workers []Worker, o Options) error {
	p := newPage(w, o)
	obs := &j.Observed
	p.wrap(bold, j.Path+"  "+statusWord(obs), 2)
	p.newline()
	p.wrap(plain, meaning(obs, kindOf(obs).Name), 2)
	p.newline()
	if len(workers) > 0 {
		p.newline()
		rows := [][]string{{"id", "identity", "address", "state", AgeHeading(o.Now, "age"), "restarts", "last exit"}}
		for _, w := range workers {
			rows = append(rows, []string{
				workerID(w), w.Identity, orDash(w.Address), string(w.State), Age(o.Now, w.Since), restarts(w.Restarts),
				orDash(w.LastExit),
			})
		}
		p.table(rows)
	}
	if j.MoreWorkers > 0 {
		p.wrap(plain, fmt.Sprintf("%s more have claims, far more than the job can have workers: somebody wrote them by hand",
			text.Thousands(j.MoreWorkers)), 2)
		p.newline()
	}
	p.barriers(j.Barriers, workers, o.Now)
	p.newline()
	if n := len(obs.Strangers); n > 0 {
		kind := kindOf(obs)
		which := text.Plural(n, "child of the "+kind.Name+" znode is", "children of the "+kind.Name+" znode are")
		p.wrap(plain, which+" no "+kind.Member+": "+names(obs.Strangers)+"; find out whose, and remove it yourself", 2)
		p.newline()
	}
	for _, line := range missing(obs, workers) {
		p.wrap(plain, line, 2)
		p.newline()
	}
	for _, line := range times(obs, workers, o.Now) {
		p.wrap(plain, line, 2)
		p.newline()
	}
	p.next(o.Given.Paste(next(obs, j.Path)))
	return p.flush()
}

// created says when a resource was created, if that is known.
func (p *page) created(o *resource.Observed, now time.Time) {
	for _, line := range times(o, nil, now) {
		p.newline()
		p.wrap(plain, line, 2)
		p.newline()
	}
}

// times says when the job was created, its run began, and the last run completed, as far as that is known.
func times(o *resource.Observed, workers []Worker, now time.Time) []string {
	var parts []string
	if !o.Created.IsZero() && o.Record != nil {
		parts = append(parts, "created "+ago(now, o.Created))
	}
	var began time.Time
	for _, w := range workers {
		if began.IsZero() || !w.Joined.IsZero() && w.Joined.Before(began) {
			began = w.Joined
		}
	}
	if !began.IsZero() {
		parts = append(parts, "the first worker joined "+ago(now, began))
	}
	lines := nonEmpty(strings.Join(parts, "; "))
	if run := lastRunAt(o, now); run != "-" {
		lines = append(lines, "the last run completed "+run)
	}
	return lines
}

func workerID(w Worker) string {
	if w.ID < 0 {
		return "-"
	}
	return fmt.Sprint(w.ID)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// missing lists the ids that no worker has, and those whose worker left or was lost without completing.
func missing(o *resource.Observed, workers []Worker) []string {
	if o.Record == nil || o.Class() == resource.Unreadable {
		return nil
	}
	taken := map[int]bool{}
	var left, lost []int
	for _, w := range workers {
		taken[w.ID] = true
		switch {
		case w.ID < 0:
		case w.State == Left:
			left = append(left, w.ID)
		case w.State == Lost:
			lost = append(lost, w.ID)
		}
	}
	var open []int
	for id := range job.Of(o.Record).Workers {
		if !taken[id] {
			open = append(open, id)
		}
	}
	slices.Sort(left)
	slices.Sort(lost)
	var lines []string
	if len(left) > 0 {
		lines = append(lines, text.Count(len(left), "worker")+" left without completing: id "+ranges(left))
	}
	if len(lost) > 0 {
		who := text.Plural(len(lost), "worker was", "workers were")
		lines = append(lines, who+" lost without completing (killed or cut off): id "+ranges(lost))
	}
	if len(open) > 0 {
		lines = append(lines, text.Plural(len(open), "worker has", "workers have")+" not joined yet: id "+ranges(open))
	}
	return lines
}

// ranges is "0, 3-5, 9" for sorted ids.
func ranges(ids []int) string {
	var parts []string
	for len(ids) > 0 {
		n := 1
		for n < len(ids) && ids[n] == ids[0]+n {
			n++
		}
		part := fmt.Sprint(ids[0])
		if n > 1 {
			part = fmt.Sprintf("%d-%d", ids[0], ids[n-1])
		}
		parts = append(parts, part)
		ids = ids[n:]
	}
	return strings.Join(parts, ", ")
}

// meaning says why o, of this kind, has its status.
func meaning(o *resource.Observed, kind string) string {
	switch o.Status() {
	case resource.StatusMissing:
		return "there is no " + kind + " znode"
	case resource.StatusDamaged:
		return strings.Join(nonEmpty(o.LostText(string(resource.PartObject)), o.BeyondRepair), "; ")
	case resource.StatusForeign:
		return "a znode is there that is not a " + kind + ": " + o.Problem
	case resource.StatusUnreadable:
		return "it cannot be read: " + o.Problem
	case resource.StatusTerminating:
		return fmt.Sprintf("its record says that the %ss have been asked to stop; %d live", kindOf(o).Member, o.Live)
	}
	if !isJob(o) {
		return o.Record.Declaration.Health(o)
	}
	if o.Status() == resource.StatusReady {
		return "nobody has joined this generation"
	}
	if o.Classic {
		return fmt.Sprintf("made by workers of the classic controller: %d in the roll, %d live", job.Joined(o), o.Live)
	}
	counts := fmt.Sprintf("%s joined, %d live, %d completed, %d left without completing",
		ofN(job.Joined(o), o), o.Live, job.Done(o), job.Left(o))
	switch o.Status() {
	case job.Completed:
		return fmt.Sprintf("all %d workers completed", job.Of(o.Record).Workers)
	case job.Forming:
		return "fewer than all have joined: " + counts
	case resource.StatusStale:
		return "nobody is live and somebody left without completing: " + counts
	case job.Degraded:
		return "all have joined, and some left without completing: " + counts
	}
	return "all have joined and none is missing: " + counts
}

// next says what the user can do next. It names the job so that the command works without a configuration too.
func next(o *resource.Observed, at string) string {
	join := "--job " + text.ShellWord(path.Base(at))
	if root := path.Dir(at); root != resource.DefaultRoot {
		join += " --root " + text.ShellWord(root)
	}
	at = text.ShellWord(at) // whoever made a foreign znode chose its name
	switch o.Status() {
	case resource.StatusMissing:
		return "muster apply makes it if it is declared"
	case resource.StatusForeign, resource.StatusUnreadable, resource.StatusDamaged:
		return "muster explain " + at
	case resource.StatusTerminating:
		if o.Live > 0 {
			return "muster status " + at + " --watch, until all have left"
		}
		again := "makes it anew"
		if o.Record.Declaration.Policy().InPlace {
			again = "opens it again"
		}
		return "muster apply " + again + " if it is declared, and deletes it otherwise"
	}
	if !isJob(o) {
		return ""
	}
	switch o.Status() {
	case resource.StatusReady:
		return "muster worker " + join + ", or the same with -- COMMAND at its end"
	case job.Forming:
		return "muster status " + at + " --watch, or start the workers that have not joined"
	case job.Degraded:
		return "restart the workers that left (they keep their ids), or muster terminate " + at
	case resource.StatusStale:
		return "restart the workers that left (they keep their ids), or muster apply replaces it"
	case job.Completed:
		return "muster plan tells whether it will be made anew"
	}
	return ""
}
