package resource

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
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

// EncodeChanged encodes those properties of t that do not have their default as one JSON object, in the order of the
// table. The names in the table have no dots. It is for what a declaration has many of: written out, the defaults would
// fill most of a Record.
func EncodeChanged[T any](ps []Property[T], t *T) ([]byte, error) {
	var changed []Member
	for _, p := range ps {
		if !p.Required && p.Text(t) == p.defaultText() {
			continue
		}
		value, err := json.Marshal(p.Ref(t))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.Name, err)
		}
		changed = append(changed, Member{p.Name, value})
	}
	return object(changed), nil
}

// DecodeChanged is the inverse of EncodeChanged. A property that is absent from body keeps the value that it has in t.
// A key that the table does not have is skipped, since a newer muster may have written it.
func DecodeChanged[T any](ps []Property[T], body []byte, t *T) error {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(body, &values); err != nil {
		return err
	}
	for _, p := range ps {
		if values[p.Name] == nil {
			continue
		}
		err := json.Unmarshal(values[p.Name], p.Ref(t))
		if mismatch := new(json.UnmarshalTypeError); errors.As(err, &mismatch) {
			mismatch.Field = p.Name
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// keepUnknown appends to the JSON object body those fields of old that are not known: a newer muster wrote them.
// known holds dotted names; "*" in a name stands for every key. Everything inside a known field is known.
func keepUnknown(body, old []byte, known []string) ([]byte, error) {
	return merge(body, old, known, "")
}

// merge is keepUnknown for a nested object. prefix is the dotted name of the object as in known, with a dot at its end.
func merge(body, old []byte, known []string, prefix string) ([]byte, error) {
	now, err := Members(body)
	if err != nil {
		return nil, err
	}
	was, err := Members(old)
	if err != nil {
		return nil, err
	}
	anyKey := slices.ContainsFunc(known, func(k string) bool { return strings.HasPrefix(k, prefix+"*.") })
	for _, m := range was {
		name := prefix + m.Key
		if anyKey {
			name = prefix + "*"
		}
		at := slices.IndexFunc(now, func(n Member) bool { return n.Key == m.Key })
		section := slices.ContainsFunc(known, func(k string) bool { return strings.HasPrefix(k, name+".") })
		switch {
		case slices.Contains(known, name):
		case !section && at < 0:
			now = append(now, m)
		case section && at >= 0 && isObject(m.Value):
			if now[at].Value, err = merge(now[at].Value, m.Value, known, name+"."); err != nil {
				return nil, err
			}
		}
	}
	return object(now), nil
}

// object encodes fields; it is the inverse of Members.
func object(ms []Member) []byte {
	b := []byte("{")
	for i, m := range ms {
		if i > 0 {
			b = append(b, ',')
		}
		key, _ := json.Marshal(m.Key) // a string always encodes
		b = append(append(append(b, key...), ':'), m.Value...)
	}
	return append(b, '}')
}

func isObject(value json.RawMessage) bool {
	return bytes.HasPrefix(bytes.TrimSpace(value), []byte("{"))
}
