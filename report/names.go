package report

import (
	"fmt"
	"strings"

	"muster/plan"
)

// namesWithin lists the items that need attention in at most room bytes, one paragraph for each group. It uses the most
// detailed form that fits. Jobs that are or would be deleted are named before all others.
func namesWithin(groups []group, room int) string {
	const forDetails = 2_000 // room that the details of a few jobs need
	for _, f := range nameForms() {
		if names := namesOf(groups, f); len(names)+forDetails <= room {
			return names
		}
	}
	return compressedNames(groups, room)
}

// nameForm says how names are written.
type nameForm struct {
	others  int // how many of a group are named at most, besides those that are deleted
	because bool
}

// nameForms lists the forms from the most to the least detailed.
func nameForms() []nameForm {
	const all = 1 << 30
	return []nameForm{{all, true}, {all, false}, {100, false}, {20, false}, {fewNames, false}}
}

// fewNames is how many names of a group are shown if there is little room.
const fewNames = 5

// namesOf lists the names in one form.
func namesOf(groups []group, f nameForm) string {
	var b strings.Builder
	for _, g := range groups {
		deleted, others := partition(g.items)
		if len(deleted)+len(others) == 0 {
			continue
		}
		b.WriteString(heading(g))
		shown := others[:min(len(others), f.others)]
		for _, it := range append(deleted, shown...) {
			b.WriteString(bullet(it, f.because))
		}
		b.WriteString(andMore(len(others) - len(shown)))
	}
	return b.String()
}

// partition returns the items that are or would be deleted, and the others that need attention.
func partition(items []item) (deleted, others []item) {
	for _, it := range items {
		switch {
		case it.level == quiet:
		case it.row.Action() == plan.Delete:
			deleted = append(deleted, it)
		default:
			others = append(others, it)
		}
	}
	return deleted, others
}

func heading(g group) string { return fmt.Sprintf("\n**%s (%d)**\n\n", g.word, len(g.items)) }

func bullet(it item, because bool) string {
	if because && it.because != "" {
		return "- " + code(it.row.Address()) + ": " + prose(it.because) + "\n"
	}
	return "- " + code(it.row.Address()) + "\n"
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

// compressedNames names deletes by brace expressions of a shell. All groups share the room: deletes have it first. If
// all deletes are named, a few others of each group follow.
func compressedNames(groups []group, room int) string {
	const forNote = 100 // the note that there is no room for details
	deleted, others := make([][]item, len(groups)), make([][]item, len(groups))
	room -= forNote
	for i, g := range groups {
		deleted[i], others[i] = partition(g.items)
		room -= len(heading(g)) + len(countUnnamed(len(g.items))) + len(andMore(len(g.items)))
	}
	lines := make([]strings.Builder, len(groups))
	addLine := func(i int, line string) bool {
		if len(line) > room {
			return false
		}
		room -= len(line)
		lines[i].WriteString(line)
		return true
	}
	allNamed := true
	for i := range groups {
		left := len(deleted[i])
		for _, e := range braceExpressions(paths(deleted[i])) {
			if addLine(i, "- "+code(e.text)+"\n") {
				left -= e.n
			}
		}
		lines[i].WriteString(countUnnamed(left))
		allNamed = allNamed && left == 0
	}
	for i := range groups {
		left := len(others[i])
		for _, it := range others[i][:min(left, fewNames)] {
			if allNamed && addLine(i, bullet(it, false)) {
				left--
			}
		}
		lines[i].WriteString(andMore(left))
	}
	var b strings.Builder
	for i, g := range groups {
		if lines[i].Len() > 0 {
			b.WriteString(heading(g) + lines[i].String())
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
