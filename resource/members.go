package resource

import (
	"bytes"
	"encoding/json"
	"errors"
	"unicode/utf8"
)

// Member is one member of a JSON object.
type Member struct {
	Key   string
	Value json.RawMessage // part of the object's bytes
}

var errNoObject = errors.New("it is not a JSON object")

// Members returns the members of a JSON object in their order, with those that have the same key. Package json can only
// decode them one by one, which takes many times longer, or into a map, which loses the order.
func Members(object []byte) ([]Member, error) {
	if !json.Valid(object) {
		return nil, json.Unmarshal(object, new(any)) // which says where
	}
	rest := skipSpace(object)
	if rest[0] != '{' {
		return nil, errNoObject
	}
	rest = skipSpace(rest[1:])
	all := make([]Member, 0, 12)
	for rest[0] != '}' {
		n := valueLength(rest)
		var m Member
		if key := rest[1 : n-1]; bytes.IndexByte(key, '\\') < 0 && utf8.Valid(key) {
			m.Key = string(key)
		} else if err := json.Unmarshal(rest[:n], &m.Key); err != nil {
			return nil, err
		}
		rest = skipSpace(skipSpace(rest[n:])[1:]) // the colon
		n = valueLength(rest)
		m.Value = json.RawMessage(rest[:n:n])
		all = append(all, m)
		if rest = skipSpace(rest[n:]); rest[0] == ',' {
			rest = skipSpace(rest[1:])
		}
	}
	return all, nil
}

func skipSpace(b []byte) []byte { return bytes.TrimLeft(b, " \t\r\n") }

// valueLength is the length of the value with which valid JSON begins.
func valueLength(b []byte) int {
	depth := 0
	for i := 0; ; i++ {
		if i == len(b) {
			return i
		}
		switch b[i] {
		case '"':
			for i++; b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 {
				return i
			}
			if depth == 0 {
				return i + 1
			}
		case ',', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return i
			}
		}
	}
}
