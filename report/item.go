package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"muster/apply"
	"muster/plan"
	"muster/resource"
	"muster/resource/job"
	"muster/text"
)

// item is one job in a report, or one finding about it. Reports of plan, apply and drift all consist of items.
type item struct {
	row     plan.Row
	word    string // the category in which it is counted: "delete", "refused", "missing"
	symbol  string
	title   string // the word, and details
	because string
	next    string // what a user can do next; may be empty
	fields  []field
	changes []field // what differs, as "8 -> 12"; fields has them too
	level   level
	verdict verdict
	outcome *apply.Outcome // nil except in a report of apply
	equal   []item         // all that this item stands for; empty if it stands for itself. See joinEqual
}

type level int

const (
	quiet level = iota // nothing to do
	note
	warning
	failure
)

// verdict is the result of an item in a test report.
type verdict int

const (
	passed verdict = iota
	failed
	skipped // not evaluated, or ignored
)

// place is the place of the declaration: "jobs.hcl:29".
func (it item) place() string {
	if it.row.New == nil {
		return "not declared"
	}
	return it.row.At()
}

// category holds the items of one word, in the order of a plan.
type category struct {
	word  string
	items []item
}

func (c category) count() int {
	n := 0
	for _, it := range c.items {
		n += it.count()
	}
	return n
}

func planItems(p plan.Plan, g Given) []item {
	from := movedFrom(p)
	items := make([]item, len(p.Rows))
	for i, r := range p.Rows {
		a := r.Action()
		items[i] = item{
			row: r, word: string(a), symbol: a.Symbol(), title: r.Title(), because: becauseAndLoss(r),
			next: g.Paste(r.Proceed()), fields: fields(r, p.Stack, from[r.Address()], g), changes: changes(r, p.Stack),
		}
		items[i].level, items[i].verdict = assess(r)
	}
	return items
}

// becauseAndLoss says why a row has its action, and what it loses.
func becauseAndLoss(r plan.Row) string {
	if loss := r.LossText(); loss != "" {
		return r.Because() + "; loses " + loss
	}
	return r.Because()
}

func assess(r plan.Row) (level, verdict) {
	switch {
	case r.Action() == plan.Blocked, r.Old.Class() == resource.Unreadable, r.Old.Class() == resource.Damaged:
		return warning, failed
	case r.Deletes():
		return warning, passed
	case attention(r):
		return note, passed
	}
	return quiet, passed
}

// applyItems returns one item for each row. The item of a change shows its outcome.
func applyItems(p plan.Plan, outcomes []apply.Outcome, g Given) []item {
	byPath := map[string]*apply.Outcome{}
	for i := range outcomes {
		byPath[outcomes[i].Row.Path] = &outcomes[i]
	}
	items := planItems(p, g)
	for i := range items {
		it := &items[i]
		o := byPath[it.row.Path]
		if o == nil {
			continue
		}
		it.outcome = o
		it.word, it.title, it.because, it.next = string(o.Result), string(o.Result), advice(*o), ""
		it.level, it.verdict = assessOutcome(*o)
		switch o.Result {
		case apply.Applied:
			it.word, it.title, it.because = past(o.Row.Action()), past(o.Row.Action()), becauseAndLoss(o.Row)
		case apply.Refused, apply.Unknown, apply.NotStarted, apply.Waiting:
			it.next = g.Paste("muster plan")
		}
		if o.Err != nil && o.Result != apply.Failed { // the advice of Failed includes the cause
			it.because = cause(*o) + "; " + it.because
		}
		what := []field{{"result", string(o.Result)}, {"detail", detail(*o)}, {"what now", advice(*o)}}
		if o.Result == apply.Applied {
			what = []field{{"result", string(o.Result)}, {tookKey, took(o.Took)}}
		}
		it.fields = append(it.fields, filled(what...)...)
	}
	return items
}

func assessOutcome(o apply.Outcome) (level, verdict) {
	switch o.Result {
	case apply.Refused, apply.Failed, apply.Unknown:
		return failure, failed
	case apply.Waiting, apply.NotStarted:
		return warning, skipped
	}
	return note, passed
}

// join joins items that are equal, unless each is to be shown.
func (o Options) join(items []item) []item {
	if o.All {
		return items
	}
	items = joinEqual(items)
	for i, it := range items {
		if len(it.equal) > fewKeys {
			items[i].fields[0].Value += " (--all shows each)" // the keys
		}
	}
	return items
}

// joinEqual makes one item of those that are equal but for the key of one for_each. It stands where the first of them
// stood. What is or would be deleted, and what an apply
// could not change, keeps an item of its own.
func joinEqual(items []item) []item {
	byLook := map[string][]item{}
	for _, it := range items {
		if look, ok := it.look(); ok {
			byLook[look] = append(byLook[look], it)
		}
	}
	var joined []item
	for _, it := range items {
		look, _ := it.look()
		switch equal := byLook[look]; {
		case len(equal) < 2:
			joined = append(joined, it)
		case equal[0].row.Path == it.row.Path:
			joined = append(joined, merge(equal))
		}
	}
	return joined
}

// instance splits the address of one instance of a for_each: job.ingest["us"] is job.ingest and "us".
func (it item) instance() (block, key string, ok bool) {
	if it.row.New == nil {
		return "", "", false
	}
	block, key, ok = strings.Cut(it.row.New.ID().Address, "[")
	return block, strings.TrimSuffix(key, "]"), ok
}

// look is what an item looks like without the key of its for_each. It is false for an item that is never joined.
func (it item) look() (string, bool) {
	block, key, ok := it.instance()
	if !ok || it.row.Deletes() || it.outcome != nil && it.level == failure {
		return "", false
	}
	parts := []string{block, it.word, it.title, it.because, it.place(), fmt.Sprint(it.level, it.verdict)}
	for _, f := range it.fields {
		if !ofOne(f) {
			parts = append(parts, f.Key, f.withoutKey(key))
		}
	}
	return strings.Join(parts, "\x00"), true
}

// withoutKey is the value of a field, and "each.key" for a label that is the key.
func (f field) withoutKey(key string) string {
	if unquoted, err := strconv.Unquote(key); err == nil && f.Value == unquoted && strings.HasPrefix(f.Key, "labels.") {
		return "each.key"
	}
	return f.Value
}

// ofOne reports whether a field may differ between items that are equal.
func ofOne(f field) bool {
	return slices.Contains([]string{"path", "live", tookKey, toProceed}, f.Key)
}

const tookKey = "took"

func merge(equal []item) item {
	it := equal[0]
	it.equal = equal
	keys := make([]string, len(equal))
	for i, e := range equal {
		_, keys[i], _ = e.instance()
	}
	it.fields = []field{{keysKey, text.List(keys, fewKeys)}}
	for _, f := range equal[0].fields {
		if f.Key == toProceed && it.next != "" {
			f.Value = it.nextOfAll()
		}
		f.Value = f.withoutKey(keys[0])
		if !ofOne(f) || f.Key == toProceed {
			it.fields = append(it.fields, f)
		}
	}
	it.next = it.nextOfAll()
	return it
}

// keysKey is the key of the first field of equal items: the keys of their for_each.
const keysKey = "keys"

const fewKeys = 3

// nextOfAll is the next step of the first of equal items. It says so if the others have another.
func (it item) nextOfAll() string {
	if slices.ContainsFunc(it.equal, func(e item) bool { return e.next != it.next }) {
		return it.next + "; the others likewise"
	}
	return it.next
}

func (it item) count() int { return max(1, len(it.equal)) }

func (it item) rows() []plan.Row {
	if len(it.equal) == 0 {
		return []plan.Row{it.row}
	}
	rows := make([]plan.Row, len(it.equal))
	for i, e := range it.equal {
		rows[i] = e.row
	}
	return rows
}

// name is the address, or of equal items their number and the address without the key: 4,980 × job.ingest["…"].
func (it item) name() string {
	if len(it.equal) == 0 {
		return it.row.Address()
	}
	block, _, _ := it.instance()
	return text.Thousands(len(it.equal)) + " × " + block + `["…"]`
}

// summary is the name, and of equal items what changes.
func (it item) summary() string {
	if len(it.equal) == 0 || len(it.changes) == 0 {
		return it.name()
	}
	return it.name() + ": " + it.changesText()
}

// changesText is what differs in one line: "workers 8 -> 12, run_timeout 1h -> 2h". It is empty if nothing does.
func (it item) changesText() string {
	const most, longest = 4, 100
	texts := make([]string, len(it.changes))
	for i, c := range it.changes {
		value, _, _ := strings.Cut(c.Value, "  ") // without the remark of a blocked change
		if r := []rune(value); len(r) > longest {
			value = string(r[:longest]) + " ..."
		}
		texts[i] = c.Key + " " + value
	}
	return text.List(texts, most)
}

// blocks writes a block for each item: a first line, and its fields below. The columns are as wide as the widest
// address and title, up to a limit.
func (p *page) blocks(items []item) {
	const widestAddress, widestTitle = 40, 36
	address, title := 0, 0
	for _, it := range items {
		address = max(address, min(text.Width(text.Escape(it.name())), widestAddress))
		title = max(title, min(text.Width(text.Escape(it.title)), widestTitle))
	}
	titleAt := 4 + address + 2
	for _, it := range items {
		p.head(it, titleAt, titleAt+title+2)
		p.fields(it.fields)
		p.newline()
	}
}

// head writes the symbol at column 0, the address at 4 and the title at titleAt, and behind them, at placeAt, the place
// of the declaration. If the place does not fit, it has a line of its own.
func (p *page) head(it item, titleAt, placeAt int) {
	styles := map[rune]style{'+': green, '-': red, '/': plain, '?': cyan, '!': yellow, '~': yellow}
	for _, c := range it.symbol { // that of a replace is -/+
		p.write(styles[c], string(c))
	}
	p.moveTo(4)
	p.write(bold, it.name())
	p.write(plain, "  ")
	p.moveTo(titleAt)
	p.wrap(plain, it.title, titleAt+2)
	place := it.place()
	switch start := max(placeAt, p.col+2); {
	case place == "":
	case start+text.Width(text.Escape(place)) > p.width:
		p.newline()
		p.moveTo(6)
	default:
		p.moveTo(start)
	}
	p.write(plain, place)
	p.newline()
}

// kindName is the name of a row's kind. A row of which nobody knows the kind is taken for a job.
func kindName(r plan.Row) string { return cmp.Or(r.Kind().Name, job.KindName) }

// countRows counts rows by kind: "1 group and 2 jobs".
func countRows(rows []plan.Row) string {
	names := text.Each(rows, kindName)
	return cmp.Or(text.CountEach(names), "0 jobs")
}

func are(n int) string {
	if n == 1 {
		return " is "
	}
	return " are "
}
