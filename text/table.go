package text

import (
	"slices"
	"strings"
)

// narrowest is to how many columns of a terminal Table cuts cells before it leaves out columns.
const narrowest = 12

// Table writes rows in columns that are aligned, two spaces apart, and escapes their cells. columns is the width of the
// terminal; 0 means that there is none, and nothing is cut. In a table that is too wide the widest cells are cut, those
// of the first column last, and then the last columns are left out. A row of one cell is a line across all columns.
func Table(rows [][]string, columns int) string {
	const gap = 2
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if len(row) == 1 {
				continue
			}
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], Width(Escape(cell)))
		}
	}
	if columns > 0 {
		widths = narrowed(widths, columns, gap)
	}
	var b strings.Builder
	for _, row := range rows {
		if len(row) == 1 {
			b.WriteString(Escape(row[0]) + "\n")
			continue
		}
		var line strings.Builder
		for i, cell := range row[:min(len(row), len(widths))] {
			cell = Cut(Escape(cell), widths[i])
			line.WriteString(cell + strings.Repeat(" ", widths[i]-Width(cell)+gap))
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

// narrowed are the widths with which a table fits.
func narrowed(widths []int, columns, gap int) []int {
	over := -gap - columns
	for _, w := range widths {
		over += w + gap
	}
	for ; over > 0; over-- {
		widest := 0
		for i, w := range widths[1:] {
			if w > narrowest && (widest == 0 || w > widths[widest]) {
				widest = i + 1
			}
		}
		if widths[widest] <= narrowest {
			break
		}
		widths[widest]--
	}
	for over > 0 && len(widths) > 1 {
		last := len(widths) - 1
		over -= widths[last] + gap
		widths = slices.Delete(widths, last, last+1)
	}
	return widths
}
