package spec

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"muster/resource"
)

// words are the texts of findings about one property.
type words struct {
	missing, add     string // if it is required: with the label of the block, and what to do
	unknown          string // if it is required: what stands in an export if it was not recorded
	code             string // if it is a number or a text
	null, more, less string // what to do
	// secret is the error of a text that may hold a password: its finding has secretCode, and does not show the value.
	secret     error
	secretCode string
}

// readProperty decodes an argument into t; false means that it is null or wrong.
func readProperty[T any](s *scope, p resource.Property[T], a *hcl.Attribute, t *T, w words) bool {
	switch to := p.Ref(t).(type) {
	case *int:
		return store(to)(s.wholeNumber(a, p.Min, p.Max, p.Required, w))
	case *resource.Duration:
		return store(to)(s.duration(a, resource.Duration(p.Min), resource.Duration(p.Max)))
	case *resource.Size:
		return store(to)(s.size(a, resource.Size(p.Min), resource.Size(p.Max)))
	case *string:
		if p.Type == resource.TypeText {
			return store(to)(s.validText(a, p.CheckText, p.Required, w))
		}
		return store(to)(s.enum(a, p.Choices...))
	case *bool:
		return store(to)(s.boolean(a))
	}
	return false
}

// store returns a function that stores a decoded value if there is one.
func store[V any](to *V) func(v V, ok bool) bool {
	return func(v V, ok bool) bool {
		if ok {
			*to = v
		}
		return ok
	}
}

// validText decodes a text that must pass a check, and must not be null if it is required.
func (s *scope) validText(a *hcl.Attribute, check func(string) error, required bool, w words) (string, bool) {
	decode := s.text
	if required {
		decode = s.required
	}
	text, ok := decode(a)
	if err := check(text); ok && w.secret != nil && errors.Is(err, w.secret) {
		why, help := remedy(err)
		d := s.wrong(w.secretCode, a, cty.NilVal, "%s", why)
		d.Help = help
		d.hideSource()
		return "", false
	}
	return text, ok && s.checked(w.code, a, text, check)
}

// size decodes a size between two bounds.
func (s *scope) size(a *hcl.Attribute, least, most resource.Size) (resource.Size, bool) {
	v, ok := s.eval(a.Expr)
	if !ok || v.IsNull() {
		return 0, false
	}
	var size resource.Size
	if v.Type() != cty.String || size.UnmarshalText([]byte(v.AsString())) != nil {
		d := s.wrong(codeSize, a, v, "%s must be a size: a string with a whole number and a unit", a.Name)
		if d.Help = `write "256KiB" or "1GiB"; units are B, KiB, MiB, GiB and TiB`; v.Type() == cty.Number {
			d.Help = fmt.Sprintf("if bytes are meant, write %q; other units are KiB, MiB, GiB and TiB", number(v)+"B")
		} else if v.Type() == cty.String {
			if meant, ok := sizeMeant(v.AsString()); ok {
				d.Help = fmt.Sprintf("write %q", meant)
			}
		}
		return 0, false
	}
	if size < least || size > most {
		s.wrong(codeSize, a, v, "%s must be from %s to %s", a.Name, least, most)
		return 0, false
	}
	return size, true
}

// sizeMeant guesses the size that somebody meant: "256 kb", "1G", "1.5GiB".
func sizeMeant(text string) (string, bool) {
	m := regexp.MustCompile(`^([0-9]{1,6}(?:\.[0-9]{1,6})?)\s*([kmgt])?(?:i?b)?(?:ytes?)?$`).FindStringSubmatch(
		strings.ToLower(strings.TrimSpace(text)))
	if m == nil {
		return "", false
	}
	n, err := strconv.ParseFloat(m[1], 64)
	shift := 0
	if m[2] != "" {
		shift = 10 * (1 + strings.Index("kmgt", m[2]))
	}
	bytes := n * float64(int64(1)<<shift)
	if err != nil || bytes < 1 || bytes != math.Trunc(bytes) || bytes > math.MaxInt64/2 {
		return "", false
	}
	return resource.Size(bytes).String(), true
}

// wholeNumber decodes a number, which must not be null if it is required.
func (s *scope) wholeNumber(a *hcl.Attribute, least, most int64, required bool, w words) (int, bool) {
	v, ok := s.eval(a.Expr)
	if !ok || v.IsNull() && !required {
		return 0, false
	}
	must := fmt.Sprintf("%s must be a whole number from %d to %d", a.Name, least, most)
	if v.IsNull() {
		s.wrong(codeNull, a, v, "%s", must).Help = w.null
		return 0, false
	}
	n, err := convert.Convert(v, cty.Number)
	if err != nil {
		d := s.wrong(w.code, a, v, "%s", must)
		if d.Note == "" {
			d.Note = "this is " + aTypeName(v)
		}
		return 0, false
	}
	f := n.AsBigFloat()
	if f.IsInt() {
		if i, acc := f.Int64(); acc == 0 && i >= least && i <= most {
			return int(i), true
		}
	}
	d := s.wrong(w.code, a, n, "%s", must)
	switch {
	case f.IsInf():
		d.Help = "do not divide by zero"
	case !f.IsInt() && constant(a.Expr):
		d.Help = "write a whole number"
	case !f.IsInt():
		d.Help = "wrap it: " + wrap("ceil", s.source(a.Expr))
	case f.Sign() > 0:
		d.Help = w.more
	default:
		d.Help = w.less
	}
	return 0, false
}
