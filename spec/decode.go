package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"muster/text"
)

// decode evaluates an argument and converts it. An argument that is null counts as not written: ok is false, without a
// finding.
func (s *scope) decode(a *hcl.Attribute, want cty.Type, must string) (v cty.Value, ok bool) {
	v, ok = s.eval(a.Expr)
	if !ok || v.IsNull() {
		return cty.DynamicVal, false
	}
	out, err := convert.Convert(v, want)
	if err != nil {
		rng, path := narrow(a.Expr, errorPath(err))
		d := s.wrong(codeType, a, v, "%s%s must be %s", a.Name, path, must)
		d.Range, d.Snippet = s.place(rng)
		if path != "" {
			d.Summary = fmt.Sprintf("%s must be %s", a.Name, must)
			d.Detail, d.Note = a.Name+path+": "+err.Error(), ""
		}
		return cty.DynamicVal, false
	}
	return out, true
}

// wrong reports that the value of an argument cannot be used. It shows the value, and the values that it was made of.
func (s *scope) wrong(code string, a *hcl.Attribute, v cty.Value, format string, args ...any) *Diagnostic {
	rng := a.Expr.Range()
	d := s.add(code, &rng, format, args...)
	d.Values = s.values(a.Expr, s.ctx)
	if !perInstance(a.Expr) {
		d.Address = ""
	}
	if v != cty.NilVal && !constant(a.Expr) {
		d.Note = "this is " + render(v)
	}
	return d
}

// perInstance reports whether an expression can have another value in another instance of a for_each.
func perInstance(expr hcl.Expression) bool {
	return slices.ContainsFunc(expr.Variables(), func(t hcl.Traversal) bool { return t.RootName() == "each" })
}

// constant reports whether an expression is written as its value, such as 4 or "x".
func constant(expr hcl.Expression) bool {
	switch e := expr.(type) {
	case *hclsyntax.LiteralValueExpr:
		return true
	case *hclsyntax.TemplateExpr:
		return e.IsStringLiteral()
	case hclsyntax.Expression:
		return false
	}
	return len(expr.Variables()) == 0 // JSON
}

func (s *scope) text(a *hcl.Attribute) (string, bool) {
	v, ok := s.decode(a, cty.String, "a string")
	if !ok {
		return "", false
	}
	return v.AsString(), true
}

// required is text for an argument that must not be null.
func (s *scope) required(a *hcl.Attribute) (string, bool) {
	was := s.failed
	s.failed = false
	text, ok := s.text(a)
	if !ok && !s.failed {
		s.wrong(codeNull, a, cty.NilVal, "%s must not be null", a.Name).Help = "write a string"
	}
	s.failed = s.failed || was
	return text, ok
}

func (s *scope) boolean(a *hcl.Attribute) (value, ok bool) {
	v, ok := s.decode(a, cty.Bool, "true or false")
	if !ok {
		return false, false
	}
	return v.True(), true
}

// texts decodes a list of strings and returns those that pass a check; findings point to the element.
func (s *scope) texts(a *hcl.Attribute, check func(text string, at *hcl.Attribute) bool) ([]string, bool) {
	v, ok := s.decode(a, cty.List(cty.String), "a list of strings")
	if !ok {
		return nil, false
	}
	out := []string{}
	for i, e := range v.AsValueSlice() {
		rng, _ := narrow(a.Expr, cty.Path{cty.IndexStep{Key: cty.NumberIntVal(int64(i))}})
		at := &hcl.Attribute{Name: a.Name, Expr: element{a.Expr, rng}, NameRange: a.NameRange, Range: a.Range}
		if e.IsNull() {
			s.wrong(codeNull, at, cty.NilVal, "an element of %s is null", a.Name)
			ok = false
			continue
		}
		if check(e.AsString(), at) {
			out = append(out, e.AsString())
		} else {
			ok = false
		}
	}
	return out, ok
}

// element is a list's expression with the place of one element.
type element struct {
	hcl.Expression
	rng hcl.Range
}

func (e element) Range() hcl.Range { return e.rng }

// source is the source text of an expression, in one line.
func (s *scope) source(expr hcl.Expression) string {
	r := expr.Range()
	return strings.Join(strings.Fields(s.textAt(&r)), " ")
}

// wrap puts a function call around the text of an expression. In JSON the expression stands in a template.
func wrap(function, text string) string {
	if inner, ok := strings.CutPrefix(text, "${"); ok && strings.HasSuffix(inner, "}") {
		return fmt.Sprintf("\"${%s(%s)}\"", function, strings.TrimSuffix(inner, "}"))
	}
	return function + "(" + text + ")"
}

// enum decodes a string that must be one of the known ones.
func (s *scope) enum(a *hcl.Attribute, known ...string) (string, bool) {
	word, ok := s.text(a)
	if !ok || slices.Contains(known, word) {
		return word, ok
	}
	quoted := make([]string, len(known))
	for i, k := range known {
		quoted[i] = quote(k)
	}
	d := s.wrong(codeEnum, a, cty.StringVal(word), "%s must be %s", a.Name, alternatives(quoted))
	if best := text.Nearest(word, known); best != "" {
		d.Help = "did you mean " + quote(best) + "?"
	}
	return "", false
}

// alternatives joins words: "a", "b" or "c".
func alternatives(words []string) string {
	n := len(words) - 1
	return strings.Join(words[:n], ", ") + " or " + words[n]
}

// checkedText decodes a text that must pass a check.
func (s *scope) checkedText(code string, a *hcl.Attribute, check func(string) error) (string, bool) {
	text, ok := s.text(a)
	if !ok {
		return "", false
	}
	return text, s.checked(code, a, text, check)
}

// checked reports the error of a check of a text. If the error ends with a remedy ("…: write …"), that becomes the
// help.
func (s *scope) checked(code string, a *hcl.Attribute, text string, check func(string) error) bool {
	err := check(text)
	if err == nil {
		return true
	}
	why, help := remedy(err)
	if !strings.HasPrefix(why, "a ") && !strings.HasPrefix(why, a.Name) {
		why = a.Name + ": " + why
	}
	s.wrong(code, a, cty.StringVal(text), "%s", why).Help = help
	return false
}

// remedy splits an error that ends with a remedy, such as "…: write …", into what is wrong and what to do.
func remedy(err error) (why, help string) {
	why = err.Error()
	for _, verb := range []string{": write ", ": choose "} {
		if i := strings.LastIndex(why, verb); i >= 0 {
			why, help = why[:i], why[i+2:]
		}
	}
	return why, help
}
