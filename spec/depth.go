package spec

import (
	"bytes"
	"encoding/json"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// maxDepth is how deeply brackets may be nested, and how many operators may follow one another, as in - - - 1. The parser
// and the evaluation recurse as deeply, and a stack that overflows ends the process.
const maxDepth = 1000

// bracket is one that is open; quotes and the ${ and %{ of templates are brackets too.
type bracket struct {
	end   hclsyntax.TokenType // what closes it
	in    int                 // depth inside of it
	after int                 // depth behind it
	lines bool                // a newline ends an expression in it
}

// deepAt returns the offset of the first token that is too deep, -1 if none is. In an expression that stands alone (lines
// is false) a newline ends nothing. What closes another bracket than the innermost one closes nothing: the depth of a text
// with such an error is overestimated.
func deepAt(tokens hclsyntax.Tokens, lines bool) int {
	open := []bracket{{lines: lines}}
	depth := 0
	for i, t := range tokens {
		inner := open[len(open)-1]
		end := closes(t.Type)
		switch {
		case t.Type == hclsyntax.TokenComma, t.Type == hclsyntax.TokenEqual, inner.lines && endsLine(t):
			depth = inner.in
		case end != hclsyntax.TokenNil:
			b := bracket{end: end, in: depth + 1, after: depth}
			switch t.Type {
			case hclsyntax.TokenOBrace:
				b.lines = word(tokens[i+1:]) != "for"
			case hclsyntax.TokenOBrack, hclsyntax.TokenTemplateControl:
				b.after++ // the next one is deeper: a[i][j], %{ if a }%{ if b }
			}
			open, depth = append(open, b), b.in
		case t.Type == inner.end && len(open) > 1:
			open, depth = open[:len(open)-1], inner.after
		case isOperator(t.Type):
			depth++
		}
		if depth > maxDepth {
			return t.Range.Start.Byte
		}
	}
	return -1
}

// closes is what closes the bracket that t opens, TokenNil if t opens none.
func closes(t hclsyntax.TokenType) hclsyntax.TokenType {
	switch t {
	case hclsyntax.TokenOBrace:
		return hclsyntax.TokenCBrace
	case hclsyntax.TokenOBrack:
		return hclsyntax.TokenCBrack
	case hclsyntax.TokenOParen:
		return hclsyntax.TokenCParen
	case hclsyntax.TokenOQuote:
		return hclsyntax.TokenCQuote
	case hclsyntax.TokenOHeredoc:
		return hclsyntax.TokenCHeredoc
	case hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl:
		return hclsyntax.TokenTemplateSeqEnd
	}
	return hclsyntax.TokenNil
}

// isOperator reports whether t may make an expression deeper: whatever is no name, literal or space.
func isOperator(t hclsyntax.TokenType) bool {
	switch t {
	case hclsyntax.TokenIdent, hclsyntax.TokenNumberLit, hclsyntax.TokenQuotedLit, hclsyntax.TokenStringLit,
		hclsyntax.TokenDot, hclsyntax.TokenComment, hclsyntax.TokenNewline, hclsyntax.TokenEOF:
		return false
	}
	return true
}

// endsLine: a comment to the end of a line holds the newline too.
func endsLine(t hclsyntax.Token) bool {
	return t.Type == hclsyntax.TokenNewline || t.Type == hclsyntax.TokenComment && bytes.HasSuffix(t.Bytes, []byte("\n"))
}

// word is the name that tokens begin with, "" if they begin with anything else.
func word(tokens hclsyntax.Tokens) string {
	for _, t := range tokens {
		switch t.Type {
		case hclsyntax.TokenNewline, hclsyntax.TokenComment:
		case hclsyntax.TokenIdent:
			return string(t.Bytes)
		default:
			return ""
		}
	}
	return ""
}

// deepAtJSON is deepAt for JSON, whose strings are templates.
func deepAtJSON(src []byte) int {
	depth := 0
	for i := 0; i < len(src); i++ {
		switch src[i] {
		case '"':
			end := endOfString(src, i)
			if end-i > maxDepth {
				tokens, _ := hclsyntax.LexTemplate(unescaped(src[i:end]), "", hcl.InitialPos)
				if deepAt(tokens, false) >= 0 {
					return i
				}
			}
			i = end - 1
		case '[', '{':
			if depth++; depth > maxDepth {
				return i
			}
		case ']', '}':
			depth = max(0, depth-1)
		}
	}
	return -1
}

// endOfString is the offset behind the string that begins at start. It ends where the parser ends it: at a quote that is
// not escaped, or before a control character.
func endOfString(src []byte, start int) int {
	for i := start + 1; i < len(src); i++ {
		switch {
		case src[i] == '\\' && i+1 < len(src) && src[i+1] >= ' ':
			i++
		case src[i] == '"':
			return i + 1
		case src[i] < ' ':
			return i
		}
	}
	return len(src)
}

// unescaped is the text of a JSON string; of a malformed one, which nobody evaluates, nothing.
func unescaped(src []byte) []byte {
	var text string
	if json.Unmarshal(src, &text) != nil {
		return nil
	}
	return []byte(text)
}

// shallow reports that nothing is too deep at offset at, or else reports it.
func (f *findings) shallow(src []byte, name string, at int) bool {
	if at >= 0 {
		f.add(codeTooLarge, place(src, name, at), "brackets or operators are nested deeper than %d", maxDepth)
	}
	return at < 0
}
