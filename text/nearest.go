package text

import (
	"slices"
	"strings"

	"github.com/agext/levenshtein"
)

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

func letters(s string) []rune {
	rs := []rune(s)
	slices.Sort(rs)
	return rs
}
