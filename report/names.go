package report

import (
	"fmt"
	"strings"

	"muster/text"
)

// namesWithin lists the items that need attention in at most room bytes, one paragraph for each category. It uses the
// most detailed form that fits. What is or would be deleted is named before all others.
func namesWithin(categories []category, room int) string {
	const forDetails = 2_000 // room that the details of a few jobs need
	for _, f := range nameForms() {
		if names := namesOf(categories, f); len(names)+forDetails <= room {
			return names
		}
	}
	return compressedNames(categories, room)
}

// nameForm says how names are written.
type nameForm struct {
	others           int // how many of a category are named at most, besides those that are deleted
	changes, because bool
}

// nameForms lists the forms from the most to the least detailed.
func nameForms() []nameForm {
	const all = 1 << 30
	return []nameForm{
		{all, true, true}, {all, true, false}, {all, false, false}, {100, false, false}, {20, false, false},
		{fewNames, false, false},
	}
}

// fewNames is how many names of a category are shown if there is little room.
const fewNames = 5

// namesOf lists the names in one form.
func namesOf(categories []category, f nameForm) string {
	var b strings.Builder
	for _, c := range categories {
		deleted, others := partition(c.items)
		if len(deleted)+len(others) == 0 {
			continue
		}
		b.WriteString(heading(c))
		shown := others[:min(len(others), f.others)]
		for _, it := range append(deleted, shown...) {
			b.WriteString(bullet(it, f))
		}
		b.WriteString(andMore(category{items: others[len(shown):]}.count()))
	}
	return b.String()
}

// partition returns the items that are or would be deleted, and the others that need attention.
func partition(items []item) (deleted, others []item) {
	for _, it := range items {
		switch {
		case it.level == quiet:
		case it.row.Deletes():
			deleted = append(deleted, it)
		default:
			others = append(others, it)
		}
	}
	return deleted, others
}

func heading(c category) string { return fmt.Sprintf("\n**%s (%d)**\n\n", c.word, c.count()) }

// bullet is one item: its name, what changes, and why. Items that are equal always say what changes.
func bullet(it item, f nameForm) string {
	line := "- " + code(it.row.Address())
	if block, _, _ := it.instance(); len(it.equal) > 0 {
		line = "- " + text.Thousands(it.count()) + " × " + code(block+`["…"]`)
	}
	var what []string
	if len(it.changes) > 0 && (f.changes || len(it.equal) > 0) {
		what = append(what, code(it.changesText()))
	}
	if f.because && it.because != "" {
		what = append(what, prose(it.because))
	}
	if len(what) > 0 {
		line += ": " + strings.Join(what, "; ")
	}
	return line + "\n"
}

func andMore(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("- and %d more\n", n)
}

// countUnnamed is the line that counts the deletes for which there is no room.
func countUnnamed(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("- **and %d more, which there is no room to name: the json report does**\n", n)
}

// compressedNames names deletes by brace expressions of a shell. All categories share the room: deletes have it first.
// If all deletes are named, a few others of each category follow.
func compressedNames(categories []category, room int) string {
	const forNote = 100 // the note that there is no room for details
	deleted, others := make([][]item, len(categories)), make([][]item, len(categories))
	room -= forNote
	for i, c := range categories {
		deleted[i], others[i] = partition(c.items)
		room -= len(heading(c)) + len(countUnnamed(c.count())) + len(andMore(c.count()))
	}
	lines := make([]strings.Builder, len(categories))
	addLine := func(i int, line string) bool {
		if len(line) > room {
			return false
		}
		room -= len(line)
		lines[i].WriteString(line)
		return true
	}
	allNamed := true
	for i := range categories {
		left := len(deleted[i])
		for _, e := range braceExpressions(paths(deleted[i])) {
			if addLine(i, "- "+code(e.text)+"\n") {
				left -= e.n
			}
		}
		lines[i].WriteString(countUnnamed(left))
		allNamed = allNamed && left == 0
	}
	for i := range categories {
		left := category{items: others[i]}.count()
		for _, it := range others[i][:min(len(others[i]), fewNames)] {
			if allNamed && addLine(i, bullet(it, nameForm{})) {
				left -= it.count()
			}
		}
		lines[i].WriteString(andMore(left))
	}
	var b strings.Builder
	for i, c := range categories {
		if lines[i].Len() > 0 {
			b.WriteString(heading(c) + lines[i].String())
		}
	}
	return b.String()
}

func paths(items []item) []string {
	all := make([]string, len(items))
	for i, it := range items {
		all[i] = it.row.Path
	}
	return all
}
