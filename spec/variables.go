package spec

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

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
	rng      hcl.Range      // of value
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
	s := l.constantScope("variable " + quote(v.name))
	if !hclsyntax.ValidIdentifier(v.name) {
		l.add(codeVarName, &b.LabelRanges[0], "%q is not an identifier", v.name).Help =
			"a name holds letters, digits, _ and -, and starts with a letter"
		v.bad = true
	}
	c := s.content(b.Body, schema{
		args:   []string{"type", "default", "description"},
		blocks: []blockType{{name: "validation"}},
	})
	v.def, v.checks = c.args["default"], c.blocks
	if a := c.args["type"]; a != nil {
		ty, defaults, diags := typeexpr.TypeConstraintWithDefaults(a.Expr)
		for _, d := range diags {
			s.typeConstraint(d)
		}
		if !diags.HasErrors() {
			v.typ, v.defaults = ty, defaults
		}
	}
	v.bad = v.bad || s.failed
	s.text(c.args["description"])
	return v
}

func (s *scope) typeConstraint(d *hcl.Diagnostic) {
	out := s.parser(d, codeVarType)
	out.Code, out.Summary = codeVarType, "this is not a type"
	names := []string{"string", "number", "bool", "any", "list", "set", "map", "object", "tuple", "optional"}
	if best := text.Nearest(s.textAt(d.Subject), names); best != "" && best != s.textAt(d.Subject) {
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
func (l *loader) settleVariables(files []string) {
	for _, name := range sortedKeys(l.vars) {
		v := l.vars[name]
		if v.bad {
			continue
		}
		if v.def != nil { // one that is never used must fit too
			v.origin, v.rng = "default at "+at(v.def.NameRange), v.def.Expr.Range()
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
			if unread := l.unread(files); len(unread) > 0 {
				d.Help = "give --var-file " + text.List(unread, 3) + "; or " + d.Help
			}
		}
	}
}

// unread is which of these files in the directory of the configuration no --var-file names.
func (l *loader) unread(files []string) (unread []string) {
	for _, name := range files {
		path := filepath.Join(l.dir, name)
		if !slices.ContainsFunc(l.opts.Vars, func(in VarInput) bool { return filepath.Clean(in.File) == path }) {
			unread = append(unread, path)
		}
	}
	return unread
}

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
			r, ok := s.rule(b)
			if !ok || v.bad || !v.value.IsKnown() {
				continue
			}
			if message, holds := s.holds(r); !holds {
				d := s.add(codeVarInvalid, &v.rng, "%s", message)
				d.Values = s.values(r.condition.Expr, ctx)
				l.relate(d, r.condition.Expr.Range(), "this does not hold")
			}
		}
	}
}

// envPrefix begins the name of each environment variable that sets a variable.
const envPrefix = "MUSTER_VAR_"

// input is a value given to a variable from outside of the configuration.
type input struct {
	expr   hcl.Expression // in a file
	raw    string         // on the command line or in the environment, if expr is nil
	rng    hcl.Range
	origin string
}

// readValues collects the given values. Of several for one variable the last wins: environment, *.auto.vars.hcl files
// in the order of their names, then --var-file and --var as they stand on the command line. What the environment holds
// may be for other configurations.
func (l *loader) readValues(autoVars []string) {
	for _, e := range sorted(l.opts.Environ) {
		if rest, ok := strings.CutPrefix(e, envPrefix); ok {
			if name, value, _ := strings.Cut(rest, "="); l.vars[name] != nil {
				l.giveText(name, value, envPrefix+name)
			}
		}
	}
	for _, name := range autoVars {
		l.readValueFile(filepath.Join(l.dir, name), name)
	}
	for _, in := range l.opts.Vars {
		if in.File != "" {
			l.readValueFile(in.File, in.File)
			continue
		}
		name, value, ok := strings.Cut(in.Flag, "=")
		if name = strings.TrimSpace(name); !ok || name == "" {
			l.malformed(in.Flag)
			continue
		}
		l.giveText(name, value, "--var "+name)
	}
	for _, a := range l.given {
		l.give(a.Name, a.NameRange, &input{expr: a.Expr, rng: a.Expr.Range(), origin: at(a.NameRange)})
	}
}

// malformed reports a --var that is not NAME=VALUE, or empty: then it may have been a --var-file.
func (l *loader) malformed(flag string) {
	l.valueless = true
	d := l.add(codeVarInput, nil, "--var %s is not of the form NAME=VALUE", flag)
	if d.Help = "write --var name=value"; flag == "" {
		d.Summary = "a --var or --var-file is empty"
		d.Help = "write --var name=value or --var-file FILE; in a script, is a shell variable unset?"
	}
}

// giveText gives a variable a value that is plain text. The text becomes a source, so that findings can show it.
func (l *loader) giveText(name, value, origin string) {
	l.sources[origin] = []byte(value)
	end := hcl.Pos{Line: 1, Column: 1 + len([]rune(value)), Byte: len(value)}
	rng := hcl.Range{Filename: origin, Start: hcl.InitialPos, End: end}
	l.give(name, rng, &input{raw: value, rng: rng, origin: origin})
}

func (l *loader) give(name string, nameRange hcl.Range, in *input) {
	if v := l.vars[name]; v != nil {
		v.input = in
		return
	}
	if l.incomplete {
		return // it may be declared in the file that could not be read
	}
	d := l.add(codeVarUnknown, &nameRange, "there is no variable %q", name)
	d.Help = "declare it: " + declaration("var", name)
	if best := text.Nearest(name, sortedKeys(l.vars)); best != "" {
		d.Help = "did you mean " + quote(best) + "?"
		l.vars[best].mistyped = true
	}
}

func (l *loader) readValueFile(path, name string) {
	body := l.body(path, name, codeVarFile, &l.valueless)
	if body == nil {
		return
	}
	attrs, diags := body.JustAttributes()
	for _, d := range diags {
		l.valueless = true
		if strings.HasPrefix(d.Summary, "Unexpected ") {
			out := l.add(codeVarFile, d.Subject, "a file of values holds no blocks")
			out.Help = "write NAME = VALUE here, and the block into another file"
			continue
		}
		l.constantScope("").parser(d, codeVarFile)
	}
	for _, a := range inOrder(attrs) {
		l.give(a.Name, a.NameRange, &input{expr: a.Expr, rng: a.Expr.Range(), origin: at(a.NameRange)})
	}
}

// settleInput converts the value that was given last.
func (l *loader) settleInput(v *variable) {
	v.origin, v.rng = v.input.origin, v.input.rng
	s := &scope{loader: l, ctx: &hcl.EvalContext{}, in: "variable " + quote(v.name)}
	expr := v.input.expr
	if expr == nil {
		expr = s.textInput(v)
	}
	if expr == nil {
		return
	}
	val, ok := s.literal(expr)
	if ok {
		val, ok = s.fit(val, v, expr, codeVarValue, "the value of variable "+quote(v.name))
	}
	if ok {
		v.value = val
	}
}

// textInput reads text: for a variable of a primitive type it is the value itself, else an expression. nil: it is
// neither, which has been reported.
func (s *scope) textInput(v *variable) hcl.Expression {
	if v.typ.IsPrimitiveType() || v.typ == cty.DynamicPseudoType {
		return hcl.StaticExpr(cty.StringVal(v.input.raw), v.input.rng)
	}
	raw := []byte(v.input.raw)
	if !s.shallow(raw, v.input.origin) {
		return nil
	}
	expr, diags := hclsyntax.ParseExpression(raw, v.input.origin, hcl.InitialPos)
	if diags.HasErrors() {
		d := s.add(codeVarInput, &v.input.rng, "the value of variable %q is not an expression", v.name)
		d.Detail = strings.TrimSuffix(lowerFirst(diags[0].Detail), ".")
		d.Help = "a " + typeName(v.typ) + " is written as in HCL: " + exampleOf(v.typ)
		return nil
	}
	return expr
}

func exampleOf(ty cty.Type) string {
	if ty.IsMapType() || ty.IsObjectType() {
		return `{ name = "value" }`
	}
	return `["a", "b"]`
}

// literal evaluates an expression of a value file, which may neither refer to anything nor call a function.
func (s *scope) literal(expr hcl.Expression) (cty.Value, bool) {
	var vars []hcl.Traversal
	if vars = expr.Variables(); len(vars) > 0 {
		d := s.add(codeConstant, vars[0].SourceRange().Ptr(), "a value cannot refer to anything")
		d.Help = "write the value itself"
		if len(vars[0]) == 1 {
			d.Help = fmt.Sprintf("a string stands in quotes: %q", vars[0].RootName())
		}
		return cty.DynamicVal, false
	}
	val, diags := expr.Value(nil)
	for _, d := range diags {
		s.parser(d, codeExpression)
	}
	return val, !diags.HasErrors() && val.IsWhollyKnown()
}

// local is one named expression.
type local struct {
	name  string
	attr  *hcl.Attribute
	value cty.Value // unknown: could not be evaluated, which has been reported
	needs []*local  // other locals
	begun bool      // value is settled, or about to be
	round bool      // part of a circle, which has been reported
}

// settleLocals declares all locals and evaluates each after those that it refers to.
func (l *loader) settleLocals() {
	for _, b := range l.blocks["locals"] {
		attrs, diags := b.Body.JustAttributes()
		for _, d := range diags {
			l.constantScope("locals").structure(d, schema{})
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
		if loc := l.locals[name]; !loc.begun {
			l.settleLocal(nil, loc, vars)
		}
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

// settleLocal evaluates loc after the locals that it refers to. path are those that refer to it, the first one first.
func (l *loader) settleLocal(path []*local, loc *local, vars cty.Value) {
	loc.begun = true
	path = append(path, loc)
	needed := map[string]cty.Value{}
	for _, need := range loc.needs {
		if !need.begun {
			l.settleLocal(path, need, vars)
		} else if first := slices.Index(path, need); first >= 0 && !need.round && !loc.round {
			l.cycle(path[first:])
		}
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
		here, best := loc.attr.NameRange, members[first].attr.NameRange
		if cmp.Or(cmp.Compare(here.Filename, best.Filename), cmp.Compare(here.Start.Byte, best.Start.Byte)) < 0 {
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

func inOrder(attrs hcl.Attributes) []*hcl.Attribute {
	return slices.SortedFunc(maps.Values(attrs), func(a, b *hcl.Attribute) int {
		return a.NameRange.Start.Byte - b.NameRange.Start.Byte
	})
}
