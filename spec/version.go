package spec

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
)

// checkVersion compares required_version with our own. It is looked at before everything else and stands alone: a
// configuration for another version may well be wrong for this one.
func (l *loader) checkVersion() bool {
	ours, known := parseVersion(l.opts.Version)
	for _, b := range l.blocks["muster"] {
		c, _, _ := b.Body.PartialContent(&hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "required_version"}}})
		a := c.Attributes["required_version"]
		if a == nil {
			continue
		}
		s := l.constantScope("muster")
		text, ok := s.text(a)
		if !ok {
			continue
		}
		clauses, err := parseConstraint(text)
		if err != nil {
			s.wrong(codeConstraint, a, cty.StringVal(text), "required_version: %s", err).Help =
				`write it as ">= 0.1", ">= 0.1, < 2" or "~> 1.2"`
			continue
		}
		for _, clause := range clauses {
			if known && !clause.allows(ours) {
				l.list = nil
				s.wrong(codeVersion, a, cty.StringVal(text), "this is muster %s, which does not satisfy required_version", l.opts.Version).Help =
					"install a version that does, or change required_version"
				return false
			}
		}
	}
	return true
}

// version is up to three numbers and whether a pre-release precedes them.
type version struct {
	parts [3]int
	given int // how many of the parts were written
	pre   string
}

func parseVersion(text string) (version, bool) {
	var v version
	text, _, _ = strings.Cut(strings.TrimPrefix(text, "v"), "+")
	text, v.pre, _ = strings.Cut(text, "-")
	for i, part := range strings.Split(text, ".") {
		n, err := strconv.Atoi(part)
		if i > 2 || err != nil || n < 0 || strings.HasPrefix(part, "+") {
			return version{}, false
		}
		v.parts[i], v.given = n, i+1
	}
	return v, true
}

func (v version) compare(w version) int {
	for i := range v.parts {
		if d := v.parts[i] - w.parts[i]; d != 0 {
			return d
		}
	}
	switch {
	case v.pre == w.pre:
		return 0
	case v.pre == "": // a release follows its pre-releases
		return 1
	case w.pre == "":
		return -1
	}
	return strings.Compare(v.pre, w.pre)
}

// clause is one comparison of a constraint.
type clause struct {
	op string
	version
}

func parseConstraint(text string) ([]clause, error) {
	var out []clause
	for _, part := range strings.Split(text, ",") {
		part = strings.TrimSpace(part)
		c := clause{op: "="}
		for _, op := range []string{">=", "<=", "!=", "~>", "=", ">", "<"} {
			if rest, ok := strings.CutPrefix(part, op); ok {
				c.op, part = op, strings.TrimSpace(rest)
				break
			}
		}
		v, ok := parseVersion(part)
		if !ok {
			return nil, fmt.Errorf("%q is not a version", part)
		}
		c.version = v
		out = append(out, c)
	}
	return out, nil
}

func (c clause) allows(v version) bool {
	d := v.compare(c.version)
	switch c.op {
	case ">=":
		return d >= 0
	case "<=":
		return d <= 0
	case ">":
		return d > 0
	case "<":
		return d < 0
	case "!=":
		return d != 0
	case "~>": // only the last part that is written may grow
		for i := range max(c.given-1, 1) {
			if v.parts[i] != c.parts[i] {
				return false
			}
		}
		return d >= 0
	}
	return d == 0
}
