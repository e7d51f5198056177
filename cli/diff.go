package cli

import (
	"bytes"
	"fmt"
	"strings"
)

// contextLines surround a change in a diff.
const contextLines = 3

// edit replaces lines [oldFrom, oldTo) of one text by lines [newFrom, newTo) of the other.
type edit struct{ oldFrom, oldTo, newFrom, newTo int }

// unifiedDiff shows how new differs from old, in the format of diff -u. It is meant for formatting, which keeps lines in
// place: texts of equal length are compared line by line, others from the first to the last difference.
func unifiedDiff(name string, old, new []byte) string {
	a, b := lines(old), lines(new)
	var out strings.Builder
	fmt.Fprintf(&out, "--- %s\n+++ %s (formatted)\n", name, name)
	for edits := edits(a, b); len(edits) > 0; {
		n := 1
		for n < len(edits) && edits[n].oldFrom-edits[n-1].oldTo <= 2*contextLines {
			n++
		}
		writeHunk(&out, a, b, edits[:n])
		edits = edits[n:]
	}
	return out.String()
}

func lines(text []byte) []string {
	var ls []string
	for line := range bytes.Lines(text) {
		ls = append(ls, string(line))
	}
	return ls
}

func edits(a, b []string) []edit {
	if len(a) != len(b) {
		from := 0
		for from < min(len(a), len(b)) && a[from] == b[from] {
			from++
		}
		tail := 0
		for tail < min(len(a), len(b))-from && a[len(a)-1-tail] == b[len(b)-1-tail] {
			tail++
		}
		return []edit{{from, len(a) - tail, from, len(b) - tail}}
	}
	var es []edit
	for i := 0; i < len(a); i++ {
		from := i
		for i < len(a) && a[i] != b[i] {
			i++
		}
		if from < i {
			es = append(es, edit{from, i, from, i})
		}
	}
	return es
}

func writeHunk(out *strings.Builder, a, b []string, es []edit) {
	first, last := es[0], es[len(es)-1]
	from := max(0, first.oldFrom-contextLines)
	to := min(len(a), last.oldTo+contextLines)
	fmt.Fprintf(out, "@@ -%d,%d +%d,%d @@\n", from+1, to-from, from+first.newFrom-first.oldFrom+1, to-from+last.newTo-last.oldTo)
	at := from
	for _, e := range es {
		writeLines(out, " ", a[at:e.oldFrom])
		writeLines(out, "-", a[e.oldFrom:e.oldTo])
		writeLines(out, "+", b[e.newFrom:e.newTo])
		at = e.oldTo
	}
	writeLines(out, " ", a[at:to])
}

func writeLines(out *strings.Builder, mark string, ls []string) {
	for _, l := range ls {
		out.WriteString(mark + strings.TrimSuffix(l, "\n") + "\n")
		if !strings.HasSuffix(l, "\n") {
			out.WriteString("\\ No newline at end of file\n")
		}
	}
}
