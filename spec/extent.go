package spec

import (
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
)

// Bounds of one value, far above what jobs are made of. Locals that double one another reach them in a few lines; the
// memory ends a few lines later.
const (
	maxValueText     = 16 << 20 // bytes of all strings in it
	maxValueElements = 2_000_000
	maxAllValues     = 16 // of the largest values, for all locals together
)

// extent is how large a value is. What is in it twice counts twice, though it may be in memory once.
type extent struct {
	text, elements int
	unknown        bool // some part of it is not known
}

// add walks through v, at most to the bounds; it says which one is exceeded.
func (e *extent) add(v cty.Value, depth int) string {
	switch {
	case !v.IsKnown():
		e.unknown = true
		return ""
	case v.IsNull():
		return ""
	case v.Type() == cty.String:
		e.text += len(v.AsString())
		return e.excess(1)
	case !v.CanIterateElements():
		return ""
	case depth == maxNesting:
		return fmt.Sprintf("is nested deeper than %d", maxNesting)
	}
	if e.elements += v.LengthInt(); e.excess(1) != "" {
		return e.excess(1)
	}
	keyed := v.Type().IsObjectType() || v.Type().IsMapType()
	for it := v.ElementIterator(); it.Next(); {
		k, element := it.Element()
		if keyed {
			e.text += len(k.AsString())
		}
		if what := e.add(element, depth+1); what != "" {
			return what
		}
	}
	return ""
}

// excess says which bound of values times as large as one e exceeds.
func (e *extent) excess(times int) string {
	switch {
	case e.text > times*maxValueText:
		return fmt.Sprintf("has more than %d MiB of text", times*maxValueText>>20)
	case e.elements > times*maxValueElements:
		return fmt.Sprintf("has more than %d elements", times*maxValueElements)
	}
	return ""
}

// usable reports whether all of a value is known and it is not too large; only the latter is a finding.
func (s *scope) usable(v cty.Value, expr hcl.Expression) bool {
	var e extent
	if what := e.add(v, 0); what != "" {
		rng := expr.Range()
		s.add(codeExtent, &rng, "this value %s", what).Help = "a configuration declares jobs: keep the data elsewhere"
		return false
	}
	return !e.unknown
}

// hold counts a local's value and reports whether there is room for it next to those of the others.
func (l *loader) hold(loc *local, v cty.Value) bool {
	if l.held.excess(maxAllValues) != "" {
		return false // the first one that is too much has been reported
	}
	var e extent
	e.add(v, 0)
	l.held.text += e.text
	l.held.elements += e.elements
	what := l.held.excess(maxAllValues)
	if what != "" {
		l.add(codeExtent, &loc.attr.NameRange, "with local.%s the locals together have %s", loc.name, strings.TrimPrefix(what, "has "))
	}
	return what == ""
}
