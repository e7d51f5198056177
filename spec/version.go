package spec

import (
	"fmt"
	"strings"

	"github.com/hashicorp/go-version"
	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
)

// checkVersion compares required_version with our own version. If that fails, it is the only finding: a configuration
// for another version may well be wrong for this one.
func (l *loader) checkVersion() bool {
	ours, _ := version.NewVersion(l.opts.Version) // nil if it is not one
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
		constraints, err := parseConstraints(text)
		if err != nil {
			s.wrong(codeConstraint, a, cty.StringVal(text), "required_version: %s", err).Help =
				`write it as ">= 0.1", ">= 0.1, < 2" or "~> 1.2"`
			continue
		}
		if ours != nil && !allow(constraints, ours) {
			l.list = nil
			s.wrong(codeVersion, a, cty.StringVal(text),
				"this is muster %s, which does not satisfy required_version", l.opts.Version).Help =
				"install a version that does, or change required_version"
			return false
		}
	}
	return true
}

// parseConstraints reads one constraint after the other, so that the error names the one that is wrong.
func parseConstraints(text string) (version.Constraints, error) {
	var all version.Constraints
	for part := range strings.SplitSeq(text, ",") {
		c, err := version.NewConstraint(part)
		if err != nil {
			return nil, fmt.Errorf("%q is not a version", strings.TrimLeft(part, " <>=!~"))
		}
		all = append(all, c...)
	}
	return all, nil
}

// allow reports whether v satisfies all constraints. A pre-release counts as the release that it comes before, unless
// a constraint names a pre-release itself.
func allow(constraints version.Constraints, v *version.Version) bool {
	for _, c := range constraints {
		if !c.Check(v) && (c.Prerelease() || !c.Check(v.Core())) {
			return false
		}
	}
	return true
}
