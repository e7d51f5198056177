// Package hostile searches for what one participant can do to others: tests only. docs/testing.md describes it.
package hostile
