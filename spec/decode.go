package spec

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"muster/resource"
	"muster/text"
)

// value evaluates an argument. One that is null counts as not written: ok is false, without a finding.
func (s *scope) value(a *hcl.Attribute) (v cty.Value, ok bool) {
	if a == nil {
		return cty.DynamicVal, false
	}
	v, ok = s.eval(a.Expr)
	return v, ok && !v.IsNull()
}

func (s *scope) decode(a *hcl.Attribute, want cty.Type, must string) (v cty.Value, ok bool) {
	if v, ok = s.value(a); !ok {
		return cty.DynamicVal, false
	}
	out, err := convert.Convert(v, want)
	if err != nil {
		rng, path := narrow(a.Expr, errorPath(err))
		d := s.wrong(codeType, a, v, "%s%s must be %s", a.Name, path, must)
		d.Range, d.Snippet = s.place(rng)
		if path != "" {
			d.Summary = fmt.Sprintf("%s must be %s", a.Name, must)
			d.Detail, d.Note = a.Name+path+": "+err.Error(), ""
		}
		return cty.DynamicVal, false
	}
	return out, true
}

// wrong reports that the value of an argument cannot be used. It shows the value, and the values that it was made of.
func (s *scope) wrong(code string, a *hcl.Attribute, v cty.Value, format string, args ...any) *Diagnostic {
	d := s.add(code, a.Expr.Range().Ptr(), format, args...)
	d.Values = s.values(a.Expr, s.ctx)
	if !perInstance(a.Expr) {
		d.Address = ""
	}
	if v != cty.NilVal && !constant(a.Expr) {
		d.Note = "this is " + render(v)
	}
	return d
}

// perInstance reports whether an expression can have another value in another instance of a for_each, or in another row
// of a plan.
func perInstance(expr hcl.Expression) bool {
	return slices.ContainsFunc(expr.Variables(), func(t hcl.Traversal) bool {
		return t.RootName() == "each" || t.RootName() == "row"
	})
}

// constant reports whether an expression is written as its value, such as 4 or "x".
func constant(expr hcl.Expression) bool {
	switch e := expr.(type) {
	case *hclsyntax.LiteralValueExpr:
		return true
	case *hclsyntax.TemplateExpr:
		return e.IsStringLiteral()
	case hclsyntax.Expression:
		return false
	}
	return len(expr.Variables()) == 0 // JSON
}

func (s *scope) text(a *hcl.Attribute) (string, bool) {
	v, ok := s.decode(a, cty.String, "a string")
	if !ok {
		return "", false
	}
	return v.AsString(), true
}

// required is text for an argument that must not be null.
func (s *scope) required(a *hcl.Attribute) (string, bool) {
	was := s.failed
	s.failed = false
	text, ok := s.text(a)
	if !ok && !s.failed && a != nil {
		s.wrong(codeNull, a, cty.NilVal, "%s must not be null", a.Name).Help = "write a string"
	}
	s.failed = s.failed || was
	return text, ok
}

// texts decodes a list of strings and returns those that pass a check; findings point to the element.
func (s *scope) texts(a *hcl.Attribute, check func(text string, at *hcl.Attribute) bool) ([]string, bool) {
	v, ok := s.decode(a, cty.List(cty.String), "a list of strings")
	if !ok {
		return nil, false
	}
	out := []string{}
	for i, e := range v.AsValueSlice() {
		rng, _ := narrow(a.Expr, cty.Path{cty.IndexStep{Key: cty.NumberIntVal(int64(i))}})
		at := &hcl.Attribute{Name: a.Name, Expr: element{a.Expr, rng}, NameRange: a.NameRange, Range: a.Range}
		if e.IsNull() {
			s.wrong(codeNull, at, cty.NilVal, "an element of %s is null", a.Name)
			ok = false
			continue
		}
		if check(e.AsString(), at) {
			out = append(out, e.AsString())
		} else {
			ok = false
		}
	}
	return out, ok
}

// element is a list's expression with the place of one element.
type element struct {
	hcl.Expression
	rng hcl.Range
}

func (e element) Range() hcl.Range { return e.rng }

func (s *scope) source(expr hcl.Expression) string {
	return strings.Join(strings.Fields(s.textAt(expr.Range().Ptr())), " ")
}

// wrap puts a function call around the text of an expression. In JSON the expression stands in a template.
func wrap(function, text string) string {
	if inner, ok := strings.CutPrefix(text, "${"); ok && strings.HasSuffix(inner, "}") {
		return fmt.Sprintf("\"${%s(%s)}\"", function, strings.TrimSuffix(inner, "}"))
	}
	return function + "(" + text + ")"
}

func (s *scope) enum(a *hcl.Attribute, known ...string) (string, bool) {
	word, ok := s.text(a)
	if !ok || slices.Contains(known, word) {
		return word, ok
	}
	last := len(known) - 1
	s.wrong(codeEnum, a, cty.StringVal(word), "%s must be %s or %q", a.Name,
		strings.Join(text.Each(known[:last], quote), ", "), known[last]).Help = didYouMean(word, known)
	return "", false
}

func (s *scope) checkedText(code string, a *hcl.Attribute, check func(string) error) (string, bool) {
	return s.validText(a, check, false, words{code: code})
}

// checked reports the error of a check of a text. If the error ends with a remedy ("…: write …"), that becomes the
// help.
func (s *scope) checked(code string, a *hcl.Attribute, text string, check func(string) error) bool {
	err := check(text)
	if err == nil {
		return true
	}
	why, help := remedy(err)
	if !strings.HasPrefix(why, "a ") && !strings.HasPrefix(why, a.Name) {
		why = a.Name + ": " + why
	}
	s.wrong(code, a, cty.StringVal(text), "%s", why).Help = help
	return false
}

// remedy splits an error that ends with a remedy, such as "…: write …", into what is wrong and what to do.
func remedy(err error) (why, help string) {
	why = err.Error()
	for _, verb := range []string{": write ", ": choose "} {
		if i := strings.LastIndex(why, verb); i >= 0 {
			why, help = why[:i], why[i+2:]
		}
	}
	return why, help
}

// words are the texts of findings about one property.
type words struct {
	missing, add     string // if it is required: with the label of the block, and what to do
	unknown          string // if it is required: what stands in an export if it was not recorded
	code             string // if it is a number or a text
	null, more, less string // what to do if it is null, above its maximum, below its minimum
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
		v, ok := s.decode(a, cty.Bool, "true or false")
		return store(to)(ok && v.True(), ok)
	case *resource.Codes:
		return store(to)(s.codes(a, p.Min, p.Max, w))
	}
	return false
}

// codes decodes a list of exit codes, in any order.
func (s *scope) codes(a *hcl.Attribute, least, most int64, w words) (codes resource.Codes, ok bool) {
	must := fmt.Sprintf("exit codes from %d to %d", least, most)
	v, ok := s.decode(a, cty.List(cty.Number), "a list of "+must)
	if !ok {
		return nil, false
	}
	for _, e := range v.AsValueSlice() {
		code, acc := int64(0), big.Below
		if !e.IsNull() {
			code, acc = e.AsBigFloat().Int64()
		}
		if acc != big.Exact || code < least || code > most {
			s.wrong(w.code, a, e, "%s must be a list of %s", a.Name, must)
			return nil, false
		}
		codes = append(codes, int(code))
	}
	slices.Sort(codes)
	return slices.Compact(codes), true
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

func (s *scope) size(a *hcl.Attribute, least, most resource.Size) (resource.Size, bool) {
	v, ok := s.value(a)
	if !ok {
		return 0, false
	}
	var size resource.Size
	switch {
	case v.Type() != cty.String || size.UnmarshalText([]byte(v.AsString())) != nil:
		d := s.wrong(codeSize, a, v, "%s must be a size: a string with a whole number and a unit", a.Name)
		if d.Help = `write "256KiB" or "1GiB"; units are B, KiB, MiB, GiB and TiB`; v.Type() == cty.Number {
			d.Help = fmt.Sprintf("if bytes are meant, write %q; other units are KiB, MiB, GiB and TiB", number(v)+"B")
		} else if v.Type() == cty.String {
			if meant, ok := sizeMeant(v.AsString()); ok {
				d.Help = fmt.Sprintf("write %q", meant)
			}
		}
	case size < least || size > most:
		s.wrong(codeSize, a, v, "%s must be from %s to %s", a.Name, least, most)
	default:
		return size, true
	}
	return 0, false
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
		d.Note = cmp.Or(d.Note, "this is "+aTypeName(v))
		return 0, false
	}
	f := n.AsBigFloat()
	if i, acc := f.Int64(); acc == big.Exact && i >= least && i <= most {
		return int(i), true
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

func (s *scope) duration(a *hcl.Attribute, least, most resource.Duration) (resource.Duration, bool) {
	v, ok := s.value(a)
	if !ok {
		return 0, false
	}
	var length resource.Duration
	switch {
	case v.Type() == cty.Number:
		d := s.wrong(codeDuration, a, v, "%s must be a duration: a string with a unit", a.Name)
		d.Help = fmt.Sprintf("if seconds are meant, write %q", number(v)+"s")
	case v.Type() != cty.String:
		d := s.wrong(codeType, a, v, "%s must be a duration: a string with a unit", a.Name)
		d.Note = cmp.Or(d.Note, "this is "+aTypeName(v))
		d.Help = `write a number and a unit, such as "30s" or "2m"`
	case length.UnmarshalText([]byte(v.AsString())) != nil:
		d := s.wrong(codeDuration, a, v, "%s must be a duration, such as \"30s\" or \"2m\"", a.Name)
		d.Help = "units are h, m, s and ms; they can be combined: \"1m30s\""
		if meant, ok := durationMeant(v.AsString()); ok {
			d.Help = fmt.Sprintf("write %q", meant)
		}
	case length < least || length > most:
		d := s.wrong(codeDuration, a, v, "%s must be from %s to %s", a.Name, least, most)
		if length < 0 && least == 0 {
			d.Help = "a duration is not negative"
		} else if length <= 0 {
			d.Help = "a duration is positive; to use the default, remove the argument"
		}
	default:
		return length, true
	}
	return 0, false
}

// durationMeant guesses the duration that somebody meant: "30 seconds", "1 min", "2 days", "30".
func durationMeant(text string) (string, bool) {
	units := map[string]time.Duration{
		"": time.Second, "ms": time.Millisecond, "msec": time.Millisecond, "millisecond": time.Millisecond,
		"s": time.Second, "sec": time.Second, "second": time.Second, "m": time.Minute, "min": time.Minute,
		"minute": time.Minute, "h": time.Hour, "hr": time.Hour, "hour": time.Hour, "d": 24 * time.Hour,
		"day": 24 * time.Hour, "w": 7 * 24 * time.Hour, "week": 7 * 24 * time.Hour,
	}
	part := regexp.MustCompile(`^[\s,]*(?:and\s+)?([0-9]{1,6}(?:\.[0-9]{1,6})?)\s*([a-z]*)`)
	var total time.Duration
	rest := strings.ToLower(strings.TrimSpace(text))
	for rest != "" {
		m := part.FindStringSubmatch(rest)
		if m == nil {
			return "", false
		}
		unit, ok := units[m[2]]
		if !ok {
			unit, ok = units[strings.TrimSuffix(m[2], "s")]
		}
		if !ok {
			return "", false
		}
		n, err := time.ParseDuration(m[1] + "h")
		if err != nil {
			return "", false
		}
		total += time.Duration(n.Hours() * float64(unit))
		rest = strings.TrimSpace(rest[len(m[0]):])
	}
	if total <= 0 || total > time.Duration(resource.MaxDuration) {
		return "", false
	}
	return resource.Duration(total).String(), true
}

// Bounds of labels. All of them together leave room in a Record, which has at most 256 KiB.
const (
	maxLabels     = 64
	maxLabelKey   = 128
	maxLabelValue = 1024
)

// labels adds labels to those of base, or replaces them. It notes in from where they stand. A label that is null
// removes the label of that name.
func (s *scope) labels(a *hcl.Attribute, base map[string]string, from origins, where string) map[string]string {
	v, ok := s.decode(a, cty.Map(cty.String), "a map of strings")
	if !ok {
		return base
	}
	merged := map[string]string{}
	maps.Copy(merged, base)
	for key, val := range v.Elements() {
		name := key.AsString()
		at := cty.Path{cty.GetAttrStep{Name: name}}
		switch {
		case !labelKey(name):
			d := s.add(codeLabels, keyRange(a.Expr, at).Ptr(),
				"a label's key may hold letters, digits, '.', '_', '-' and '/', at most %d", maxLabelKey)
			d.Note = "this is " + render(key)
		case val.IsNull():
			delete(merged, name)
			delete(from, "labels."+name)
		case len(val.AsString()) > maxLabelValue || strings.ContainsFunc(val.AsString(), unicode.IsControl):
			rng, _ := narrow(a.Expr, at)
			s.add(codeLabels, &rng,
				"a label's value has at most %d characters and no control characters", maxLabelValue)
		default:
			merged[name], from["labels."+name] = val.AsString(), where
		}
	}
	if len(merged) == 0 {
		return nil
	}
	return merged
}

func labelKey(k string) bool {
	return k != "" && len(k) <= maxLabelKey && !strings.ContainsFunc(k, func(r rune) bool {
		return r >= 0x80 || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("._-/", r)
	})
}

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
	for k, e := range val.Elements() {
		switch {
		case want.IsObjectType() && (val.Type().IsObjectType() || val.Type().IsMapType()):
			name := k.AsString()
			inside := append(path, cty.GetAttrStep{Name: name})
			if !want.HasAttribute(name) {
				d := s.add(codeObjectKey, keyRange(expr, inside).Ptr(), "the type has no attribute %q", name)
				d.Help = meant(name, sortedKeys(want.AttributeTypes()), "it has")
				ok = false
				continue
			}
			ok = s.knownAttributes(e, want.AttributeType(name), expr, inside) && ok
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
	pe, _ := errors.AsType[cty.PathError](err)
	return pe.Path
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
