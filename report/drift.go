package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"muster/plan"
	"muster/resource"
	"muster/text"
)

// The words of drift items, besides the kinds of drift.
const (
	wordIgnored    = "ignored"
	wordUnreadable = "unreadable"
	wordClean      = "as declared"
)

// Drift writes a header, a block for each finding, and the summary, which ends with the counts. It marks the findings
// of the kinds in failOn.
func Drift(w io.Writer, p plan.Plan, d plan.Drift, failOn []plan.DriftKind, o Options) error {
	pg := newPage(w, o)
	pg.header("drift", p, o)
	var items []item
	var clean []plan.Row
	for _, it := range driftItems(p, d, failOn, o.Given) {
		if it.word == wordClean {
			clean = append(clean, it.row)
		}
		if o.All && it.word != wordClean || it.level > quiet {
			items = append(items, it)
		}
	}
	items = o.join(items)
	pg.blocks(items)
	if len(d.Findings) == len(d.Of(plan.DriftUnmanaged)) {
		pg.line(plain, noDrift(clean, d), 0)
	}
	width := 0
	for _, it := range items {
		width = max(width, len(it.word))
	}
	for _, it := range items {
		pg.printf("  %-*s  %s", width, it.word, it.summary())
		pg.newline()
	}
	pg.countsLine(DriftCounts(d))
	return pg.flush()
}

// DriftCounts is the line of all counts. Tools may read it: its words and their order do not change.
func DriftCounts(d plan.Drift) string {
	parts := text.Each(plan.DriftKinds(), func(k plan.DriftKind) string { return fmt.Sprintf("%d %s", len(d.Of(k)), k) })
	return fmt.Sprintf("Drift: %s; %d ignored, %d unreadable.",
		strings.Join(parts, ", "), len(d.Ignored), len(d.Unreadable))
}

// noDrift is the sentence for a check without findings about this stack.
func noDrift(clean []plan.Row, d plan.Drift) string {
	what := "No drift. "
	if d.Incomplete() {
		what = "No drift in what could be seen. "
	}
	return what + countRows(clean) + are(len(clean)) + "as declared."
}

// driftItems returns an item for each finding, also if it is ignored, for each unreadable row, and for each declared
// job without either.
func driftItems(p plan.Plan, d plan.Drift, failOn []plan.DriftKind, g Given) []item {
	var items []item
	listed := map[string]bool{}
	add := func(it item) {
		listed[it.row.Path] = true
		items = append(items, it)
	}
	for _, f := range d.Findings {
		it := findingItem(f, d.Stack, g)
		switch {
		case slices.Contains(failOn, f.Kind):
			it.symbol, it.level, it.verdict = "!", failure, failed
		case f.Kind != plan.DriftUnmanaged:
			it.symbol, it.level = "?", note
		}
		if f.Kind == plan.DriftDamaged {
			it.verdict = failed
		}
		add(it)
	}
	for _, f := range d.Ignored {
		it := findingItem(f, d.Stack, g)
		it.word, it.title, it.verdict = wordIgnored, "ignored: "+string(f.Kind), skipped
		until := fmt.Sprintf("until %s: %s (%s)", f.Ignore.Until, f.Ignore.Reason, f.Ignore.At)
		it.because += "; ignored " + until
		it.fields = append(it.fields, field{"ignored", until})
		add(it)
	}
	for _, r := range d.Unreadable {
		it := item{row: r, word: wordUnreadable, title: wordUnreadable, symbol: "!", level: warning, verdict: failed}
		it.because, it.next = r.Because(), g.Paste(cmp.Or(r.Proceed(), "muster explain "+text.ShellWord(r.Path)))
		it.fields = []field{{"because", it.because}, {toProceed, it.next}}
		add(it)
	}
	for _, r := range p.Rows {
		// An unreadable row that an Ignore covers is not listed, and is not clean either.
		if r.New != nil && !listed[r.Path] && r.Old.Class() != resource.Unreadable {
			items = append(items, item{
				row: r, word: wordClean, title: wordClean, fields: []field{{"status", health(r.Old)}},
			})
		}
	}
	return items
}

func findingItem(f plan.Finding, stack string, g Given) item {
	it := item{row: f.Row, word: string(f.Kind), title: string(f.Kind), because: f.Because(), next: g.Paste(f.Proceed())}
	if rec := f.Row.Old; rec != nil && rec.Record != nil && f.Kind == plan.DriftPending && rec.Record.Stack != stack {
		it.fields = append(it.fields, field{"stack", rec.Record.Stack + " -> " + stack})
	}
	it.fields = append(it.fields, differences(f.Changes, driftsDuty, differs)...)
	it.changes = slices.Clone(it.fields)
	if o := f.Row.Old; o != nil && o.Record != nil && o.Record.By != "" {
		it.fields = append(it.fields, field{"applied", "by " + o.Record.By + " at " + o.Record.Applied})
	}
	it.fields = append(it.fields, field{"because", it.because})
	it.fields = append(it.fields, filled(field{toProceed, it.next})...)
	return it
}
