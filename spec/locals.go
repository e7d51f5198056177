package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// local is one named expression.
type local struct {
	name  string
	attr  *hcl.Attribute
	value cty.Value // unknown: could not be evaluated, which has been reported
	needs []*local  // other locals
	state localState
	round bool // part of a circle, which has been reported
}

type localState int

const (
	untouched localState = iota
	underway
	settled
)

// settleLocals declares all locals and evaluates each after those that it refers to.
func (l *loader) settleLocals() {
	for _, b := range l.blocks["locals"] {
		attrs, diags := b.Body.JustAttributes()
		for _, d := range diags {
			l.structure(d, schema{}, "locals")
		}
		for _, a := range inOrder(attrs) {
			l.declareLocal(a)
		}
	}
	for _, loc := range l.locals {
		for _, t := range loc.attr.Expr.Variables() {
			if name, _, ok := stepName(t); ok && t.RootName() == "local" && l.locals[name] != nil {
				loc.needs = append(loc.needs, l.locals[name])
			}
		}
	}
	vars := l.varObject()
	for _, name := range sortedKeys(l.locals) {
		l.settleLocal(l.locals[name], vars)
	}
}

func (l *loader) declareLocal(a *hcl.Attribute) {
	if first := l.locals[a.Name]; first != nil {
		d := l.add(codeLocalTwice, &a.NameRange, "local.%s is declared twice", a.Name)
		l.relate(d, first.attr.NameRange, "first declared here")
		return
	}
	if !hclsyntax.ValidIdentifier(a.Name) { // possible in JSON
		l.add(codeVarName, &a.NameRange, "%q is not an identifier", a.Name)
		return
	}
	l.locals[a.Name] = &local{name: a.Name, attr: a, value: cty.DynamicVal}
}

// settleLocal evaluates loc after the locals that it refers to. It does not recurse: such a chain can be as long as
// there are locals.
func (l *loader) settleLocal(loc *local, vars cty.Value) {
	if loc.state == settled {
		return
	}
	path := []*local{loc}
	next := []int{0} // for each of path the first need that has not been looked at
	loc.state = underway
	for len(path) > 0 {
		last := len(path) - 1
		loc := path[last]
		if next[last] == len(loc.needs) {
			l.evaluateLocal(loc, vars)
			loc.state = settled
			path, next = path[:last], next[:last]
			continue
		}
		need := loc.needs[next[last]]
		next[last]++
		switch {
		case need.state == untouched:
			need.state = underway
			path, next = append(path, need), append(next, 0)
		case need.state == underway && !need.round && !loc.round:
			l.cycle(path[slices.Index(path, need):])
		}
	}
}

func (l *loader) evaluateLocal(loc *local, vars cty.Value) {
	needed := map[string]cty.Value{}
	for _, need := range loc.needs {
		needed[need.name] = need.value
	}
	s := &scope{loader: l, roots: []string{"var", "local", "path"}, in: "local." + loc.name}
	s.ctx = &hcl.EvalContext{Functions: l.funcs, Variables: map[string]cty.Value{
		"var": vars, "local": cty.ObjectVal(needed), "path": pathObject(),
	}}
	if v, ok := s.eval(loc.attr.Expr); ok {
		loc.value = v
	}
}

// maxCircle is how many members of a circle are named.
const maxCircle = 8

// cycle reports a circle of locals. It points to the member that stands first, and names the others. A local is part
// of one reported circle at most.
func (l *loader) cycle(members []*local) {
	members = slices.Clone(members)
	first := 0
	for i, loc := range members {
		loc.round = true
		if precedes(loc.attr.NameRange, members[first].attr.NameRange) {
			first = i
		}
	}
	members = append(members[first:], members[:first]...)
	d := l.add(codeLocalCycle, &members[0].attr.NameRange, "locals refer to each other in a circle")
	d.Help = "give one of them a value that does not depend on the others"
	var way strings.Builder
	for i, loc := range members[:min(len(members), maxCircle)] {
		way.WriteString("local." + loc.name + " -> ")
		if i > 0 {
			l.relate(d, loc.attr.NameRange, "part of the circle")
		}
	}
	if more := len(members) - maxCircle; more > 0 {
		fmt.Fprintf(&way, "%d more -> ", more)
	}
	d.Detail = way.String() + "local." + members[0].name
}

func precedes(a, b hcl.Range) bool {
	if a.Filename != b.Filename {
		return a.Filename < b.Filename
	}
	return a.Start.Byte < b.Start.Byte
}

// inOrder lists arguments in source order.
func inOrder(attrs hcl.Attributes) []*hcl.Attribute {
	list := make([]*hcl.Attribute, 0, len(attrs))
	for _, a := range attrs {
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b *hcl.Attribute) int {
		return a.NameRange.Start.Byte - b.NameRange.Start.Byte
	})
	return list
}
