package report

import (
	"fmt"
	"strings"

	"muster/plan"
)

// namesWithin lists the items that deserve attention, a group a paragraph, in so many bytes: as much about each as
// there is room for. Jobs that are or would be deleted are named before any other.
func namesWithin(groups []group, room int) string {
	const forDetails = 2_000 // without room for a few, there are none
	for _, f := range forms() {
		if names := namesOf(groups, f); len(names)+forDetails <= room {
			return names
		}
	}
	return squeezed(groups, room)
}

// form is how names are written.
type form struct {
	others  int // how many names of a group that are not deleted
	because bool
}

func forms() []form {
	const all = 1 << 30
	return []form{{all, true}, {all, false}, {100, false}, {20, false}, {few, false}}
}

// few names of a group give an idea of it.
const few = 5

// namesOf lists them in one form.
func namesOf(groups []group, f form) string {
	var b strings.Builder
	for _, g := range groups {
		deleted, others := parted(g.items)
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

// parted is what is or would be deleted, and what else deserves attention.
func parted(items []item) (deleted, others []item) {
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

// unnamed counts deletes for which there is no room, so that nobody takes the list for all.
func unnamed(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("- **and %d more, which there is no room to name: the json report does**\n", n)
}

// squeezed names deletes as a shell would expand them. All groups share the room: first everything that is deleted,
// then, where nothing of that is left out, a few of the rest.
func squeezed(groups []group, room int) string {
	const forNote = 100 // that there is no room for details
	deleted, others := make([][]item, len(groups)), make([][]item, len(groups))
	room -= forNote
	for i, g := range groups {
		deleted[i], others[i] = parted(g.items)
		room -= len(heading(g)) + len(unnamed(len(g.items))) + len(andMore(len(g.items)))
	}
	lines := make([]strings.Builder, len(groups))
	spend := func(i int, line string) bool {
		if len(line) > room {
			return false
		}
		room -= len(line)
		lines[i].WriteString(line)
		return true
	}
	whole := true
	for i := range groups {
		left := len(deleted[i])
		for _, e := range braceExpressions(paths(deleted[i])) {
			if spend(i, "- "+code(e.text)+"\n") {
				left -= e.n
			}
		}
		lines[i].WriteString(unnamed(left))
		whole = whole && left == 0
	}
	for i := range groups {
		left := len(others[i])
		for _, it := range others[i][:min(left, few)] {
			if whole && spend(i, bullet(it, false)) {
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
