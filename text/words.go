package text

import (
	"fmt"
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
