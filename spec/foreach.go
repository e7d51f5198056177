package spec

import (
	"strings"
	"unicode"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"muster/resource"
)

// instanceKey is one element of a for_each.
type instanceKey struct {
	key   string
	value cty.Value
}

// maxInstances limits the elements of a for_each, and of a product of sets.
const maxInstances = 100_000

// forEach decodes a map, or a set of strings. kind is what it makes several of.
func (s *scope) forEach(a *hcl.Attribute, kind string) ([]instanceKey, bool) {
	v, ok := s.eval(a.Expr)
	if !ok {
		return nil, false
	}
	ty := v.Type()
	isSet := ty.IsSetType() && (ty.ElementType() == cty.String || !v.IsNull() && v.LengthInt() == 0)
	if v.IsNull() || !isSet && !ty.IsMapType() && !ty.IsObjectType() {
		d := s.wrong(codeForEach, a, cty.NilVal, "for_each must be a map or a set of strings")
		d.Note = "this is " + aTypeName(v)
		if ty.IsTupleType() || ty.IsListType() {
			d.Help = "make it a set: toset(" + s.source(a.Expr) + ")"
		}
		return nil, false
	}
	if n := v.LengthInt(); n > maxInstances {
		s.wrong(codeForEach, a, cty.NilVal, "for_each makes %d %ss; at most %d are possible", n, kind, maxInstances)
		return nil, false
	}
	var keys []instanceKey
	for it := v.ElementIterator(); it.Next(); {
		k, e := it.Element()
		if k.IsNull() {
			s.wrong(codeForEachKey, a, cty.NilVal, "a key of for_each is null")
			return nil, false
		}
		if !addressKey(k.AsString()) {
			d := s.wrong(codeForEachKey, a, cty.NilVal,
				"a key of for_each has 1 to 128 printable characters, none of them a space, \" or \\")
			d.Note = "this has the key " + render(k)
			ok = false
			continue
		}
		keys = append(keys, instanceKey{k.AsString(), e})
	}
	return keys, ok
}

// addressKey reports whether a key can stand in an address. Addresses must be readable, and easy to quote in a shell.
func addressKey(k string) bool {
	return k != "" && len(k) <= resource.MaxName && !strings.ContainsFunc(k, func(r rune) bool {
		return !unicode.IsPrint(r) || r == ' ' || r == '"' || r == '\\'
	})
}
