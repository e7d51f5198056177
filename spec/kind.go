package spec

import (
	"slices"
	"strings"

	"muster/resource"
)

// kinds lists the kinds of what can be declared, in the order in which their blocks are read.
func kinds() []kind { return []kind{jobs()} }

// kind is what the loader needs of one kind. Each is a kindOf.
type kind interface {
	block() string    // the type of its blocks: "job"
	below() string    // what stands below its znode: "workers"
	names() []string  // of its properties
	common() []string // of those that the defaults block may set
	read(l *loader, c *Config, d *declared, defaults settings)
}

// kindOf is a kind whose declarations are values of type T.
type kindOf[T any] struct {
	blockType, inside string
	properties        []resource.Property[T]
	words             map[string]words // for each property that is a number or required
	initial           T                // with all defaults
	identity          func(*T) identity
	checkName         func(string) error
	add               func(*Config, T)
}

// identity points to what every declaration has.
type identity struct {
	name, root, address, at *string
	labels                  *map[string]string
}

func (k kindOf[T]) block() string { return k.blockType }
func (k kindOf[T]) below() string { return k.inside }

func (k kindOf[T]) names() []string {
	var names []string
	for _, p := range k.properties {
		names = append(names, p.Name)
	}
	return names
}

func (k kindOf[T]) common() []string {
	var names []string
	for _, p := range k.properties {
		if !p.Required {
			names = append(names, p.Name)
		}
	}
	return names
}

// schema is what may stand in a block of this kind.
func (k kindOf[T]) schema() schema {
	s := schemaOf(slices.Concat([]string{"for_each", "name", "root"}, k.names(), []string{"labels"}))
	s.blocks = append(s.blocks, blockType{name: "precondition"})
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
