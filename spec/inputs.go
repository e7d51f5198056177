package spec

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"muster/text"
)

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
	environ := slices.Clone(l.opts.Environ)
	slices.Sort(environ)
	for _, e := range environ {
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

// readValueFile reads a file that holds values only.
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
		l.parser(d, codeVarFile)
	}
	for _, a := range inOrder(attrs) {
		l.give(a.Name, a.NameRange, &input{expr: a.Expr, rng: a.Expr.Range(), origin: at(a.NameRange)})
	}
}

// settleInput converts the value that was given last.
func (l *loader) settleInput(v *variable) {
	v.origin = v.input.origin
	s := &scope{loader: l, ctx: &hcl.EvalContext{}, in: "variable " + quote(v.name)}
	val, expr := cty.NilVal, v.input.expr
	if expr == nil {
		val, expr = l.textInput(s, v)
	} else if lit, ok := s.literal(expr); ok {
		val = lit
	}
	if val == cty.NilVal {
		return
	}
	if val, ok := s.fit(val, v, expr, codeVarValue, "the value of variable "+quote(v.name)); ok {
		v.value = val
	}
}

// textInput reads a value from text: for a variable of a primitive type the text itself, else an expression.
func (l *loader) textInput(s *scope, v *variable) (cty.Value, hcl.Expression) {
	if v.typ.IsPrimitiveType() || v.typ == cty.DynamicPseudoType {
		return cty.StringVal(v.input.raw), hcl.StaticExpr(cty.StringVal(v.input.raw), v.input.rng)
	}
	raw := []byte(v.input.raw)
	if !l.shallow(raw, v.input.origin) {
		return cty.NilVal, nil
	}
	expr, diags := hclsyntax.ParseExpression(raw, v.input.origin, hcl.InitialPos)
	if diags.HasErrors() {
		d := s.add(codeVarInput, &v.input.rng, "the value of variable %q is not an expression", v.name)
		d.Detail = strings.TrimSuffix(lowerFirst(diags[0].Detail), ".")
		d.Help = "a " + typeName(v.typ) + " is written as in HCL: " + exampleOf(v.typ)
		return cty.NilVal, nil
	}
	val, ok := s.literal(expr)
	if !ok {
		return cty.NilVal, nil
	}
	return val, expr
}

// exampleOf is a value of a collection type, for help texts.
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
		out := s.parser(d, codeExpression)
		out.In = s.in
	}
	return val, !diags.HasErrors() && val.IsWhollyKnown()
}
