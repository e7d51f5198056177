// Package text is what several packages do to text that people read on a terminal: escape it, measure it, count and
// list things, name what was probably meant. It knows nothing of muster.
package text

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/agext/levenshtein"
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
	return strings.Join(Each(strings.Split(s, "\n"), Escape), "\n")
}

// Output is what a command wrote, line by line, as a terminal would show it: without colours, and of a line that was
// written over, as progress bars are, what is left. It may still have what is not printable: see Escape and Visible.
func Output(s string) []string {
	s = strings.TrimRight(strings.ReplaceAll(control().ReplaceAllString(s, ""), "\t", "    "), "\r\n")
	if s == "" {
		return nil
	}
	return Each(strings.Split(s, "\n"), func(line string) string {
		line = strings.TrimRight(line, "\r")
		return line[strings.LastIndexByte(line, '\r')+1:]
	})
}

// control finds the control sequences of a terminal.
var control = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("\x1b\\[[0-9;?]*[ -/]*[@-~]") })

// Width is how many columns of a terminal printable text takes: wide East Asian characters and emoji take two,
// combining marks none.
func Width(s string) int {
	n := 0
	for _, r := range s {
		switch {
		case r < utf8.RuneSelf:
			n++
		case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		default:
			n++
			if kind := width.LookupRune(r).Kind(); kind == width.EastAsianWide || kind == width.EastAsianFullwidth {
				n++
			}
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

// Count is "1 job", "2 jobs" for a noun that takes an s.
func Count(n int, noun string) string { return Plural(n, noun, noun+"s") }

// Plural is "1 job is", "2 jobs are".
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// CountEach counts equal words: "1 group and 2 jobs". The words are sorted and take an s.
func CountEach(words []string) string {
	n := map[string]int{}
	for _, word := range words {
		n[word]++
	}
	return And(Each(slices.Sorted(maps.Keys(n)), func(word string) string { return Count(n[word], word) }))
}

// And is "a, b and c".
func And(words []string) string {
	if n := len(words) - 1; n > 0 {
		return strings.Join(words[:n], ", ") + " and " + words[n]
	}
	return strings.Join(words, "")
}

// Size is a number of bytes for people, rounded up: "512 bytes", "12 KiB", "3 MiB".
func Size(bytes int64) string {
	const kib, mib = 1 << 10, 1 << 20
	switch {
	case bytes < kib:
		return Count(int(bytes), "byte")
	case bytes <= mib-kib:
		return fmt.Sprintf("%d KiB", (bytes+kib-1)/kib)
	}
	return fmt.Sprintf("%d MiB", (bytes+mib-1)/mib)
}

// List names so many of all and counts the rest: "a, b and 7 more". One more is named, too.
func List[T any](all []T, most int) string {
	if len(all) == most+1 {
		most++
	}
	named := Each(all[:min(len(all), most)], func(one T) string { return fmt.Sprint(one) })
	s := strings.Join(named, ", ")
	if extra := len(all) - len(named); extra > 0 {
		s += fmt.Sprintf(" and %d more", extra)
	}
	return s
}

// ShellWord is an argument as one types it into a shell: an address may hold brackets and quotes.
func ShellWord(s string) string {
	if s != "" && !strings.ContainsAny(s, "[]{}\"'\\ \t\n$&|;<>()*?#~`!") {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// Thousands is a number with commas between its thousands: "4,980".
func Thousands(n int) string {
	s := strconv.Itoa(n)
	for at := len(s) - 3; at > 0 && s[at-1] != '-'; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	return s
}

// Nearest is the known name that was probably meant: the one that differs least from given, in whatever case, by at
// most two edits and by less than either is long; "" if there is none. Of several, one of the same letters ("mni" for
// min) is nearest, then one that begins alike, then the first.
func Nearest(given string, known []string) string {
	type rank struct{ edits, unlike int }
	best, least := "", rank{edits: 3}
	given = strings.ToLower(given)
	for _, name := range known {
		lower := strings.ToLower(name)
		if diff := len(lower) - len(given); diff > 8 || diff < -8 {
			continue // two characters have at most eight bytes
		}
		r := rank{levenshtein.Distance(given, lower, nil), unlike(given, lower)}
		nearer := r.edits < least.edits || r.edits == least.edits && r.unlike < least.unlike
		if nearer && r.edits < min(len(given), len(lower)) {
			best, least = name, r
		}
	}
	return best
}

// unlike is how unlike two names are that are as many edits apart as others.
func unlike(a, b string) int {
	switch {
	case slices.Equal(letters(a), letters(b)):
		return 0
	case a == "" || b == "" || a[0] != b[0]:
		return 2
	}
	return 1
}

func letters(s string) []rune { return slices.Sorted(slices.Values([]rune(s))) }

// Shorten is s, or its first most bytes, without half a character, and an ellipsis.
func Shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + "…"
}

// Each is what word says of each of all.
func Each[T any](all []T, word func(T) string) []string {
	words := make([]string, len(all))
	for i, one := range all {
		words[i] = word(one)
	}
	return words
}

// Strings is all, as strings.
func Strings[T ~string](all []T) []string {
	return Each(all, func(one T) string { return string(one) })
}

// NonEmpty is all without empty strings.
func NonEmpty(all ...string) []string {
	return slices.DeleteFunc(all, func(s string) bool { return s == "" })
}

// Plain is an error of a network or of a context, with words in place of Go's own: for "i/o timeout" or "EOF" nobody
// knows what to do. Who looks up a name says which.
func Plain(err error) error {
	if errors.As(err, new(*net.DNSError)) {
		return err
	}
	if at, ok := errors.AsType[*net.OpError](err); ok && at.Op == "dial" {
		if why, ok := errors.AsType[*os.SyscallError](err); ok {
			return &plain{err, why.Err.Error()}
		}
	}
	for _, p := range []struct {
		words string
		of    []error
	}{
		{"no answer in time", []error{context.DeadlineExceeded, os.ErrDeadlineExceeded}},
		{"the connection was closed", []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed}},
	} {
		for _, of := range p.of {
			if errors.Is(err, of) {
				return &plain{err, p.words}
			}
		}
	}
	return err
}

type plain struct {
	error
	words string
}

func (p *plain) Error() string { return p.words }
func (p *plain) Unwrap() error { return p.error }
