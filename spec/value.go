package spec

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
)

// values lists what an expression refers to, each once: "var.base is 3 (prod.auto.vars.hcl:2)".
func (s *scope) values(expr hcl.Expression, ctx *hcl.EvalContext) []Value {
	var vs []Value
	seen := map[string]bool{}
	for _, t := range expr.Variables() {
		v, diags := t.TraverseAbs(ctx)
		if diags.HasErrors() && len(t) > 1 { // the part that exists is worth showing
			t = t[:2]
			v, diags = t.TraverseAbs(ctx)
		}
		name := written(t)
		if diags.HasErrors() || !v.IsKnown() || seen[name] {
			continue
		}
		seen[name] = true
		vs = append(vs, Value{Traversal: name, Statement: "is " + render(v), From: s.origin(t)})
	}
	return vs
}

// origin says where the value of a reference was given.
func (s *scope) origin(t hcl.Traversal) string {
	name, _, _ := stepName(t)
	switch t.RootName() {
	case "var":
		if v := s.vars[name]; v != nil {
			return v.origin
		}
	case "local":
		if l := s.locals[name]; l != nil {
			return at(l.attr.NameRange)
		}
	case "each":
		return s.each
	}
	return ""
}

// written is a reference as it stands in the source.
func written(t hcl.Traversal) string {
	var b strings.Builder
	for _, step := range t {
		switch step := step.(type) {
		case hcl.TraverseRoot:
			b.WriteString(step.Name)
		case hcl.TraverseAttr:
			b.WriteString("." + step.Name)
		case hcl.TraverseIndex:
			b.WriteString("[" + render(step.Key) + "]")
		}
	}
	return b.String()
}

// maxShown is how many characters of a value are shown.
const maxShown = 60

// render is a value in one short line.
func render(v cty.Value) string {
	ty := v.Type()
	switch {
	case !v.IsKnown():
		return "not known"
	case v.IsNull():
		return "null"
	case ty == cty.String:
		s := v.AsString()
		if r := []rune(s); len(r) > maxShown {
			s = string(r[:maxShown]) + "..."
		}
		return strconv.Quote(s)
	case ty == cty.Number:
		return number(v)
	case ty == cty.Bool:
		return strconv.FormatBool(v.True())
	case ty.IsCapsuleType():
		return ty.FriendlyName()
	}
	return collection(v)
}

// number is a number as users write it.
func number(v cty.Value) string {
	f := v.AsBigFloat()
	switch exp := f.MantExp(nil); {
	case f.IsInf():
		return "infinite"
	case exp > 1000: // its digits would fill the memory
		return "a number of " + strconv.Itoa(exp*3/10) + " digits"
	case exp < -1000:
		return "almost 0"
	case f.IsInt():
		if s := f.Text('f', 0); len(s) < maxShown {
			return s
		}
		return f.Text('g', 10)
	}
	return f.Text('g', 10)
}

// collection lists the elements of a value. If they do not fit, it says how many there are.
func collection(v cty.Value) string {
	ty, n := v.Type(), v.LengthInt()
	keyed := ty.IsObjectType() || ty.IsMapType()
	var b strings.Builder
	for it := v.ElementIterator(); it.Next(); {
		k, e := it.Element()
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		if keyed {
			b.WriteString(k.AsString() + " = ")
		}
		b.WriteString(render(e))
		if b.Len() > maxShown {
			return fmt.Sprintf("a %s of %d", typeName(ty), n)
		}
	}
	switch {
	case keyed && n == 0:
		return "{}"
	case keyed:
		return "{ " + b.String() + " }"
	}
	return "[" + b.String() + "]"
}

// typeName names a type as users know it.
func typeName(ty cty.Type) string {
	switch {
	case ty.IsObjectType():
		return "object"
	case ty.IsMapType():
		return "map"
	case ty.IsTupleType(), ty.IsListType():
		return "list"
	case ty.IsSetType():
		return "set"
	}
	return ty.FriendlyName()
}

// aTypeName is typeName with its article.
func aTypeName(v cty.Value) string {
	if v.IsNull() {
		return "null"
	}
	k := typeName(v.Type())
	if strings.ContainsRune("aeiou", rune(k[0])) {
		return "an " + k
	}
	return "a " + k
}
