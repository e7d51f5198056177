package spec

import (
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2/ext/tryfunc"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"

	"muster/resource"
)

// functions are what an expression of a configuration may call: pure functions, and file and fileexists, which see only
// root, the configuration directory. There is no timestamp, uuid or env: a plan is a function of its inputs.
func functions(root *os.Root) map[string]function.Function {
	all := pureFunctions()
	all["file"], all["fileexists"] = fileFunc(root), fileExistsFunc(root)
	return all
}

func pureFunctions() map[string]function.Function {
	return map[string]function.Function{
		// numbers
		"abs": stdlib.AbsoluteFunc, "ceil": stdlib.CeilFunc, "floor": stdlib.FloorFunc, "max": stdlib.MaxFunc,
		"min": stdlib.MinFunc, "parseint": stdlib.ParseIntFunc, "pow": stdlib.PowFunc,
		"signum": stdlib.SignumFunc, "sum": listFunc(sumFunc()),

		// strings
		"chomp": stdlib.ChompFunc, "endswith": affixFunc("suffix", strings.HasSuffix), "format": stdlib.FormatFunc,
		"formatlist": stdlib.FormatListFunc, "indent": stdlib.IndentFunc, "join": listFunc(stdlib.JoinFunc),
		"lower": stdlib.LowerFunc, "regex": stdlib.RegexFunc, "regexall": stdlib.RegexAllFunc,
		"regexreplace": stdlib.RegexReplaceFunc, "replace": stdlib.ReplaceFunc, "split": stdlib.SplitFunc,
		"startswith": affixFunc("prefix", strings.HasPrefix), "strcontains": affixFunc("part", strings.Contains),
		"strlen": stdlib.StrlenFunc,
		"substr": stdlib.SubstrFunc, "title": stdlib.TitleFunc, "trim": stdlib.TrimFunc,
		"trimprefix": stdlib.TrimPrefixFunc, "trimspace": stdlib.TrimSpaceFunc, "trimsuffix": stdlib.TrimSuffixFunc,
		"upper": stdlib.UpperFunc,

		// collections
		"alltrue": listFunc(truthFunc(true)), "anytrue": listFunc(truthFunc(false)), "chunklist": stdlib.ChunklistFunc,
		"coalesce": stdlib.CoalesceFunc, "coalescelist": stdlib.CoalesceListFunc, "compact": listFunc(stdlib.CompactFunc),
		"concat": stdlib.ConcatFunc, "contains": stdlib.ContainsFunc, "distinct": distinctFunc(),
		"element": stdlib.ElementFunc, "flatten": stdlib.FlattenFunc, "index": indexFunc(), "keys": stdlib.KeysFunc,
		"length": lengthFunc(), "lookup": stdlib.LookupFunc, "merge": stdlib.MergeFunc, "one": oneFunc(),
		"range": stdlib.RangeFunc, "reverse": stdlib.ReverseListFunc, "setintersection": stdlib.SetIntersectionFunc,
		"setproduct": setProductFunc(), "setsubtract": stdlib.SetSubtractFunc, "setunion": stdlib.SetUnionFunc,
		"slice": stdlib.SliceFunc, "sort": listFunc(stdlib.SortFunc), "values": stdlib.ValuesFunc,
		"zipmap": stdlib.ZipmapFunc,

		// encodings
		"base64decode": base64DecodeFunc(), "base64encode": textFunc(base64.StdEncoding.EncodeToString),
		"csvdecode": stdlib.CSVDecodeFunc, "jsondecode": stdlib.JSONDecodeFunc, "jsonencode": stdlib.JSONEncodeFunc,
		"md5": textFunc(hexMD5), "sha256": textFunc(hexSHA256),

		// types
		"can": tryfunc.CanFunc, "try": tryfunc.TryFunc,
		"tobool": stdlib.MakeToFunc(cty.Bool), "tonumber": stdlib.MakeToFunc(cty.Number),
		"tostring": stdlib.MakeToFunc(cty.String), "tolist": collectFunc(cty.List), "toset": collectFunc(cty.Set),
		"tomap": stdlib.MakeToFunc(cty.Map(cty.DynamicPseudoType)),

		// times and durations
		"formatdate": stdlib.FormatDateFunc, "seconds": secondsFunc(), "timeadd": stdlib.TimeAddFunc,
		"timecmp": timeCmpFunc(),
	}
}

// secondsFunc is the length of a duration in seconds, as a number that can be compared.
func secondsFunc() function.Function {
	return static(cty.Number, func(args []cty.Value) (cty.Value, error) {
		var d resource.Duration
		if err := d.UnmarshalText([]byte(args[0].AsString())); err != nil {
			return cty.NilVal, function.NewArgErrorf(0, "%q is no duration such as \"1m30s\"", args[0].AsString())
		}
		return cty.NumberFloatVal(time.Duration(d).Seconds()), nil
	}, parameter{Name: "duration", Type: cty.String})
}

// timeCmpFunc is -1, 0 or 1 if the first of two times is earlier, the same or later.
func timeCmpFunc() function.Function {
	return static(cty.Number, func(args []cty.Value) (cty.Value, error) {
		var times [2]time.Time
		for i, arg := range args {
			t, err := time.Parse(time.RFC3339, arg.AsString())
			if err != nil {
				return cty.NilVal, function.NewArgErrorf(i, "%q is no time as in RFC 3339, such as \"2026-12-24T00:00:00Z\"",
					arg.AsString())
			}
			times[i] = t
		}
		return cty.NumberIntVal(int64(times[0].Compare(times[1]))), nil
	}, parameter{Name: "a", Type: cty.String}, parameter{Name: "b", Type: cty.String})
}

type parameter = function.Parameter

// static makes a function whose results have one type.
func static(result cty.Type, f func(args []cty.Value) (cty.Value, error), ps ...parameter) function.Function {
	return function.New(&function.Spec{
		Params: ps,
		Type:   function.StaticReturnType(result),
		Impl:   func(args []cty.Value, _ cty.Type) (cty.Value, error) { return f(args) },
	})
}

// textFunc makes a function of a text that cannot fail.
func textFunc(f func([]byte) string) function.Function {
	return static(cty.String, func(args []cty.Value) (cty.Value, error) {
		return cty.StringVal(f([]byte(args[0].AsString()))), nil
	}, parameter{Name: "str", Type: cty.String})
}

func hexMD5(b []byte) string { return fmt.Sprintf("%x", md5.Sum(b)) }

func hexSHA256(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b)) }

func base64DecodeFunc() function.Function {
	return static(cty.String, func(args []cty.Value) (cty.Value, error) {
		b, err := base64.StdEncoding.DecodeString(args[0].AsString())
		switch {
		case err != nil:
			return cty.NilVal, function.NewArgErrorf(0, "not Base64")
		case !utf8.Valid(b):
			return cty.NilVal, function.NewArgErrorf(0, "the decoded bytes are not UTF-8 text")
		}
		return cty.StringVal(string(b)), nil
	}, parameter{Name: "str", Type: cty.String})
}

// affixFunc tests whether a string has a prefix, suffix or part.
func affixFunc(kind string, test func(s, part string) bool) function.Function {
	return static(cty.Bool, func(args []cty.Value) (cty.Value, error) {
		return cty.BoolVal(test(args[0].AsString(), args[1].AsString())), nil
	}, parameter{Name: "str", Type: cty.String}, parameter{Name: kind, Type: cty.String})
}

func sumFunc() function.Function {
	return static(cty.Number, func(args []cty.Value) (cty.Value, error) {
		total := cty.Zero
		for _, n := range args[0].Elements() {
			if n.IsNull() {
				return cty.NilVal, function.NewArgErrorf(0, "an element is null")
			}
			var err error
			if total, err = stdlib.Add(total, n); err != nil { // infinity minus infinity
				return cty.NilVal, err
			}
		}
		return total, nil
	}, parameter{Name: "numbers", Type: cty.List(cty.Number)})
}

// truthFunc is alltrue (want true: no element is false) or anytrue (want false: not all are).
func truthFunc(all bool) function.Function {
	return static(cty.Bool, func(args []cty.Value) (cty.Value, error) {
		for _, b := range args[0].Elements() {
			if is := !b.IsNull() && b.True(); is != all {
				return cty.BoolVal(!all), nil
			}
		}
		return cty.BoolVal(all), nil
	}, parameter{Name: "list", Type: cty.List(cty.Bool)})
}

// lengthFunc counts elements, or the characters of a string.
func lengthFunc() function.Function {
	return static(cty.Number, func(args []cty.Value) (cty.Value, error) {
		if args[0].Type() == cty.String {
			return stdlib.Strlen(args[0])
		}
		if !args[0].CanIterateElements() {
			return cty.NilVal, function.NewArgErrorf(0, "it must be a list, a set, a map or a string")
		}
		return cty.NumberIntVal(int64(args[0].LengthInt())), nil
	}, parameter{Name: "value", Type: cty.DynamicPseudoType, AllowDynamicType: true})
}

// oneFunc is the one element of a list, or null if it is empty.
func oneFunc() function.Function {
	return static(cty.DynamicPseudoType, func(args []cty.Value) (cty.Value, error) {
		ty := args[0].Type()
		if !ty.IsTupleType() && !ty.IsListType() && !ty.IsSetType() {
			return cty.NilVal, function.NewArgErrorf(0, "it must be a list or a set")
		}
		switch elements := args[0].AsValueSlice(); len(elements) {
		case 0:
			return cty.NullVal(cty.DynamicPseudoType), nil
		case 1:
			return elements[0], nil
		default:
			return cty.NilVal, function.NewArgErrorf(0, "it has %d elements, not one or none", len(elements))
		}
	}, parameter{Name: "list", Type: cty.DynamicPseudoType})
}

// indexFunc is the place of a value in a list.
func indexFunc() function.Function {
	return static(cty.Number, func(args []cty.Value) (cty.Value, error) {
		ty := args[0].Type()
		if !ty.IsTupleType() && !ty.IsListType() {
			return cty.NilVal, function.NewArgErrorf(0, "it must be a list")
		}
		for i, e := range args[0].AsValueSlice() {
			same, err := stdlib.Equal(e, args[1])
			if err == nil && !same.IsNull() && same.IsKnown() && same.True() {
				return cty.NumberIntVal(int64(i)), nil
			}
		}
		return cty.NilVal, function.NewArgErrorf(1, "the list does not hold it")
	}, parameter{Name: "list", Type: cty.DynamicPseudoType}, parameter{Name: "value", Type: cty.DynamicPseudoType})
}

// setProductFunc is stdlib's with a limit: a product of three ranges would fill the memory at once.
func setProductFunc() function.Function {
	f := stdlib.SetProductFunc
	return function.New(&function.Spec{
		VarParam: f.VarParam(),
		Type: func(args []cty.Value) (cty.Type, error) {
			n := 1
			for i, a := range args {
				if !a.CanIterateElements() {
					continue
				}
				if n *= a.LengthInt(); n > maxInstances {
					return cty.NilType, function.NewArgErrorf(i, "the product has more than %d elements", maxInstances)
				}
			}
			return f.ReturnTypeForValues(args)
		},
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) { return f.Call(args) },
	})
}

// fileFunc returns the text of a file below root. os.Root refuses every way out: "..", absolute names, symbolic links.
func fileFunc(root *os.Root) function.Function {
	return static(cty.String, func(args []cty.Value) (cty.Value, error) {
		name := args[0].AsString()
		if err := inside(name); err != nil {
			return cty.NilVal, err
		}
		b, err := readRegular(root, name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return cty.NilVal, function.NewArgErrorf(0, "there is no file %q in the configuration directory", name)
		case err != nil:
			return cty.NilVal, function.NewArgErrorf(0, "%q: %s", name, cause(err))
		case !utf8.Valid(b):
			return cty.NilVal, function.NewArgErrorf(0, "%q is not UTF-8 text", name)
		}
		return cty.StringVal(string(b)), nil
	}, parameter{Name: "path", Type: cty.String})
}

func fileExistsFunc(root *os.Root) function.Function {
	return static(cty.Bool, func(args []cty.Value) (cty.Value, error) {
		name := args[0].AsString()
		if err := inside(name); err != nil {
			return cty.NilVal, err
		}
		info, err := root.Stat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return cty.False, nil
		case err != nil:
			return cty.NilVal, function.NewArgErrorf(0, "%q: %s", name, cause(err))
		}
		return cty.BoolVal(info.Mode().IsRegular()), nil
	}, parameter{Name: "path", Type: cty.String})
}

// inside returns an error if a name is not below the configuration directory.
func inside(name string) error {
	if !filepath.IsLocal(name) {
		return function.NewArgErrorf(0, "%q is not below the configuration directory", name)
	}
	return nil
}

// The library makes a list or a set of a tuple by looking for a type that all its elements can have. For that it
// compares each with each. Here the usual tuples are made into lists at once.

// listFunc is f, whose list parameters take tuples: it converts their elements one by one.
func listFunc(f function.Function) function.Function {
	params := f.Params()
	for i, p := range params {
		if p.Type.IsListType() {
			params[i].Type = cty.DynamicPseudoType
		}
	}
	lists := func(args []cty.Value) ([]cty.Value, error) {
		args = slices.Clone(args)
		for i, p := range f.Params() {
			if !p.Type.IsListType() {
				continue
			}
			v, err := listOfType(args[i], p.Type)
			if err != nil {
				return nil, function.NewArgError(i, err)
			}
			args[i] = v
		}
		return args, nil
	}
	return function.New(&function.Spec{
		Params: params, VarParam: f.VarParam(),
		Type: func(args []cty.Value) (cty.Type, error) {
			args, err := lists(args)
			if err != nil {
				return cty.NilType, err
			}
			return f.ReturnTypeForValues(args)
		},
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			args, err := lists(args)
			if err != nil {
				return cty.NilVal, err
			}
			return f.Call(args)
		},
	})
}

// listOfType converts v to a list.
func listOfType(v cty.Value, list cty.Type) (cty.Value, error) {
	if !v.Type().IsTupleType() || !v.IsKnown() || v.IsNull() || v.LengthInt() == 0 {
		return convert.Convert(v, list)
	}
	elements := v.AsValueSlice()
	for i, e := range elements {
		made, err := convert.Convert(e, list.ElementType())
		if err != nil {
			return cty.NilVal, cty.IndexIntPath(i).NewError(err)
		}
		elements[i] = made
	}
	return cty.ListVal(elements), nil
}

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
	toList := collectFunc(cty.List)
	return function.New(&function.Spec{
		Params: []parameter{{Name: "list", Type: cty.DynamicPseudoType}},
		Type:   toList.ReturnTypeForValues,
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			made, err := toList.Call(args)
			if err != nil {
				return cty.NilVal, err
			}
			ty := made.Type()
			var kept []cty.Value
			seen := cty.NewValueSet(ty.ElementType())
			for _, e := range made.Elements() {
				if !seen.Has(e) {
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

// uniformList makes a list of a tuple of few types.
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

// elementType is the type that the elements of a tuple can have, which has few types.
func elementType(ty cty.Type) (cty.Type, bool) {
	if !ty.IsTupleType() {
		return cty.NilType, false
	}
	const few = 8
	var types []cty.Type
	for _, e := range ty.TupleElementTypes() {
		if !slices.ContainsFunc(types, e.Equals) {
			types = append(types, e)
		}
		if len(types) > few || e.HasDynamicTypes() {
			return cty.NilType, false
		}
	}
	all, _ := convert.UnifyUnsafe(types)
	return all, all != cty.NilType
}
