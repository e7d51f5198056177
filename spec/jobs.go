package spec

import (
	"maps"
	"strings"
	"unicode"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"

	"muster/job"
	"muster/resource"
)

// declared is what the other checks need to know of the jobs besides the jobs themselves.
type declared struct {
	places map[string]hcl.Range // header of the block, by address
	labels map[string]bool      // of the job blocks; false: its for_each could not be evaluated
}

// jobBlock is one job block, of which for_each may make many jobs.
type jobBlock struct {
	label    string
	block    *hcl.Block
	set      settings
	each     *hcl.Attribute
	rules    []rule
	at       string
	defaults *job.Job
	from     origins // of the defaults
	damaged  bool    // its parts have findings: its values are looked at, the whole is not
}

// readJobs decodes the defaults and then all jobs into c.
func (l *loader) readJobs(c *Config) declared {
	d := declared{places: map[string]hcl.Range{}, labels: map[string]bool{}}
	base, from, ok := l.readDefaults()
	if from["root"] != "default" {
		c.Default = base.Root
	}
	first := map[string]*hcl.Block{}
	for _, b := range l.blocks["job"] {
		label := b.Labels[0]
		if prev := first[label]; prev != nil {
			f := l.add(codeAddressTwice, &b.LabelRanges[0], "job %q is declared twice", label)
			l.relate(f, prev.LabelRanges[0], "first declared here")
			f.Help = "give one of them another label; the znode's name may be set with name"
			continue
		}
		first[label] = b
		jb := l.readJob(b)
		jb.defaults, jb.from = &base, from
		jb.damaged = jb.damaged || !ok
		d.labels[label] = l.expand(c, jb, d.places)
	}
	return d
}

// readDefaults decodes the defaults block on top of what every job has.
func (l *loader) readDefaults() (job.Job, origins, bool) {
	base, from := job.Default(), origins{}
	for _, name := range fieldOrder() {
		from[name] = "default"
	}
	blocks := l.blocks["defaults"]
	if len(blocks) == 0 {
		return base, from, true
	}
	c := l.content(blocks[0].Body, schema{
		args:   []string{"root", "roll_format", "labels"},
		blocks: []blockType{{name: "timeouts"}, {name: "lifecycle"}},
	}, "defaults")
	set, ok := l.settings(c, "defaults")
	s := l.newScope("defaults")
	s.apply(set, &base, from, "defaults at ")
	return base, from, ok && !s.failed
}

// readJob reads the parts of a job block, once for all of its instances.
func (l *loader) readJob(b *hcl.Block) *jobBlock {
	jb := &jobBlock{label: b.Labels[0], block: b, at: at(b.DefRange)}
	in := "job " + quote(jb.label)
	ok := true
	if err := resource.CheckName("job", jb.label); err != nil {
		d := l.add(codeName, &b.LabelRanges[0], "%s", err)
		d.In, ok = in, false
	}
	c := l.content(b.Body, schema{
		args:   []string{"for_each", "name", "root", "workers", "roll_format", "labels"},
		blocks: []blockType{{name: "timeouts"}, {name: "lifecycle"}, {name: "precondition"}},
	}, in)
	var whole bool
	jb.set, whole = l.settings(c, in)
	ok = ok && whole
	jb.each = jb.set["for_each"]
	for _, inner := range c.blocks {
		if inner.Type == "precondition" {
			r, usable := l.rule(inner, in)
			if ok = ok && usable; usable {
				jb.rules = append(jb.rules, r)
			}
		}
	}
	if jb.set["workers"] == nil && c.ok {
		d := l.add(codeMissing, &b.DefRange, "job %q does not say how many workers it has", jb.label)
		d.Help, d.In, ok = "add: workers = 4", in, false
	}
	jb.damaged = !ok
	return jb
}

// expand decodes a block once, or once for every key of its for_each; false means that the keys are not known.
func (l *loader) expand(c *Config, jb *jobBlock, places map[string]hcl.Range) bool {
	s := l.newScope("job " + quote(jb.label))
	if jb.each == nil {
		l.instance(c, jb, s, "job."+jb.label, places)
		return true
	}
	keys, ok := s.forEach(jb.each)
	if !ok {
		return false
	}
	each := "for_each at " + at(jb.each.NameRange)
	for _, k := range keys {
		key := cty.StringVal(k.key)
		ctx := s.ctx.NewChild()
		ctx.Variables = map[string]cty.Value{"each": cty.ObjectVal(map[string]cty.Value{"key": key, "value": k.value})}
		inner := &scope{loader: l, ctx: ctx, roots: []string{"var", "local", "each", "path"}, in: s.in, each: each}
		l.instance(c, jb, inner, "job."+jb.label+"["+quote(k.key)+"]", places)
	}
	return true
}

// instance decodes one job and checks its preconditions. A job with a finding is not compared with the others.
func (l *loader) instance(c *Config, jb *jobBlock, s *scope, address string, places map[string]hcl.Range) {
	s.address = address
	places[address] = jb.block.DefRange
	j := *jb.defaults
	j.Name, j.Address, j.At = jb.label, address, jb.at
	from := maps.Clone(jb.from)
	from["name"] = jb.at
	s.apply(jb.set, &j, from, "")
	for _, r := range jb.rules {
		if message, holds := s.holds(r); !holds {
			rng := r.condition.Expr.Range()
			d := s.add(codePrecondition, &rng, "%s", message)
			d.Values = s.values(r.condition.Expr, s.ctx)
			d.Note = "this does not hold"
		}
	}
	if s.failed || jb.damaged {
		return
	}
	if n := len(c.Jobs); n > 0 && maps.Equal(c.Origins[c.Jobs[n-1].Address], from) {
		from = c.Origins[c.Jobs[n-1].Address] // instances of one block: one map
	}
	c.Jobs = append(c.Jobs, j)
	c.Origins[address] = from
}

// instanceKey is one element of a for_each.
type instanceKey struct {
	key   string
	value cty.Value
}

// maxInstances bounds a for_each: a product of two ranges is quickly written.
const maxInstances = 100_000

// forEach decodes a map, or a set of strings.
func (s *scope) forEach(a *hcl.Attribute) ([]instanceKey, bool) {
	v, ok := s.eval(a.Expr)
	if !ok {
		return nil, false
	}
	ty := v.Type()
	isSet := ty.IsSetType() && (ty.ElementType() == cty.String || !v.IsNull() && v.LengthInt() == 0)
	if v.IsNull() || !isSet && !ty.IsMapType() && !ty.IsObjectType() {
		d := s.wrong(codeForEach, a, cty.NilVal, "for_each must be a map or a set of strings")
		d.Note = "this is " + aKind(v)
		if ty.IsTupleType() || ty.IsListType() {
			d.Help = "make it a set: toset(" + s.source(a.Expr) + ")"
		}
		return nil, false
	}
	if n := v.LengthInt(); n > maxInstances {
		s.wrong(codeForEach, a, cty.NilVal, "for_each makes %d jobs; at most %d are possible", n, maxInstances)
		return nil, false
	}
	var keys []instanceKey
	for it := v.ElementIterator(); it.Next(); {
		k, e := it.Element()
		if k.IsNull() {
			s.wrong(codeForEachKey, a, cty.NilVal, "a key of for_each is null")
			return nil, false
		}
		if !addressKey(k.AsString()) {
			d := s.wrong(codeForEachKey, a, cty.NilVal, "a key of for_each has 1 to 128 printable characters, none of them a space, \" or \\")
			d.Note = "this has the key " + render(k)
			ok = false
			continue
		}
		keys = append(keys, instanceKey{k.AsString(), e})
	}
	return keys, ok
}

// addressKey keeps addresses readable, and easy to quote in a shell.
func addressKey(k string) bool {
	return k != "" && len(k) <= resource.MaxName && !strings.ContainsFunc(k, func(r rune) bool {
		return !unicode.IsPrint(r) || r == ' ' || r == '"' || r == '\\'
	})
}
