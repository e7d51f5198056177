package resource

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// keepUnknown appends to the JSON object body those fields of old that are not known: a newer muster wrote them.
// known holds dotted names; "*" in a name stands for every key. Everything inside a known field is known.
func keepUnknown(body, old []byte, known []string) ([]byte, error) {
	return merge(body, old, known, "")
}

// merge is keepUnknown for a nested object. prefix is the dotted name of the object as in known, with a dot at its end.
func merge(body, old []byte, known []string, prefix string) ([]byte, error) {
	now, err := fieldsOf(body)
	if err != nil {
		return nil, err
	}
	was, err := fieldsOf(old)
	if err != nil {
		return nil, err
	}
	anyKey := slices.ContainsFunc(known, func(k string) bool { return strings.HasPrefix(k, prefix+"*.") })
	for _, m := range was {
		name := prefix + m.key
		if anyKey {
			name = prefix + "*"
		}
		at := slices.IndexFunc(now, func(n jsonField) bool { return n.key == m.key })
		section := slices.ContainsFunc(known, func(k string) bool { return strings.HasPrefix(k, name+".") })
		switch {
		case slices.Contains(known, name):
		case !section && at < 0:
			now = append(now, m)
		case section && at >= 0 && isObject(m.value):
			if now[at].value, err = merge(now[at].value, m.value, known, name+"."); err != nil {
				return nil, err
			}
		}
	}
	return object(now), nil
}

// jsonField is one field of a JSON object.
type jsonField struct {
	key   string
	value json.RawMessage
}

// fieldsOf returns the fields of a JSON object in their order.
func fieldsOf(object []byte) ([]jsonField, error) {
	dec := json.NewDecoder(bytes.NewReader(object))
	if _, err := dec.Token(); err != nil { // the brace
		return nil, err
	}
	var ms []jsonField
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, err
		}
		name, _ := key.(string)
		ms = append(ms, jsonField{name, value})
	}
	return ms, nil
}

// object encodes fields; it is the inverse of fieldsOf.
func object(ms []jsonField) []byte {
	b := []byte("{")
	for i, m := range ms {
		if i > 0 {
			b = append(b, ',')
		}
		key, _ := json.Marshal(m.key) // a string always encodes
		b = append(append(append(b, key...), ':'), m.value...)
	}
	return append(b, '}')
}

func isObject(value json.RawMessage) bool {
	return bytes.HasPrefix(bytes.TrimSpace(value), []byte("{"))
}
