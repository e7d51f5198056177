package spec

import (
	"os"
	"slices"

	"github.com/hashicorp/hcl/v2/ext/tryfunc"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

// functions are what an expression may call. All are pure but file and fileexists, which see only the configuration
// directory. There is no timestamp, uuid or env: a plan is a function of its inputs.
type functions map[string]function.Function

func (f functions) has(name string) bool {
	_, ok := f[name]
	return ok
}

// names are the names that can be called.
func (f functions) names() []string {
	return slices.DeleteFunc(sortedKeys(f), func(name string) bool { return name == roundFunction })
}

// newFunctions is the whole table; file and fileexists read below root.
func newFunctions(root *os.Root) functions {
	return functions{
		// numbers
		"abs": stdlib.AbsoluteFunc, "ceil": stdlib.CeilFunc, "floor": stdlib.FloorFunc, "max": stdlib.MaxFunc,
		"min": stdlib.MinFunc, "parseint": digitsFunc(stdlib.ParseIntFunc), "pow": stdlib.PowFunc,
		"signum": stdlib.SignumFunc, "sum": sumFunc(),

		// strings
		"chomp": stdlib.ChompFunc, "endswith": affixFunc("suffix"), "format": formatted(stdlib.FormatFunc),
		"formatlist": formatted(stdlib.FormatListFunc), "indent": indentFunc(), "join": joinFunc(),
		"lower": stdlib.LowerFunc, "regex": stdlib.RegexFunc, "regexall": stdlib.RegexAllFunc,
		"regexreplace": stdlib.RegexReplaceFunc, "replace": replaceFunc(), "split": stdlib.SplitFunc,
		"startswith": affixFunc("prefix"), "strcontains": affixFunc("part"), "strlen": stdlib.StrlenFunc,
		"substr": stdlib.SubstrFunc, "title": stdlib.TitleFunc, "trim": stdlib.TrimFunc,
		"trimprefix": stdlib.TrimPrefixFunc, "trimspace": stdlib.TrimSpaceFunc, "trimsuffix": stdlib.TrimSuffixFunc,
		"upper": stdlib.UpperFunc,

		// collections
		"alltrue": truthFunc(true), "anytrue": truthFunc(false), "chunklist": stdlib.ChunklistFunc,
		"coalesce": stdlib.CoalesceFunc, "coalescelist": stdlib.CoalesceListFunc, "compact": stdlib.CompactFunc,
		"concat": stdlib.ConcatFunc, "contains": stdlib.ContainsFunc, "distinct": distinctFunc(),
		"element": stdlib.ElementFunc, "flatten": stdlib.FlattenFunc, "index": indexFunc(), "keys": stdlib.KeysFunc,
		"length": lengthFunc(), "lookup": stdlib.LookupFunc, "merge": stdlib.MergeFunc, "one": oneFunc(),
		"range": stdlib.RangeFunc, "reverse": stdlib.ReverseListFunc, "setintersection": stdlib.SetIntersectionFunc,
		"setproduct": setProductFunc(), "setsubtract": stdlib.SetSubtractFunc, "setunion": stdlib.SetUnionFunc,
		"slice": stdlib.SliceFunc, "sort": stdlib.SortFunc, "values": stdlib.ValuesFunc, "zipmap": stdlib.ZipmapFunc,

		// encodings
		"base64decode": base64DecodeFunc(), "base64encode": textFunc(encodeBase64), "csvdecode": stdlib.CSVDecodeFunc,
		"jsondecode": jsonDecodeFunc(), "jsonencode": stdlib.JSONEncodeFunc, "md5": textFunc(hexMD5),
		"sha256": textFunc(hexSHA256),

		// types
		"can": tryfunc.CanFunc, "try": tryfunc.TryFunc,
		"tobool": stdlib.MakeToFunc(cty.Bool), "tonumber": digitsFunc(stdlib.MakeToFunc(cty.Number)),
		"tostring": stdlib.MakeToFunc(cty.String), "tolist": collectFunc(cty.List), "toset": collectFunc(cty.Set),
		"tomap": stdlib.MakeToFunc(cty.Map(cty.DynamicPseudoType)),

		// files below the configuration directory
		"file": fileFunc(root), "fileexists": fileExistsFunc(root),
	}
}
