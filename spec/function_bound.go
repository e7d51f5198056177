package spec

import (
	"strconv"
	"strings"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

// bounded is a function of the library whose text can be far longer than its arguments: it is called only if size, how
// long the text is at most, is within the bound of values.
func bounded(f function.Function, size func(args []cty.Value) float64) function.Function {
	return function.New(&function.Spec{
		Params:   f.Params(),
		VarParam: f.VarParam(),
		Type:     f.ReturnTypeForValues,
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			if size(args) > maxValueText {
				return cty.NilVal, function.NewArgErrorf(0, "the result could have more than %d MiB", maxValueText>>20)
			}
			return f.Call(args)
		},
	})
}

func joinFunc() function.Function {
	return bounded(stdlib.JoinFunc, func(args []cty.Value) float64 {
		separator, size := length(args[0]), 0.0
		for _, list := range args[1:] {
			for it := list.ElementIterator(); it.Next(); {
				_, e := it.Element()
				size += separator + length(e)
			}
		}
		return size
	})
}

func indentFunc() function.Function {
	return bounded(stdlib.IndentFunc, func(args []cty.Value) float64 {
		spaces, _ := args[0].AsBigFloat().Float64()
		return length(args[1]) + spaces*float64(strings.Count(args[1].AsString(), "\n"))
	})
}

func replaceFunc() function.Function {
	return bounded(stdlib.ReplaceFunc, func(args []cty.Value) float64 {
		n := strings.Count(args[0].AsString(), args[1].AsString())
		return length(args[0]) + float64(n)*length(args[2])
	})
}

// regexReplaceFunc: how often the pattern matches is not known, but it is at most once for a byte.
func regexReplaceFunc() function.Function {
	return bounded(stdlib.RegexReplaceFunc, func(args []cty.Value) float64 {
		return (length(args[0]) + 1) * (length(args[2]) + 1)
	})
}

// formatted bounds format and formatlist by the widths and precisions that the format asks for; a list of formatted texts
// has many of them.
func formatted(f function.Function) function.Function {
	const texts = 1000
	return bounded(f, func(args []cty.Value) float64 {
		size := 0.0
		for _, verb := range strings.Split(args[0].AsString(), "%")[1:] {
			letter := strings.TrimLeft(verb, "0123456789.[]+-# ")
			for _, digits := range strings.FieldsFunc(verb[:len(verb)-len(letter)], notDigit) {
				n, _ := strconv.ParseFloat(digits, 64) // infinity if it is out of range
				size += texts * n
			}
		}
		return size
	})
}

func notDigit(r rune) bool { return r < '0' || r > '9' }

// length is that of a string; a null one has none.
func length(v cty.Value) float64 {
	if v.IsNull() || !v.IsKnown() || v.Type() != cty.String {
		return 0
	}
	return float64(len(v.AsString()))
}
