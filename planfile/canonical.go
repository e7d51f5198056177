package planfile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf16"
)

// CanonicalJSON encodes v as JSON with sorted keys and two spaces of indentation. It escapes everything in strings that
// is not printable ASCII, so that no string can control a terminal.
func CanonicalJSON(v any) ([]byte, error) { return canonical(v, "") }

// canonical is CanonicalJSON with indent before every line except the first.
func canonical(v any, indent string) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber() // a zxid does not fit a float64
	var tree any
	if err := dec.Decode(&tree); err != nil {
		return nil, err
	}
	return appendJSON(make([]byte, 0, 2*len(raw)), tree, "\n"+indent), nil
}

// appendJSON appends v, which a json.Decoder read. newline is a line break and the indentation of v.
func appendJSON(b []byte, v any, newline string) []byte {
	const indent = "  "
	separate := func(i int) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, newline...), indent...)
	}
	switch v := v.(type) {
	case map[string]any:
		b = append(b, '{')
		for i, key := range slices.Sorted(maps.Keys(v)) {
			separate(i)
			b = append(appendString(b, key), ": "...)
			b = appendJSON(b, v[key], newline+indent)
		}
		if len(v) > 0 {
			b = append(b, newline...)
		}
		return append(b, '}')
	case []any:
		b = append(b, '[')
		for i, element := range v {
			separate(i)
			b = appendJSON(b, element, newline+indent)
		}
		if len(v) > 0 {
			b = append(b, newline...)
		}
		return append(b, ']')
	case string:
		return appendString(b, v)
	case json.Number:
		return append(b, v...)
	case bool:
		return strconv.AppendBool(b, v)
	}
	return append(b, "null"...)
}

func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for _, c := range s {
		switch high, low := utf16.EncodeRune(c); {
		case c == '"' || c == '\\':
			b = append(b, '\\', byte(c))
		case ' ' <= c && c <= '~':
			b = append(b, byte(c))
		case c < 1<<16:
			b = fmt.Appendf(b, `\u%04x`, c)
		default:
			b = fmt.Appendf(b, `\u%04x\u%04x`, high, low)
		}
	}
	return append(b, '"')
}
