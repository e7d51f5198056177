package spec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/json"

	"muster/docs"
	"muster/text"
)

// blocks are the top-level blocks of all files, by type, in source order.
type blocks map[string][]*hcl.Block

func topLevel() schema {
	s := schema{blocks: []blockType{
		{name: "muster"}, {name: "zookeeper"}, {name: "variable", label: "name"}, {name: "locals"}, {name: "defaults"},
	}}
	for _, k := range kinds() {
		s.blocks = append(s.blocks, blockType{name: k.block(), label: "name"})
	}
	s.blocks = append(s.blocks, blockType{name: "drift"})
	return s
}

func (l *loader) parseFile(path, name string) {
	body := l.body(path, name, codeFile, &l.incomplete)
	if body == nil {
		return
	}
	top := l.constantScope("").content(body, topLevel())
	if !top.ok {
		l.incomplete = true // a mistyped variable block would else be missed wherever it is referred to
	}
	once := []string{"muster", "zookeeper", "defaults", "drift"}
	for _, b := range top.blocks {
		if first := l.blocks[b.Type]; len(first) > 0 && slices.Contains(once, b.Type) {
			d := l.add(codeBlockTwice, &b.DefRange, "a configuration has one %s block", b.Type)
			l.relate(d, first[0].DefRange, "first declared here")
			d.Help = "move its arguments into the first one"
			continue
		}
		l.blocks[b.Type] = append(l.blocks[b.Type], b)
	}
}

// body reads and parses a file. It is nil if nothing of the file can be used; damaged is set if something cannot.
func (l *loader) body(path, name, code string, damaged *bool) (body hcl.Body) {
	src, ok := l.read(path, name, code)
	if ok {
		body, ok = l.parse(src, name)
	}
	*damaged = *damaged || !ok
	return body
}

// parse returns the body of a file. Of a file with syntax errors it returns what stands before the first one and
// false.
func (l *loader) parse(src []byte, name string) (hcl.Body, bool) {
	if !l.shallow(src, name) {
		return nil, false
	}
	if strings.HasSuffix(name, ".json") {
		file, diags := json.Parse(src, name)
		if l.syntax(diags, codeJSON) {
			return nil, false
		}
		return file.Body, true
	}
	file, diags := hclsyntax.ParseConfig(src, name, hcl.InitialPos)
	if !l.syntax(diags, codeSyntax) {
		return file.Body, true
	}
	body, ok := file.Body.(*hclsyntax.Body)
	if !ok {
		return nil, false
	}
	return before(body, firstByte(diags)), false
}

// before is the part of a body that ends before offset.
func before(body *hclsyntax.Body, offset int) *hclsyntax.Body {
	part := &hclsyntax.Body{Attributes: hclsyntax.Attributes{}, SrcRange: body.SrcRange, EndRange: body.EndRange}
	for name, a := range body.Attributes {
		if a.SrcRange.End.Byte < offset {
			part.Attributes[name] = a
		}
	}
	for _, b := range body.Blocks {
		if b.CloseBraceRange.End.Byte <= offset && b.CloseBraceRange.End.Byte > 0 {
			part.Blocks = append(part.Blocks, b)
		}
	}
	return part
}

func firstByte(diags hcl.Diagnostics) int {
	first := -1
	for _, d := range diags {
		if d.Subject != nil && (first < 0 || d.Subject.Start.Byte < first) {
			first = d.Subject.Start.Byte
		}
	}
	return max(0, first)
}

// syntax reports the errors of the parser, at most one for each line. It reports none behind a bracket or string that
// is not closed: they only follow from it.
func (l *loader) syntax(diags hcl.Diagnostics, fallback string) bool {
	seen := map[int]bool{}
	unclosed := false
	for _, d := range diags {
		line := 0
		if d.Subject != nil {
			line = d.Subject.Start.Line
		}
		if !seen[line] && !unclosed {
			seen[line] = true
			unclosed = l.constantScope("").parser(d, fallback).Code == codeUnclosed
		}
	}
	return diags.HasErrors()
}

// parser translates one diagnostic of the HCL library. The summary decides the code. The library seldom changes its
// summaries, and the tests would show it.
func (s *scope) parser(d *hcl.Diagnostic, fallback string) *Diagnostic {
	out := s.add(codeOf(d.Summary, fallback), d.Subject, "%s", lowerFirst(d.Summary))
	out.Detail = strings.TrimSuffix(lowerFirst(withoutStack(d.Detail)), ".")
	switch d.Summary {
	case "Invalid multi-line string":
		out.Summary, out.Detail = "a string does not end on its line", ""
		out.Help = "close the quotes (or the ${ in them); a text of several lines is written <<EOT ... EOT"
	case "Attribute redefined", "Duplicate argument", "Duplicate attribute definition":
		out.Summary = fmt.Sprintf("%s is set twice", s.textAt(d.Subject))
		out.Detail, _, _ = strings.Cut(out.Detail, ",") // of a place only file and line
		out.Help = "remove one of them"
	case "Function calls not allowed":
		out.Summary, out.Detail, out.Help = "a value cannot call a function", "", "write the value itself"
	}
	return out
}

// withoutStack removes the stack trace from an error of the library. The library puts one there if a function or an
// operator panics, which some unusual arguments cause.
func withoutStack(text string) string {
	if before, _, panicked := strings.Cut(text, "panic in function implementation"); panicked {
		return before + "it cannot work with these arguments"
	}
	return text
}

func codeOf(summary, fallback string) string {
	switch {
	case strings.HasPrefix(summary, "Unclosed"), strings.HasPrefix(summary, "Unterminated"),
		strings.HasPrefix(summary, "Unbalanced"), strings.HasPrefix(summary, "Mismatched"),
		strings.HasPrefix(summary, "Unexpected end of template"), strings.HasPrefix(summary, "Missing close"),
		summary == "Invalid multi-line string":
		return codeUnclosed
	case strings.HasPrefix(summary, "Invalid character"), summary == "Unsupported operator":
		return codeCharacter
	case summary == "Attribute redefined", summary == "Duplicate argument", summary == "Duplicate attribute definition":
		return codeArgTwice
	case strings.HasPrefix(summary, "Call to unknown function"):
		return codeFunction
	case summary == "Not enough function arguments", summary == "Too many function arguments",
		summary == "Invalid function argument", summary == "Error in function call",
		summary == "Invalid expanding argument value":
		return codeCall
	case summary == "Invalid operand", summary == "Operation failed", summary == "Invalid template interpolation value",
		summary == "Incorrect condition type", summary == "Inconsistent conditional result types",
		summary == "Null condition", summary == "Invalid 'for' condition", summary == "Condition is null":
		return codeOperand
	case summary == "Invalid index", summary == "Unsupported attribute", summary == "Missing map element",
		summary == "Attempt to index null value", summary == "Attempt to get attribute from null value":
		return codeIndex
	case summary == "Unknown variable":
		return codeReference
	case summary == "Variables not allowed", summary == "Function calls not allowed":
		return codeConstant
	}
	return fallback
}

// lowerFirst makes the first letter small, as in our own texts.
func lowerFirst(s string) string {
	if s == "" || len(s) > 1 && s[1] >= 'A' && s[1] <= 'Z' {
		return s
	}
	return strings.ToLower(s[:1]) + s[1:]
}

type schema struct {
	args   []string
	blocks []blockType
}

type blockType struct {
	name  string
	label string   // what its one label is; empty: it has none
	args  []string // if it holds these arguments and nothing else
	part  bool     // it is a part of a declaration, and no section
}

func blockNames(blocks []blockType) []string {
	return text.Each(blocks, func(b blockType) string { return b.name })
}

// content is what stands in a block: arguments by name and blocks in source order.
type content struct {
	args   map[string]*hcl.Attribute
	blocks []*hcl.Block
	ok     bool // nothing was wrong
}

// content reads one level of a body. It reports what the schema does not know, with the name that was probably meant.
func (s *scope) content(body hcl.Body, has schema) content {
	hs := &hcl.BodySchema{}
	for _, a := range has.args {
		hs.Attributes = append(hs.Attributes, hcl.AttributeSchema{Name: a})
	}
	for _, b := range has.blocks {
		header := hcl.BlockHeaderSchema{Type: b.name}
		if b.label != "" {
			header.LabelNames = []string{b.label}
		}
		hs.Blocks = append(hs.Blocks, header)
	}
	c, diags := body.Content(hs)
	for _, d := range diags {
		s.structure(d, has)
	}
	return content{c.Attributes, c.Blocks, !diags.HasErrors()}
}

// structure translates what the library says about the arguments and blocks of a body.
func (s *scope) structure(d *hcl.Diagnostic, has schema) {
	names := blockNames(has.blocks)
	name := s.textAt(d.Subject)
	isArg, isBlock := slices.Contains(has.args, name), slices.Contains(names, name)
	labelled := d.Summary[strings.LastIndex(d.Summary, " ")+1:] // by a summary about labels
	place := "at the top level"
	if s.in != "" {
		place = "in " + s.in
	}
	switch {
	case d.Summary == "Unsupported argument" && isBlock:
		out := s.add(codeBlockOrArg, d.Subject, "%s is a block, not an argument", name)
		out.Help = fmt.Sprintf("write it without the equals sign: %s { ... }", name)
	case d.Summary == "Unsupported block type" && isArg:
		out := s.add(codeBlockOrArg, d.Subject, "%s is an argument, not a block", name)
		out.Help = fmt.Sprintf("write it with an equals sign: %s = { ... }", name)
	case name == "count" || name == "dynamic":
		out := s.add(codeArgument, d.Subject, "there is no %s here", name)
		in := func(kind string) bool { return strings.Contains(s.in, kind+` "`) } // such as: group "shop"
		out.Help = fmt.Sprintf("to make several %ss of one block, use for_each", kindWhere(in).block())
	case d.Summary == "Unsupported argument":
		out := s.add(codeArgument, d.Subject, "there is no argument %q %s", name, place)
		out.Help = argumentMeant(name, has)
	case d.Summary == "Unsupported block type":
		out := s.add(codeBlock, d.Subject, "there is no block %q %s", name, place)
		known := append(names, has.args...)
		out.Help = meant(name, known, "known here")
		if next, ok := docs.Words[name]; ok && s.in == "" && text.Nearest(name, known) == "" {
			out.Help = "in muster: " + next
		}
	case d.Summary == "Extraneous JSON object property":
		out := s.add(codeArgument, d.Subject, "there is no argument or block %q %s", name, place)
		out.Help = argumentMeant(name, has)
	case strings.HasPrefix(d.Summary, "Extraneous label"):
		s.add(codeBlockLabel, d.Subject, "a %s block has no such label", labelled).Help = "remove it"
	case strings.HasPrefix(d.Summary, "Missing ") && strings.Contains(d.Summary, " for "):
		out := s.add(codeBlockLabel, d.Subject, "a %s block needs a name", labelled)
		out.Help = fmt.Sprintf("write it behind the type: %s \"name\" {", labelled)
	default:
		s.parser(d, codeJSON)
	}
}

// textAt is the name that stands at a range, without the quotes of JSON.
func (l *loader) textAt(r *hcl.Range) string {
	if r == nil {
		return ""
	}
	src := l.sources[r.Filename]
	if r.Start.Byte < 0 || r.End.Byte > len(src) || r.Start.Byte > r.End.Byte {
		return ""
	}
	return strings.Trim(string(src[r.Start.Byte:r.End.Byte]), `"`)
}

// argumentMeant is the help for an argument that is not known here: it names the block that has such an argument, else
// the nearest known name.
func argumentMeant(given string, s schema) string {
	known := slices.Clone(s.args)
	for _, b := range s.blocks {
		if slices.Contains(b.args, given) {
			header := b.name
			if b.label != "" {
				header += " " + quote(b.label)
			}
			return fmt.Sprintf("it belongs in a %s block: %s { %s = ... }", b.name, header, given)
		}
		known = append(known, b.name)
	}
	return meant(given, known, "known here")
}

// meant is the help for a name that is not known: it suggests the nearest known name, else it lists the known ones.
func meant(given string, known []string, where string) string {
	if len(known) == 0 {
		return ""
	}
	return cmp.Or(didYouMean(given, known), where+": "+text.List(known, 8))
}

// didYouMean suggests the known name that is nearest to given; it is empty if none is near.
func didYouMean(given string, known []string) string {
	if best := text.Nearest(given, known); best != "" {
		return "did you mean " + quote(best) + "?"
	}
	return ""
}

// single returns the first block of a type in c. It reports any others.
func (s *scope) single(c content, kind string) *hcl.Block {
	var first *hcl.Block
	for _, b := range c.blocks {
		switch {
		case b.Type != kind:
		case first == nil:
			first = b
		default:
			d := s.add(codeBlockTwice, &b.DefRange, "%s stands twice in %s", kind, s.in)
			s.relate(d, first.DefRange, "first here")
			d.Help = "move its arguments into the first one"
		}
	}
	return first
}

// at writes a place as users do: file and line.
func at(r hcl.Range) string { return fmt.Sprintf("%s:%d", r.Filename, r.Start.Line) }
