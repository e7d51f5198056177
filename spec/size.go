package spec

import (
	"bytes"
	"runtime"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

// Limits that are counted. They are the same on every machine, and met long before those of time and memory.
const (
	maxLines  = 200_000 // of a file
	maxTokens = 500_000 // of a file: a token takes fifty times the memory of its text
	maxDigits = 1_000   // of a number before or behind its point; to write it as text takes their square
)

// small checks what is counted in the text of a file. JSON has the same tokens as HCL.
func (f *findings) small(src []byte, name string) bool {
	if n := bytes.Count(src, []byte("\n")); n > maxLines {
		f.file(name, codeTooLarge, "it has "+strconv.Itoa(n)+" lines; a configuration file has at most "+
			strconv.Itoa(maxLines))
		return false
	}
	tokens, _ := hclsyntax.LexConfig(src, name, hcl.InitialPos)
	if n := len(tokens); n > maxTokens {
		f.file(name, codeTooLarge, "it has "+strconv.Itoa(n)+" words and signs; a configuration file has at most "+
			strconv.Itoa(maxTokens))
		return false
	}
	for _, t := range tokens {
		if t.Type == hclsyntax.TokenNumberLit && !writable(string(t.Bytes)) {
			f.add(codeTooLarge, &t.Range, "a number has at most %d digits before or behind its point", maxDigits)
			return false
		}
	}
	return f.shallow(tokens)
}

// writable reports whether a number as it stands in a text has at most maxDigits digits when it is written out.
func writable(number string) bool {
	digits, exponent, _ := strings.Cut(strings.ToLower(number), "e")
	if exponent == "" {
		exponent = "0"
	}
	n, err := strconv.Atoi(exponent)
	return err == nil && max(n, -n) <= maxDigits && len(digits) <= maxDigits
}

// holdsLongNumber reports whether v is, or holds, a number of more than maxDigits digits.
func holdsLongNumber(v cty.Value) bool {
	if !v.IsKnown() || v.IsNull() {
		return false
	}
	ty := v.Type()
	if ty == cty.Number {
		const bits = maxDigits * 3322 / 1000 // of a number with so many digits
		exponent := v.AsBigFloat().MantExp(nil)
		return exponent > bits || exponent < -bits
	}
	text := ty.IsCollectionType() && (ty.ElementType() == cty.String || ty.ElementType() == cty.Bool)
	if text || !v.CanIterateElements() {
		return false
	}
	for it := v.ElementIterator(); it.Next(); {
		if _, e := it.Element(); holdsLongNumber(e) {
			return true
		}
	}
	return false
}

// digitsFunc is a function from text to a number, which does not accept a longer text than a number can have.
func digitsFunc(f function.Function) function.Function {
	return like(f, func(args []cty.Value) (cty.Value, error) {
		if args[0].Type() == cty.String && args[0].IsKnown() && !args[0].IsNull() && len(args[0].AsString()) > maxDigits {
			return cty.NilVal, function.NewArgErrorf(0, "a number has at most %d digits", maxDigits)
		}
		return f.Call(args)
	})
}

// roundFunction is the name of the function that counts rounds. Nobody can call it: a name in HCL holds no space.
const roundFunction = " round"

// countRounds has every for expression of a file count its rounds. Such expressions inside one another go round very
// often for a few bytes, and evaluation cannot be cancelled from outside. The counting is a call, and not a node of a
// type of ours: the library would not see what such a node refers to.
func countRounds(body hcl.Body) {
	node, ok := body.(*hclsyntax.Body)
	if !ok {
		return // JSON: its texts are parsed when they are evaluated
	}
	hclsyntax.VisitAll(node, func(n hclsyntax.Node) hcl.Diagnostics {
		if loop, is := n.(*hclsyntax.ForExpr); is {
			each := &loop.ValExpr
			if loop.CondExpr != nil { // it decides whether the value is looked at
				each = &loop.CondExpr
			}
			rng := (*each).Range()
			*each = &hclsyntax.FunctionCallExpr{
				Name: roundFunction, Args: []hclsyntax.Expression{*each},
				NameRange: rng, OpenParenRange: rng, CloseParenRange: rng,
			}
		}
		return nil
	})
}

// roundFunc returns its argument, and ends the goroutine after too many rounds, or when a limit was exceeded.
func (l *loader) roundFunc() function.Function {
	most := l.opts.Limits.orDefaults().Rounds
	return function.New(&function.Spec{
		Params: []function.Parameter{{
			Name: "value", Type: cty.DynamicPseudoType,
			AllowNull: true, AllowUnknown: true, AllowDynamicType: true, AllowMarked: true,
		}},
		Type: func(args []cty.Value) (cty.Type, error) { return args[0].Type(), nil },
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			if l.rounds++; l.rounds > most {
				l.watch.exceeded = strconv.Itoa(most) + " rounds of for expressions"
				runtime.Goexit()
			}
			if l.watch.over.Load() {
				runtime.Goexit()
			}
			return args[0], nil
		},
	})
}

// jsonDecodeFunc is stdlib's without numbers that are too long.
func jsonDecodeFunc() function.Function {
	return like(stdlib.JSONDecodeFunc, func(args []cty.Value) (cty.Value, error) {
		v, err := stdlib.JSONDecodeFunc.Call(args)
		if err == nil && holdsLongNumber(v) {
			return cty.NilVal, function.NewArgErrorf(0, "a number has at most %d digits", maxDigits)
		}
		return v, err
	})
}
