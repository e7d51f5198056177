package spec

import "github.com/hashicorp/hcl/v2/hclsyntax"

// maxDepth is how deeply brackets may be nested. The parser recurses as deeply, and a stack that overflows ends the
// process. What is deep without brackets, such as - - - 1, is left to the limit of the stack.
const maxDepth = 1000

// shallow checks that the brackets of a text are not nested too deeply. It counts quotes and the ${ of templates as
// brackets too. JSON has the same brackets as HCL.
func (f *findings) shallow(tokens hclsyntax.Tokens) bool {
	depth := 0
	for _, t := range tokens {
		switch t.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen, hclsyntax.TokenOQuote,
			hclsyntax.TokenOHeredoc, hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl:
			depth++
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenCQuote,
			hclsyntax.TokenCHeredoc, hclsyntax.TokenTemplateSeqEnd:
			depth = max(0, depth-1)
		}
		if depth > maxDepth {
			f.add(codeTooLarge, &t.Range, "brackets are nested deeper than %d", maxDepth)
			return false
		}
	}
	return true
}
