package spec

import (
	"cmp"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"

	"muster/docs"
	"muster/plan"
	"muster/resource"
	"muster/text"
)

// Tests are the cases of the *.test.hcl files of a configuration: what it would do, with values for its variables, if
// this and that stood in ZooKeeper. Nothing is read or written but files.
type Tests struct {
	Cases []*Case
	dir   string
	opts  Options

	over   Diagnostics // a run took too long
	loaded *Config     // without values, once one case needs that
	found  Diagnostics
}

// Case is one run block.
type Case struct {
	Name string
	At   string // place of the block: "prod/jobs.test.hcl:3"

	block    *hcl.Block
	values   hcl.Attributes
	found    map[string]foundAt
	asserts  []rule
	expected []string // codes of diagnostics, and names of policies
	expects  *hcl.Attribute
	now      time.Time
	from     *loader // of its file
}

type foundAt struct {
	Found
	rng hcl.Range
}

// LoadTests reads the *.test.hcl files of the configuration in a directory, or one of them. Findings name a file by its
// path.
func LoadTests(path string, o Options) (*Tests, Diagnostics) {
	t := &Tests{dir: path, opts: o}
	if info, err := os.Stat(path); err == nil && !info.IsDir() {
		t.dir = filepath.Dir(path)
	}
	l := newLoader("", o)
	l.funcs = pureFunctions()
	if over := limited(o.Limits, func() { t.read(l, path) }); over != nil {
		return nil, over
	}
	if ds := l.sorted(); ds.HasErrors() {
		return nil, ds
	}
	return t, nil
}

func (t *Tests) read(l *loader, path string) {
	l.readTopLevel(l.suffixed(path, testSuffix, "tests"), schema{blocks: []blockType{{name: "run", label: "name"}}})
	first := map[string]hcl.Range{}
	for _, b := range l.blocks["run"] {
		if l.isFirst(first, b, codeRun, "run") {
			t.Cases = append(t.Cases, l.readCase(b))
		}
	}
}

// usualNow is when a case without now takes place: a Wednesday.
var usualNow = time.Date(2026, 1, 7, 12, 0, 0, 0, time.UTC)

func (l *loader) readCase(b *hcl.Block) *Case {
	c := &Case{Name: b.Labels[0], At: at(b.DefRange), block: b, found: map[string]foundAt{}, now: usualNow, from: l}
	s := l.caseScope(c)
	constant := l.constantScope(s.in)
	body := s.content(b.Body, schema{args: []string{"expect_failures", "now"}, blocks: []blockType{
		{name: "variables"}, {name: "assert"}, {name: "found", label: "path"},
	}})
	c.expects = body.args["expect_failures"]
	c.expected, _ = constant.texts(c.expects, func(string, *hcl.Attribute) bool { return true })
	if when, ok := constant.text(body.args["now"]); ok {
		now, err := time.Parse(time.RFC3339, when)
		if err != nil {
			constant.wrong(codeRun, body.args["now"], cty.StringVal(when), "now is no time as in RFC 3339").Help =
				`write it as "2026-12-24T09:00:00Z"`
		}
		c.now = now
	}
	if inner := s.single(body, "variables"); inner != nil {
		attrs, diags := inner.Body.JustAttributes()
		for _, d := range diags {
			s.structure(d, schema{})
		}
		c.values = attrs
	}
	for _, inner := range body.blocks {
		switch inner.Type {
		case "variables":
		case "assert":
			if r, ok := s.rule(inner); ok && s.references(r.condition.Expr) && s.references(r.message.Expr) {
				c.asserts = append(c.asserts, r)
			}
		default:
			at := inner.Labels[0]
			if first, twice := c.found[at]; twice {
				s.relate(s.add(codeRun, &inner.DefRange, "found %s stands twice", quote(at)), first.rng, "first here")
				continue
			}
			c.found[at] = foundAt{constant.found(inner), inner.DefRange}
		}
	}
	asserts := func(b *hcl.Block) bool { return b.Type == "assert" }
	if body.ok && !slices.ContainsFunc(body.blocks, asserts) && !s.failed && !constant.failed && len(c.expected) == 0 {
		s.add(codeRun, &b.DefRange, "run %s asserts nothing", quote(c.Name)).Help =
			"add an assert block, or expect_failures"
	}
	return c
}

func (l *loader) caseScope(c *Case) *scope {
	s := l.newScope("run " + quote(c.Name))
	s.roots = []string{"plan"}
	return s
}

// found reads what stands at a path.
func (s *scope) found(b *hcl.Block) (f Found) {
	attrs, diags := b.Body.JustAttributes()
	for _, d := range diags {
		s.structure(d, schema{})
	}
	values := map[string]cty.Value{}
	for _, a := range inOrder(attrs) {
		if v, ok := s.value(a); ok {
			values[a.Name] = v
		}
	}
	if len(diags) > 0 || s.failed {
		return f
	}
	object := cty.ObjectVal(values)
	body, err := ctyjson.Marshal(object, object.Type())
	if err == nil {
		f, err = DecodeFound(body)
	}
	if err != nil {
		s.add(codeRun, &b.DefRange, "found %s: %s", quote(b.Labels[0]), err).Help =
			"facts are record, joined, live, done and others: see docs/policies.md"
	}
	return f
}

// Run runs one case, with these policies. It returns why the case fails; empty: it passes.
func (t *Tests) Run(c *Case, ps *Policies) Diagnostics {
	var ran Diagnostics
	if t.over == nil {
		t.over = limited(t.opts.Limits, func() { ran = t.run(c, ps) })
	}
	if t.over != nil { // that run goes on, and nothing may go on beside it
		return t.over
	}
	return ran
}

func (t *Tests) run(c *Case, ps *Policies) Diagnostics {
	l := *c.from
	l.list, l.dropped = nil, 0
	s := l.caseScope(c)
	happened := map[string]bool{}
	unexpected := func(found Diagnostics) (rest Diagnostics) {
		for _, d := range found {
			if d.Severity != Error {
				continue
			}
			is := func(name string) bool { return name == d.Code || d.Code == codePolicyDenies && isPolicy(name, d.In) }
			i := slices.IndexFunc(c.expected, is)
			if i < 0 {
				rest = append(rest, d)
				continue
			}
			happened[c.expected[i]] = true
		}
		return rest
	}
	cfg, found := t.load(c)
	wrong := unexpected(found)
	if cfg != nil {
		p, ok := c.plan(s, cfg)
		if !ok {
			return append(wrong, l.sorted()...)
		}
		wrong = append(wrong, unexpected(ps.Judge(p, c.now).Diagnostics)...)
		whole, _ := planValue(p, c.now)
		s.ctx = s.ctx.NewChild()
		s.ctx.Variables = map[string]cty.Value{"plan": whole}
		for _, r := range c.asserts {
			s.verified = true
			if message, holds := s.holds(r); !holds {
				d := s.add(codeAssert, r.condition.Expr.Range().Ptr(), "%s", message)
				d.Values, d.Note = s.values(r.condition.Expr, s.ctx), "this does not hold"
			}
		}
	}
	if cfg == nil && len(wrong) == 0 && len(c.asserts) > 0 {
		s.add(codeRun, &c.block.DefRange, "the configuration does not load, so no assert is looked at").Help =
			"leave the assert blocks out"
	}
	for _, name := range c.expected {
		if !happened[name] {
			d := s.wrong(codeExpected, c.expects, cty.NilVal, "%s was expected, and did not happen", quote(name))
			d.Help = "name the code of an error, such as M1203, or a policy of --policy that denies: advice is no failure"
			if ps == nil && !slices.ContainsFunc(docs.Codes(), func(c docs.Code) bool { return c.Code == name }) {
				d.Help = "if it is a policy, name where it is: --policy DIR"
			}
		}
	}
	return append(wrong, l.sorted()...)
}

// isPolicy reports whether in is how findings call the policy of a name.
func isPolicy(name, in string) bool {
	return in == policy{name: name}.in() || in == policy{name: name, perRow: true}.in()
}

// load loads the configuration with the values of a case. Findings name its files by their paths.
func (t *Tests) load(c *Case) (*Config, Diagnostics) {
	if c.values == nil && t.loaded != nil {
		return t.loaded, t.found
	}
	l := newLoader(t.dir, t.opts)
	l.given = inOrder(c.values)
	maps.Copy(l.sources, c.from.sources)
	cfg := l.load()
	ds := l.sorted()
	for i, d := range ds {
		file := cmp.Or(d.Range, &Range{}).Filename
		if filepath.Ext(file) == ".hcl" && !filepath.IsAbs(file) && c.from.sources[file] == nil {
			ds[i].Range.Filename = filepath.Join(t.dir, file)
		}
	}
	if ds.HasErrors() {
		return nil, ds
	}
	if c.values == nil {
		t.loaded, t.found = cfg, ds
	}
	return cfg, ds
}

// plan compares the configuration with what the case says is there.
func (c *Case) plan(s *scope, cfg *Config) (plan.Plan, bool) {
	have := plan.State{Found: map[string]resource.Observed{}}
	for _, at := range sortedKeys(c.found) {
		f := c.found[at]
		if !slices.Contains(cfg.Searched(), path.Dir(at)) {
			s.add(codeRun, &f.rng, "found %s: a plan never sees that", quote(at)).Help =
				"it looks below " + text.List(cfg.Searched(), 8) + ": see roots in the muster block"
			continue
		}
		o, err := f.Observed(at, cfg)
		if err != nil {
			s.add(codeRun, &f.rng, "found %s: %s", quote(at), err)
			continue
		}
		have.Found[at] = o
	}
	p := plan.Diff(plan.Want{
		Stack: cfg.Stack, Home: cfg.Home, TakeOver: cfg.TakeOver, Declared: cfg.Declared,
	}, have)
	p.Roots = cfg.Searched()
	return p, !s.failed
}
