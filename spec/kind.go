package spec

import (
	"bytes"
	"slices"
	"strings"

	"muster/resource"
)

// kinds lists the kinds of what can be declared, in the order in which their blocks are read.
func kinds() []kind { return []kind{jobs(), groups(), queues()} }

// kind is what the loader needs of one kind. Each is a kindOf.
type kind interface {
	block() string    // the type of its blocks: "job"
	below() string    // what stands below its znode: "workers"
	names() []string  // of its properties
	common() []string // of those that the defaults block may set
	within() []string // the types of its labelled blocks: "cron"
	read(l *loader, c *Config, d *declared, defaults settings)
	// export writes the block that declares d, if d is of this kind. A root that is root is left out. used holds the
	// labels that other blocks have.
	export(b *bytes.Buffer, d resource.Declaration, root string, used map[string]bool)
}

// kindOf is a kind whose declarations are values of type T.
type kindOf[T any, P resource.Shares[T]] struct {
	table[T]
	inside   string
	initial  T // with all defaults
	add      func(*Config, T)
	parts    parts[T]
	limits   func(T) error // says why a declaration as a whole cannot be; nil: whatever decodes can be
	tooLarge string        // the code of such a finding
}

func (k kindOf[T, P]) block() string { return k.blockType }
func (k kindOf[T, P]) below() string { return k.inside }

func (k kindOf[T, P]) within() []string {
	var names []string
	for _, b := range k.parts.schemas() {
		names = append(names, b.name)
	}
	return names
}

func (k kindOf[T, P]) common() []string {
	var names []string
	for _, p := range k.properties {
		if !p.Required {
			names = append(names, p.Name)
		}
	}
	return names
}

// schema is what may stand in a block of this kind.
func (k kindOf[T, P]) schema() schema {
	s := schemaOf(slices.Concat([]string{"for_each", "name", "root"}, k.names(), []string{"labels"}))
	s.blocks = append(append(s.blocks, k.parts.schemas()...), blockType{name: "precondition"})
	return s
}

// defaultsSchema is what may stand in the defaults block.
func defaultsSchema() schema {
	names := []string{"root"}
	for _, k := range kinds() {
		for _, name := range k.common() {
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

// kindIn names the kind of a block such as: group "shop". Any other block is taken for one of the first kind.
func kindIn(block string) string {
	all := kinds()
	for _, k := range all {
		if strings.Contains(block, k.block()+` "`) {
			return k.block()
		}
	}
	return all[0].block()
}

// kindAt returns the kind that an address begins with. An address that begins with none is taken for one of the first
// kind.
func kindAt(address string) kind {
	all := kinds()
	for _, k := range all {
		if strings.HasPrefix(address, k.block()+".") {
			return k
		}
	}
	return all[0]
}
