package report

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"muster/apply/history"
	"muster/resource"
	"muster/resource/group"
	"muster/resource/job"
	"muster/resource/queue"
	"muster/text"
	"muster/view"
)

// Status writes one line for each job, and below them one line for each group and each queue.
func Status(w io.Writer, all []view.Resource, o Options) error {
	p := newPage(w, o)
	created := view.AgeHeading(o.Now, "age")
	jobs := [][]string{{"job", "status", created, "joined", "live", "done", "restarts", "last run"}}
	groups := [][]string{{"group", "status", created, "members and duties"}}
	queues := [][]string{{"queue", "status", created, "members and batches"}}
	for _, r := range all {
		obs := &r.Observed
		row := []string{r.Path, statusWord(obs), view.Age(o.Now, obs.Created)}
		switch {
		case view.IsGroup(obs):
			groups = append(groups, append(row, healthText(obs)))
		case view.IsQueue(obs):
			queues = append(queues, append(row, healthText(obs)))
		default:
			jobs = append(jobs, append(row, view.OfN(job.Joined(obs), obs), view.Number(obs.Live, obs),
				view.Number(job.Done(obs), obs), restarts(r.Restarts), lastRun(obs, o.Now)))
		}
	}
	tables := slices.DeleteFunc([][][]string{jobs, groups, queues}, func(rows [][]string) bool { return len(rows) == 1 })
	if len(tables) == 0 {
		tables = [][][]string{jobs}
	}
	for i, rows := range tables {
		if i > 0 {
			p.newline()
		}
		p.table(rows)
	}
	return p.flush()
}

// healthText counts members and what they do: "3 live, 39 of 40 duties held"; a dash if they were not read.
func healthText(o *resource.Observed) string {
	if !view.HasCounts(o) {
		return "-"
	}
	return o.Record.Declaration.Health(o)
}

// table writes rows in aligned columns, the first row as a heading.
func (p *page) table(rows [][]string) {
	t := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			row[i] = text.Escape(cell)
		}
		fmt.Fprintln(t, strings.TrimRight(strings.Join(row, "\t"), "\t"))
	}
	t.Flush() // p.w keeps an error
}

func statusWord(o *resource.Observed) string {
	if o.Classic {
		return string(o.Status()) + " (classic)"
	}
	return string(o.Status())
}

func restarts(n *int) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}

// orDash is v, and a dash instead of the zero value.
func orDash[T comparable](v T) string {
	var zero T
	if v == zero {
		return "-"
	}
	return fmt.Sprint(v)
}

// lastRun says how long ago the last run completed, and its name: "3h ago (nightly/12)".
func lastRun(o *resource.Observed, now time.Time) string {
	last := job.LastRun(o.Record)
	if last == nil {
		return "-"
	}
	when := last.Completed
	if t, err := time.Parse(time.RFC3339, when); err == nil && !now.IsZero() {
		when = view.Ago(now, t)
	}
	if last.ID != "" {
		when += " (" + last.ID + ")"
	}
	return when
}

// lastRunAt is lastRun with the time: "2026-07-01T02:00:00Z (3h ago, nightly/12)".
func lastRunAt(o *resource.Observed, now time.Time) string {
	last := job.LastRun(o.Record)
	if last == nil {
		return "-"
	}
	ago := ""
	if t, err := time.Parse(time.RFC3339, last.Completed); err == nil && !now.IsZero() {
		ago = view.Ago(now, t)
	}
	if more := text.NonEmpty(ago, last.ID); len(more) > 0 {
		return last.Completed + " (" + strings.Join(more, ", ") + ")"
	}
	return last.Completed
}

// Detail writes one job, group or queue: its status, who is in it and what they do, what waits, and what the user can
// do next.
func Detail(w io.Writer, r view.Resource, o Options) error {
	p := newPage(w, o)
	obs := &r.Observed
	p.line(bold, r.Path+"  "+statusWord(obs), 2)
	p.line(plain, view.Meaning(obs, view.KindOf(obs).Name), 2)
	strangers, times, next := strangersOf(obs), timesOf(r, o.Now), o.Given.Paste(r.NextStep())
	switch {
	case r.Group != nil:
		d := *r.Group
		d.Now = o.Now
		p.group(d)
	case r.Queue != nil:
		p.queue(obs, *r.Queue, o.Now)
	default:
		p.workers(r, o.Now)
		p.newline()
		p.lines(slices.Concat(strangers, r.Absent(), times))
		p.next(next)
		return p.flush()
	}
	p.paragraph(strangers)
	p.paragraph(times)
	if next != "" {
		p.newline()
		p.next(next)
	}
	return p.flush()
}

// lines writes each as a line of its own.
func (p *page) lines(all []string) {
	for _, line := range all {
		p.line(plain, line, 2)
	}
}

// paragraph writes an empty line and lines, if there are any.
func (p *page) paragraph(lines []string) {
	if len(lines) > 0 {
		p.newline()
		p.lines(lines)
	}
}

// tableSection writes a table after an empty line, if it has more than its heading.
func (p *page) tableSection(rows [][]string) {
	if len(rows) > 1 {
		p.newline()
		p.table(rows)
	}
}

// listSection writes a heading and lines below it, unless there are none.
func (p *page) listSection(heading string, lines []string) {
	if len(lines) == 0 {
		return
	}
	p.newline()
	p.line(bold, heading, 2)
	for _, line := range lines {
		p.moveTo(2)
		p.line(plain, line, 4)
	}
}

// strangersOf says which children of its znode are nobody's.
func strangersOf(o *resource.Observed) []string {
	n, kind := len(o.Strangers), view.KindOf(o)
	if n == 0 {
		return nil
	}
	which := text.Plural(n, "child of the "+kind.Name+" znode is", "children of the "+kind.Name+" znode are")
	return []string{which + " no " + kind.Member + ": " + names(o.Strangers) + "; find out whose, and remove it yourself"}
}

// timesOf says when a resource was created, its run began, and the last run completed, as far as that is known.
func timesOf(r view.Resource, now time.Time) []string {
	created, began := "", ""
	if !r.Observed.Created.IsZero() && r.Observed.Record != nil {
		created = "created " + view.Ago(now, r.Observed.Created)
	}
	if t := r.Began(); !t.IsZero() {
		began = "the first worker joined " + view.Ago(now, t)
	}
	lines := text.NonEmpty(strings.Join(text.NonEmpty(created, began), "; "))
	if run := lastRunAt(&r.Observed, now); run != "-" {
		lines = append(lines, "the last run completed "+run)
	}
	return lines
}

// workers writes who works for a job, and the barriers that are under way.
func (p *page) workers(r view.Resource, now time.Time) {
	rows := [][]string{{"id", "identity", "address", "state", view.AgeHeading(now, "age"), "restarts", "last exit"}}
	for _, w := range r.Workers {
		id := "-"
		if w.ID >= 0 {
			id = fmt.Sprint(w.ID)
		}
		rows = append(rows, []string{
			id, w.Identity, orDash(w.Address), string(w.State), view.Age(now, w.Since), restarts(w.Restarts),
			orDash(w.LastExit),
		})
	}
	p.tableSection(rows)
	if r.MoreWorkers > 0 {
		p.line(plain, text.Thousands(r.MoreWorkers)+
			" more have claims, far more than the job can have workers: somebody wrote them by hand", 2)
	}
	rows = [][]string{{"barrier", "round", "attempt", view.AgeHeading(now, "age"), "arrived", "missing"}}
	for _, b := range r.Barriers {
		rows = append(rows, []string{
			b.Title(), fmt.Sprint(b.Round), fmt.Sprint(b.Attempt), view.Age(now, b.Since), b.ArrivedText(),
			b.MissingText(r.Workers),
		})
	}
	p.tableSection(rows)
}

// group writes the members of a group by version, its duties with their holders, and what waits and why.
func (p *page) group(d view.Group) {
	if len(d.Members) > 0 {
		p.line(plain, d.Census(), 2)
	}
	rows := [][]string{{"version", "member", "address", view.AgeHeading(d.Now, "age"), "ready", "duties"}}
	for _, v := range d.Versions() {
		for _, m := range d.Of(v) {
			rows = append(rows, []string{
				m.Version, m.Identity, orDash(m.Address), view.Age(d.Now, m.Since), m.ReadyText(),
				fmt.Sprint(len(m.Duties)),
			})
		}
	}
	p.tableSection(rows)
	rows = [][]string{{"duty", "holder", "version", view.AgeHeading(d.Now, "held for"), "epoch", "address"}}
	crons := [][]string{{"cron", "last run", "state", view.AgeHeading(d.Now, "age"), "exit", "took", "next tick"}}
	for _, duty := range d.Duties {
		since := "-"
		if duty.Since != nil {
			since = view.Age(d.Now, *duty.Since)
		}
		rows = append(rows, []string{
			duty.Name, orDash(duty.Holder), orDash(duty.Version), since, orDash(duty.Epoch), orDash(duty.Address),
		})
		if duty.Type != group.Cron {
			continue
		}
		cron := []string{duty.Name, "-", "-", "-", "-", "-", duty.NextTickText()}
		if len(duty.Runs) > 0 {
			run := duty.Runs[0]
			copy(cron[1:], []string{run.Title(), run.StateText(), run.Age(d.Now), run.ExitText(), run.Took()})
		}
		crons = append(crons, cron)
	}
	p.tableSection(rows)
	p.tableSection(crons)
	p.listSection("waits", d.Waits())
}

// queue writes the live processes of a queue and its batches.
func (p *page) queue(o *resource.Observed, d view.Queue, now time.Time) {
	if at := queue.Of(o.Record).Redis; view.HasCounts(o) && at != "" {
		p.line(plain, "redis: "+at, 2)
	}
	rows := [][]string{{"role", "process", "host", "parallel", view.AgeHeading(now, "age")}}
	for _, m := range d.Processes {
		rows = append(rows, []string{
			string(m.Role), m.Identity, orDash(m.Host), orDash(m.Parallel), view.Age(now, m.Since),
		})
	}
	p.tableSection(rows)
	rows = [][]string{{"batch", "state", "tasks", "size", "weight", "results", "by", view.AgeHeading(now, "age")}}
	for _, b := range d.Batches[:min(len(d.Batches), view.MaxShownBatches)] {
		rows = append(rows, []string{
			b.ID, b.State, fmt.Sprint(b.Tasks), text.Size(b.Bytes), fmt.Sprint(b.Weight), string(b.Results), b.By,
			view.Age(now, b.Since),
		})
	}
	if more := len(d.Batches) - view.MaxShownBatches; more > 0 {
		rows = append(rows, []string{fmt.Sprintf("and %d more", more)})
	}
	p.tableSection(rows)
	p.listSection("amiss", d.Amiss())
}

// resourceJSON is what the JSON of every kind has.
type resourceJSON struct {
	Path       string          `json:"path"`
	Address    string          `json:"address,omitempty"`
	Status     resource.Status `json:"status"`
	Stack      string          `json:"stack,omitempty"`
	Generation string          `json:"generation,omitempty"`
	Live       *int            `json:"live,omitempty"` // as all counts, absent if it is not known
	Created    time.Time       `json:"created,omitzero"`
	Problem    string          `json:"problem,omitempty"`
}

type jobJSON struct {
	resourceJSON
	Classic   bool           `json:"classic"`
	N         int            `json:"n,omitempty"`
	Joined    *int           `json:"joined,omitempty"`
	Done      *int           `json:"done,omitempty"`
	Restarts  *int           `json:"restarts,omitempty"`
	LastRun   string         `json:"last_run,omitempty"`
	LastRunID string         `json:"last_run_id,omitempty"`
	Barriers  []view.Barrier `json:"barriers,omitempty"` // under way
	Workers   []view.Worker  `json:"workers,omitempty"`
}

type groupJSON struct {
	resourceJSON
	Duties int  `json:"duties"`
	Held   *int `json:"held,omitempty"`
	*view.Group
}

type queueJSON struct {
	resourceJSON
	Redis  string         `json:"redis"`
	Counts map[string]int `json:"counts,omitempty"`
	*view.Queue
}

// StatusJSON writes jobs, groups and queues as one JSON document. last are the last applies of their stacks.
func StatusJSON(w io.Writer, all []view.Resource, last ...history.Found) error {
	doc := struct {
		FormatVersion string          `json:"format_version"`
		Jobs          []jobJSON       `json:"jobs"`
		Groups        []groupJSON     `json:"groups,omitempty"`
		Queues        []queueJSON     `json:"queues,omitempty"`
		LastApplies   []history.Found `json:"last_applies,omitempty"`
	}{"1.0", []jobJSON{}, nil, nil, last}
	for _, r := range all {
		o, rec := r.Observed, r.Observed.Record
		known := view.HasCounts(&o)
		common := resourceJSON{Path: r.Path, Status: o.Status(), Created: o.Created, Problem: o.Problem}
		if known {
			common.Live = &o.Live
		}
		if rec != nil {
			common.Address, common.Stack, common.Generation = rec.Declaration.ID().Address, rec.Stack, rec.Generation
		}
		switch {
		case view.IsGroup(&o):
			out := groupJSON{resourceJSON: common, Duties: len(group.Of(rec).Duties), Group: r.Group}
			if known {
				out.Held = new(group.Held(&o))
			}
			doc.Groups = append(doc.Groups, out)
		case view.IsQueue(&o):
			out := queueJSON{resourceJSON: common, Redis: queue.Of(rec).Redis, Queue: r.Queue}
			if known {
				out.Counts = queue.FoundOf(&o).Counts()
				out.Counts["live"] = o.Live
			}
			out.Live = nil // it is one of the counts
			doc.Queues = append(doc.Queues, out)
		default:
			doc.Jobs = append(doc.Jobs, jobStatus(r, common))
		}
	}
	return writeDocument(w, doc)
}

func jobStatus(r view.Resource, common resourceJSON) jobJSON {
	o := &r.Observed
	out := jobJSON{
		resourceJSON: common, Classic: o.Classic, Restarts: r.Restarts, Barriers: r.Barriers, Workers: r.Workers,
	}
	if common.Live != nil {
		out.Joined, out.Done = new(job.Joined(o)), new(job.Done(o))
	}
	if o.Record != nil {
		out.N = job.Of(o.Record).Workers
	}
	if last := job.LastRun(o.Record); last != nil {
		out.LastRun, out.LastRunID = last.Completed, last.ID
	}
	return out
}

// BatchesJSON writes the batches of a queue as one JSON document.
func BatchesJSON(w io.Writer, rows []view.BatchRow) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(append([]view.BatchRow{}, rows...))
}
