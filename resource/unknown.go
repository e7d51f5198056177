package resource

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// keepUnknown is the JSON object body, and behind its fields those of old that are not known: a newer muster wrote them.
// Known are dotted names, each of which stands for all below it.
func keepUnknown(body, old []byte, known []string) ([]byte, error) {
	return merge(body, old, known, "")
}

// merge does what keepUnknown says for objects whose fields have prefix before their names in known.
func merge(body, old []byte, known []string, prefix string) ([]byte, error) {
	now, err := members(body)
	if err != nil {
		return nil, err
	}
	was, err := members(old)
	if err != nil {
		return nil, err
	}
	for _, m := range was {
		name := prefix + m.key
		at := slices.IndexFunc(now, func(n member) bool { return n.key == m.key })
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

// member is one field of a JSON object.
type member struct {
	key   string
	value json.RawMessage
}

// members are the fields of an object in their order.
func members(object []byte) ([]member, error) {
	dec := json.NewDecoder(bytes.NewReader(object))
	if _, err := dec.Token(); err != nil { // the brace
		return nil, err
	}
	var ms []member
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
		ms = append(ms, member{name, value})
	}
	return ms, nil
}

// object is the inverse of members.
func object(ms []member) []byte {
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
