package spec

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"muster/resource"
	"muster/text"
)

// declared is what the blocks of all kinds declare. The checks that follow need it.
type declared struct {
	places map[string]*hcl.Block // by address; also of what has findings and is not declared
	blocks map[string]bool       // by address without key: "job.ingest"; false: its for_each could not be evaluated
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
	d := declared{places: map[string]*hcl.Block{}, blocks: map[string]bool{}}
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
		c.Default = P(&base).CommonRef().Root
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
	d.places[address] = b.hcl
	t := b.defaults
	common := P(&t).CommonRef()
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
	if n := len(c.Declared); n > 0 {
		if last := c.Origins[c.Declared[n-1].ID().Address]; maps.Equal(last, from) {
			from = last // what is made of one block shares one map
		}
	}
	c.Declared = append(c.Declared, t)
	c.Origins[address] = from
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

// checkPaths reports declarations that have the same path, or whose paths lie inside one another.
func (l *loader) checkPaths(c *Config, d declared) {
	first := map[string]resource.Common{}
	for _, t := range c.Declared {
		id := t.ID()
		if prev, twice := first[id.Path()]; twice {
			l.samePath(id, prev, d)
			continue
		}
		first[id.Path()] = id
	}
	for _, t := range c.Declared {
		id := t.ID()
		for dir := path.Dir(id.Path()); len(dir) > 1; dir = path.Dir(dir) {
			if outer, inside := first[dir]; inside {
				k := kindAt(outer.Address)
				f := l.about(codePathNested, id, d, "the path of %s lies inside another %s", id.Address, k.block())
				f.Detail = fmt.Sprintf("%s is inside %s, and what is inside a %s's znode is its %s",
					id.Path(), dir, k.block(), k.children())
				f.Help = "give one of them another root or name"
				l.relate(f, d.places[outer.Address].DefRange, outer.Address)
				break
			}
		}
		l.checkHomeOf(c, id, d)
	}
	l.checkRoots(c, first)
}

// about records a finding at the header of a block.
func (l *loader) about(code string, id resource.Common, d declared, format string, args ...any) *Diagnostic {
	b := d.places[id.Address]
	f := l.add(code, &b.DefRange, format, args...)
	f.In, f.Address = b.Type+" "+quote(b.Labels[0]), id.Address
	return f
}

func (l *loader) samePath(id, prev resource.Common, d declared) {
	if b := d.places[id.Address]; b == d.places[prev.Address] {
		f := l.about(codePathTwice, id, d, "the %ss of this for_each have one path, %s", b.Type, id.Path())
		f.Address = ""
		f.Help = fmt.Sprintf("tell them apart: name = \"%s-${each.key}\"", id.Name)
		return
	}
	f := l.about(codePathTwice, id, d, "%s and %s have one path, %s", prev.Address, id.Address, id.Path())
	l.relate(f, d.places[prev.Address].DefRange, "first declared here")
	f.Help = "give one of them another name or root"
}

// checkHomeOf reports a declaration whose path and muster's home overlap.
func (l *loader) checkHomeOf(c *Config, id resource.Common, d declared) {
	if !within(id.Path(), c.Home) && !within(c.Home, id.Path()) {
		return
	}
	f := l.about(codeHome, id, d, "the path of %s and muster's home overlap", id.Address)
	f.Detail = fmt.Sprintf("the %s is %s, home is %s", d.places[id.Address].Type, id.Path(), c.Home)
	f.Help = "choose another home in the muster block, such as " + quote(resource.DefaultHome)
}

// checkRoots reports a root of the muster block that is a declared path or lies inside one.
func (l *loader) checkRoots(c *Config, byPath map[string]resource.Common) {
	for _, root := range c.Roots {
		for dir := root; len(dir) > 1; dir = path.Dir(dir) {
			if id, inside := byPath[dir]; inside {
				b := l.blocks["muster"][0]
				f := l.add(codePathNested, &b.DefRange, "the root %s is inside %s", root, id.Address)
				f.In = "muster"
				f.Help = "roots are folders of jobs; remove it from roots"
				break
			}
		}
	}
}

// within reports whether a path is dir or below it.
func within(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// readDrift decodes the ignore blocks. Each must expire.
func (l *loader) readDrift(c *Config, d declared) {
	for _, b := range l.blocks["drift"] {
		for _, ig := range l.content(b.Body, schema{blocks: []blockType{{name: "ignore"}}}, "drift").blocks {
			l.readIgnore(c, ig, d)
		}
	}
}

func (l *loader) readIgnore(c *Config, b *hcl.Block, d declared) {
	names := []string{"address", "fields", "until", "reason"}
	body := l.content(b.Body, schema{args: names}, "ignore")
	s := l.newScope("ignore")
	ig := resource.Ignore{At: at(b.DefRange)}
	for _, name := range names {
		a := body.args[name]
		if a == nil {
			if name != "fields" && body.ok {
				s.add(codeMissing, &b.DefRange, "an ignore block needs the argument %s", name).Help = missingHelp(name)
			}
			continue
		}
		switch name {
		case "address":
			ig.Address = s.ignored(a, d)
		case "fields":
			ig.Fields, _ = s.texts(a, func(name string, a *hcl.Attribute) bool {
				return s.ignoredField(name, a, kindAt(ig.Address))
			})
		case "until":
			ig.Until = s.until(a)
		case "reason":
			reason, ok := s.required(a)
			if ig.Reason = reason; ok && strings.TrimSpace(reason) == "" {
				s.wrong(codeReason, a, cty.NilVal, "the reason is empty").Help = missingHelp(name)
			}
		}
	}
	if !s.failed && body.ok {
		c.Ignores = append(c.Ignores, ig)
	}
}

func missingHelp(name string) string {
	switch name {
	case "until":
		return `drift is ignored for a while only; add: until = "2027-01-31"`
	case "reason":
		return "say why, and where that is tracked: whoever meets this later will want to know"
	}
	return `add: address = "job.NAME"`
}

// ignored decodes the address of an ignore: a declared job, or the path of an undeclared one.
func (s *scope) ignored(a *hcl.Attribute, d declared) string {
	address, ok := s.required(a)
	if !ok || strings.HasPrefix(address, "/") {
		return address
	}
	if _, declared := d.places[address]; declared || s.incomplete {
		return address
	}
	k := kindAt(address).block()
	block, _, _ := strings.Cut(k+"."+strings.TrimPrefix(address, k+"."), "[")
	expanded, isBlock := d.blocks[block]
	if isBlock && !expanded {
		return address // its for_each could not be evaluated, which has been reported
	}
	known := sortedKeys(d.places)
	f := s.wrong(codeIgnored, a, cty.StringVal(address), "no %s has this address", k)
	switch {
	case text.Nearest(address, known) != "":
		f.Help = "did you mean " + quote(text.Nearest(address, known)) + "?"
	case slices.Contains(known, k+"."+address):
		f.Help = "write " + quote(k+"."+address)
	case isBlock && !strings.Contains(address, "["):
		f.Help = fmt.Sprintf("the %s has a for_each; name one instance: %q", k, block+`["key"]`)
	default:
		f.Help = fmt.Sprintf("an address is %[1]s.NAME or %[1]s.NAME[\"key\"]; "+
			"an undeclared %[1]s's address is its path", k)
	}
	return address
}

// ignoredField checks a name in fields: a field, or a section of them.
func (s *scope) ignoredField(name string, a *hcl.Attribute, k kind) bool {
	for _, block := range k.partTypes() { // the fields of one of them cannot be told from its name, which may hold dots
		if rest, ok := strings.CutPrefix(name, block); ok && (rest == "" || len(rest) > 1 && rest[0] == '.') {
			return true
		}
	}
	sections := blockNames(schemaOf(k.names()).blocks)
	known := slices.Concat([]string{"labels"}, k.partTypes(), sections, k.names())
	if slices.Contains(known, name) || len(name) > len("labels.") && strings.HasPrefix(name, "labels.") {
		return true
	}
	d := s.wrong(codeIgnoreField, a, cty.StringVal(name), "a %s has no field %q", k.block(), name)
	d.Help = meant(name, known, "it has")
	return false
}

// until decodes the last day of an ignore.
func (s *scope) until(a *hcl.Attribute) string {
	date, ok := s.required(a)
	if !ok {
		return ""
	}
	day, err := time.Parse(time.DateOnly, date)
	if err != nil {
		d := s.wrong(codeDate, a, cty.StringVal(date), "until must be a date")
		d.Help = `write it as year-month-day: "2027-01-31"`
		return ""
	}
	if now := s.opts.Now; !now.IsZero() && !now.UTC().Before(day.AddDate(0, 0, 1)) {
		days := int(now.UTC().Sub(day).Hours() / 24)
		d := s.wrong(codeExpired, a, cty.StringVal(date), "this ignore expired on %s", date)
		d.Note = text.Count(days, "day") + " ago"
		d.Help = "apply or adopt what it ignores and remove the block, or move until, " +
			"which says that it is still wanted"
	}
	return date
}
