package spec

import (
	"maps"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"muster/resource"
)

// declared is what the blocks of all kinds declare. The checks that follow need it.
type declared struct {
	things []thing              // in the order in which they are read
	places map[string]hcl.Range // headers of the blocks, by address; also of what has findings and is not among things
	blocks map[string]bool      // by address without key: "job.ingest"; false: its for_each could not be evaluated
}

// thing is one declaration, without its properties.
type thing struct {
	kind                       kind
	label, name, path, address string
}

// block is one block, of which for_each may make many declarations.
type block[T any] struct {
	label    string
	hcl      *hcl.Block
	set      settings
	each     *hcl.Attribute
	rules    []rule
	parts    []decodePart[T]
	at       string
	defaults T
	from     origins // of the defaults
	damaged  bool    // its parts have findings: its values are looked at, the whole is not
}

// readDeclared reads the defaults and then all that is declared into c.
func (l *loader) readDeclared(c *Config) declared {
	d := declared{places: map[string]hcl.Range{}, blocks: map[string]bool{}}
	var defaults settings
	if blocks := l.blocks["defaults"]; len(blocks) > 0 {
		s := defaultsSchema()
		defaults = l.settings(l.content(blocks[0].Body, s, "defaults"), s, "defaults")
	}
	for _, k := range kinds() {
		k.read(l, c, &d, defaults)
	}
	return d
}

// read decodes all blocks of a kind.
func (k kindOf[T, P]) read(l *loader, c *Config, d *declared, defaults settings) {
	base, from, ok := k.readDefaults(l, defaults)
	if from["root"] != "default" {
		c.Default = P(&base).Shared().Root
	}
	first := map[string]*hcl.Block{}
	for _, b := range l.blocks[k.blockType] {
		label := b.Labels[0]
		if prev := first[label]; prev != nil {
			f := l.add(codeAddressTwice, &b.LabelRanges[0], "%s %q is declared twice", k.blockType, label)
			l.relate(f, prev.LabelRanges[0], "first declared here")
			f.Help = "give one of them another label; the znode's name may be set with name"
			continue
		}
		first[label] = b
		bl := k.readBlock(l, b)
		bl.defaults, bl.from = base, from
		bl.damaged = bl.damaged || !ok
		d.blocks[k.blockType+"."+label] = k.expand(l, c, d, bl)
	}
}

// readDefaults decodes the defaults block on top of what every declaration of the kind has.
func (k kindOf[T, P]) readDefaults(l *loader, set settings) (T, origins, bool) {
	base, from := k.initial, origins{"name": "default", "root": "default"}
	for _, name := range k.names() {
		from[name] = "default"
	}
	s := l.newScope("defaults")
	k.apply(s, set, &base, from, "defaults at ")
	return base, from, !set.damaged && !s.failed
}

// readBlock reads the parts of a block, once for all that for_each makes of it.
func (k kindOf[T, P]) readBlock(l *loader, b *hcl.Block) *block[T] {
	bl := &block[T]{label: b.Labels[0], hcl: b, at: at(b.DefRange)}
	in := k.blockType + " " + quote(bl.label)
	if err := resource.CheckName(k.blockType, bl.label); err != nil {
		d := l.add(codeName, &b.LabelRanges[0], "%s", err)
		d.In, bl.damaged = in, true
	}
	s := k.schema()
	c := l.content(b.Body, s, in)
	bl.set = l.settings(c, s, in)
	bl.each = bl.set.args["for_each"]
	bl.damaged = bl.damaged || bl.set.damaged
	for _, inner := range c.blocks {
		if inner.Type == "precondition" {
			r, ok := l.rule(inner, in)
			if bl.damaged = bl.damaged || !ok; ok {
				bl.rules = append(bl.rules, r)
			}
		}
	}
	var ok bool
	if bl.parts, ok = k.parts.read(l, b, c.blocks, in); !ok || c.ok && !k.complete(l, b, bl.set, in) {
		bl.damaged = true
	}
	return bl
}

// expand decodes a block once, or once for every key of its for_each; false means that the keys are not known.
func (k kindOf[T, P]) expand(l *loader, c *Config, d *declared, b *block[T]) bool {
	s := l.newScope(k.blockType + " " + quote(b.label))
	address := k.blockType + "." + b.label
	if b.each == nil {
		k.instance(c, d, b, s, address)
		return true
	}
	keys, ok := s.forEach(b.each, k.blockType)
	if !ok {
		return false
	}
	each := "for_each at " + at(b.each.NameRange)
	for _, key := range keys {
		ctx := s.ctx.NewChild()
		pair := map[string]cty.Value{"key": cty.StringVal(key.key), "value": key.value}
		ctx.Variables = map[string]cty.Value{"each": cty.ObjectVal(pair)}
		inner := &scope{loader: l, ctx: ctx, roots: []string{"var", "local", "each", "path"}, in: s.in, each: each}
		k.instance(c, d, b, inner, address+"["+quote(key.key)+"]")
	}
	return true
}

// instance decodes one declaration and checks its preconditions. One with a finding is not compared with the others.
func (k kindOf[T, P]) instance(c *Config, d *declared, b *block[T], s *scope, address string) {
	s.address = address
	d.places[address] = b.hcl.DefRange
	t := b.defaults
	common := P(&t).Shared()
	common.Name, common.Address, common.At = b.label, address, b.at
	from := maps.Clone(b.from)
	from["name"] = b.at
	k.apply(s, b.set, &t, from, "")
	for _, decode := range b.parts {
		decode(s, &t, from)
	}
	for _, r := range b.rules {
		if message, holds := s.holds(r); !holds {
			rng := r.condition.Expr.Range()
			f := s.add(codePrecondition, &rng, "%s", message)
			f.Values = s.values(r.condition.Expr, s.ctx)
			f.Note = "this does not hold"
		}
	}
	if s.failed || b.damaged || !k.fits(s, b, t) {
		return
	}
	if n := len(d.things); n > 0 && maps.Equal(c.Origins[d.things[n-1].address], from) {
		from = c.Origins[d.things[n-1].address] // what is made of one block shares one map
	}
	k.add(c, t)
	c.Origins[address] = from
	d.things = append(d.things, thing{k, b.label, common.Name, common.Path(), address})
}

// fits reports a declaration that as a whole cannot be.
func (k kindOf[T, P]) fits(s *scope, b *block[T], t T) bool {
	if k.limits == nil {
		return true
	}
	err := k.limits(t)
	if err != nil {
		why, help := remedy(err)
		s.add(k.tooLarge, &b.hcl.DefRange, "%s", why).Help = help
	}
	return err == nil
}
