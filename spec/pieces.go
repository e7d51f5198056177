package spec

import (
	"bytes"
	"maps"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// pieceSize is about how much text the parser gets at once. Its tokens take fifty times the memory of the text; and so
// small a piece is seldom deep enough that its nesting has to be measured.
const pieceSize = 4 << 10

// inPieces parses a large file piece by piece, so that only the tokens of one piece are in memory. A piece ends at a line
// that is just "}". Should that not be the end of a top-level block (but inside a heredoc, a comment or an unformatted
// block), the piece does not parse, and neither does one with a syntax error: then the answer is nil and the file has
// to be parsed as a whole. Pieces that parse mean together what the file means, for a file is a sequence of blocks.
func inPieces(src []byte, name string) *hclsyntax.Body {
	if len(src) < 32*pieceSize {
		return nil
	}
	whole := &hclsyntax.Body{Attributes: hclsyntax.Attributes{}}
	pos := hcl.InitialPos
	for pos.Byte < len(src) {
		piece := cut(src[pos.Byte:])
		if len(piece) == len(src) || tooDeep(piece, hclsyntax.LexConfig).what != "" {
			return nil
		}
		file, diags := hclsyntax.ParseConfig(piece, name, pos)
		body, ok := file.Body.(*hclsyntax.Body)
		if diags.HasErrors() || !ok {
			return nil
		}
		maps.Copy(whole.Attributes, body.Attributes)
		whole.Blocks = append(whole.Blocks, body.Blocks...)
		pos.Byte += len(piece)
		pos.Line += bytes.Count(piece, []byte("\n"))
	}
	whole.SrcRange = hcl.Range{Filename: name, Start: hcl.InitialPos, End: pos}
	whole.EndRange = hcl.Range{Filename: name, Start: pos, End: pos}
	return whole
}

// cut is the first piece of src.
func cut(src []byte) []byte {
	for _, end := range []string{"\n}\n", "\n}\r\n"} {
		if len(src) <= pieceSize {
			break
		}
		if i := bytes.Index(src[pieceSize:], []byte(end)); i >= 0 {
			return src[:pieceSize+i+len(end)]
		}
	}
	return src
}
