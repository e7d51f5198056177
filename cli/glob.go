package cli

import (
	"regexp"
	"slices"
	"strings"

	"muster/plan"
)

// globs are patterns of --only, --skip and status: * stands for any characters, ? for one, everything else for itself. An
// address holds brackets and quotes, so nothing else is special.
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

// match reports whether a pattern fits one of names.
func (gs globs) match(names ...string) bool {
	return slices.ContainsFunc(gs, func(g *regexp.Regexp) bool { return slices.ContainsFunc(names, g.MatchString) })
}

// filter is --only and --skip.
type filter struct{ only, skip []string }

// apply leaves out of p what was not asked for, and marks it as partial if that changed anything. A pattern fits an
// address, a path or a job's name. A pattern that fits nothing is a usage problem: it was probably mistyped.
func (f filter) apply(p plan.Plan) (plan.Plan, error) {
	for _, pattern := range slices.Concat(f.only, f.skip) {
		g := newGlobs([]string{pattern})
		if !slices.ContainsFunc(p.Rows, func(r plan.Row) bool { return g.match(r.Address(), r.Path, r.Name()) }) {
			return p, usagef("muster plan --all", "%q fits no job", pattern)
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
