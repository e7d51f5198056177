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
	*hcl.Block
	scope    *scope
	set      settings
	rules    []rule
	parts    []decoder[T]
	defaults T
	from     origins // of the defaults
	damaged  bool    // its parts have findings: its values are looked at, the whole is not
}

func (l *loader) readDeclared(c *Config) declared {
	d := declared{places: map[string]*hcl.Block{}, blocks: map[string]bool{}}
	var defaults settings
	s := l.newScope("defaults")
	if blocks := l.blocks["defaults"]; len(blocks) > 0 {
		has := defaultsSchema()
		defaults = s.settings(s.content(blocks[0].Body, has), has)
	}
	for _, k := range kinds() {
		k.read(s, c, &d, defaults)
	}
	return d
}

func (k kindOf[T, P]) read(s *scope, c *Config, d *declared, defaults settings) {
	l := s.loader
	base, from, ok := k.readDefaults(*s, defaults)
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
		d.blocks[k.blockType+"."+label] = k.expand(c, d, bl)
	}
}

// readDefaults decodes the defaults block on top of what every declaration of the kind has.
func (k kindOf[T, P]) readDefaults(s scope, set settings) (T, origins, bool) {
	base, from := k.initial, origins{"name": "default", "root": "default"}
	for _, name := range k.names() {
		from[name] = "default"
	}
	k.apply(&s, set, &base, from, "defaults at ")
	return base, from, !s.failed
}

// readBlock reads the parts of a block, once for all that for_each makes of it.
func (k kindOf[T, P]) readBlock(l *loader, b *hcl.Block) *block[T] {
	s := l.newScope(k.blockType + " " + quote(b.Labels[0]))
	if err := resource.CheckName(k.blockType, b.Labels[0]); err != nil {
		s.add(codeName, &b.LabelRanges[0], "%s", err)
	}
	has := k.schema()
	c := s.content(b.Body, has)
	bl := &block[T]{Block: b, scope: s, set: s.settings(c, has)}
	for _, inner := range c.blocks {
		if inner.Type == "precondition" {
			if r, ok := s.rule(inner); ok {
				bl.rules = append(bl.rules, r)
			}
		}
	}
	bl.parts = k.parts.read(s, b, c.blocks)
	if c.ok {
		k.complete(s, b, bl.set)
	}
	bl.damaged = s.failed
	return bl
}

// expand decodes a block once, or once for every key of its for_each; false means that the keys are not known.
func (k kindOf[T, P]) expand(c *Config, d *declared, b *block[T]) bool {
	s, forEach, address := b.scope, b.set["for_each"], k.blockType+"."+b.Labels[0]
	if forEach == nil {
		k.instance(c, d, b, s, address)
		return true
	}
	keys, ok := s.forEach(forEach, k.blockType)
	if !ok {
		return false
	}
	each := "for_each at " + at(forEach.NameRange)
	for _, key := range keys {
		ctx := s.ctx.NewChild()
		pair := map[string]cty.Value{"key": cty.StringVal(key.key), "value": key.value}
		ctx.Variables = map[string]cty.Value{"each": cty.ObjectVal(pair)}
		inner := &scope{loader: s.loader, ctx: ctx, roots: []string{"var", "local", "each", "path"}, in: s.in, each: each}
		k.instance(c, d, b, inner, address+"["+quote(key.key)+"]")
	}
	return true
}

// instance decodes one declaration and checks its preconditions. One with a finding is not compared with the others.
func (k kindOf[T, P]) instance(c *Config, d *declared, b *block[T], s *scope, address string) {
	s.address = address
	d.places[address] = b.Block
	t := b.defaults
	common := P(&t).CommonRef()
	common.Name, common.Address, common.At = b.Labels[0], address, at(b.DefRange)
	from := maps.Clone(b.from)
	from["name"] = common.At
	k.apply(s, b.set, &t, from, "")
	for _, decode := range b.parts {
		decode(s, &t, from)
	}
	for _, r := range b.rules {
		if message, holds := s.holds(r); !holds {
			f := s.add(codePrecondition, r.condition.Expr.Range().Ptr(), "%s", message)
			f.Values = s.values(r.condition.Expr, s.ctx)
			f.Note = "this does not hold"
		}
	}
	if s.failed || b.damaged {
		return
	}
	if err := k.limits(t); err != nil {
		why, help := remedy(err)
		s.add(k.tooLarge, &b.DefRange, "%s", why).Help = help
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

type rule struct{ condition, message *hcl.Attribute }

// rule reads a block with a condition and an error_message. If ok is false, it cannot be used; that has been reported.
func (s *scope) rule(b *hcl.Block) (r rule, ok bool) {
	names := []string{"condition", "error_message"}
	c := s.content(b.Body, schema{args: names})
	for _, name := range names {
		if c.args[name] == nil && c.ok {
			s.add(codeMissing, &b.DefRange, "%s block needs the argument %s", withArticle(b.Type), name)
		}
	}
	r = rule{c.args["condition"], c.args["error_message"]}
	return r, c.ok && r.condition != nil && r.message != nil
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

// checkPaths reports declarations that have the same path, or whose paths lie inside one another or overlap with
// muster's home.
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
		if p := id.Path(); within(p, c.Home) || within(c.Home, p) {
			f := l.about(codeHome, id, d, "the path of %s and muster's home overlap", id.Address)
			f.Detail = fmt.Sprintf("the %s is %s, home is %s", d.places[id.Address].Type, p, c.Home)
			f.Help = "choose another home in the muster block, such as " + quote(resource.DefaultHome)
		}
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
		for _, ig := range l.newScope("drift").content(b.Body, schema{blocks: []blockType{{name: "ignore"}}}).blocks {
			l.readIgnore(c, ig, d)
		}
	}
}

func (l *loader) readIgnore(c *Config, b *hcl.Block, d declared) {
	s := l.newScope("ignore")
	body := s.content(b.Body, schema{args: []string{"address", "fields", "until", "reason"}})
	ig := resource.Ignore{At: at(b.DefRange)}
	help := map[string]string{
		"address": `add: address = "job.NAME"`,
		"until":   `drift is ignored for a while only; add: until = "2027-01-31"`,
		"reason":  "say why, and where that is tracked: whoever meets this later will want to know",
	}
	for _, name := range []string{"address", "until", "reason"} {
		if body.args[name] == nil && body.ok {
			s.add(codeMissing, &b.DefRange, "an ignore block needs the argument %s", name).Help = help[name]
		}
	}
	ig.Address = s.ignored(body.args["address"], d)
	ig.Fields, _ = s.texts(body.args["fields"], func(name string, a *hcl.Attribute) bool {
		return s.ignoredField(name, a, kindAt(ig.Address))
	})
	ig.Until = s.until(body.args["until"])
	reason := body.args["reason"]
	if store(&ig.Reason)(s.required(reason)) && strings.TrimSpace(ig.Reason) == "" {
		s.wrong(codeReason, reason, cty.NilVal, "the reason is empty").Help = help["reason"]
	}
	if !s.failed {
		c.Ignores = append(c.Ignores, ig)
	}
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
	switch f.Help = didYouMean(address, known); {
	case f.Help != "":
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
