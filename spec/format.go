package spec

import (
	"bytes"
	"strings"

	"github.com/hashicorp/hcl/v2/hclwrite"
)

// Format arranges the white space of an HCL file and changes nothing else: not the order, the line endings, nor a byte
// order mark. A file that does not parse gets diagnostics instead. JSON is checked and left as it is.
func Format(src []byte, filename string) ([]byte, Diagnostics) {
	l := &loader{findings: findings{sources: map[string][]byte{}}}
	var out []byte
	var ds Diagnostics
	if over := limited(Limits{}, func() { out, ds = l.format(src, filename) }); over != nil {
		return nil, over
	}
	return out, ds
}

func (l *loader) format(src []byte, filename string) ([]byte, Diagnostics) {
	text, ok := l.accept(src, filename)
	if ok {
		_, ok = l.parse(text, filename)
	}
	if !ok {
		return nil, l.sorted()
	}
	if strings.HasSuffix(filename, ".json") {
		return src, nil
	}
	out := hclwrite.Format(text)
	if mark := []byte("\ufeff"); bytes.HasPrefix(src, mark) {
		out = append(mark, out...)
	}
	return out, nil
}
