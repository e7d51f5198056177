package report

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"time"

	"muster/text"
)

// Options of a text.
type Options struct {
	Color bool // with SGR sequences
	// Width is the number of columns of the terminal. 0 means that there is none; lines then have 80 columns, except
	// those that tools read. A long name is never broken, so its line may be longer.
	Width int
	All   bool // with the rows that need no attention, and with each of those that are equal
	Given Given
	Now   time.Time // to which ages are; if it is zero, text has times instead

	// For the header of a plan; empty values are left out.
	Servers []string
	Took    time.Duration

	Notes []string // for the end of a plan, before the counts
	Next  string   // what the user can do next, as Given.Paste returns it
}

// style is an SGR sequence.
type style string

const (
	plain  style = ""
	bold   style = "\x1b[1m"
	red    style = "\x1b[31m"
	green  style = "\x1b[32m"
	yellow style = "\x1b[33m"
	cyan   style = "\x1b[36m"
	reset        = "\x1b[0m"
)

// page writes text in columns. After an error of the writer it writes nothing more, and flush returns that error.
type page struct {
	w          *bufio.Writer
	color      bool
	width      int
	wrapCounts bool // wrap also lines of counts; without a terminal, tools may read them
	col        int  // column of the next character
}

func newPage(w io.Writer, o Options) *page {
	p := &page{w: bufio.NewWriter(w), color: o.Color, width: o.Width, wrapCounts: true}
	if p.width <= 0 {
		p.width, p.wrapCounts = 80, false
	}
	return p
}

func (p *page) flush() error { return p.w.Flush() }

// write escapes s and writes it in a style.
func (p *page) write(st style, s string) {
	s = text.Escape(s)
	p.col += text.Width(s)
	if p.color && st != plain && s != "" {
		s = string(st) + s + reset
	}
	p.w.WriteString(s)
}

func (p *page) printf(format string, args ...any) { p.write(plain, fmt.Sprintf(format, args...)) }

func (p *page) newline() {
	p.w.WriteByte('\n')
	p.col = 0
}

// moveTo moves right to a column.
func (p *page) moveTo(col int) {
	if p.col < col {
		p.write(plain, strings.Repeat(" ", col-p.col))
	}
}

// wrap escapes s and writes it, broken at spaces. Further lines start at column hang.
func (p *page) wrap(st style, s string, hang int) {
	for s = text.Escape(s); ; {
		n := fit(s, p.width-p.col)
		p.write(st, s[:n])
		s = strings.TrimLeft(s[n:], " ")
		if s == "" {
			return
		}
		p.newline()
		p.moveTo(hang)
	}
}

// countsLine writes a line of counts.
func (p *page) countsLine(s string) {
	if p.wrapCounts {
		p.wrap(bold, s, 2)
	} else {
		p.write(bold, s)
	}
	p.newline()
}

// fit is how many bytes of s fit into this many columns: whole words, at least one.
func fit(s string, columns int) int {
	n := 0 // the last end of a word that fits
	for i := range s + " " {
		if i < len(s) && s[i] != ' ' || i > 0 && s[i-1] == ' ' {
			continue
		}
		if n > 0 && text.Width(s[:i]) > columns {
			break
		}
		n = i
	}
	return n
}

// field is a line below the first line of a block.
type field struct{ key, value string }

// toProceed is the key of a field with a next step.
const toProceed = "to proceed"

// fields writes the fields, their values in one column.
func (p *page) fields(fs []field) {
	const indent, keyWidth = 6, 14
	column := indent + keyWidth
	for _, f := range fs {
		column = max(column, indent+text.Width(text.Escape(f.key))+2)
	}
	for _, f := range fs {
		p.moveTo(indent)
		p.write(plain, f.key)
		p.moveTo(column)
		if f.key == toProceed {
			p.steps(f.value, column)
			continue
		}
		p.wrap(plain, f.value, column)
		p.newline()
	}
}

// steps writes a next step, one line for each thing that can be done if they do not fit into one line. It never wraps
// a line: what is pasted into a shell has no line ends.
func (p *page) steps(step string, hang int) {
	if !strings.Contains(step, "muster ") { // nothing to paste
		p.wrap(plain, step, hang)
		p.newline()
		return
	}
	for _, line := range StepLines(step, p.width-hang) {
		p.moveTo(hang)
		p.write(plain, line)
		p.newline()
	}
}

// next writes what the user can do next, if anything.
func (p *page) next(step string) {
	if step != "" {
		p.write(plain, "next: ")
		p.steps(step, len("next: "))
	}
}

// took is a duration for people: "41 ms", "12.3 s".
func took(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
