package main

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"muster/docs"
)

// manual are the manual pages by name: one of muster and one of each command, from what --help says. cobra/doc would
// take that for Markdown: a table in it would become a paragraph, and a * would be lost.
func manual(root *cobra.Command, at time.Time, version string) map[string][]byte {
	pages := make(map[string][]byte)
	var add func(c *cobra.Command)
	add = func(c *cobra.Command) {
		pages["man/man1/"+pageName(c)+".1"] = page(c, at, version)
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				add(sub)
			}
		}
	}
	add(root)
	return pages
}

func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

func page(c *cobra.Command, at time.Time, version string) []byte {
	m, name := new(roff), pageName(c)
	fmt.Fprintf(m, ".TH %q 1 %s %q muster\n", strings.ToUpper(name), at.Format(time.DateOnly), "muster "+version)
	m.request("SH", "NAME")
	m.text(name + " - " + strings.ToLower(c.Short[:1]) + c.Short[1:])
	m.request("SH", "SYNOPSIS")
	if c.HasParent() {
		m.block(c.UseLine())
	} else {
		m.block(c.CommandPath() + " COMMAND [flags]")
	}
	m.request("SH", "DESCRIPTION")
	m.paragraphs(cmp.Or(strings.TrimSpace(c.Long), c.Short+"."))
	if c.HasAvailableSubCommands() {
		m.commands(c)
	}
	c.InitDefaultHelpFlag()
	m.request("SH", "OPTIONS")
	m.flags(c.LocalFlags())
	if c.HasExample() {
		m.request("SH", "EXAMPLES")
		m.block(unindent(c.Example))
	}
	if !c.HasParent() {
		m.exitCodes()
		return m.Bytes()
	}
	m.request("SH", "SEE ALSO")
	m.text("The options and the exit status of all commands are in")
	m.request("BR", "muster", "(1).")
	return m.Bytes()
}

// roff is a page in the macros of man(7).
type roff struct{ bytes.Buffer }

var escapes = strings.NewReplacer(
	`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, "\"", `\(dq`,
)

// escape writes what roff would take for something else, and what is not ASCII, in roff's way.
func escape(s string) string {
	var out strings.Builder
	for _, r := range escapes.Replace(s) {
		if r < utf8.RuneSelf {
			out.WriteRune(r)
		} else {
			fmt.Fprintf(&out, `\[u%04X]`, r)
		}
	}
	return out.String()
}

func (m *roff) request(name string, args ...string) {
	m.WriteString("." + name)
	for _, a := range args {
		m.WriteString(` "` + escape(a) + `"`)
	}
	m.WriteByte('\n')
}

// text writes lines, of which none is a macro.
func (m *roff) text(s string) {
	for line := range strings.Lines(s) {
		line = escape(strings.TrimRight(line, " \n"))
		if strings.HasPrefix(line, ".") {
			line = `\&` + line
		}
		m.WriteString(line + "\n")
	}
}

func (m *roff) block(s string) {
	m.request("nf")
	m.text(s)
	m.request("fi")
}

// paragraphs writes text: what is indented is a table, and stays as it is.
func (m *roff) paragraphs(s string) {
	for i, part := range strings.Split(s, "\n\n") {
		if i > 0 {
			m.request("PP")
		}
		if strings.HasPrefix(part, "  ") {
			m.request("RS")
			m.block(unindent(part))
			m.request("RE")
			continue
		}
		m.text(part)
	}
}

func unindent(s string) string { return regexp.MustCompile(`(?m)^  `).ReplaceAllString(s, "") }

func (m *roff) commands(of *cobra.Command) {
	m.request("SH", "COMMANDS")
	for _, c := range of.Commands() {
		if !c.IsAvailableCommand() {
			continue
		}
		m.request("TP")
		m.request("BR", pageName(c), "(1)")
		m.text(c.Short)
	}
}

func (m *roff) flags(fs *pflag.FlagSet) {
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		m.request("TP")
		written := `\fB` + escape("--"+f.Name) + `\fR`
		if f.Shorthand != "" {
			written = `\fB` + escape("-"+f.Shorthand) + `\fR, ` + written
		}
		switch {
		case value == "":
		case f.NoOptDefVal != "" && f.Value.Type() != "bool":
			written += `[=\fI` + escape(value) + `\fR]`
		default:
			written += ` \fI` + escape(value) + `\fR`
		}
		m.WriteString(written + "\n")
		m.text(usage + defaultValue(f))
	})
}

// defaultValue says what a flag is that is not given, where that is something.
func defaultValue(f *pflag.Flag) string {
	switch f.DefValue {
	case "", "0", "false", "[]", "0s":
		return ""
	}
	return " (default " + f.DefValue + ")"
}

func (m *roff) exitCodes() {
	m.request("SH", "EXIT STATUS")
	for _, row := range docs.ExitCodes() {
		m.request("TP")
		var codes []string
		for _, code := range row.Codes {
			codes = append(codes, strconv.Itoa(code))
		}
		m.text(strings.Join(codes, ", "))
		m.text(strings.ReplaceAll(row.Meaning, "`", ""))
	}
	m.request("SH", "SEE ALSO")
	m.text("muster help COMMAND; muster explain CODE says what to do after an exit code.")
}
