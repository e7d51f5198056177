package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/json"
)

// blocks are the top-level blocks of all files, by type, in source order.
type blocks map[string][]*hcl.Block

// topLevel is what may stand outside of any block.
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

// once lists the types of top-level blocks that may stand once.
func once() []string { return []string{"muster", "zookeeper", "defaults", "drift"} }

func (l *loader) parseFile(path, name string) {
	body := l.body(path, name, codeFile, &l.incomplete)
	if body == nil {
		return
	}
	top := l.content(body, topLevel(), "")
	if !top.ok {
		l.incomplete = true // a mistyped variable block would else be missed wherever it is referred to
	}
	if l.blocks == nil {
		l.blocks = blocks{}
	}
	for _, b := range top.blocks {
		if first := l.blocks[b.Type]; len(first) > 0 && slices.Contains(once(), b.Type) {
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
			unclosed = l.parser(d, fallback).Code == codeUnclosed
		}
	}
	return diags.HasErrors()
}

// parser translates one diagnostic of the HCL library. The summary decides the code. The library seldom changes its
// summaries, and the tests would show it.
func (l *loader) parser(d *hcl.Diagnostic, fallback string) *Diagnostic {
	out := l.add(codeOf(d.Summary, fallback), d.Subject, "%s", lowerFirst(d.Summary))
	out.Detail = strings.TrimSuffix(lowerFirst(withoutStack(d.Detail)), ".")
	switch d.Summary {
	case "Invalid multi-line string":
		out.Summary, out.Detail = "a string does not end on its line", ""
		out.Help = "close the quotes (or the ${ in them); a text of several lines is written <<EOT ... EOT"
	case "Attribute redefined", "Duplicate argument", "Duplicate attribute definition":
		out.Summary = fmt.Sprintf("%s is set twice", l.textAt(d.Subject))
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

// codeOf maps the library's summaries to our codes.
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
