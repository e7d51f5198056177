package spec

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"muster/resource"
	"muster/text"
)

// scope is the place of an expression: what the expression may refer to, and how findings name the place. An
// expression that cannot be evaluated, or depends on one that could not, marks the scope as failed and is not looked
// at any further.
type scope struct {
	*loader
	ctx         *hcl.EvalContext
	roots       []string // what a reference may start with
	in, address string
	each        string // where for_each stands
	verified    bool   // the references in what is evaluated here have been checked
	failed      bool
}

// newScope makes a scope for the constructs outside of a for_each.
func (l *loader) newScope(in string) *scope {
	return &scope{loader: l, ctx: l.global(), roots: []string{"var", "local", "path"}, in: in}
}

// global is the evaluation context of everything that may refer to variables and locals.
func (l *loader) global() *hcl.EvalContext {
	if l.ctx != nil {
		return l.ctx
	}
	locals := map[string]cty.Value{}
	for name, loc := range l.locals {
		locals[name] = loc.value
	}
	l.ctx = &hcl.EvalContext{Functions: l.funcs, Variables: map[string]cty.Value{
		"var": l.varObject(), "local": cty.ObjectVal(locals), "path": pathObject(),
	}}
	return l.ctx
}

// pathObject is what path.dir says. A plan depends on what a configuration holds and not on where it was checked out.
// So the directory is called "." everywhere, and file names are relative to it.
func pathObject() cty.Value {
	return cty.ObjectVal(map[string]cty.Value{"dir": cty.StringVal(".")})
}

func (s *scope) add(code string, rng *hcl.Range, format string, args ...any) *Diagnostic {
	d := s.loader.add(code, rng, format, args...)
	d.In, d.Address = s.in, s.address
	s.failed = true
	return d
}

// inside reads a block that stands in this one. Findings call it by in, such as "timeouts of ", and the name of this
// one. What fails there has failed here too.
func (s *scope) inside(in string, read func(*scope)) {
	inner := *s
	inner.in = in + s.in
	read(&inner)
	s.failed = inner.failed
}

// eval evaluates an expression; ok is false if that was not possible, which has been reported.
func (s *scope) eval(expr hcl.Expression) (v cty.Value, ok bool) {
	if !s.verified && !s.references(expr) {
		s.failed = true
		return cty.DynamicVal, false
	}
	v, diags := expr.Value(s.ctx)
	for _, d := range diags {
		s.evaluation(d, expr)
	}
	if diags.HasErrors() || !v.IsWhollyKnown() {
		s.failed = true
		return cty.DynamicVal, false
	}
	return v, true
}

func (s *scope) evaluation(d *hcl.Diagnostic, expr hcl.Expression) {
	out := s.parser(d, codeExpression)
	if !perInstance(expr) {
		out.Address = ""
	}
	ctx := s.ctx
	if d.Expression != nil && d.EvalContext != nil {
		expr, ctx = d.Expression, d.EvalContext
	}
	out.Values = s.values(expr, ctx)
	if out.Detail != "" { // here the library's summaries are headings
		out.Summary, out.Detail = out.Detail, ""
	}
	if out.Code == codeIndex {
		out.Help = attributeHelp(expr, ctx)
	}
	if out.Code == codeFunction {
		out.Help = meant(s.textAt(d.Subject), sortedKeys(s.funcs), "see the documentation for the functions")
	}
}

// references checks every name that an expression refers to and every function that it calls, and reports those that
// do not exist, once.
func (s *scope) references(expr hcl.Expression) bool {
	if s.badRefs[expr] {
		return false
	}
	ok := true
	for _, t := range expr.Variables() {
		ok = s.reference(t) && ok
	}
	if node, is := expr.(hclsyntax.Node); is {
		ok = s.calls(node) && ok
	}
	if !ok {
		s.badRefs[expr] = true
	}
	return ok
}

// calls reports calls of functions that do not exist. (In JSON the library does so, at evaluation.)
func (s *scope) calls(node hclsyntax.Node) bool {
	if _, literal := node.(*hclsyntax.LiteralValueExpr); literal {
		return true
	}
	ok := true
	hclsyntax.VisitAll(node, func(n hclsyntax.Node) hcl.Diagnostics {
		call, is := n.(*hclsyntax.FunctionCallExpr)
		if !is {
			return nil
		}
		if _, known := s.funcs[call.Name]; !known {
			ok = false
			d := s.static(codeFunction, call.NameRange, "there is no function %q", call.Name)
			d.Help = functionHelp(call.Name, sortedKeys(s.funcs))
		}
		return nil
	})
	return ok
}

// static records a finding that is the same for every instance of a for_each.
func (s *scope) static(code string, rng hcl.Range, format string, args ...any) *Diagnostic {
	d := s.add(code, &rng, format, args...)
	d.Address = ""
	return d
}

func (s *scope) reference(t hcl.Traversal) bool {
	root := t.RootName()
	if !slices.Contains(s.roots, root) {
		s.unknownRoot(t, root)
		return false
	}
	step, rng, found := stepName(t)
	if found && s.exists(root, step) {
		return true
	}
	known := s.known(root)
	if !found {
		d := s.static(codeReference, t.SourceRange(), "%s stands for a set of names, not for a value", root)
		d.Help = "write " + root + ".NAME"
		if len(known) > 0 {
			d.Help += ", such as " + root + "." + known[0]
		}
		return false
	}
	if s.incomplete && (root == "var" || root == "local") {
		return false // it may be declared in the file that could not be read
	}
	missing := map[string]string{"var": "there is no variable %q", "local": "there is no local %q"}[root]
	d := s.static(codeReference, rng, cmp.Or(missing, root+" has no attribute %q"), step)
	if root == "each" {
		d.Code = codeEach
	}
	if best := text.Nearest(step, known); best != "" {
		d.Help = fmt.Sprintf("did you mean %s.%s?", root, best)
	} else if len(known) > 0 {
		d.Help = "known: " + text.List(known, 8)
	} else {
		d.Help = "declare it: " + declaration(root, step)
	}
	return false
}

// exists reports whether a reference may begin with root and name.
func (s *scope) exists(root, name string) bool {
	switch root {
	case "var":
		return s.vars[name] != nil
	case "local":
		return s.locals[name] != nil
	}
	return slices.Contains(s.known(root), name)
}

// known lists the names that may stand behind root and a dot.
func (s *scope) known(root string) []string {
	switch root {
	case "var":
		return sortedKeys(s.vars)
	case "local":
		return sortedKeys(s.locals)
	case "each":
		return []string{"key", "value"}
	case "plan":
		return planNames
	case "row":
		return rowNames
	}
	return []string{"dir"}
}

func declaration(root, name string) string {
	if root == "var" {
		return fmt.Sprintf("variable %q { ... }", name)
	}
	return fmt.Sprintf("locals { %s = ... }", name)
}

// stepName returns the name behind the first dot of a reference, and its place.
func stepName(t hcl.Traversal) (string, hcl.Range, bool) {
	if len(t) > 1 {
		if a, ok := t[1].(hcl.TraverseAttr); ok {
			return a.Name, t[:2].SourceRange(), true
		}
	}
	return "", hcl.Range{}, false
}

// unknownRoot reports a reference that does not start with anything known here.
func (s *scope) unknownRoot(t hcl.Traversal, root string) {
	rng := t[:1].SourceRange()
	if root == "each" {
		d := s.static(codeEach, t.SourceRange(), "each can be used only in a job with for_each")
		d.Help = "add for_each to the job, or write the value itself"
		return
	}
	if slices.Contains([]string{"var", "local", "path"}, root) {
		d := s.static(codeConstant, t.SourceRange(), "%s cannot be used here", root)
		d.Help = "only a constant can stand here"
		if len(s.roots) > 0 {
			d.Code, d.Help = codeReference, "what can be used here: "+strings.Join(s.roots, ", ")
		}
		return
	}
	d := s.static(codeReference, rng, "nothing is called %q", root)
	switch {
	case s.vars[root] != nil || s.locals[root] != nil:
		d.Help = "write " + s.qualified(root)
	case root == "count":
		d.Help = "there is no count: use for_each"
	case len(t) == 1:
		d.Help = fmt.Sprintf("a string stands in quotes: %q", root)
		if best := text.Nearest(root, append(sortedKeys(s.vars), sortedKeys(s.locals)...)); best != "" {
			d.Help += fmt.Sprintf("; or did you mean %s?", s.qualified(best))
		}
	default:
		if d.Help = didYouMean(root, s.roots); d.Help == "" && len(s.roots) > 0 {
			d.Help = "a reference starts with " + strings.Join(s.roots, ", ")
		}
	}
}

func (s *scope) qualified(name string) string {
	if s.vars[name] != nil {
		return "var." + name
	}
	return "local." + name
}

func functionHelp(name string, known []string) string {
	if slices.Contains([]string{"timestamp", "uuid", "env", "bcrypt"}, name) {
		return "a plan is a function of its inputs: give the value as a variable (--var, MUSTER_VAR_name)"
	}
	return cmp.Or(didYouMean(name, known), "the functions are listed in the documentation of the language")
}

// attributeHelp names the attribute or key that was probably meant where a reference names one that is not there.
func attributeHelp(expr hcl.Expression, ctx *hcl.EvalContext) string {
	t, diags := hcl.AbsTraversalForExpr(expr)
	if diags.HasErrors() {
		return ""
	}
	for n := 2; n <= len(t); n++ {
		if _, diags := t[:n].TraverseAbs(ctx); !diags.HasErrors() {
			continue
		}
		have, diags := t[:n-1].TraverseAbs(ctx)
		if diags.HasErrors() || have.IsNull() || !have.IsKnown() || !have.CanIterateElements() {
			return ""
		}
		var keys []string
		if ty := have.Type(); ty.IsObjectType() || ty.IsMapType() {
			keys = sortedKeys(have.AsValueMap())
		}
		switch step := t[n-1].(type) {
		case hcl.TraverseAttr:
			return meant(step.Name, keys, "it has")
		case hcl.TraverseIndex:
			if step.Key.Type() == cty.String {
				return meant(step.Key.AsString(), keys, "it has")
			}
		}
		return ""
	}
	return ""
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

type instanceKey struct {
	key   string
	value cty.Value
}

// maxInstances limits the elements of a for_each, and of a product of sets. maxFindings follows from it.
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
	for k, e := range v.Elements() {
		if k.IsNull() {
			s.wrong(codeForEachKey, a, cty.NilVal, "a key of for_each is null")
			return nil, false
		}
		if !addressKey(k.AsString()) {
			d := s.wrong(codeForEachKey, a, cty.NilVal,
				"a key of for_each has 1 to %d printable characters, none of them a space, \" or \\", resource.MaxName)
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

// values lists what an expression refers to, each once: "var.base is 3 (prod.auto.vars.hcl:2)".
func (s *scope) values(expr hcl.Expression, ctx *hcl.EvalContext) []Value {
	var vs []Value
	seen := map[string]bool{}
	for _, t := range expr.Variables() {
		v, diags := t.TraverseAbs(ctx)
		if diags.HasErrors() && len(t) > 1 { // the part that exists is worth showing
			t = t[:2]
			v, diags = t.TraverseAbs(ctx)
		}
		name := written(t)
		if diags.HasErrors() || !v.IsKnown() || seen[name] {
			continue
		}
		seen[name] = true
		vs = append(vs, Value{Traversal: name, Statement: "is " + render(v), From: s.origin(t)})
	}
	return vs
}

// origin says where the value of a reference was given.
func (s *scope) origin(t hcl.Traversal) string {
	name, _, _ := stepName(t)
	switch t.RootName() {
	case "var":
		if v := s.vars[name]; v != nil {
			return v.origin
		}
	case "local":
		if l := s.locals[name]; l != nil {
			return at(l.attr.NameRange)
		}
	case "each":
		return s.each
	}
	return ""
}

// written is a reference as it stands in the source.
func written(t hcl.Traversal) string {
	var b strings.Builder
	for _, step := range t {
		switch step := step.(type) {
		case hcl.TraverseRoot:
			b.WriteString(step.Name)
		case hcl.TraverseAttr:
			b.WriteString("." + step.Name)
		case hcl.TraverseIndex:
			b.WriteString("[" + render(step.Key) + "]")
		}
	}
	return b.String()
}

// maxShown is how many characters of a value are shown.
const maxShown = 60

func render(v cty.Value) string {
	ty := v.Type()
	switch {
	case !v.IsKnown():
		return "not known"
	case v.IsNull():
		return "null"
	case ty == cty.String:
		s := v.AsString()
		if r := []rune(s); len(r) > maxShown {
			s = string(r[:maxShown]) + "..."
		}
		return strconv.Quote(s)
	case ty == cty.Number:
		return number(v)
	case ty == cty.Bool:
		return strconv.FormatBool(v.True())
	case ty.IsCapsuleType():
		return ty.FriendlyName()
	}
	return collection(v)
}

func number(v cty.Value) string {
	f := v.AsBigFloat()
	switch exp := f.MantExp(nil); {
	case f.IsInf():
		return "infinite"
	case exp > 1000: // its digits would fill the memory
		return "a number of " + strconv.Itoa(exp*3/10) + " digits"
	case exp < -1000:
		return "almost 0"
	case f.IsInt() && len(f.Text('f', 0)) < maxShown:
		return f.Text('f', 0)
	}
	return f.Text('g', 10)
}

// collection lists the elements of a value. If they do not fit, it says how many there are.
func collection(v cty.Value) string {
	ty, n := v.Type(), v.LengthInt()
	keyed := ty.IsObjectType() || ty.IsMapType()
	var b strings.Builder
	for k, e := range v.Elements() {
		if b.Len() > 0 {
			b.WriteString(", ")
		}
		if keyed {
			b.WriteString(k.AsString() + " = ")
		}
		b.WriteString(render(e))
		if b.Len() > maxShown {
			return fmt.Sprintf("%s of %d", aTypeName(v), n)
		}
	}
	switch {
	case keyed && n == 0:
		return "{}"
	case keyed:
		return "{ " + b.String() + " }"
	}
	return "[" + b.String() + "]"
}

// typeName names a type as users know it.
func typeName(ty cty.Type) string {
	switch {
	case ty.IsObjectType():
		return "object"
	case ty.IsMapType():
		return "map"
	case ty.IsTupleType(), ty.IsListType():
		return "list"
	case ty.IsSetType():
		return "set"
	}
	return ty.FriendlyName()
}

// aTypeName is typeName with its article.
func aTypeName(v cty.Value) string {
	if v.IsNull() {
		return "null"
	}
	return withArticle(typeName(v.Type()))
}

func withArticle(noun string) string {
	if strings.ContainsRune("aeiou", rune(noun[0])) {
		return "an " + noun
	}
	return "a " + noun
}
