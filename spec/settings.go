package spec

import (
	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"muster/resource"
)

// settings are the arguments of a block and of its sections, by their full names: "timeouts.join".
type settings struct {
	args    map[string]*hcl.Attribute
	damaged bool // a part did not decode, which has been reported
}

// settings reads the sections of a block: those blocks of its schema that hold arguments and nothing else, and have no
// label.
func (l *loader) settings(c content, s schema, in string) settings {
	set := settings{map[string]*hcl.Attribute{}, !c.ok}
	for name, a := range c.args {
		set.args[name] = a
	}
	for _, section := range s.blocks {
		if len(section.args) == 0 || section.label != "" {
			continue
		}
		b := l.single(c, section.name, in)
		if b == nil {
			continue
		}
		inner := l.content(b.Body, schema{args: section.args}, section.name+" of "+in)
		set.damaged = set.damaged || !inner.ok
		for name, a := range inner.args {
			set.args[section.name+"."+name] = a
		}
	}
	return set
}

// origins says where each field of a declaration came from.
type origins map[string]string

// apply decodes set into t and notes where each value came from. A field that cannot be decoded keeps its value, and
// marks the scope as failed.
func (k kindOf[T, P]) apply(s *scope, set settings, t *T, from origins, prefix string) {
	common, labelled := P(t).Shared(), P(t).LabelSet()
	if a := set.args["name"]; a != nil {
		check := func(name string) error { return resource.CheckName(k.blockType, name) }
		if store(&common.Name)(s.checkedText(codeName, a, check)) {
			from["name"] = prefix + at(a.NameRange)
		}
	}
	if a := set.args["root"]; a != nil {
		if store(&common.Root)(s.checkedText(codePath, a, resource.CheckRoot)) {
			from["root"] = prefix + at(a.NameRange)
		}
	}
	k.decode(s, set, t, from, "", prefix)
	if a := set.args["labels"]; a != nil {
		if labels, ok := s.labels(a); ok {
			labelled.Labels = mergeLabels(labelled.Labels, labels, from, prefix+at(a.NameRange))
		}
		if n := len(labelled.Labels); n > maxLabels {
			s.wrong(codeLabels, a, cty.NilVal, "a %s has at most %d labels; this one has %d", k.blockType, maxLabels, n)
		}
	}
}
