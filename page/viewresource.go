package page

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"muster/plan"
	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/resource/queue"
	"muster/text"
	"muster/view"
)

// known is d, or what the board knows of the resource if that was not looked at yet; nil: it is not there.
func (p *painter) known(d *Detail) *Detail {
	if j, ok := p.board.resource(p.request.Path); d == nil && ok {
		d = &Detail{Resource: j}
		if !p.board.Connected {
			d.Problem = "ZooKeeper does not answer"
		}
	}
	return d
}

// redisAway says how old is what Redis told, if it does not answer now.
func (p *painter) redisAway(d *Detail) {
	if d.Redis != "" && !d.Told.IsZero() {
		p.add(mainSlot, "redisaway", d.Told)
	}
}

func (p *painter) resource(d *Detail) {
	d = p.known(d)
	if p.missing = d == nil; p.missing {
		p.add(mainSlot, "absent", struct {
			row
			Declared []plan.Row // at most one
		}{rowAt(p.request.Path), slices.DeleteFunc(p.board.missing(), func(r plan.Row) bool {
			return r.Path != p.request.Path
		})})
		return
	}
	p.add(mainSlot, "head", headOf(d))
	if next := stepsOf(d.Resource); len(next) > 0 {
		p.add(mainSlot, "next", next)
	}
	if amiss := amissOf(d); len(amiss) > 0 {
		p.add(mainSlot, "amiss", amiss)
	}
	p.redisAway(d)
	p.charts(d.charts)
	draw := map[string]func(*painter, *Detail){ // what only one kind has
		job.KindName: (*painter).job, group.KindName: (*painter).group, queue.KindName: (*painter).queue,
	}[view.KindOf(&d.Observed).Name]
	if draw != nil {
		draw(p, d)
	}
	if n := d.Observed.Strangers; len(n) > 0 {
		p.add(mainSlot, "strangers", n)
	}
	p.planOf(d.Path)
	p.add(mainSlot, "record", recordOf(&d.Observed))
}

// amissOf says what keeps the page from showing all, or a queue from working.
func amissOf(d *Detail) (all []string) {
	if d.Queue != nil {
		all = d.Queue.Amiss()
	}
	return append(unreadOf(d), all...)
}

// unreadOf says what keeps the page from showing all.
func unreadOf(d *Detail) (all []string) {
	if d.Problem != "" {
		all = append(all, "not everything could be read: "+d.Problem)
	}
	if d.Redis != "" {
		all = append(all, "Redis does not tell how far batches are: "+d.Redis)
	}
	return all
}

// headView is the begin of the page of a resource.
type headView struct {
	row
	Meaning word
	Counts  []view.Figure
	Began   time.Time // the first worker joined
	Redis   word
}

func headOf(d *Detail) headView {
	o, r := &d.Observed, rowOf(&d.Resource)
	v := headView{row: r.drawn(), Meaning: word(view.Meaning(o, r.Kind)), Began: d.Began()}
	if view.HasCounts(o) {
		v.Counts, v.Redis = view.DisplayOf(o).Figures(o), word(queue.Of(o.Record).Redis)
	}
	return v
}

// recordView is what the Record says; nil: there is none.
type recordView struct {
	*resource.Record
	Problem        string
	Labels, Fields []resource.Field
}

func recordOf(o *resource.Observed) recordView {
	v := recordView{Record: o.Record, Problem: o.Problem}
	if o.Record == nil {
		return v
	}
	for _, f := range o.Record.Declaration.Fields() {
		if label, ok := strings.CutPrefix(f.Name, "labels."); ok {
			f.Name = label
			v.Labels = append(v.Labels, f)
		} else {
			v.Fields = append(v.Fields, f)
		}
	}
	return v
}

// largestTable is how many workers are shown as a table. More are a grid, with a table of some that are not live.
const largestTable = 100

func (p *painter) job(d *Detail) {
	if lines := d.Gang.Lines(job.Of(d.Observed.Record).Workers, time.Time{}); len(lines) > 0 {
		p.add(mainSlot, "gang", lines)
	}
	lines := d.Absent()
	if len(lines) > 0 && len(d.Workers) > 0 { // else nobody has joined, or the workers were not read
		p.add(mainSlot, "missing", lines)
	}
	if len(d.Barriers) > 0 {
		p.add(mainSlot, "barriers", d)
	}
	n := max(job.Of(d.Observed.Record).Workers, len(d.Workers))
	switch {
	case len(d.Workers) == 0:
	case n <= largestTable:
		p.workers(d.Workers, workersView{})
	default:
		p.grid(d, n)
	}
}

type workersView struct {
	Apart bool   // those that need a look; the grid shows all
	More  string // how many others there are
}

func (p *painter) workers(all []view.Worker, v workersView) {
	p.add(mainSlot, "workers", v)
	for _, w := range all {
		p.add("workers-list", "worker", w)
	}
}

// cell is what a cell of the grid shows. Cells are cached by it.
type cell struct {
	ID                             int
	State, Identity, Address, Exit string // the state is "absent" if nobody has joined with this id
	Place                          string // empty: not known
	Since                          int64  // seconds; 0: not known
	Restarts                       int    // -1: not known
}

// grid shows a cell for each id, and tables of those that need a look: at most largestTable workers that left or were
// lost, and who has no id.
func (p *painter) grid(d *Detail, n int) {
	count := map[string]int{}
	cells := make([]cell, n)
	for id := range cells {
		cells[id] = cell{ID: id, State: "absent", Restarts: -1}
	}
	var apart []view.Worker
	for _, w := range d.Workers {
		if w.ID < 0 || w.State == view.Left || w.State == view.Lost {
			apart = append(apart, w)
		}
		if w.ID < 0 || w.ID >= n {
			continue
		}
		c := cell{w.ID, string(w.State), w.Identity, w.Address, w.LastExit, w.Place(), 0, -1}
		if !w.Since.IsZero() {
			c.Since = w.Since.Unix()
		}
		if w.Restarts != nil {
			c.Restarts = *w.Restarts
		}
		cells[w.ID] = c
	}
	for _, c := range cells {
		count[c.State]++
	}
	if len(apart) > 0 {
		more := moreText(max(0, len(apart)-largestTable) + d.MoreWorkers)
		p.workers(apart[:min(len(apart), largestTable)], workersView{true, more})
	}
	p.add(mainSlot, "grid", legendOf(count))
	for _, c := range cells {
		p.addHTML("cells", p.views.cells.html(c, func() string { return p.views.html("cell", c) }))
	}
}

func legendOf(count map[string]int) (all []view.Figure) {
	for _, f := range []view.Figure{
		{Word: "live", Class: "live"}, {Word: "completed", Class: "completed"}, {Word: "left", Class: "left"},
		{Word: "lost", Class: "lost"}, {Word: "not joined", Class: "absent"},
	} {
		if f.N = count[f.Class]; f.N > 0 {
			all = append(all, f)
		}
	}
	return all
}

func (p *painter) group(d *Detail) {
	g := d.Group
	if g == nil {
		return
	}
	if waits := g.Waits(); len(waits) > 0 {
		p.add(mainSlot, "waits", waits)
	}
	if len(g.Duties) > 0 {
		p.add(mainSlot, "duties", nil)
		for _, duty := range g.Duties {
			p.add("duties-list", "duty", dutyOf(duty))
		}
		p.crons(g)
	}
	if len(g.Members) == 0 {
		return
	}
	p.add(mainSlot, "members", word(g.Census()))
	for _, version := range g.Versions() {
		for _, m := range g.Of(version) {
			p.add("members-list", "member", struct {
				view.Member
				Assigner bool
			}{m, m.Identity == g.Assigner})
		}
	}
}

// dutyView is a duty, and to whom it goes if not all is settled.
type dutyView struct {
	view.Duty
	HandingOver, Promised string // by the holder; to a member that has not taken it
}

func dutyOf(d view.Duty) dutyView {
	v := dutyView{Duty: d}
	switch {
	case d.Holder == "":
		v.Promised = d.Given
	case d.Given == "" || d.Given == d.Holder && d.Leaving == d.Holder:
		v.HandingOver = "another member"
	case d.Given != d.Holder:
		v.HandingOver = d.Given
	}
	return v
}

func (p *painter) queue(d *Detail) {
	p.batches(d)
	if d.Queue != nil && len(d.Queue.Processes) > 0 {
		p.processes(d)
	}
	p.dead(d.Dead, p.request.Path)
}

// dead shows the newest dead tasks of a queue, or of a batch.
func (p *painter) dead(all []DeadTask, of string) {
	if len(all) == 0 {
		return
	}
	p.add(mainSlot, "dead", word(text.ShellWord(of)))
	for _, t := range all {
		p.add("dead-list", "deadtask", t)
	}
}

type batchView struct {
	BatchProgress
	Href                       string
	Ended                      int64
	Class, Percent, Rate, Left string
}

func (p *painter) batches(d *Detail) {
	all := d.Batches
	if len(all) == 0 && d.Queue != nil {
		for _, b := range d.Queue.Batches {
			all = append(all, BatchProgress{BatchRow: view.BatchRow{Batch: b}})
		}
	}
	if len(all) == 0 {
		return
	}
	p.add(mainSlot, "batches", nil)
	for _, b := range all {
		v := batchOf(b)
		v.Href = Request{View: Batch, Path: p.request.Path, Batch: b.ID}.URL()
		p.add("batches-list", "batch", v)
	}
}

// meter is a bar of 100: what is done, and after it what is dead.
type meter struct {
	Label      string
	Done, Dead float64
}

// meterOf is the bar of so many tasks. What is dead is seen also if it is little.
func meterOf(done, dead, tasks int64) meter {
	m := meter{Label: fmt.Sprintf("%d of %d done, %d dead", done, tasks, dead)}
	share := func(n int64) float64 { return math.Round(1000*float64(max(n, 0))/float64(max(tasks, 1))) / 10 }
	if dead > 0 {
		m.Dead = min(100, max(1, share(dead)))
	}
	m.Done = min(share(done), 100-m.Dead)
	return m
}

func batchOf(b BatchProgress) batchView {
	v := batchView{BatchProgress: b}
	dead := false
	if c := b.BatchCounts; c != nil {
		v.Ended, dead = c.Done+c.Dead, c.Dead > 0
	}
	if b.Tasks > 0 {
		v.Percent = fmt.Sprintf("%d%%", 100*min(v.Ended, b.Tasks)/b.Tasks)
	}
	switch {
	case b.State == "lost" || b.State == "broken" || b.State == "stopped":
		v.Class = "bad"
	case dead || b.State == "paused":
		v.Class = "warn"
	case b.State == "completed":
		v.Class = "done"
	}
	if b.PerSecond > 0 {
		v.Rate = rate(b.PerSecond)
		left := time.Duration(float64(b.Tasks-v.Ended) / b.PerSecond * float64(time.Second))
		if left > 0 {
			v.Left = "about " + view.Short(left) + " left"
		}
	}
	return v
}

// rate is so many tasks in a second, or in a minute if that is few.
func rate(perSecond float64) string {
	switch {
	case perSecond == 0:
		return "0/s"
	case perSecond >= 100:
		return text.Thousands(int(perSecond)) + "/s"
	case perSecond >= 1:
		return fmt.Sprintf("%.1f/s", perSecond)
	}
	return fmt.Sprintf("%.1f/min", perSecond*60)
}

// processes shows the live processes of a queue, and those that are gone and have tasks, which another one takes back.
func (p *painter) processes(d *Detail) {
	all := slices.Clip(d.Queue.Processes)
	hands := map[string][]Hand{}
	for _, h := range d.Hands {
		if !slices.ContainsFunc(all, func(m view.Process) bool { return m.Identity == h.Process }) {
			all = append(all, view.Process{Role: "gone", Identity: h.Process})
		}
		hands[h.Process] = append(hands[h.Process], h)
	}
	p.add(mainSlot, "processes", nil)
	for _, m := range all {
		p.add("processes-list", "process", struct {
			view.Process
			First bool
			Hands []Hand
		}{m, m.Identity == d.Queue.First, hands[m.Identity]})
	}
}
