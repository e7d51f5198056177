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

// Words of drift besides its kinds.
const (
	wordIgnored    = "ignored"
	wordUnreadable = "unreadable"
	wordClean      = "as declared"
)

// Drift writes what drifted: a header, a block for each finding, and the summary. Findings of the kinds in failOn are marked as
// those that count.
func Drift(w io.Writer, p plan.Plan, d plan.Drift, failOn []plan.DriftKind, o Options) error {
	pg := newPage(w, o)
	pg.header("drift", p, o)
	var items []item
	for _, it := range driftItems(p, d, failOn) {
		if o.All && it.word != wordClean || it.level > quiet {
			items = append(items, it)
		}
	}
	pg.blocks(items)
	if len(d.Findings) == len(d.Of(plan.DriftUnmanaged)) {
		pg.wrap(plain, noDrift(p, d), 0)
		pg.newline()
	}
	pg.write(bold, Drifted(d))
	pg.newline()
	width := 0
	for _, it := range items {
		width = max(width, len(it.word))
	}
	for _, it := range items {
		pg.printf("  %-*s  %s", width, it.word, it.row.Address())
		pg.newline()
	}
	return pg.flush()
}

// Drifted is the line of all counts, in an order and with words that do not change: tools may read it.
func Drifted(d plan.Drift) string {
	var parts []string
	for _, k := range plan.DriftKinds() {
		parts = append(parts, fmt.Sprintf("%d %s", len(d.Of(k)), k))
	}
	return fmt.Sprintf("Drift: %s; %d ignored, %d unreadable.", strings.Join(parts, ", "), len(d.Ignored), len(d.Unreadable))
}

// noDrift is the sentence for a check that found nothing of ours.
func noDrift(p plan.Plan, d plan.Drift) string {
	what := "No drift. "
	if d.Incomplete() {
		what = "No drift in what could be seen. "
	}
	clean := 0
	for _, it := range driftItems(p, d, nil) {
		if it.word == wordClean {
			clean++
		}
	}
	return what + text.Plural(clean, "job is", "jobs are") + " as declared."
}

// driftItems has an item for each finding, for what was ignored or not seen, and for each declared job without any.
func driftItems(p plan.Plan, d plan.Drift, failOn []plan.DriftKind) []item {
	var items []item
	told := map[string]bool{}
	add := func(it item) {
		told[it.row.Path] = true
		items = append(items, it)
	}
	for _, f := range d.Findings {
		it := findingItem(f, d.Stack)
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
		it := findingItem(f, d.Stack)
		it.word, it.title, it.verdict = wordIgnored, "ignored: "+string(f.Kind), skipped
		it.because = fmt.Sprintf("%s; ignored until %s: %s (%s)", it.because, f.Ignore.Until, f.Ignore.Reason, f.Ignore.At)
		it.fields = append(it.fields, field{"ignored", "until " + f.Ignore.Until + ": " + f.Ignore.Reason + " (" + f.Ignore.At + ")"})
		add(it)
	}
	for _, r := range d.Unreadable {
		it := item{row: r, word: wordUnreadable, title: wordUnreadable, symbol: "!", level: warning, verdict: failed}
		it.because, it.next = r.Because(), cmp.Or(r.Proceed(), "muster explain "+r.Path)
		it.fields = []field{{"because", it.because}, {"to proceed", it.next}}
		add(it)
	}
	for _, r := range p.Rows {
		if r.New != nil && !told[r.Path] && r.Old.Class() != resource.Unreadable { // an ignored one is not clean either
			items = append(items, item{row: r, word: wordClean, title: wordClean, fields: []field{{"status", health(r.Old)}}})
		}
	}
	return items
}

func findingItem(f plan.Finding, stack string) item {
	it := item{row: f.Row, word: string(f.Kind), title: string(f.Kind), because: f.Because(), next: f.Proceed()}
	if rec := f.Row.Old; rec != nil && rec.Record != nil && f.Kind == plan.DriftPending && rec.Record.Stack != stack {
		it.fields = append(it.fields, field{"stack", rec.Record.Stack + " -> " + stack})
	}
	for _, c := range f.Changes {
		it.fields = append(it.fields, field{c.Name, side(c.Old) + " -> " + side(c.New)})
	}
	if o := f.Row.Old; o != nil && o.Record != nil && o.Record.By != "" {
		it.fields = append(it.fields, field{"applied", "by " + o.Record.By + " at " + o.Record.Applied})
	}
	it.fields = append(it.fields, field{"because", it.because})
	if it.next != "" {
		it.fields = append(it.fields, field{"to proceed", it.next})
	}
	return it
}

func driftWords() []string {
	var words []string
	for _, k := range plan.DriftKinds() {
		words = append(words, string(k))
	}
	return append(words, wordIgnored, wordUnreadable, wordClean)
}
