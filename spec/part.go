package spec

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/hashicorp/hcl/v2"
)

// parts are the labelled blocks inside the blocks of a kind, such as the duties of a group. No two of one declaration
// have the same label, whatever their types.
type parts[T any] struct {
	one, many     string // what they are called: "duty", "duties"
	most          int    // so many in one declaration
	twice, tooBig string // codes: two have one label; there are more than most
	checkName     func(string) error
	types         []part[T]
}

// part is a type of these blocks, made of a partOf.
type part[T any] struct {
	schema blockType
	// read reads a block, once for all that for_each makes of it. If ok is false, something is wrong with it, which has
	// been reported.
	read   func(l *loader, b *hcl.Block, in string) (decode decodePart[T], ok bool)
	export func(b *bytes.Buffer, t *T)
}

// decodePart decodes the arguments of a block into t, and notes in from where each value came from.
type decodePart[T any] func(s *scope, t *T, from origins)

// partOf describes a part whose blocks are values of type E.
type partOf[T, E any] struct {
	table[E]
	initial func(name string) E
	name    func(E) string
	all     func(*T) []E
	add     func(*T, E)
}

func (ps parts[T]) schemas() []blockType {
	var all []blockType
	for _, p := range ps.types {
		all = append(all, p.schema)
	}
	return all
}

// read reads those of blocks that are parts of the declaration of.
func (ps parts[T]) read(l *loader, of *hcl.Block, blocks []*hcl.Block, in string) (decode []decodePart[T], ok bool) {
	ok = true
	first := map[string]*hcl.Block{}
	for _, b := range blocks {
		i := slices.IndexFunc(ps.types, func(p part[T]) bool { return p.schema.name == b.Type })
		if i < 0 {
			continue
		}
		label := b.Labels[0]
		if prev := first[label]; prev != nil {
			f := l.add(ps.twice, &b.LabelRanges[0], "%s %q is declared twice", ps.one, label)
			l.relate(f, prev.LabelRanges[0], "first declared here")
			f.In, f.Help, ok = in, "give one of them another name", false
			continue
		}
		first[label] = b
		if err := ps.checkName(label); err != nil {
			l.add(codeName, &b.LabelRanges[0], "%s", err).In = in
			ok = false
		}
		one, fine := ps.types[i].read(l, b, in)
		decode, ok = append(decode, one), ok && fine
	}
	if n := len(first); n > ps.most {
		f := l.add(ps.tooBig, &of.DefRange, "a %s has at most %d %s; this one has %d", of.Type, ps.most, ps.many, n)
		f.In, f.Help, ok = in, fmt.Sprintf("write a second %s", of.Type), false
	}
	return decode, ok
}

func (p partOf[T, E]) part() part[T] {
	return part[T]{blockType{name: p.blockType, label: "name", args: p.names()}, p.read, p.export}
}

func (p partOf[T, E]) read(l *loader, b *hcl.Block, in string) (decode decodePart[T], ok bool) {
	label, section := b.Labels[0], p.blockType+"."+b.Labels[0]+"."
	in = p.blockType + " " + quote(label) + " of " + in
	c := l.content(b.Body, schema{args: p.names()}, in)
	set := l.settings(c, schema{}, in)
	ok = c.ok && p.complete(l, b, set, in)
	return func(s *scope, t *T, from origins) {
		for _, name := range p.names() {
			from[section+name] = "default"
		}
		inner := *s
		inner.in, inner.failed = in, false
		e := p.initial(label)
		p.decode(&inner, set, &e, from, section, "")
		s.failed = s.failed || inner.failed
		p.add(t, e)
	}, ok
}

func (p partOf[T, E]) export(b *bytes.Buffer, t *T) {
	for _, e := range p.all(t) {
		fmt.Fprintf(b, "\n%s %s {\n", p.blockType, literal(p.name(e)))
		usual := p.initial(p.name(e))
		p.table.export(b, &e, &usual)
		b.WriteString("}\n")
	}
}
