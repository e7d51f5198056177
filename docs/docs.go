// Package docs holds the pages of this folder that muster itself can print.
package docs

import "embed"

// Diagnostics has a page for each code of a diagnostic: diagnostics/M1203.md.
//
//go:embed diagnostics/*.md
var Diagnostics embed.FS

// States has a section for each word of a state, a kind of drift, or an action of a plan: "## stale".
//
//go:embed states.md
var States string
