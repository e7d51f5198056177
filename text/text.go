// Package text is what several packages do to text that people read on a terminal: escape it, measure it, count and
// list things, name what was probably meant. It knows nothing of muster.
package text

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/width"
)

// Escape is one line of text of any origin as a terminal may be given it. What is not printable is written as Go writes
// it: control characters, also those of C1, line ends, bidirectional overrides, what is invisible, bytes that are no
// UTF-8. So is what a pipeline would take for a command in the output of a step: GitHub's "::" where a line may begin,
// and "##", with which Azure's, TeamCity's and GitHub's older ones begin.
func Escape(s string) string {
	s = Visible(s)
	if !strings.Contains(s, "::") && !strings.Contains(s, "##") {
		return s
	}
	if s = strings.NewReplacer("##", `#\x23`, " ::", ` \x3a:`).Replace(s); strings.HasPrefix(s, "::") {
		s = `\x3a` + s[1:]
	}
	return s
}

// Visible is s with what is not printable written as Go writes it. It is Escape without what only pipelines need.
func Visible(s string) string {
	if strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }) < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
		i += size
	}
	return b.String()
}

// EscapeLines is Escape for text of several lines: their ends stay.
func EscapeLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		lines[i] = Escape(line)
	}
	return strings.Join(lines, "\n")
}

// Width is how many columns of a terminal printable text takes: wide East Asian characters and emoji take two,
// combining marks none.
func Width(s string) int {
	n := 0
	for _, r := range s {
		switch {
		case r < utf8.RuneSelf:
			n++
		case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		case isWide(r):
			n += 2
		default:
			n++
		}
	}
	return n
}

// Cut is printable text that takes at most so many columns: where it takes more, … stands for the rest.
func Cut(s string, columns int) string {
	if Width(s) <= columns {
		return s
	}
	taken := 0
	for i, r := range s {
		if taken += Width(string(r)); taken >= columns {
			return s[:i] + "…"
		}
	}
	return s
}

func isWide(r rune) bool {
	kind := width.LookupRune(r).Kind()
	return kind == width.EastAsianWide || kind == width.EastAsianFullwidth
}
