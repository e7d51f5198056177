package spec

import (
	"regexp"
	"strings"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
	"github.com/zclconf/go-cty/cty/gocty"
)

// The library's functions of these names make room for the whole result at once. If the machine has less, the process
// ends before anybody looks at the limits. Here the text grows as it is made.

// maxWidth is how many spaces indent and format add in one place at most.
const maxWidth = 9999

func joinFunc() function.Function {
	return like(stdlib.JoinFunc, func(args []cty.Value) (cty.Value, error) {
		var b strings.Builder
		separator := ""
		for _, list := range args[1:] {
			for it := list.ElementIterator(); it.Next(); {
				_, e := it.Element()
				if e.IsNull() {
					return stdlib.JoinFunc.Call(args) // which says so
				}
				b.WriteString(separator + e.AsString())
				separator = args[0].AsString()
			}
		}
		if len(args) == 1 {
			return stdlib.JoinFunc.Call(args)
		}
		return cty.StringVal(b.String()), nil
	})
}

func replaceFunc() function.Function {
	return like(stdlib.ReplaceFunc, func(args []cty.Value) (cty.Value, error) {
		return cty.StringVal(replaceAll(args[0].AsString(), args[1].AsString(), args[2].AsString())), nil
	})
}

func indentFunc() function.Function {
	return like(stdlib.IndentFunc, func(args []cty.Value) (cty.Value, error) {
		var spaces int
		if err := gocty.FromCtyValue(args[0], &spaces); err != nil {
			return cty.NilVal, function.NewArgError(0, err)
		}
		if spaces > maxWidth {
			return cty.NilVal, function.NewArgErrorf(0, "at most %d spaces are possible", maxWidth)
		}
		return cty.StringVal(replaceAll(args[1].AsString(), "\n", "\n"+strings.Repeat(" ", spaces))), nil
	})
}

// replaceAll is strings.ReplaceAll.
func replaceAll(s, from, to string) string {
	var b strings.Builder
	if from == "" {
		for _, r := range s {
			b.WriteString(to)
			b.WriteRune(r)
		}
		b.WriteString(to)
		return b.String()
	}
	for {
		before, after, found := strings.Cut(s, from)
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteString(to)
		s = after
	}
}

// formatted is format or formatlist with a limit on widths and precisions.
func formatted(f function.Function) function.Function {
	wide := regexp.MustCompile(`%[^a-zA-Z%]*[0-9]{5}`)
	return like(f, func(args []cty.Value) (cty.Value, error) {
		if wide.MatchString(args[0].AsString()) {
			return cty.NilVal, function.NewArgErrorf(0, "a width or precision is at most %d", maxWidth)
		}
		return f.Call(args)
	})
}

// like makes a function with the parameters and the type of f.
func like(f function.Function, impl func(args []cty.Value) (cty.Value, error)) function.Function {
	return function.New(&function.Spec{
		Params:   f.Params(),
		VarParam: f.VarParam(),
		Type:     f.ReturnTypeForValues,
		Impl:     func(args []cty.Value, _ cty.Type) (cty.Value, error) { return impl(args) },
	})
}
