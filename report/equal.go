package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"muster/plan"
	"muster/text"
)

// join joins items that are equal, unless each is to be shown.
func (o Options) join(items []item) []item {
	if o.All {
		return items
	}
	items = joinEqual(items)
	for i, it := range items {
		if len(it.equal) > fewKeys {
			items[i].fields[0].value += " (--all shows each)" // the keys
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
			parts = append(parts, f.key, f.withoutKey(key))
		}
	}
	return strings.Join(parts, "\x00"), true
}

// withoutKey is the value of a field, and "each.key" for a label that is the key.
func (f field) withoutKey(key string) string {
	if unquoted, err := strconv.Unquote(key); err == nil && f.value == unquoted && strings.HasPrefix(f.key, "labels.") {
		return "each.key"
	}
	return f.value
}

// ofOne reports whether a field may differ between items that are equal.
func ofOne(f field) bool {
	return slices.Contains([]string{"path", "live", tookKey, toProceed}, f.key)
}

// tookKey is the key of a field with the time that a change took.
const tookKey = "took"

// merge makes one item of equal ones.
func merge(equal []item) item {
	it := equal[0]
	it.equal = equal
	keys := make([]string, len(equal))
	for i, e := range equal {
		_, keys[i], _ = e.instance()
	}
	it.fields = []field{{keysKey, text.List(keys, fewKeys)}}
	for _, f := range equal[0].fields {
		if f.key == toProceed && it.next != "" {
			f.value = it.nextOfAll()
		}
		f.value = f.withoutKey(keys[0])
		if !ofOne(f) || f.key == toProceed {
			it.fields = append(it.fields, f)
		}
	}
	it.next = it.nextOfAll()
	return it
}

// keysKey is the key of the first field of equal items: the keys of their for_each.
const keysKey = "keys"

// fewKeys is how many keys of equal items are named.
const fewKeys = 3

// nextOfAll is the next step of the first of equal items. It says so if the others have another.
func (it item) nextOfAll() string {
	for _, e := range it.equal {
		if e.next != it.next {
			return it.next + "; the others likewise"
		}
	}
	return it.next
}

// count is how many rows the item stands for.
func (it item) count() int { return max(1, len(it.equal)) }

// rows lists the rows that the item stands for.
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
		value, _, _ := strings.Cut(c.value, "  ") // without the remark of a blocked change
		if r := []rune(value); len(r) > longest {
			value = string(r[:longest]) + " ..."
		}
		texts[i] = c.key + " " + value
	}
	return text.List(texts, most)
}
