package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"

	"muster/text"
)

// schema is what may stand in a block.
type schema struct {
	args   []string
	blocks []blockType
}

// blockType is a type of block.
type blockType struct {
	name  string
	label string   // what its one label is; empty: it has none
	args  []string // if it holds these arguments and nothing else
}

// content is what stands in a block: arguments by name and blocks in source order.
type content struct {
	args   map[string]*hcl.Attribute
	blocks []*hcl.Block
	ok     bool // nothing was wrong
}

// content reads one level of a body. It reports what the schema does not know, with the name that was probably meant.
func (l *loader) content(body hcl.Body, s schema, in string) content {
	hs := &hcl.BodySchema{}
	for _, a := range s.args {
		hs.Attributes = append(hs.Attributes, hcl.AttributeSchema{Name: a})
	}
	for _, b := range s.blocks {
		header := hcl.BlockHeaderSchema{Type: b.name}
		if b.label != "" {
			header.LabelNames = []string{b.label}
		}
		hs.Blocks = append(hs.Blocks, header)
	}
	c, diags := body.Content(hs)
	for _, d := range diags {
		l.structure(d, s, in)
	}
	return content{c.Attributes, c.Blocks, !diags.HasErrors()}
}

// structure translates what the library says about the arguments and blocks of a body.
func (l *loader) structure(d *hcl.Diagnostic, s schema, in string) {
	var names []string
	for _, b := range s.blocks {
		names = append(names, b.name)
	}
	name := l.textAt(d.Subject)
	isArg, isBlock := slices.Contains(s.args, name), slices.Contains(names, name)
	place := "at the top level"
	if in != "" {
		place = "in " + in
	}
	var out *Diagnostic
	switch {
	case d.Summary == "Unsupported argument" && isBlock:
		out = l.add(codeBlockOrArg, d.Subject, "%s is a block, not an argument", name)
		out.Help = fmt.Sprintf("write it without the equals sign: %s { ... }", name)
	case d.Summary == "Unsupported block type" && isArg:
		out = l.add(codeBlockOrArg, d.Subject, "%s is an argument, not a block", name)
		out.Help = fmt.Sprintf("write it with an equals sign: %s = { ... }", name)
	case name == "count" || name == "dynamic":
		out = l.add(codeArgument, d.Subject, "there is no %s here", name)
		out.Help = fmt.Sprintf("to make several %ss of one block, use for_each", kindIn(in))
	case d.Summary == "Unsupported argument":
		out = l.add(codeArgument, d.Subject, "there is no argument %q %s", name, place)
		out.Help = argumentMeant(name, s)
	case d.Summary == "Unsupported block type":
		out = l.add(codeBlock, d.Subject, "there is no block %q %s", name, place)
		out.Help = meant(name, append(names, s.args...), "known here")
	case d.Summary == "Extraneous JSON object property":
		out = l.add(codeArgument, d.Subject, "there is no argument or block %q %s", name, place)
		out.Help = argumentMeant(name, s)
	case strings.HasPrefix(d.Summary, "Extraneous label"):
		kind := d.Summary[strings.LastIndex(d.Summary, " ")+1:]
		out = l.add(codeBlockLabel, d.Subject, "a %s block has no such label", kind)
		out.Help = "remove it"
	case strings.HasPrefix(d.Summary, "Missing ") && strings.Contains(d.Summary, " for "):
		kind := d.Summary[strings.LastIndex(d.Summary, " ")+1:]
		out = l.add(codeBlockLabel, d.Subject, "a %s block needs a name", kind)
		out.Help = fmt.Sprintf("write it behind the type: %s \"name\" {", kind)
	default:
		out = l.parser(d, codeJSON)
	}
	out.In = in
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
	if best := text.Nearest(given, known); best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	if len(known) == 0 {
		return ""
	}
	return where + ": " + text.List(known, 8)
}

// single returns the first block of a type in c. It reports any others.
func (l *loader) single(c content, kind, in string) *hcl.Block {
	var first *hcl.Block
	for _, b := range c.blocks {
		switch {
		case b.Type != kind:
		case first == nil:
			first = b
		default:
			d := l.add(codeBlockTwice, &b.DefRange, "%s stands twice in %s", kind, in)
			d.In = in
			l.relate(d, first.DefRange, "first here")
			d.Help = "move its arguments into the first one"
		}
	}
	return first
}

// at writes a place as users do: file and line.
func at(r hcl.Range) string { return fmt.Sprintf("%s:%d", r.Filename, r.Start.Line) }
