package spec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"muster/text"
)

// JSON writes the diagnostics as one object, for tools.
func (ds Diagnostics) JSON(w io.Writer) error {
	out := struct {
		FormatVersion string      `json:"format_version"`
		Valid         bool        `json:"valid"`
		Errors        int         `json:"error_count"`
		Warnings      int         `json:"warning_count"`
		Diagnostics   Diagnostics `json:"diagnostics"`
	}{FormatVersion: "1.0", Valid: !ds.HasErrors(), Diagnostics: append(Diagnostics{}, ds...)}
	for _, d := range ds {
		if d.Severity == Error {
			out.Errors++
		}
	}
	out.Warnings = len(ds) - out.Errors
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(out)
}

// Text is TextNaming with the names of files as they are.
func (ds Diagnostics) Text(w io.Writer, color bool) error {
	return ds.TextNaming(w, color, func(file string) string { return file })
}

// TextNaming writes the diagnostics for eyes. Where a finding stands is marked with carets on a line of their own, so
// it is seen without colour too. No control character of the source gets through. name is how a file is called there.
func (ds Diagnostics) TextNaming(w io.Writer, color bool, name func(file string) string) error {
	var b bytes.Buffer
	p := printer{out: &b, color: color, name: name}
	for i, d := range ds {
		if i > 0 {
			b.WriteByte('\n')
		}
		p.diagnostic(d)
	}
	_, err := w.Write(b.Bytes())
	return err
}

type printer struct {
	out   *bytes.Buffer
	color bool
	name  func(file string) string
}

const red, yellow, blue, bold = "31", "33", "34", "1"

func (p *printer) paint(sgr, s string) string {
	if !p.color || s == "" {
		return s
	}
	return "\x1b[" + sgr + "m" + s + "\x1b[0m"
}

func (p *printer) printf(format string, args ...any) { fmt.Fprintf(p.out, format, args...) }

func (p *printer) diagnostic(d Diagnostic) {
	tone := red
	if d.Severity == Warning {
		tone = yellow
	}
	head := string(d.Severity) + "[" + d.Code + "]"
	p.printf("%s%s\n", p.paint(bold+";"+tone, head), p.paint(bold, ": "+indented(d.Summary, "  ")))

	gutter := 2 // digits of the largest line number
	for _, r := range d.Related {
		gutter = max(gutter, len(strconv.Itoa(r.Range.Start.Line)))
	}
	in := ""
	if d.Range != nil {
		gutter = max(gutter, len(strconv.Itoa(d.Range.Start.Line)))
		if d.In != "" {
			in = ", in " + text.Escape(d.In)
		}
		if strings.Contains(d.Address, "[") { // one instance of several
			in = ", in " + text.Escape(d.Address)
		}
		if strings.HasPrefix(d.In, rowPolicy) && d.Address != "" {
			in = ", in " + text.Escape(d.In) + ", of " + text.Escape(d.Address)
		}
		p.place("-->", gutter, *d.Range, d.Snippet, in, tone, '^', d.Note)
	}
	bar := strings.Repeat(" ", gutter+1)
	for _, v := range d.Values {
		from := ""
		if file, line, ok := strings.Cut(v.From, ":"); ok {
			from = "  (" + text.Escape(p.name(file)+":"+line) + ")"
		} else if v.From != "" {
			from = "  (" + text.Escape(v.From) + ")"
		}
		says := text.EscapeLines(v.Traversal + " " + v.Statement)
		p.printf("%s%s %s%s\n", bar, p.paint(blue, "|"), says, from)
	}
	for _, r := range d.Related {
		p.place(":::", gutter, r.Range, r.Snippet, "", blue, '-', r.Message)
	}
	for _, line := range []struct{ word, says string }{{"note", d.Detail}, {"help", d.Help}} {
		if line.says != "" {
			says := indented(line.says, bar+"        ")
			p.printf("%s%s %s: %s\n", bar, p.paint(blue, "="), p.paint(bold, line.word), says)
		}
	}
}

// indented is text of several lines, of which none but the first begins where a diagnostic begins.
func indented(s, indent string) string {
	return strings.ReplaceAll(text.EscapeLines(s), "\n", "\n"+indent)
}

func (p *printer) place(arrow string, gutter int, r Range, s *Snippet, in, tone string, mark rune, note string) {
	bar := strings.Repeat(" ", gutter+1)
	at := fmt.Sprintf("%s:%d:%d", text.Escape(p.name(r.Filename)), r.Start.Line, r.Start.Column)
	p.printf("%*s%s %s%s\n", gutter, "", p.paint(blue, arrow), at, in)
	if s == nil {
		if note != "" {
			p.printf("%s%s %s\n", bar, p.paint(blue, "="), text.EscapeLines(note))
		}
		return
	}
	before, marked, after := window(*s)
	pad := strings.Repeat(" ", columns(before))
	marks := strings.Repeat(string(mark), max(1, columns(before+marked)-columns(before)))
	if note != "" {
		marks += " " + text.EscapeLines(note)
	}
	p.printf("%s%s\n", bar, p.paint(blue, "|"))
	p.printf("%s %s %s\n", p.paint(blue, fmt.Sprintf("%*d", gutter, r.Start.Line)), p.paint(blue, "|"),
		visible(before+marked+after))
	p.printf("%s%s %s%s\n", bar, p.paint(blue, "|"), pad, p.paint(tone, marks))
}

// maxLine is how much of a source line is shown before and behind the place: generated files can have long lines.
const maxLine = 120

// window cuts a source line in three: before, marked, after. It shortens long parts.
func window(s Snippet) (before, marked, after string) {
	before, marked, after = s.Code[:s.Start], s.Code[s.Start:s.End], s.Code[s.End:]
	if runes := []rune(before); len(runes) > maxLine {
		before = "..." + string(runes[len(runes)-maxLine/2:])
	}
	if runes := []rune(marked); len(runes) > maxLine {
		return before, string(runes[:maxLine]), "..."
	}
	if runes := []rune(after); len(runes) > maxLine {
		after = string(runes[:maxLine/2]) + "..."
	}
	return before, marked, after
}

// command matches what pipelines take for a command wherever it stands: ##[error], ##vso[task.complete],
// ##teamcity[progress]. A comment may begin with ## all the same.
var command = regexp.MustCompile(`##([A-Za-z]*\[)`)

// visible is a source line as it is printed: tabs as spaces, control characters as escapes, and no commands.
func visible(line string) string {
	const tabWidth = 4
	var b strings.Builder
	for i, part := range strings.Split(string([]rune(line)), "\t") { // a byte that is no UTF-8 is one cell
		if i > 0 {
			b.WriteString(strings.Repeat(" ", tabWidth-text.Width(b.String())%tabWidth))
		}
		b.WriteString(text.Visible(part))
	}
	return command.ReplaceAllString(b.String(), `#\x23$1`)
}

// columns is how many terminal cells visible(line) takes.
func columns(line string) int { return text.Width(visible(line)) }
