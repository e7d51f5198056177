package spec

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"muster/plan"
	"muster/text"
)

// Policies say what a plan may not do. They stand in *.policy.hcl files, and are never part of a configuration: who
// writes one does not decide about the other.
type Policies struct {
	Names  []string // as findings call them: policy "few deletes"
	Digest string   // of the files
	list   []policy
	busy   sync.Mutex // an evaluation that took too long goes on
}

// policy is one block.
type policy struct {
	name       string
	perRow     bool
	operations []string // of rows that it is about
	advisory   bool     // it warns, and denies nothing
	filter     *hcl.Attribute
	rules      []rule
	from       *loader // of its file
}

const rowPolicy = "row_policy"

// in is how findings call p.
func (p policy) in() string {
	if p.perRow {
		return rowPolicy + " " + quote(p.name)
	}
	return "policy " + quote(p.name)
}

const policySuffix, testSuffix = ".policy.hcl", ".test.hcl"

// LoadPolicies reads the files at paths: a *.policy.hcl file, or the directory of some. Findings name a file by its
// path as it is given.
func LoadPolicies(paths []string) (*Policies, Diagnostics) {
	var ps *Policies
	var ds Diagnostics
	if over := limited(Limits{}, func() { ps, ds = loadPolicies(paths) }); over != nil {
		return nil, over
	}
	if ds.HasErrors() {
		return nil, ds
	}
	return ps, ds
}

func loadPolicies(paths []string) (*Policies, Diagnostics) {
	ps := &Policies{}
	sources, first := map[string][]byte{}, map[string]hcl.Range{}
	byDir, seen := map[string]*loader{}, map[string]bool{}
	var all []*loader
	for _, path := range paths {
		dir := resolved(path)
		if info, err := os.Stat(path); err != nil || !info.IsDir() {
			dir = filepath.Dir(dir)
		}
		l := byDir[dir]
		if l == nil { // the files of a directory share their locals
			l = newLoader("", Options{})
			l.funcs, l.sources = pureFunctions(), sources
			byDir[dir] = l
			all = append(all, l)
		}
		files := slices.DeleteFunc(l.suffixed(path, policySuffix, "policies"), func(name string) bool {
			again := seen[resolved(name)]
			seen[resolved(name)] = true
			return again
		})
		l.readTopLevel(files, schema{blocks: []blockType{
			{name: "policy", label: "name"}, {name: rowPolicy, label: "name"}, {name: "locals"},
		}})
	}
	var ds Diagnostics
	for _, l := range all {
		l.readPolicies(ps, first)
		ds = append(ds, l.sorted()...)
	}
	if len(ps.list) == 0 && len(ds) == 0 {
		none := "no policy is declared in " + text.List(paths, 8)
		ds = append(ds, Diagnostic{Severity: Error, Code: codeNoFiles, Summary: none})
	}
	sum := sha256.New()
	for _, name := range sortedKeys(sources) {
		fmt.Fprintf(sum, "%s %d\n%s", name, len(sources[name]), sources[name])
	}
	ps.Digest = hex.EncodeToString(sum.Sum(nil))
	return ps, ds
}

// readPolicies adds the policies of a directory. first are the names that there are already.
func (l *loader) readPolicies(ps *Policies, first map[string]hcl.Range) {
	l.settleLocals()
	declared := slices.Concat(l.blocks["policy"], l.blocks[rowPolicy])
	slices.SortStableFunc(declared, func(a, b *hcl.Block) int {
		return cmp.Or(cmp.Compare(a.DefRange.Filename, b.DefRange.Filename),
			cmp.Compare(a.DefRange.Start.Byte, b.DefRange.Start.Byte))
	})
	for _, b := range declared {
		if l.isFirst(first, b, codePolicy, "policy") {
			p := l.readPolicy(b)
			ps.list, ps.Names = append(ps.list, p), append(ps.Names, p.in())
		}
	}
}

// isFirst reports whether the label of b is none of first, and adds it. It reports one that stands twice.
func (l *loader) isFirst(first map[string]hcl.Range, b *hcl.Block, code, what string) bool {
	name := b.Labels[0]
	at, twice := first[name]
	if twice {
		d := l.add(code, &b.LabelRanges[0], "%s %s is declared twice", what, quote(name))
		l.relate(d, at, "first declared here")
		d.Help = "give one of them another name"
		return false
	}
	first[name] = b.LabelRanges[0]
	return true
}

// resolved is one name for a file, however it is written.
func resolved(name string) string {
	if absolute, err := filepath.Abs(name); err == nil {
		name = absolute
	}
	if target, err := filepath.EvalSymlinks(name); err == nil {
		name = target
	}
	return name
}

func (l *loader) readPolicy(b *hcl.Block) policy {
	p := policy{name: b.Labels[0], perRow: b.Type == rowPolicy, from: l}
	s := l.policyScope(p)
	if strings.TrimSpace(p.name) == "" || len(p.name) > maxPolicyName {
		s.add(codePolicy, &b.LabelRanges[0], "the name of a policy has 1 to %d bytes", maxPolicyName)
	}
	has := schema{args: []string{"filter", "enforcement_level"}, blocks: []blockType{
		{name: "enforce", args: []string{"condition", "error_message"}},
	}}
	if p.perRow {
		has.args = append(has.args, "operations")
	}
	c := s.content(b.Body, has)
	constant := l.constantScope(p.in())
	if level, ok := constant.enum(c.args["enforcement_level"], "mandatory", "advisory"); ok {
		p.advisory = level == "advisory"
	}
	changing := []string{string(plan.Create), string(plan.Update), string(plan.Replace), string(plan.Delete)}
	p.operations = changing
	if a := c.args["operations"]; a != nil {
		p.operations, _ = constant.texts(a, func(name string, at *hcl.Attribute) bool {
			if slices.Contains(changing, name) {
				return true
			}
			constant.wrong(codePolicy, at, cty.StringVal(name), "%s is no operation", quote(name)).Help =
				meant(name, changing, "operations are")
			return false
		})
		if len(p.operations) == 0 && !constant.failed { // null, too
			constant.wrong(codePolicy, a, cty.NilVal, "without an operation the policy is about nothing").Help =
				"leave the argument out: it is about all of them then"
		}
	}
	p.filter = c.args["filter"]
	if p.filter != nil {
		s.references(p.filter.Expr)
		quickNulls(p.filter.Expr)
	}
	for _, inner := range c.blocks {
		if r, ok := s.rule(inner); ok {
			s.references(r.condition.Expr)
			s.references(r.message.Expr)
			quickNulls(r.condition.Expr)
			p.rules = append(p.rules, r)
		}
	}
	if len(c.blocks) == 0 && c.ok {
		s.add(codeMissing, &b.DefRange, "%s has no enforce block", p.in()).Help =
			"add: enforce { condition = ..., error_message = ... }"
	}
	return p
}

const maxPolicyName = 200

// quickNulls makes x == null and x != null quick. The library looks at all that is in x for that, several times, and x
// is a whole declaration most of the time.
func quickNulls(expr hcl.Expression) {
	node, ok := expr.(hclsyntax.Node)
	if !ok {
		return // JSON
	}
	hclsyntax.VisitAll(node, func(n hclsyntax.Node) hcl.Diagnostics {
		if e, is := n.(*hclsyntax.BinaryOpExpr); is && (e.Op == hclsyntax.OpEqual || e.Op == hclsyntax.OpNotEqual) {
			if to, is := e.RHS.(*hclsyntax.LiteralValueExpr); is && to.Val.IsNull() {
				e.LHS = nullness{&hclsyntax.ParenthesesExpr{Expression: e.LHS, SrcRange: e.LHS.Range()}}
			}
		}
		return nil
	})
}

// nullness is null if the expression is, and else true. What it refers to is found as in parentheses.
type nullness struct{ *hclsyntax.ParenthesesExpr }

func (n nullness) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	v, diags := n.Expression.Value(ctx)
	if v.IsKnown() && !v.IsNull() && !v.IsMarked() {
		v = cty.True
	}
	return v, diags
}

// policyScope is the scope of the expressions of p. It has no plan yet.
func (l *loader) policyScope(p policy) *scope {
	s := l.newScope(p.in())
	if s.roots = []string{"plan", "local"}; p.perRow {
		s.roots = []string{"row", "plan", "local"}
	}
	return s
}

// Verdict is what policies say about a plan.
type Verdict struct {
	// Diagnostics has an Error for what is denied or cannot be evaluated, and a Warning for what is advised against.
	Diagnostics Diagnostics
	Denied      string            // why the plan as a whole is denied; empty: it is not
	Rows        map[string]string // why a row is denied, by its path
}

// Err names the policies that deny the plan, or some of its rows; nil if none does.
func (v Verdict) Err() error {
	if v.Denied == "" && len(v.Rows) == 0 {
		return nil
	}
	var by []string
	for _, d := range v.Diagnostics {
		if d.Severity == Error && d.In != "" && !slices.Contains(by, d.In) {
			by = append(by, d.In)
		}
	}
	if len(by) == 0 {
		return errors.New(cmp.Or(v.Denied, "the policies cannot be evaluated"))
	}
	return fmt.Errorf("denied by %s", text.List(by, 8))
}

// Judge says what the policies deny of a plan, at a time. What a mandatory one cannot evaluate is denied. While an
// evaluation that took too long goes on, everything is. A nil Policies denies nothing.
func (ps *Policies) Judge(p plan.Plan, at time.Time) Verdict {
	if ps == nil {
		return Verdict{}
	}
	tooLong := Verdict{
		Denied: "the policies take too long to evaluate",
		Diagnostics: Diagnostics{{
			Severity: Error, Code: codeCost, Summary: "the policies take too long, or too much memory, to evaluate",
			Help: "let them look at each row once: a row_policy, or one for expression",
		}},
	}
	if !ps.busy.TryLock() {
		return tooLong
	}
	var v Verdict
	if over := limited(Limits{}, func() { defer ps.busy.Unlock(); v = ps.judge(p, at) }); over != nil {
		return tooLong
	}
	return v
}

func (ps *Policies) judge(p plan.Plan, at time.Time) Verdict {
	whole, rows := planValue(p, at)
	verdicts := make([]Verdict, len(ps.list))
	var all sync.WaitGroup
	for i, one := range ps.list {
		all.Go(func() { verdicts[i] = one.judge(p, whole, rows) })
	}
	all.Wait()
	v := Verdict{Rows: map[string]string{}}
	for _, one := range verdicts {
		v.Diagnostics = append(v.Diagnostics, one.Diagnostics...)
		v.Denied = cmp.Or(v.Denied, one.Denied)
		for path, why := range one.Rows {
			v.Rows[path] = cmp.Or(v.Rows[path], why)
		}
	}
	return v
}

// judge evaluates one policy. whole and rows are what planValue makes of the plan.
func (p policy) judge(pl plan.Plan, whole cty.Value, rows []cty.Value) Verdict {
	v := Verdict{Rows: map[string]string{}}
	l := *p.from
	l.list, l.dropped = nil, 0
	s := l.policyScope(p)
	s.verified = true // when it was loaded
	s.ctx = s.ctx.NewChild()
	s.ctx.Variables = map[string]cty.Value{"plan": whole}
	if !p.perRow {
		v.Denied = p.denies(s)
	}
	for i, row := range pl.Rows {
		if !p.perRow || !slices.Contains(p.operations, string(row.Action())) {
			continue
		}
		s := *s
		s.ctx, s.address = s.ctx.NewChild(), row.Address()
		s.ctx.Variables = map[string]cty.Value{"row": rows[i]}
		if why := p.denies(&s); why != "" {
			v.Rows[row.Path] = why
		}
	}
	v.Diagnostics = l.sorted()
	if p.advisory {
		for i := range v.Diagnostics {
			v.Diagnostics[i].Severity = Warning
		}
		v.Denied, v.Rows = "", nil
	}
	return v
}

// denies evaluates p in a scope, in which it reports what it finds. It returns why p denies; empty: it does not.
func (p policy) denies(s *scope) string {
	if p.filter != nil {
		v, ok := s.eval(p.filter.Expr)
		if ok && (v.IsNull() || v.Type() != cty.Bool) {
			s.wrong(codeCondition, p.filter, v, "a filter must be true or false").Note = "this is " + aTypeName(v)
		}
		if s.failed {
			return p.in() + ": its filter cannot be evaluated"
		}
		if v.False() {
			return ""
		}
	}
	why := ""
	for _, r := range p.rules {
		s.failed = false
		message, holds := s.holds(r)
		switch {
		case s.failed && why == "":
			why = p.in() + ": its condition cannot be evaluated"
		case !holds:
			d := s.add(codePolicyDenies, r.condition.Expr.Range().Ptr(), "%s", message)
			d.Values = s.values(r.condition.Expr, s.ctx)
			d.Note = "this does not hold"
			if why == "" {
				why = p.in() + ": " + message
			}
		}
	}
	return why
}

// suffixed lists the files with a suffix at path: itself, or those of the directory. what is what they hold.
func (l *loader) suffixed(path, suffix, what string) []string {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		d := l.add(codeDirectory, nil, "%s cannot be read: %s", path, cause(err))
		d.Help = fmt.Sprintf("name a *%s file, or a directory of some", suffix)
		return nil
	case !info.IsDir() && !hasSuffix(path, suffix):
		l.add(codeDirectory, nil, "%s does not hold %s", path, what).Help =
			fmt.Sprintf("name a *%s file, or a directory of some", suffix)
		return nil
	case !info.IsDir():
		return []string{filepath.Clean(path)}
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		l.directory(path, err)
		return nil
	}
	var names []string
	for _, e := range entries {
		if !leftover(e.Name()) && hasSuffix(e.Name(), suffix) {
			names = append(names, filepath.Join(path, e.Name()))
		}
	}
	if len(names) == 0 {
		l.add(codeNoFiles, nil, "%s holds no *%s file", path, suffix).Help = "name the directory that holds the " + what
	}
	return names
}

// readTopLevel reads files that are no configuration.
func (l *loader) readTopLevel(files []string, has schema) {
	for _, name := range files {
		body := l.body(name, name, codeFile, &l.incomplete)
		if body == nil {
			continue
		}
		found := l.constantScope("").content(body, has)
		for _, b := range found.blocks {
			l.blocks[b.Type] = append(l.blocks[b.Type], b)
		}
		if found.ok && len(found.blocks) == 0 { // it was cut short, perhaps
			l.add(codeNoFiles, nil, "%s holds nothing", name).Help =
				"write a block " + has.blocks[0].name + ", or delete the file"
		}
	}
}
