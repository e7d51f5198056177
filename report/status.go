package report

import (
	"cmp"
	"encoding/json"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"muster/apply/history"
	"muster/resource"
	"muster/resource/job"
	"muster/text"
	"muster/view"
)

// Status writes a table for each kind, with one line for each resource: that of jobs first, and of the others by name.
func Status(w io.Writer, all []view.Resource, o Options) error {
	p := newPage(w, o)
	headings := func(obs *resource.Observed) []string {
		common := []string{view.KindOf(obs).Name, "status", view.AgeHeading(o.Now, "age")}
		return append(common, view.DisplayOf(obs).Columns()...)
	}
	tables := map[string][][]string{}
	for _, r := range all {
		obs := &r.Observed
		kind := view.KindOf(obs).Name
		if tables[kind] == nil {
			tables[kind] = [][]string{headings(obs)}
		}
		row := []string{r.Path, statusWord(obs), view.Age(o.Now, obs.Created)}
		tables[kind] = append(tables[kind], append(row, view.DisplayOf(obs).Cells(r, o.Now)...))
	}
	if len(all) == 0 {
		tables[job.KindName] = [][]string{headings(nil)}
	}
	jobsFirst := func(kind string) string { return strings.TrimPrefix(kind, job.KindName) }
	kinds := slices.SortedFunc(maps.Keys(tables), func(a, b string) int { return cmp.Compare(jobsFirst(a), jobsFirst(b)) })
	for i, kind := range kinds {
		if i > 0 {
			p.newline()
		}
		p.table(tables[kind])
	}
	return p.flush()
}

// table writes rows in aligned columns, the first row as a heading. At a terminal they fit; in a pipe nothing is cut.
func (p *page) table(rows [][]string) {
	columns := 0
	if p.terminal {
		columns = p.width
	}
	p.w.WriteString(text.Table(rows, columns))
}

func statusWord(o *resource.Observed) string {
	if o.Classic {
		return string(o.Status()) + " (classic)"
	}
	return string(o.Status())
}

// Detail writes one job, group or queue: its status, who is in it and what they do, what waits, and what the user can
// do next.
func Detail(w io.Writer, r view.Resource, o Options) error {
	p := newPage(w, o)
	obs := &r.Observed
	p.line(bold, r.Path+"  "+statusWord(obs), 2)
	p.line(plain, view.Meaning(obs, view.KindOf(obs).Name), 2)
	strangers, times, next := strangersOf(obs), timesOf(r, o.Now), o.Given.Paste(r.NextStep())
	for _, s := range view.DisplayOf(obs).Sections(r, o.Now) {
		if s.Heading != "" {
			p.listSection(s.Heading, s.Lines)
		} else {
			p.lines(s.Lines)
		}
		p.tableSection(s.Table)
	}
	if view.IsJob(obs) {
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
	if run := view.LastRun(&r.Observed, now, false); run != "-" {
		lines = append(lines, "the last run completed "+run)
	}
	return lines
}

// StatusJSON writes jobs, groups and queues as one JSON document. last are the last applies of their stacks.
func StatusJSON(w io.Writer, all []view.Resource, last ...history.Found) error {
	doc := map[string]any{"format_version": "1.0"}
	if len(last) > 0 {
		doc["last_applies"] = last
	}
	byKind := map[string][]any{"jobs": {}}
	for _, r := range all {
		kind := view.KindOf(&r.Observed).Name + "s"
		byKind[kind] = append(byKind[kind], r.Document())
	}
	for kind, documents := range byKind {
		doc[kind] = documents
	}
	return writeDocument(w, doc)
}

// BatchesJSON writes the batches of a queue as one JSON document.
func BatchesJSON(w io.Writer, rows []view.BatchRow) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(append([]view.BatchRow{}, rows...))
}
