package sim

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// table is the table of guards in a file. A kind stands alone in a line. Its guards follow, each with a world that
// needs it and the seed of a schedule that shows so; or with - and the reason why no world does.
type table []*entry

type entry struct {
	guard
	world  string
	seed   uint64
	reason string
	gone   bool
}

// notYet is the reason of a guard for which no world was found, and which is not shown to be needless.
const notYet = "?"

// explained reports whether it is known why no world needs the guard.
func (e *entry) explained() bool { return e.reason != "" && e.reason != notYet }

const tableHead = `# The guards of all transactions in this package's worlds, written by: go test -run Mutants -update
# Below each kind of transaction stand its guards, and for each the world that fails when the server ignores the guard,
# and after how many schedules it does (the seed). It stands for all transactions that do more than this one. A guard
# that no world needs has - and the reason why it stays, or ? if a world is still looked for.
`

// count says how many guards there are of each sort.
func (t table) count() string {
	all, caught, explained := 0, 0, 0
	for _, e := range t {
		switch {
		case e.gone:
			continue
		case e.world != "":
			caught++
		case e.explained():
			explained++
		}
		all++
	}
	return fmt.Sprintf("%d guards: %d that a world needs, %d that stay for another reason, %d still looked for (%s)",
		all, caught, explained, all-caught-explained, notYet)
}

// merge removes entries for which others stand. What was found for them is kept.
func (t table) merge() {
	for _, e := range t {
		for _, o := range t {
			if e == o || e.gone || o.gone || !e.covers(o.guard) {
				continue
			}
			if o.gone = true; e.world == "" && o.world != "" {
				e.world, e.seed, e.reason = o.world, o.seed, ""
			}
		}
	}
}

func (t table) write(file string) error {
	sorted := append(table(nil), t...)
	slices.SortFunc(sorted, func(a, b *entry) int { return a.compare(b.guard) })
	var b strings.Builder
	b.WriteString(tableHead)
	kind := ""
	for _, e := range sorted {
		if e.gone {
			continue
		}
		if e.kind != kind {
			kind = e.kind
			fmt.Fprintf(&b, "\n%s\n", kind)
		}
		if e.world != "" {
			fmt.Fprintf(&b, "\t%s | %s | %d\n", e.op, e.world, e.seed)
		} else {
			fmt.Fprintf(&b, "\t%s | - | %s\n", e.op, e.reason)
		}
	}
	return os.WriteFile(file, []byte(b.String()), 0o644)
}

func readTable(file string) (table, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var t table
	kind := ""
	for line := range strings.Lines(string(text)) {
		switch line = strings.TrimSuffix(line, "\n"); {
		case line == "" || strings.HasPrefix(line, "#"):
		case !strings.HasPrefix(line, "\t"):
			kind = line
		default:
			e := &entry{guard: guard{kind: kind}}
			cells := strings.SplitN(line[1:], " | ", 3)
			if len(cells) != 3 {
				return nil, fmt.Errorf("%s: not a guard, a world and a seed: %q", file, line)
			}
			if e.op = cells[0]; cells[1] == "-" {
				e.reason = cells[2]
			} else if _, err := fmt.Sscan(cells[2], &e.seed); err != nil {
				return nil, fmt.Errorf("%s: %q: %w", file, line, err)
			} else {
				e.world = cells[1]
			}
			t = append(t, e)
		}
	}
	return t, nil
}
