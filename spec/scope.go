package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

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

// add records a finding in this scope.
func (s *scope) add(code string, rng *hcl.Range, format string, args ...any) *Diagnostic {
	d := s.loader.add(code, rng, format, args...)
	d.In, d.Address = s.in, s.address
	s.failed = true
	return d
}

// eval evaluates an expression; ok is false if that was not possible, which has been reported.
func (s *scope) eval(expr hcl.Expression) (v cty.Value, ok bool) {
	if !s.references(expr) {
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

// evaluation translates what the library says about an expression.
func (s *scope) evaluation(d *hcl.Diagnostic, expr hcl.Expression) {
	out := s.loader.parser(d, codeExpression)
	out.In = s.in
	if perInstance(expr) {
		out.Address = s.address
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
		if call, is := n.(*hclsyntax.FunctionCallExpr); is && !s.funcs.has(call.Name) {
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
	code, missing := codeReference, root+" has no attribute %q"
	switch root {
	case "var":
		missing = "there is no variable %q"
	case "local":
		missing = "there is no local %q"
	case "each":
		code = codeEach
	}
	d := s.static(code, rng, missing, step)
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
	if len(t) < 2 {
		return "", hcl.Range{}, false
	}
	if a, ok := t[1].(hcl.TraverseAttr); ok {
		return a.Name, t[:2].SourceRange(), true
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
	case s.vars[root] != nil:
		d.Help = "write var." + root
	case s.locals[root] != nil:
		d.Help = "write local." + root
	case root == "count":
		d.Help = "there is no count: use for_each"
	case len(t) == 1:
		d.Help = fmt.Sprintf("a string stands in quotes: %q", root)
		if best := text.Nearest(root, append(sortedKeys(s.vars), sortedKeys(s.locals)...)); best != "" {
			d.Help += fmt.Sprintf("; or did you mean %s?", s.qualified(best))
		}
	default:
		if best := text.Nearest(root, s.roots); best != "" {
			d.Help = fmt.Sprintf("did you mean %q?", best)
		} else if len(s.roots) > 0 {
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
	if best := text.Nearest(name, known); best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return "the functions are listed in the documentation of the language"
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

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
