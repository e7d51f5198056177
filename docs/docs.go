// Package docs holds the pages of this folder that muster itself can print.
package docs

import (
	"embed"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Diagnostics has a page for each code of a diagnostic: diagnostics/M1203.md.
//
//go:embed diagnostics/*.md
var Diagnostics embed.FS

// States has a section for each word of a state, a kind of drift, or an action of a plan: "## stale".
//
//go:embed states.md
var States string

// Glossary has a section for each word of muster: "## worker".
//
//go:embed glossary.md
var Glossary string

// Sections are the sections of States or Glossary, by their headings.
func Sections(page string) map[string]string {
	all := map[string]string{}
	for _, section := range strings.Split(page, "\n## ")[1:] {
		word, _, _ := strings.Cut(section, "\n")
		all[word] = "# " + strings.TrimSpace(section) + "\n"
	}
	return all
}

// Code is the code of a diagnostic, and what it means: the title of its page.
type Code struct{ Code, Meaning string }

// Codes lists every code in ascending order.
func Codes() []Code {
	var all []Code
	pages, _ := Diagnostics.ReadDir("diagnostics") // it is embedded
	for _, p := range pages {
		page, _ := Diagnostics.ReadFile("diagnostics/" + p.Name())
		title, _, _ := strings.Cut(string(page), "\n")
		code, meaning, _ := strings.Cut(strings.TrimPrefix(title, "# "), ": ")
		all = append(all, Code{code, meaning})
	}
	return all
}

//go:embed exit-codes.md
var exitCodes string

// ExitCode is a row of the table of exit codes: codes that belong together, what they mean, and what to do then, which
// may be empty.
type ExitCode struct {
	Codes           []int // of a command that a signal ended, 128 without the number of the signal
	Meaning, Remedy string
}

// ExitCodes is the table of exit-codes.md.
func ExitCodes() []ExitCode {
	var all []ExitCode
	row := regexp.MustCompile(`(?m)^\| ([0-9][0-9n+, ]*) \| ([^|]*) \| ([^|]*?) ?\|$`)
	for _, cells := range row.FindAllStringSubmatch(exitCodes, -1) {
		one := ExitCode{Meaning: cells[2], Remedy: cells[3]}
		for word := range strings.SplitSeq(strings.TrimSuffix(cells[1], "+n"), ", ") {
			code, _ := strconv.Atoi(word) // the pattern has only numbers
			one.Codes = append(one.Codes, code)
		}
		all = append(all, one)
	}
	return all
}

// ExitCodeOf returns the row of a code. The codes of commands that a signal ended have the row of 128, unless they have
// one of their own; ok is false for what is only a command's.
func ExitCodeOf(code int) (row ExitCode, ok bool) {
	const signal, lastSignal = 128, 128 + 64
	of := func(code int) bool {
		i := slices.IndexFunc(ExitCodes(), func(r ExitCode) bool { return slices.Contains(r.Codes, code) })
		if i >= 0 {
			row = ExitCodes()[i]
		}
		return i >= 0
	}
	ok = of(code) || code > signal && code <= lastSignal && of(signal)
	return row, ok
}
