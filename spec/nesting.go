package spec

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// Bounds of what the parser and the evaluation do recursively. A stack that overflows ends the process, so no text gets to
// the parser that could be deeper.
const (
	maxNesting   = 256     // brackets, quotes, template sequences, %{ if } and %{ for } inside one another
	maxOperators = 10_000  // between two commas or equals signs, with those around the brackets: "- - - - 1"
	maxBlocks    = 100_000 // in one text: behind a syntax error the parser may miss that a block has ended
)

// lexer splits a text into the tokens that the parser will see.
type lexer func(src []byte, filename string, start hcl.Pos) (hclsyntax.Tokens, hcl.Diagnostics)

// excess is what is too deep, and where; "" if nothing is.
type excess struct {
	what   string
	offset int
}

// tooDeep finds what opens one level too many. It looks at the tokens of the parser's own lexer, so
// what stands in strings and comments does not count and cannot hide anything. A long text is looked at in growing parts:
// the tokens of one that is all brackets would fill the memory.
func tooDeep(src []byte, lex lexer) excess {
	if shallow(src) {
		return excess{}
	}
	for n := 64 << 10; ; n *= 4 {
		n = min(n, len(src))
		tokens, _ := lex(src[:n], "", hcl.Pos{Line: 1, Column: 1})
		if e := deepest(tokens); e.what != "" || n == len(src) {
			return e
		}
	}
}

// shallow reports that src has too few brackets and operators for any depth, whatever they mean: almost every text.
func shallow(src []byte) bool {
	brackets, operators := 0, 0
	for _, c := range src {
		switch c {
		case '(', '[', '{':
			brackets++
		case '-', '!', '?', '+', '*', '/', '%', '<', '>', '&', '|', '=', ':':
			operators++
		}
	}
	return brackets <= maxNesting && brackets+operators <= maxOperators
}

// level is something that is open.
type level struct {
	kind      hclsyntax.TokenType // its opening token, or one of the below
	operators int                 // around it
	lines     bool                // a newline ends an expression in it
}

// Levels that a %{ } opens. No token of these types opens anything else.
const (
	insideIf  = hclsyntax.TokenIdent
	insideFor = hclsyntax.TokenStringLit
)

// nest is what is open at one token.
type nest struct {
	open      []level
	operators int
	blocks    int
	directive string // keyword of the %{ } that is open
}

// deepest walks through tokens to the first one that opens a level too many. A bracket that closes something else than
// the last one that is open closes nothing: where the parser is then is hard to tell, but not deeper.
func deepest(tokens hclsyntax.Tokens) excess {
	var n nest
	for i, t := range tokens {
		switch t.Type {
		case hclsyntax.TokenComma, hclsyntax.TokenEqual:
			n.operators = n.around()
		case hclsyntax.TokenNewline:
			if len(n.open) == 0 || n.open[len(n.open)-1].lines {
				n.operators = n.around()
			}
		case hclsyntax.TokenMinus, hclsyntax.TokenBang, hclsyntax.TokenQuestion, hclsyntax.TokenPlus, hclsyntax.TokenSlash,
			hclsyntax.TokenPercent, hclsyntax.TokenEqualOp, hclsyntax.TokenNotEqual, hclsyntax.TokenLessThan,
			hclsyntax.TokenLessThanEq, hclsyntax.TokenGreaterThan, hclsyntax.TokenGreaterThanEq, hclsyntax.TokenAnd,
			hclsyntax.TokenOr, hclsyntax.TokenDoubleColon:
			n.operators++
		case hclsyntax.TokenStar:
			if i > 0 && tokens[i-1].Type == hclsyntax.TokenSlash && tokens[i-1].Range.End.Byte == t.Range.Start.Byte {
				return excess{} // a comment that ends behind this part of the text
			}
			n.operators++
		default:
			n.bracket(tokens, i)
		}
		if what := n.excess(); what != "" {
			return excess{what, t.Range.Start.Byte}
		}
	}
	return excess{}
}

// excess says which bound is exceeded.
func (n *nest) excess() string {
	switch {
	case len(n.open) > maxNesting:
		return nestedTooDeep()
	case n.operators > maxOperators:
		return fmt.Sprintf("an expression has more than %d operators", maxOperators)
	case n.blocks > maxBlocks:
		return fmt.Sprintf("a file has more than %d blocks", maxBlocks)
	}
	return ""
}

func nestedTooDeep() string { return fmt.Sprintf("brackets are nested deeper than %d", maxNesting) }

// around is how many operators stand around the innermost level.
func (n *nest) around() int {
	if len(n.open) == 0 {
		return 0
	}
	return n.open[len(n.open)-1].operators
}

// bracket opens or closes a level.
func (n *nest) bracket(tokens hclsyntax.Tokens, i int) {
	t := tokens[i]
	switch t.Type {
	case hclsyntax.TokenOBrace:
		if i > 0 && (tokens[i-1].Type == hclsyntax.TokenIdent || tokens[i-1].Type == hclsyntax.TokenCQuote) {
			n.blocks++
		}
		n.push(t.Type, word(tokens[i+1:]) != "for")
	case hclsyntax.TokenOBrack, hclsyntax.TokenOParen, hclsyntax.TokenOQuote, hclsyntax.TokenOHeredoc, hclsyntax.TokenTemplateInterp:
		n.push(t.Type, false)
	case hclsyntax.TokenTemplateControl:
		n.push(t.Type, false)
		n.directive = word(tokens[i+1:])
	case hclsyntax.TokenCBrace:
		n.pop(hclsyntax.TokenOBrace)
	case hclsyntax.TokenCBrack:
		if n.pop(hclsyntax.TokenOBrack) {
			n.operators++ // a[i][j][k]
		}
	case hclsyntax.TokenCParen:
		n.pop(hclsyntax.TokenOParen)
	case hclsyntax.TokenCQuote, hclsyntax.TokenCHeredoc:
		for n.pop(insideIf) || n.pop(insideFor) { // what is not closed in a template ends with it
		}
		_ = n.pop(hclsyntax.TokenOQuote) || n.pop(hclsyntax.TokenOHeredoc)
	case hclsyntax.TokenTemplateSeqEnd:
		if n.pop(hclsyntax.TokenTemplateControl) {
			n.direct()
		} else {
			n.pop(hclsyntax.TokenTemplateInterp)
		}
	}
}

// direct does what a %{ } says: it opens or closes a part of the template.
func (n *nest) direct() {
	switch n.directive {
	case "if":
		n.push(insideIf, false)
	case "for":
		n.push(insideFor, false)
	case "endif":
		n.pop(insideIf)
	case "endfor":
		n.pop(insideFor)
	}
}

func (n *nest) push(kind hclsyntax.TokenType, lines bool) {
	n.open = append(n.open, level{kind, n.operators, lines})
}

// pop closes the innermost level if it is of a kind.
func (n *nest) pop(kind hclsyntax.TokenType) bool {
	last := len(n.open) - 1
	if last < 0 || n.open[last].kind != kind {
		return false
	}
	n.operators = n.open[last].operators
	n.open = n.open[:last]
	return true
}

// word is the name that tokens begin with.
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

// tooDeepJSON is tooDeep for JSON, whose strings are templates. A string ends where the parser ends it: at a quote that
// is not escaped, or before a control character.
func tooDeepJSON(src []byte) excess {
	var open []byte
	for i := 0; i < len(src); i++ {
		switch c := src[i]; c {
		case '"':
			end := endOfString(src, i)
			if end-i > maxNesting {
				if e := tooDeep(unescaped(src[i:end]), hclsyntax.LexTemplate); e.what != "" {
					return excess{e.what, i}
				}
			}
			i = end - 1
		case '[', '{':
			if open = append(open, c+2); len(open) > maxNesting { // in ASCII the closing bracket is the second behind
				return excess{nestedTooDeep(), i}
			}
		case ']', '}':
			if last := len(open) - 1; last >= 0 && open[last] == c {
				open = open[:last]
			}
		}
	}
	return excess{}
}

// endOfString is the offset behind the string that begins at start.
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
	if !bytes.ContainsRune(src, '\\') && len(src) > 1 && src[len(src)-1] == '"' {
		return src[1 : len(src)-1]
	}
	var text string
	if json.Unmarshal(src, &text) != nil {
		return nil
	}
	return []byte(text)
}
