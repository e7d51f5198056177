package spec

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"muster/resource"
)

// kind is what the loader needs of one kind. Each is a kindOf.
type kind interface {
	block() string       // the type of its blocks: "job"
	children() string    // what stands below its znode: "workers"
	names() []string     // of its properties
	optional() []string  // of those that the defaults block may set
	partTypes() []string // the types of the blocks that are its parts: "cron"
	// read reads the blocks of the kind. s is the scope of the defaults block, which says defaults.
	read(s *scope, c *Config, d *declared, defaults settings)
	// export writes the block that declares d, if d is of this kind. A root that is root is left out. used holds the
	// labels that other blocks have.
	export(b *bytes.Buffer, d resource.Declaration, root string, used map[string]bool)
	// values are the fields of d, which is of the kind, for policies and tests.
	values(d resource.Declaration) map[string]cty.Value
	usual(resource.Common) resource.Declaration
	merged(d resource.Declaration, differs map[string]any) (resource.Declaration, error)
}

// kindOf is a kind whose declarations are values of type T.
type kindOf[T resource.Declaration, P resource.Embeds[T]] struct {
	table[T]
	members  string
	initial  T // with all defaults
	parts    parts[T]
	limits   func(T) error // says why a declaration as a whole cannot be
	tooLarge string        // the code of such a finding
}

func (k kindOf[T, P]) block() string    { return k.blockType }
func (k kindOf[T, P]) children() string { return k.members }

func (k kindOf[T, P]) partTypes() []string { return blockNames(k.parts.schemas()) }

func (k kindOf[T, P]) optional() []string {
	required := func(p resource.Property[T]) bool { return p.Required }
	return resource.Names(slices.DeleteFunc(slices.Clone(k.properties), required))
}

func (k kindOf[T, P]) schema() schema {
	s := schemaOf(slices.Concat([]string{"for_each", "name", "root"}, k.names(), []string{"labels"}))
	s.blocks = append(append(s.blocks, k.parts.schemas()...), blockType{name: "precondition"})
	return s
}

func defaultsSchema() schema {
	names := []string{"root"}
	for _, k := range kinds() {
		for _, name := range k.optional() {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return schemaOf(append(names, "labels"))
}

// schemaOf is the schema for arguments of these names: "timeouts.join" is the argument join of the block timeouts.
func schemaOf(names []string) schema {
	var s schema
	for _, name := range names {
		section, arg, nested := strings.Cut(name, ".")
		if !nested {
			s.args = append(s.args, name)
			continue
		}
		i := slices.IndexFunc(s.blocks, func(b blockType) bool { return b.name == section })
		if i < 0 {
			i = len(s.blocks)
			s.blocks = append(s.blocks, blockType{name: section})
		}
		s.blocks[i].args = append(s.blocks[i].args, arg)
	}
	return s
}

// kindAt is the kind that an address begins with.
func kindAt(address string) kind {
	return kindWhere(func(name string) bool { return strings.HasPrefix(address, name+".") })
}

// kindWhere is the first kind whose name fits. What fits none is taken for one of the first kind.
func kindWhere(fits func(name string) bool) kind {
	all := kinds()
	return all[max(0, slices.IndexFunc(all, func(k kind) bool { return fits(k.block()) }))]
}

// table is what may stand in the blocks of one type: the properties of a T.
type table[T any] struct {
	blockType  string
	properties []resource.Property[T]
	words      map[string]words // for each property that is a number, a text, or required
}

func (k table[T]) names() []string { return resource.Names(k.properties) }

// complete reports the required arguments that a block does not have.
func (k table[T]) complete(s *scope, b *hcl.Block, set settings) {
	for _, p := range k.properties {
		if p.Required && set[p.Name] == nil {
			s.add(codeMissing, &b.DefRange, k.words[p.Name].missing, b.Labels[0]).Help = k.words[p.Name].add
		}
	}
}

// decode decodes the properties that set has into t. It notes in from, by section and name of the property, where each
// value came from.
func (k table[T]) decode(s *scope, set settings, t *T, from origins, section, prefix string) {
	for _, p := range k.properties {
		if a := set[p.Name]; a != nil && readProperty(s, p, a, t, k.words[p.Name]) {
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
	case p.Type == resource.TypeCodes:
		return "[" + p.Text(t) + "]"
	}
	return literal(p.Text(t))
}

// parts are the blocks inside the blocks of a kind that are there or not, such as the duties of a group. No two of one
// declaration have the same label, whatever their types; one without a label stands there once.
type parts[T any] struct {
	one, many     string // what they are called: "duty", "duties"
	most          int    // so many in one declaration
	twice, tooBig string // codes: two have one label; there are more than most
	checkName     func(string) error
	types         []part[T]
}

type part[T any] struct {
	schema blockType
	read   func(s *scope, b *hcl.Block) decoder[T] // once for all that for_each makes of a block
	export func(b *bytes.Buffer, t *T)
	value  func(t *T) cty.Value // of policies and tests; null or empty if t has no such part
}

// decoder decodes the arguments of a block into t, and notes in from where each value came from.
type decoder[T any] func(s *scope, t *T, from origins)

func (ps parts[T]) schemas() []blockType {
	var all []blockType
	for _, p := range ps.types {
		all = append(all, p.schema)
	}
	return all
}

// read reads those of blocks that are parts of the declaration of.
func (ps parts[T]) read(s *scope, of *hcl.Block, blocks []*hcl.Block) (decode []decoder[T]) {
	first := map[string]*hcl.Block{}
	for _, b := range blocks {
		i := slices.IndexFunc(ps.types, func(p part[T]) bool { return p.schema.name == b.Type })
		if i < 0 {
			continue
		}
		if len(b.Labels) == 0 {
			if first[""] == nil {
				decode = append(decode, ps.types[i].read(s, s.single(content{blocks: blocks}, b.Type)))
			}
			first[""] = b
			continue
		}
		label := b.Labels[0]
		if prev := first[label]; prev != nil {
			f := s.add(ps.twice, &b.LabelRanges[0], "%s %q is declared twice", ps.one, label)
			s.relate(f, prev.LabelRanges[0], "first declared here")
			f.Help = "give one of them another name"
			continue
		}
		first[label] = b
		if err := ps.checkName(label); err != nil {
			s.add(codeName, &b.LabelRanges[0], "%s", err)
		}
		decode = append(decode, ps.types[i].read(s, b))
	}
	if n := len(first); n > ps.most {
		f := s.add(ps.tooBig, &of.DefRange, "a %s has at most %d %s; this one has %d", of.Type, ps.most, ps.many, n)
		f.Help = "write a second " + of.Type
	}
	return decode
}

// readPart reads a block that stands in another one.
func (k table[T]) readPart(s *scope, b *hcl.Block) decoder[T] {
	section, in := k.blockType+".", k.blockType+" of "
	if len(b.Labels) > 0 {
		section, in = section+b.Labels[0]+".", k.blockType+" "+quote(b.Labels[0])+" of "
	}
	var set settings
	s.inside(in, func(s *scope) {
		c := s.content(b.Body, schema{args: k.names()})
		if set = c.args; c.ok {
			k.complete(s, b, set)
		}
	})
	return func(s *scope, t *T, from origins) {
		for _, name := range k.names() {
			from[section+name] = "default"
		}
		s.inside(in, func(s *scope) { k.decode(s, set, t, from, section, "") })
	}
}

// settings are the arguments of a block and of its sections, by their full names: "timeouts.join".
type settings map[string]*hcl.Attribute

// settings reads the sections of a block: those blocks of its schema that hold arguments and nothing else, and have no
// label.
func (s *scope) settings(c content, has schema) settings {
	set := maps.Clone(c.args)
	for _, section := range has.blocks {
		if len(section.args) == 0 || section.part {
			continue
		}
		if b := s.single(c, section.name); b != nil {
			s.inside(section.name+" of ", func(s *scope) {
				for name, a := range s.content(b.Body, schema{args: section.args}).args {
					set[section.name+"."+name] = a
				}
			})
		}
	}
	return set
}

// origins says where each field of a declaration came from.
type origins map[string]string

// apply decodes set into t and notes where each value came from. A field that cannot be decoded keeps its value, and
// marks the scope as failed.
func (k kindOf[T, P]) apply(s *scope, set settings, t *T, from origins, prefix string) {
	common, labelled := P(t).CommonRef(), P(t).LabelsRef()
	checkName := func(name string) error { return resource.CheckName(k.blockType, name) }
	if a := set["name"]; store(&common.Name)(s.checkedText(codeName, a, checkName)) {
		from["name"] = prefix + at(a.NameRange)
	}
	if a := set["root"]; store(&common.Root)(s.checkedText(codePath, a, resource.CheckRoot)) {
		from["root"] = prefix + at(a.NameRange)
	}
	k.decode(s, set, t, from, "", prefix)
	if a := set["labels"]; a != nil {
		labelled.Labels = s.labels(a, labelled.Labels, from, prefix+at(a.NameRange))
		if n := len(labelled.Labels); n > maxLabels {
			s.wrong(codeLabels, a, cty.NilVal, "a %s has at most %d labels; this one has %d", k.blockType, maxLabels, n)
		}
	}
}
