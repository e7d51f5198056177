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
