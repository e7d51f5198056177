// Package report writes plans, outcomes and statuses for people and for tools.
//
// Every text is a pure function of its arguments: the same plan gives the same bytes. The package escapes control
// characters in everything that came from ZooKeeper or a configuration. It decides nothing: plan says what a row means,
// apply says what its result is. After an error of the writer it writes nothing more and returns that error.
package report

import (
	"bufio"
	"fmt"
	"io"
	"slices"
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
	w        *bufio.Writer
	color    bool
	width    int
	terminal bool // without one, tools may read tables and lines of counts
	col      int  // column of the next character
}

func newPage(w io.Writer, o Options) *page {
	p := &page{w: bufio.NewWriter(w), color: o.Color, width: o.Width, terminal: true}
	if p.width <= 0 {
		p.width, p.terminal = 80, false
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

// line writes s with wrap, and ends the line.
func (p *page) line(st style, s string, hang int) {
	p.wrap(st, s, hang)
	p.newline()
}

func (p *page) countsLine(s string) {
	if p.terminal {
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
type field struct{ Key, Value string }

// filled are those of the fields that have a value.
func filled(fs ...field) []field {
	return slices.DeleteFunc(fs, func(f field) bool { return f.Value == "" })
}

// toProceed is the key of a field with a next step.
const toProceed = "to proceed"

// fields writes the fields, their values in one column.
func (p *page) fields(fs []field) {
	const indent, keyWidth = 6, 14
	column := indent + keyWidth
	for _, f := range fs {
		column = max(column, indent+text.Width(text.Escape(f.Key))+2)
	}
	for _, f := range fs {
		p.moveTo(indent)
		p.write(plain, f.Key)
		p.moveTo(column)
		if f.Key == toProceed {
			p.steps(f.Value, column)
			continue
		}
		p.line(plain, f.Value, column)
	}
}

// steps writes a next step, one line for each thing that can be done if they do not fit into one line. It never wraps
// a line: what is pasted into a shell has no line ends.
func (p *page) steps(step string, hang int) {
	if !strings.Contains(step, "muster ") { // nothing to paste
		p.line(plain, step, hang)
		return
	}
	for _, line := range StepLines(step, p.width-hang) {
		p.moveTo(hang)
		p.write(plain, line)
		p.newline()
	}
}

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

// Given is what the user gave and what a command that is printed as a next step has to repeat, by the name of the
// command: "apply", "state list". A command that is not in it repeats nothing.
type Given map[string]Repeat

// Repeat is what one command has to repeat, quoted for a shell.
type Repeat struct {
	Words string // "-C prod --servers zk-1:2181"; may be empty
	Root  string // "--root /jobs/prod"; not repeated if the command names a root, or begins with a path
}

// Paste puts into a next step what each command in it has to repeat, right behind the name of the command: "muster
// apply" becomes "muster apply -C prod". What is in single quotes at the begin of a word is a name, not a command.
func (g Given) Paste(step string) string {
	if len(g) == 0 {
		return step
	}
	var b strings.Builder
	for rest := step; rest != ""; {
		n := wordEnd(rest)
		word, after := rest[:n], rest[n:]
		b.WriteString(word)
		rest = after
		if strings.TrimLeft(word, "(") != "muster" {
			continue
		}
		name, ok := g.commandAt(after)
		if !ok || strings.HasPrefix(after[len(name):], " --help") {
			continue
		}
		rest = after[len(name):]
		b.WriteString(name)
		for _, add := range g[strings.TrimSpace(name)].wordsFor(rest) {
			b.WriteString(" " + add)
		}
	}
	return b.String()
}

// commandAt returns the longest name of a command at the begin of s, with the spaces before its words.
func (g Given) commandAt(s string) (name string, ok bool) {
	for n := 0; strings.HasPrefix(s[n:], " "); {
		n++
		n += strings.IndexFunc(s[n:]+" ", func(r rune) bool { return r != '-' && (r < 'a' || r > 'z') })
		if _, known := g[strings.TrimSpace(s[:n])]; !known || s[n-1] == ' ' {
			break
		}
		name, ok = s[:n], true
	}
	return name, ok
}

// wordsFor lists what to repeat before the arguments that follow the name of a command.
func (r Repeat) wordsFor(arguments string) []string {
	words := text.NonEmpty(r.Words)
	end := strings.IndexAny(arguments, ";&\n")
	if end < 0 {
		end = len(arguments)
	}
	first := strings.TrimLeft(arguments, " '")
	if r.Root != "" && !strings.HasPrefix(first, "/") && !strings.Contains(arguments[:end], "--root") {
		words = append(words, r.Root)
	}
	return words
}

// wordEnd is the length of the first word of s, with its quoted part, or of the space at its begin.
func wordEnd(s string) int {
	if s[0] == ' ' || s[0] == '\n' {
		return len(s) - len(strings.TrimLeft(s, " \n"))
	}
	n := 0
	for n < len(s) && s[n] == '\'' { // text.ShellWord writes a quote in quotes as '\''
		end := strings.IndexByte(s[n+1:], '\'')
		if end < 0 {
			break
		}
		n += end + 2
		if strings.HasPrefix(s[n:], `\'`) {
			n += 2
		}
	}
	if end := strings.IndexAny(s[n:], " \n"); end >= 0 {
		return n + end
	}
	return len(s)
}

// StepLines splits a next step into lines of at most so many columns: one line for each thing that can be done. It
// never breaks a command, so a line may be longer.
func StepLines(step string, columns int) []string {
	if text.Width(text.Escape(step)) <= columns || !strings.Contains(step, "muster ") {
		return []string{step}
	}
	var lines []string
	start := 0
	for at := 0; at < len(step); {
		n := wordEnd(step[at:])
		word := step[at : at+n]
		at += n
		if strings.HasSuffix(word, ";") || strings.HasSuffix(word, ",") && strings.HasPrefix(step[at:], " or ") {
			lines, start = append(lines, strings.TrimSpace(step[start:at-1])), at
		}
	}
	lines = append(lines, strings.TrimSpace(step[start:]))
	return slices.DeleteFunc(lines, func(s string) bool { return s == "" })
}
