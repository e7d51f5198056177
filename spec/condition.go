package spec

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
)

// rule is a validation or precondition block.
type rule struct {
	kind      string
	condition *hcl.Attribute
	message   *hcl.Attribute
}

// rule reads a validation or precondition block. If ok is false, it cannot be used; that has been reported.
func (l *loader) rule(b *hcl.Block, in string) (r rule, ok bool) {
	c := l.content(b.Body, schema{args: []string{"condition", "error_message"}}, in)
	r = rule{b.Type, c.args["condition"], c.args["error_message"]}
	ok = c.ok
	for _, name := range []string{"condition", "error_message"} {
		if c.args[name] == nil && c.ok {
			d := l.add(codeMissing, &b.DefRange, "a %s block needs the argument %s", b.Type, name)
			d.In = in
			ok = false
		}
	}
	return r, ok
}

// holds evaluates a rule. If its condition cannot be evaluated, that has been reported, and the rule counts as held.
func (s *scope) holds(r rule) (message string, holds bool) {
	v, ok := s.eval(r.condition.Expr)
	if !ok {
		return "", true
	}
	if v.IsNull() || v.Type() != cty.Bool {
		d := s.wrong(codeCondition, r.condition, v, "a condition must be true or false")
		d.Note = "this is " + aTypeName(v)
		return "", true
	}
	if v.True() {
		return "", true
	}
	text, ok := s.required(r.message)
	if ok && text == "" {
		s.wrong(codeCondition, r.message, cty.NilVal, "an error_message must not be empty").Help = "say what to do"
	}
	return text, text == ""
}
