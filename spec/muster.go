package spec

import (
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"muster/resource"
)

// readMuster decodes the muster block, without which there is no owner mark.
func (l *loader) readMuster(c *Config) {
	c.Home = DefaultHome
	if len(l.blocks["muster"]) == 0 {
		if !l.incomplete {
			d := l.add(codeNoMuster, nil, "the configuration in %s has no muster block", l.dir)
			d.Detail = "its stack is the mark by which muster knows the jobs that it may change"
			d.Help = "add: muster { stack = \"a-name-for-these-jobs\" }"
		}
		return
	}
	b := l.blocks["muster"][0]
	m := l.content(b.Body, musterSchema(), "muster")
	s := l.newScope("muster")
	if a := m.args["stack"]; a != nil {
		c.StackAt = at(a.NameRange)
		if name, ok := s.required(a); ok && s.checked(codeStack, a, name, checkStack) {
			c.Stack = name
		}
	} else if m.ok {
		d := s.add(codeMissing, &b.DefRange, "the muster block does not name its stack")
		d.Help = "add: stack = \"a-name-for-these-jobs\""
	}
	if a := m.args["home"]; a != nil {
		if home, ok := s.checkedText(codePath, a, resource.CheckHome); ok {
			c.Home = home
		}
	}
	if a := m.args["roots"]; a != nil {
		c.Roots, _ = s.texts(a, func(text string, at *hcl.Attribute) bool {
			return s.checked(codePath, at, text, resource.CheckRoot)
		})
	}
	if a := m.args["take_over"]; a != nil {
		c.TakeOver, _ = s.texts(a, func(text string, at *hcl.Attribute) bool {
			if text == c.Stack && text != "" {
				d := s.wrong(codeTakeOver, at, cty.NilVal, "take_over names the stack itself")
				d.Help = "remove it from the list"
				return false
			}
			return s.checked(codeTakeOver, at, text, checkStack)
		})
	}
}

func musterSchema() schema {
	return schema{args: []string{"stack", "required_version", "roots", "take_over", "home"}}
}

// checkStack returns an error if a stack cannot have this name. The name is the name of a znode too.
func checkStack(name string) error {
	if err := resource.CheckName("stack", name); err != nil {
		return fmt.Errorf("%s", strings.Replace(err.Error(), "job name", "stack name", 1))
	}
	return nil
}

// Searched lists every root in which jobs and groups of this configuration may be, sorted: those of the declared ones,
// the one of the defaults block and those that the muster block adds. It is never empty: the last job may have been
// taken out.
func (c *Config) Searched() []string {
	roots := map[string]bool{}
	if c.Default != "" {
		roots[c.Default] = true
	}
	for _, r := range c.Roots {
		roots[r] = true
	}
	for _, d := range c.Declared() {
		roots[d.ID().Root] = true
	}
	if len(roots) == 0 {
		roots[resource.DefaultRoot] = true
	}
	return sortedKeys(roots)
}
