package spec

import (
	"fmt"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"muster/text"
)

// variable is a declaration with the value that won.
type variable struct {
	name     string
	decl     *hcl.Block
	typ      cty.Type // DynamicPseudoType: any
	defaults *typeexpr.Defaults
	def      *hcl.Attribute // default; nil: required
	checks   []*hcl.Block   // validation
	bad      bool           // the declaration is wrong, which has been reported
	input    *input         // the value given last; nil: none
	mistyped bool           // it may have no value for a reason that has been reported
	value    cty.Value      // unknown: there is none, which has been reported
	origin   string         // where value was given
}

func (l *loader) declareVariables() {
	for _, b := range l.blocks["variable"] {
		name := b.Labels[0]
		if first := l.vars[name]; first != nil {
			d := l.add(codeVarTwice, &b.LabelRanges[0], "variable %q is declared twice", name)
			l.relate(d, first.decl.LabelRanges[0], "first declared here")
			first.mistyped = true
			continue
		}
		l.vars[name] = l.declareVariable(b)
	}
}

func (l *loader) declareVariable(b *hcl.Block) *variable {
	v := &variable{name: b.Labels[0], decl: b, typ: cty.DynamicPseudoType, value: cty.DynamicVal}
	in := "variable " + quote(v.name)
	if !hclsyntax.ValidIdentifier(v.name) {
		d := l.add(codeVarName, &b.LabelRanges[0], "%q is not an identifier", v.name)
		d.Help = "a name holds letters, digits, _ and -, and starts with a letter"
		v.bad = true
	}
	c := l.content(b.Body, schema{
		args:   []string{"type", "default", "description"},
		blocks: []blockType{{name: "validation"}},
	}, in)
	v.bad = v.bad || !c.ok
	v.def, v.checks = c.args["default"], c.blocks
	if a := c.args["type"]; a != nil {
		ty, defaults, diags := typeexpr.TypeConstraintWithDefaults(a.Expr)
		for _, d := range diags {
			l.typeConstraint(d, in)
			v.bad = true
		}
		if !diags.HasErrors() {
			v.typ, v.defaults = ty, defaults
		}
	}
	if a := c.args["description"]; a != nil {
		l.constantScope(in).text(a)
	}
	return v
}

// typeConstraint translates what the library says about a type.
func (l *loader) typeConstraint(d *hcl.Diagnostic, in string) {
	out := l.parser(d, codeVarType)
	out.Code, out.In, out.Summary = codeVarType, in, "this is not a type"
	names := []string{"string", "number", "bool", "any", "list", "set", "map", "object", "tuple", "optional"}
	if best := text.Nearest(l.textAt(d.Subject), names); best != "" && best != l.textAt(d.Subject) {
		out.Detail, out.Help = "", "did you mean "+quote(best)+"?"
	} else {
		out.Help = "types are string, number, bool, list(T), set(T), map(T), object({ name = T }), tuple([T]) and any"
	}
}

// constantScope is for an expression that may call functions, and may refer to nothing.
func (l *loader) constantScope(in string) *scope {
	return &scope{loader: l, ctx: &hcl.EvalContext{Functions: l.funcs}, in: in}
}

// settleVariables gives each variable the value that won, converted to its type.
func (l *loader) settleVariables() {
	for _, name := range sortedKeys(l.vars) {
		v := l.vars[name]
		if v.bad {
			continue
		}
		if v.def != nil { // one that is never used must fit too
			v.origin = "default at " + at(v.def.NameRange)
			s := l.constantScope("variable " + quote(name))
			val, ok := s.eval(v.def.Expr)
			if ok {
				val, ok = s.fit(val, v, v.def.Expr, codeVarDefault, "the default of variable "+quote(name))
			}
			if ok && v.input == nil {
				v.value = val
			}
		}
		switch {
		case v.input != nil:
			l.settleInput(v)
		case v.def == nil && !l.incomplete && !l.valueless && !v.mistyped:
			d := l.add(codeVarMissing, &v.decl.DefRange, "variable %q has no value", name)
			d.Help = fmt.Sprintf(
				"give it with --var %s=VALUE, %s%[1]s, or in a *.auto.vars.hcl file; or declare a default",
				name, envPrefix)
		}
	}
}

// varObject is what var refers to.
func (l *loader) varObject() cty.Value {
	vals := map[string]cty.Value{}
	for name, v := range l.vars {
		vals[name] = v.value
	}
	return cty.ObjectVal(vals)
}

// validateVariables evaluates the validation blocks. They may refer to all variables and nothing else.
func (l *loader) validateVariables() {
	ctx := &hcl.EvalContext{Functions: l.funcs, Variables: map[string]cty.Value{"var": l.varObject()}}
	for _, name := range sortedKeys(l.vars) {
		v := l.vars[name]
		for _, b := range v.checks {
			s := &scope{loader: l, ctx: ctx, roots: []string{"var"}, in: "variable " + quote(name)}
			r, ok := l.rule(b, s.in)
			if !ok || v.bad || !v.value.IsKnown() {
				continue
			}
			if message, holds := s.holds(r); !holds {
				d := s.add(codeVarInvalid, l.placeOf(v), "%s", message)
				d.Values = s.values(r.condition.Expr, ctx)
				l.relate(d, r.condition.Expr.Range(), "this does not hold")
			}
		}
	}
}

// placeOf returns the place where the value of v was given.
func (l *loader) placeOf(v *variable) *hcl.Range {
	if v.input != nil {
		return &v.input.rng
	}
	r := v.def.Expr.Range()
	return &r
}
