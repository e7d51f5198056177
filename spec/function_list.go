package spec

import (
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

// The library makes a list or a set of a tuple by looking for a type that all its elements can have. For that it
// compares each with each. Here the usual tuples are made into lists at once.

// collectFunc is stdlib's tolist or toset.
func collectFunc(collection func(element cty.Type) cty.Type) function.Function {
	f := stdlib.MakeToFunc(collection(cty.DynamicPseudoType))
	return function.New(&function.Spec{
		Params: f.Params(),
		Type: func(args []cty.Value) (cty.Type, error) {
			if ty, ok := elementType(args[0].Type()); ok {
				return collection(ty), nil
			}
			return f.ReturnTypeForValues(args)
		},
		Impl: func(args []cty.Value, ty cty.Type) (cty.Value, error) {
			list, ok := uniformList(args[0])
			if !ok {
				list = args[0]
			}
			return convert.Convert(list, ty)
		},
	})
}

// distinctFunc is stdlib's distinct. That compares each element with each.
func distinctFunc() function.Function {
	list := cty.List(cty.DynamicPseudoType)
	asList := func(v cty.Value) (cty.Value, error) {
		if made, ok := uniformList(v); ok {
			return made, nil
		}
		made, err := convert.Convert(v, list)
		if err != nil {
			return cty.NilVal, function.NewArgError(0, err)
		}
		return made, nil
	}
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "list", Type: cty.DynamicPseudoType}},
		Type: func(args []cty.Value) (cty.Type, error) {
			made, err := asList(args[0])
			if err != nil {
				return cty.NilType, err
			}
			return made.Type(), nil
		},
		Impl: func(args []cty.Value, ty cty.Type) (cty.Value, error) {
			made, err := asList(args[0])
			if err != nil {
				return cty.NilVal, err
			}
			var kept []cty.Value
			seen := cty.NewValueSet(ty.ElementType())
			for it := made.ElementIterator(); it.Next(); {
				if _, e := it.Element(); !seen.Has(e) {
					seen.Add(e)
					kept = append(kept, e)
				}
			}
			if len(kept) == 0 {
				return cty.ListValEmpty(ty.ElementType()), nil
			}
			return cty.ListVal(kept), nil
		},
	})
}

// uniformList makes a list of a tuple, if its elements have the same type, or are text and what becomes text by itself.
func uniformList(v cty.Value) (cty.Value, bool) {
	ty, ok := elementType(v.Type())
	if !ok || v.IsNull() || !v.IsKnown() {
		return cty.NilVal, false
	}
	elements := v.AsValueSlice()
	for i, e := range elements {
		made, err := convert.Convert(e, ty)
		if err != nil {
			return cty.NilVal, false
		}
		elements[i] = made
	}
	return cty.ListVal(elements), true
}

// elementType is the type that the elements of a tuple have: all the same, or text if one is text and all are
// primitive.
func elementType(ty cty.Type) (cty.Type, bool) {
	if !ty.IsTupleType() || ty.Length() == 0 {
		return cty.NilType, false
	}
	elements := ty.TupleElementTypes()
	same, primitive, text := true, true, false
	for _, e := range elements {
		same = same && e.Equals(elements[0])
		primitive = primitive && e.IsPrimitiveType()
		text = text || e == cty.String
	}
	switch {
	case same && !elements[0].HasDynamicTypes():
		return elements[0], true
	case primitive && text:
		return cty.String, true
	}
	return cty.NilType, false
}
