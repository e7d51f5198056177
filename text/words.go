package text

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

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
	words = slices.Sorted(slices.Values(words))
	var counts []string
	for len(words) > 0 {
		n := 1
		for n < len(words) && words[n] == words[0] {
			n++
		}
		counts = append(counts, Count(n, words[0]))
		words = words[n:]
	}
	return And(counts)
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

// List names at most so many of all and counts the rest: "a, b and 7 more".
func List[T any](all []T, most int) string {
	named := make([]string, min(len(all), most))
	for i := range named {
		named[i] = fmt.Sprint(all[i])
	}
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
