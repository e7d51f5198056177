package spec

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"muster/resource"
)

// table is what may stand in the blocks of one type: the properties of a T.
type table[T any] struct {
	blockType  string
	properties []resource.Property[T]
	words      map[string]words // for each property that is a number, a text, or required
}

func (k table[T]) names() []string { return resource.Names(k.properties) }

// complete reports the required arguments that a block does not have.
func (k table[T]) complete(l *loader, b *hcl.Block, set settings, in string) bool {
	ok := true
	for _, p := range k.properties {
		if p.Required && set.args[p.Name] == nil {
			d := l.add(codeMissing, &b.DefRange, k.words[p.Name].missing, b.Labels[0])
			d.Help, d.In, ok = k.words[p.Name].add, in, false
		}
	}
	return ok
}

// decode decodes the properties that set has into t. It notes in from, by section and name of the property, where each
// value came from.
func (k table[T]) decode(s *scope, set settings, t *T, from origins, section, prefix string) {
	for _, p := range k.properties {
		if a := set.args[p.Name]; a != nil && readProperty(s, p, a, t, k.words[p.Name]) {
			from[section+p.Name] = prefix + at(a.NameRange)
		}
	}
}

// export writes the properties of t that differ from those of usual. One that has no value was not recorded, and is
// left out; if it is required, its words say what to write.
func (k table[T]) export(b *bytes.Buffer, t, usual *T) {
	open := ""
	for _, p := range k.properties {
		section, name, nested := strings.Cut(p.Name, ".")
		if !nested {
			section, name = "", p.Name
		}
		value := inHCL(p, t)
		switch {
		case p.Required && value == "":
			value = k.words[p.Name].unknown
		case value == "", value == inHCL(p, usual):
			continue
		}
		if section != open {
			if open != "" {
				b.WriteString("}\n")
			}
			fmt.Fprintf(b, "\n%s {\n", section)
			open = section
		}
		fmt.Fprintf(b, "%s = %s\n", name, value)
	}
	if open != "" {
		b.WriteString("}\n")
	}
}

// inHCL is the value of a property as it stands in HCL; empty if it has none.
func inHCL[T any](p resource.Property[T], t *T) string {
	switch {
	case p.IsMissing(t):
		return ""
	case p.Type == resource.TypeInt, p.Type == resource.TypeBool:
		return p.Text(t)
	}
	return literal(p.Text(t))
}
