package cli

import (
	"regexp"
	"slices"
	"strings"

	"muster/plan"
)

// globs are the patterns of --only, --skip and status: * matches any characters, ? matches one. Brackets match
// themselves, because an address holds brackets.
type globs []*regexp.Regexp

func newGlobs(patterns []string) globs {
	var gs globs
	for _, p := range patterns {
		p = regexp.QuoteMeta(strings.ToValidUTF8(p, "\uFFFD")) // no name has such bytes
		p = strings.ReplaceAll(p, `\*`, `.*`)
		p = strings.ReplaceAll(p, `\?`, `.`)
		gs = append(gs, regexp.MustCompile(`^(?s:`+p+`)$`))
	}
	return gs
}

// match reports whether one of the patterns matches one of names.
func (gs globs) match(names ...string) bool {
	return slices.ContainsFunc(gs, func(g *regexp.Regexp) bool { return slices.ContainsFunc(names, g.MatchString) })
}

// filter holds --only and --skip.
type filter struct{ only, skip []string }

// apply removes the rows that were not asked for, and marks the plan as partial if there were any. A pattern may match
// an address, a path or a name. A pattern that matches nothing is probably mistyped, and refused.
func (f filter) apply(p plan.Plan) (plan.Plan, error) {
	for _, pattern := range slices.Concat(f.only, f.skip) {
		g := newGlobs([]string{pattern})
		matches := func(r plan.Row) bool { return g.match(r.Address(), r.Path, r.Name()) }
		if !slices.ContainsFunc(p.Rows, matches) {
			return p, usagef("muster plan --all", "%q fits nothing in the plan", pattern)
		}
	}
	only, skip := newGlobs(f.only), newGlobs(f.skip)
	rows := slices.DeleteFunc(slices.Clone(p.Rows), func(r plan.Row) bool {
		names := []string{r.Address(), r.Path, r.Name()}
		return len(only) > 0 && !only.match(names...) || skip.match(names...)
	})
	p.Partial = p.Partial || len(rows) < len(p.Rows)
	p.Rows = rows
	return p, nil
}
