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
	Color bool // SGR sequences
	Width int  // columns of a terminal; 0: none, for which 80 are assumed. Names are never broken, so a long one may pass it
	All   bool // also what needs no attention: unchanged and unmanaged rows

	// For the header of a plan; what is empty is left out.
	Servers []string
	Took    time.Duration
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

// page writes text in columns. The first error of the writer sticks, and flush returns it.
type page struct {
	w     *bufio.Writer
	color bool
	width int
	whole bool // lines that tools may read are not wrapped
	col   int  // where the next character goes
}

func newPage(w io.Writer, o Options) *page {
	p := &page{w: bufio.NewWriter(w), color: o.Color, width: o.Width}
	if p.width <= 0 {
		p.width, p.whole = 80, true
	}
	return p
}

func (p *page) flush() error { return p.w.Flush() }

// write writes s, escaped, in a style.
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

// to moves right to a column.
func (p *page) to(col int) {
	if p.col < col {
		p.write(plain, strings.Repeat(" ", col-p.col))
	}
}

// wrap writes s from here on, broken at spaces where the line is full; the next lines start at column hang.
func (p *page) wrap(st style, s string, hang int) {
	for s = text.Escape(s); ; {
		n := fit(s, p.width-p.col)
		p.write(st, s[:n])
		s = strings.TrimLeft(s[n:], " ")
		if s == "" {
			return
		}
		p.newline()
		p.to(hang)
	}
}

// countsLine writes a line of counts. Tools may read it, but not from a terminal.
func (p *page) countsLine(s string) {
	if p.whole {
		p.write(bold, s)
	} else {
		p.wrap(bold, s, 2)
	}
	p.newline()
}

// fit is how many bytes of s fit into so many columns: up to a space, but at least one word.
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

// field is a line of a row.
type field struct{ key, value string }

// fields writes one line a field, values in one column.
func (p *page) fields(fs []field) {
	const indent, usual = 6, 14
	column := indent + usual
	for _, f := range fs {
		column = max(column, indent+text.Width(text.Escape(f.key))+2)
	}
	for _, f := range fs {
		p.to(indent)
		p.write(plain, f.key)
		p.to(column)
		p.wrap(plain, f.value, column)
		p.newline()
	}
}

// took is a duration for eyes.
func took(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
