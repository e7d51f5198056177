// Package docs holds the pages of this folder that muster itself can print.
package docs

import (
	"embed"
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
