package spec

import (
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

// textFunc makes a function from string to string that cannot fail.
func textFunc(f func(string) string) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "str", Type: cty.String}},
		Type:   function.StaticReturnType(cty.String),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			return cty.StringVal(f(args[0].AsString())), nil
		},
	})
}

func encodeBase64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func hexMD5(s string) string {
	sum := md5.Sum([]byte(s))
	return hex.EncodeToString(sum[:])
}

func hexSHA256(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func base64DecodeFunc() function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "str", Type: cty.String}},
		Type:   function.StaticReturnType(cty.String),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			b, err := base64.StdEncoding.DecodeString(args[0].AsString())
			switch {
			case err != nil:
				return cty.NilVal, function.NewArgErrorf(0, "not Base64")
			case !utf8.Valid(b):
				return cty.NilVal, function.NewArgErrorf(0, "the decoded bytes are not UTF-8 text")
			}
			return cty.StringVal(string(b)), nil
		},
	})
}

// affixFunc tests whether a string has a prefix, suffix or part.
func affixFunc(kind string) function.Function {
	test := map[string]func(s, part string) bool{
		"prefix": strings.HasPrefix, "suffix": strings.HasSuffix, "part": strings.Contains,
	}[kind]
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "str", Type: cty.String}, {Name: kind, Type: cty.String}},
		Type:   function.StaticReturnType(cty.Bool),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			return cty.BoolVal(test(args[0].AsString(), args[1].AsString())), nil
		},
	})
}

func sumFunc() function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "numbers", Type: cty.List(cty.Number)}},
		Type:   function.StaticReturnType(cty.Number),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			total := cty.Zero
			for it := args[0].ElementIterator(); it.Next(); {
				_, n := it.Element()
				if n.IsNull() {
					return cty.NilVal, function.NewArgErrorf(0, "an element is null")
				}
				next, err := stdlib.Add(total, n) // infinity minus infinity is an error
				if err != nil {
					return cty.NilVal, err
				}
				total = next
			}
			return total, nil
		},
	})
}

// truthFunc is alltrue (want true: no element is false) or anytrue (want false: not all are).
func truthFunc(all bool) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "list", Type: cty.List(cty.Bool)}},
		Type:   function.StaticReturnType(cty.Bool),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			for it := args[0].ElementIterator(); it.Next(); {
				_, b := it.Element()
				if is := !b.IsNull() && b.True(); is != all {
					return cty.BoolVal(!all), nil
				}
			}
			return cty.BoolVal(all), nil
		},
	})
}

// lengthFunc counts elements, or the characters of a string.
func lengthFunc() function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "value", Type: cty.DynamicPseudoType, AllowDynamicType: true}},
		Type:   function.StaticReturnType(cty.Number),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			if args[0].Type() == cty.String {
				return stdlib.Strlen(args[0])
			}
			if !args[0].CanIterateElements() {
				return cty.NilVal, function.NewArgErrorf(0, "it must be a list, a set, a map or a string")
			}
			return cty.NumberIntVal(int64(args[0].LengthInt())), nil
		},
	})
}

// oneFunc is the one element of a list, or null if it is empty.
func oneFunc() function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "list", Type: cty.DynamicPseudoType}},
		Type:   function.StaticReturnType(cty.DynamicPseudoType),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
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
		},
	})
}

// indexFunc is the place of a value in a list.
func indexFunc() function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{
			{Name: "list", Type: cty.DynamicPseudoType}, {Name: "value", Type: cty.DynamicPseudoType},
		},
		Type: function.StaticReturnType(cty.Number),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
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
		},
	})
}

// setProductFunc is stdlib's with a limit: a product of three ranges would fill the memory at once.
func setProductFunc() function.Function {
	f := stdlib.SetProductFunc
	return function.New(&function.Spec{
		VarParam: f.VarParam(),
		Type: func(args []cty.Value) (cty.Type, error) {
			n := 1
			for i, a := range args {
				if a.CanIterateElements() {
					if n *= a.LengthInt(); n > maxInstances {
						const why = "the product has more than %d elements"
						return cty.NilType, function.NewArgErrorf(i, why, maxInstances)
					}
				}
			}
			return f.ReturnTypeForValues(args)
		},
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) { return f.Call(args) },
	})
}

// fileFunc returns the text of a file below root. os.Root refuses every way out: "..", absolute names, symbolic links.
func fileFunc(root *os.Root) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "path", Type: cty.String}},
		Type:   function.StaticReturnType(cty.String),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			name := args[0].AsString()
			text, err := readBelow(root, name)
			if err != nil {
				return cty.NilVal, function.NewArgError(0, err)
			}
			return cty.StringVal(text), nil
		},
	})
}

func readBelow(root *os.Root, name string) (string, error) {
	if err := inside(name); err != nil {
		return "", err
	}
	b, err := readRegular(root, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("there is no file %q in the configuration directory", name)
	case err != nil:
		return "", fmt.Errorf("%q: %s", name, cause(err))
	}
	if !utf8.Valid(b) {
		return "", fmt.Errorf("%q is not UTF-8 text", name)
	}
	return string(b), nil
}

func fileExistsFunc(root *os.Root) function.Function {
	return function.New(&function.Spec{
		Params: []function.Parameter{{Name: "path", Type: cty.String}},
		Type:   function.StaticReturnType(cty.Bool),
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) {
			name := args[0].AsString()
			if err := inside(name); err != nil {
				return cty.NilVal, function.NewArgError(0, err)
			}
			info, err := root.Stat(name)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return cty.False, nil
			case err != nil:
				return cty.NilVal, function.NewArgErrorf(0, "%q: %s", name, cause(err))
			}
			return cty.BoolVal(info.Mode().IsRegular()), nil
		},
	})
}

// inside returns an error if a name is not below the configuration directory.
func inside(name string) error {
	if !filepath.IsLocal(name) {
		return fmt.Errorf("%q is not below the configuration directory", name)
	}
	return nil
}
