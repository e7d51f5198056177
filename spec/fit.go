package spec

import (
	"errors"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// fit converts a value to the type of a variable. An attribute that an object type does not know is an error here: the
// conversion itself would drop it silently.
func (s *scope) fit(val cty.Value, v *variable, expr hcl.Expression, code, what string) (cty.Value, bool) {
	if !s.knownAttributes(val, v.typ, expr, nil) {
		return cty.DynamicVal, false
	}
	if v.defaults != nil {
		val = v.defaults.Apply(val)
	}
	out, err := convert.Convert(val, v.typ)
	if err != nil {
		rng, path := narrow(expr, errorPath(err))
		d := s.add(code, &rng, "%s must be of the type %s", what, typeexpr.TypeString(v.typ))
		if d.Note = "this is " + aTypeName(val); path != "" {
			d.Note = strings.TrimPrefix(path, ".") + ": " + err.Error()
		}
		d.Help = "the variable is declared at " + at(v.decl.DefRange)
		return cty.DynamicVal, false
	}
	return out, true
}

// knownAttributes reports the attributes of objects in val that want does not have.
func (s *scope) knownAttributes(val cty.Value, want cty.Type, expr hcl.Expression, path cty.Path) bool {
	if val.IsNull() || !val.IsKnown() || !val.CanIterateElements() {
		return true
	}
	ok := true
	for it := val.ElementIterator(); it.Next(); {
		k, e := it.Element()
		switch {
		case want.IsObjectType() && (val.Type().IsObjectType() || val.Type().IsMapType()):
			name := k.AsString()
			if !want.HasAttribute(name) {
				rng := keyRange(expr, append(path, cty.GetAttrStep{Name: name}))
				d := s.add(codeObjectKey, &rng, "the type has no attribute %q", name)
				d.Help = meant(name, sortedKeys(want.AttributeTypes()), "it has")
				ok = false
				continue
			}
			ok = s.knownAttributes(e, want.AttributeType(name), expr, append(path, cty.GetAttrStep{Name: name})) && ok
		case want.IsTupleType() && val.Type().IsTupleType():
			i, _ := k.AsBigFloat().Int64()
			if int(i) < want.Length() {
				step := cty.IndexStep{Key: k}
				ok = s.knownAttributes(e, want.TupleElementType(int(i)), expr, append(path, step)) && ok
			}
		case want.IsCollectionType():
			ok = s.knownAttributes(e, want.ElementType(), expr, append(path, cty.IndexStep{Key: k})) && ok
		}
	}
	return ok
}

func errorPath(err error) cty.Path {
	var pe cty.PathError
	if errors.As(err, &pe) {
		return pe.Path
	}
	return nil
}

// narrow returns the place of the part of an expression that path leads to, as far as that part is written out. It
// also returns the path as users write it.
func narrow(expr hcl.Expression, path cty.Path) (hcl.Range, string) {
	text := ""
	for _, step := range path {
		switch step := step.(type) {
		case cty.GetAttrStep:
			text += "." + step.Name
		case cty.IndexStep:
			text += "[" + render(step.Key) + "]"
		}
		next := inner(expr, step)
		if next == nil {
			next = hcl.StaticExpr(cty.DynamicVal, expr.Range())
		}
		expr = next
	}
	return expr.Range(), text
}

// inner is the part of an expression that a step leads to; nil if it is not written out.
func inner(expr hcl.Expression, step cty.PathStep) (part hcl.Expression) {
	switch step := step.(type) {
	case cty.GetAttrStep:
		_, part = pair(expr, step.Name)
	case cty.IndexStep:
		if step.Key.Type() == cty.String {
			_, part = pair(expr, step.Key.AsString())
		} else if list, diags := hcl.ExprList(expr); !diags.HasErrors() && step.Key.Type() == cty.Number {
			if i, _ := step.Key.AsBigFloat().Int64(); i >= 0 && int(i) < len(list) {
				part = list[i]
			}
		}
	}
	return part
}

// keyRange returns the place of the key that path ends with.
func keyRange(expr hcl.Expression, path cty.Path) hcl.Range {
	last, _ := path[len(path)-1].(cty.GetAttrStep)
	outer := expr
	for _, step := range path[:len(path)-1] {
		if outer = inner(outer, step); outer == nil {
			return expr.Range()
		}
	}
	if key, _ := pair(outer, last.Name); key != nil {
		return key.Range()
	}
	return expr.Range()
}

// pair returns the key and the value of an entry of an object. They are nil if the object is not written out.
func pair(expr hcl.Expression, name string) (key, value hcl.Expression) {
	pairs, diags := hcl.ExprMap(expr)
	if diags.HasErrors() {
		return nil, nil
	}
	for _, p := range pairs {
		k, diags := p.Key.Value(nil)
		if !diags.HasErrors() && k.IsKnown() && !k.IsNull() && k.Type() == cty.String && k.AsString() == name {
			return p.Key, p.Value
		}
	}
	return nil, nil
}

func quote(s string) string { return strconv.Quote(s) }
