// Package docs holds the pages of this folder that muster itself can print.
package docs

import "embed"

// Diagnostics has a page for each code of a diagnostic: diagnostics/M1203.md.
//
//go:embed diagnostics/*.md
var Diagnostics embed.FS
